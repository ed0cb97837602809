"""DescribeUserScramCredentials (50) and AlterUserScramCredentials (51), KIP-554.

- A user's changes count together: one that is wrong refuses all of that user, and none of others.
- Of a stored credential only mechanism and iterations are told. Passwords come salted, never as they are.
- One request may change each mechanism of a user once, as Kafka's ZooKeeper brokers have it; its newer ones
  take one change a user.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from broker.server.context import RequestContext
from broker.server.registry import handles
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_user_scram_credentials_request import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from protocol.messages.alter_user_scram_credentials_response import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from protocol.messages.describe_user_scram_credentials_request import DescribeUserScramCredentialsRequest
from protocol.messages.describe_user_scram_credentials_response import (
    CredentialInfo,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from protocol.scram import MECHANISMS, Credential

if TYPE_CHECKING:
    from broker.security.credential_store import CredentialStore

MAX_ITERATIONS: Final = 16_384
_BY_NUMBER: Final = {mechanism.number: mechanism for mechanism in MECHANISMS.values()}

Change = ScramCredentialDeletion | ScramCredentialUpsertion


@handles(DescribeUserScramCredentialsRequest, min=0, max=0)
async def describe_credentials(
    request: DescribeUserScramCredentialsRequest, context: RequestContext
) -> DescribeUserScramCredentialsResponse:
    store = context.broker.credentials
    if not request.users:
        everybody = await store.all_stored()
        results = [_described(user, everybody[user]) for user in sorted(everybody)]
        return DescribeUserScramCredentialsResponse(error_message=None, results=results)
    named = Counter(user.name for user in request.users)
    results = [await _describe(store, user, count) for user, count in named.items()]
    return DescribeUserScramCredentialsResponse(error_message=None, results=results)


async def _describe(store: CredentialStore, user: str, count: int) -> DescribeUserScramCredentialsResult:
    code, message = ErrorCode.RESOURCE_NOT_FOUND, "Username must not be empty"
    if user and count > 1:
        code = ErrorCode.DUPLICATE_RESOURCE
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
    elif user:
        credentials = await store.stored(user)
        if credentials:
            return _described(user, credentials)
        message = f"Attempt to describe a user credential that does not exist: {user}"
    return DescribeUserScramCredentialsResult(user=user, error_code=code, error_message=message)


def _described(user: str, credentials: Mapping[str, Credential]) -> DescribeUserScramCredentialsResult:
    infos = [
        CredentialInfo(mechanism=MECHANISMS[name].number, iterations=credential.iterations)
        for name, credential in credentials.items()
    ]
    return DescribeUserScramCredentialsResult(user=user, error_message=None, credential_infos=infos)


@handles(AlterUserScramCredentialsRequest, min=0, max=0)
async def alter_credentials(
    request: AlterUserScramCredentialsRequest, context: RequestContext
) -> AlterUserScramCredentialsResponse:
    changes: dict[str, list[Change]] = {}
    for change in _changes(request):
        changes.setdefault(change.name, []).append(change)
    results = []
    for user, wanted in changes.items():
        result = AlterUserScramCredentialsResult(user=user, error_message=None)
        try:
            await context.broker.credentials.change(user, _checked(wanted))
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    return AlterUserScramCredentialsResponse(results=results)


def _changes(request: AlterUserScramCredentialsRequest) -> Iterator[Change]:
    yield from request.deletions
    yield from request.upsertions


def _checked(changes: list[Change]) -> dict[str, Credential | None]:
    """What to store by mechanism, None for what is to go. Raises KafkaError."""
    wanted: dict[str, Credential | None] = {}
    for change in changes:
        if not change.name:
            raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
        mechanism = _BY_NUMBER.get(change.mechanism)
        if mechanism is None:
            raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
        credential = None
        if isinstance(change, ScramCredentialUpsertion):
            if change.iterations < mechanism.min_iterations:
                raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
            if change.iterations > MAX_ITERATIONS:
                raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
            salted, salt = bytes(change.salted_password), bytes(change.salt)
            credential = mechanism.credential(salted, salt, change.iterations)
        if mechanism.name in wanted:
            raise KafkaError(
                ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
            )
        wanted[mechanism.name] = credential
    return wanted
