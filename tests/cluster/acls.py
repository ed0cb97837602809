"""ACLs of Apache Kafka clusters with an authorizer, for tests of links: made and read by confluent-kafka."""

import asyncio
import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.cluster.links import Pair
from tests.support.apache_kafka import apache_kafka

AUTHORIZER = (
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users=User:ANONYMOUS",
)


@contextlib.contextmanager
def two_with_acls(name: str) -> Iterator[Pair]:
    """Two Apache Kafka clusters with an authorizer, where ANONYMOUS may do everything."""
    with ThreadPoolExecutor(2) as side_by_side, contextlib.ExitStack() as stack:
        clusters = [apache_kafka(f"{name}-{side}", *AUTHORIZER) for side in ("east", "west")]
        yield Pair("apache", *side_by_side.map(stack.enter_context, clusters))


class Acls:
    """ACLs of one cluster as (kind, pattern, name, principal, operation, permission)."""

    def __init__(self, bootstrap):
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    async def add(self, *rows):
        made = self._admin.create_acls([_binding(row) for row in rows], request_timeout=30)
        await asyncio.gather(*map(asyncio.wrap_future, made.values()))

    async def remove(self, *rows):
        gone = self._admin.delete_acls([_filter(row) for row in rows], request_timeout=30)
        found = await asyncio.gather(*map(asyncio.wrap_future, gone.values()))
        assert all(len(matches) == 1 for matches in found)

    async def about(self, tag):
        """Those whose resource's name holds `tag`."""
        every = AclBindingFilter(
            ResourceType.ANY,
            None,
            ResourcePatternType.ANY,
            None,
            None,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        found = await asyncio.wrap_future(self._admin.describe_acls(every, request_timeout=30))
        return {_row(acl) for acl in found if tag in acl.name}


def _binding(row):
    kind, pattern, name, who, operation, permission = row
    return AclBinding(
        ResourceType[kind],
        name,
        ResourcePatternType[pattern],
        f"User:{who}",
        "*",
        AclOperation[operation],
        AclPermissionType[permission],
    )


def _filter(row):
    acl = _binding(row)
    return AclBindingFilter(
        acl.restype,
        acl.name,
        acl.resource_pattern_type,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission_type,
    )


def _row(acl):
    return (
        acl.restype.name,
        acl.resource_pattern_type.name,
        acl.name,
        acl.principal.removeprefix("User:"),
        acl.operation.name,
        acl.permission_type.name,
    )
