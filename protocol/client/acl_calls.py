"""ACLs: describe, create, delete (KIP-140, prefixed patterns KIP-290).

Owns one ACL as a value, with Kafka's names of its parts, and the three requests. A cluster without an
authorizer answers SECURITY_DISABLED; one that does not know the requests raises `NotSupportedError`.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import IntEnum
from typing import NamedTuple

from protocol.client.failures import each, failure
from protocol.client.retry import RetryPolicy, retrying
from protocol.client.routing import Router
from protocol.errors import KafkaError
from protocol.messages.create_acls_request import AclCreation, CreateAclsRequest
from protocol.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from protocol.messages.describe_acls_request import DescribeAclsRequest
from protocol.messages.describe_acls_response import DescribeAclsResource


class AclResource(IntEnum):
    """What an ACL is about (Kafka's ResourceType)."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class AclPattern(IntEnum):
    """How its name is meant (Kafka's PatternType)."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """What is allowed or denied (Kafka's AclOperation)."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermission(IntEnum):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class Acl(NamedTuple):
    """One entry: who may (not) do what from where."""

    resource: AclResource
    pattern: AclPattern
    name: str
    principal: str
    host: str
    operation: AclOperation
    permission: AclPermission

    def __str__(self) -> str:
        host = "" if self.host == "*" else f" from {self.host}"
        return (
            f"{self.permission.name} {self.principal} {self.operation.name} on "
            f"{self.pattern.name} {self.resource.name} {self.name}{host}"
        )


class AclCalls(Router):
    """Part of `ClusterClient`."""

    async def describe_acls(
        self, resource: AclResource = AclResource.ANY, *, retry: RetryPolicy | None = None
    ) -> set[Acl]:
        """All ACLs of a kind of resource. One with a part that this code does not know is left out: nobody
        could write it again as it is. Raises `KafkaError`, SECURITY_DISABLED without an authorizer."""

        async def attempt() -> set[Acl]:
            answer = await self.send_any(
                DescribeAclsRequest(
                    resource_type_filter=resource,
                    resource_name_filter=None,
                    pattern_type_filter=AclPattern.ANY,
                    principal_filter=None,
                    host_filter=None,
                    operation=AclOperation.ANY,
                    permission_type=AclPermission.ANY,
                )
            )
            if answer.error_code:
                raise failure(answer.error_code, "ACLs", answer.error_message)
            return {acl for found in answer.resources for acl in _acls_of(found)}

        return await retrying(attempt, retry or self.retry)

    async def create_acls(self, acls: Collection[Acl], *, retry: RetryPolicy | None = None) -> None:
        """One that exists counts as created. Raises `KafkaError` naming a refused one."""

        async def attempt(part: dict[Acl, None]) -> dict[Acl, bool | KafkaError | None]:
            answer = await self.send_any(CreateAclsRequest(creations=[_creation(acl) for acl in part]))
            return {
                acl: failure(row.error_code, acl, row.error_message) if row.error_code else None
                for acl, row in zip(part, answer.results, strict=False)
            }

        await each(dict.fromkeys(acls), attempt, retry or self.retry)

    async def delete_acls(self, acls: Collection[Acl], *, retry: RetryPolicy | None = None) -> None:
        """One that is gone already counts as deleted. Raises `KafkaError` naming one that stays."""

        async def attempt(part: dict[Acl, None]) -> dict[Acl, bool | KafkaError | None]:
            answer = await self.send_any(DeleteAclsRequest(filters=[_filter(acl) for acl in part]))
            found: dict[Acl, bool | KafkaError | None] = {}
            for acl, row in zip(part, answer.filter_results, strict=False):
                errors = [(row.error_code, row.error_message)]
                errors += [(match.error_code, match.error_message) for match in row.matching_acls]
                bad = next(((code, text) for code, text in errors if code), None)
                found[acl] = failure(bad[0], acl, bad[1]) if bad else None
            return found

        await each(dict.fromkeys(acls), attempt, retry or self.retry)


def _acls_of(found: DescribeAclsResource) -> list[Acl]:
    acls = []
    for entry in found.acls:
        try:
            acls.append(
                Acl(
                    AclResource(found.resource_type),
                    AclPattern(found.pattern_type),
                    found.resource_name,
                    entry.principal,
                    entry.host,
                    AclOperation(entry.operation),
                    AclPermission(entry.permission_type),
                )
            )
        except ValueError:
            continue
    return acls


def _creation(acl: Acl) -> AclCreation:
    return AclCreation(
        resource_type=acl.resource,
        resource_name=acl.name,
        resource_pattern_type=acl.pattern,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def _filter(acl: Acl) -> DeleteAclsFilter:
    return DeleteAclsFilter(
        resource_type_filter=acl.resource,
        resource_name_filter=acl.name,
        pattern_type_filter=acl.pattern,
        principal_filter=acl.principal,
        host_filter=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
