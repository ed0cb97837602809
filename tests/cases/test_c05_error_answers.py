"""C05: the error answer has the layout of the request's version, for every API in every version, in its turn.

A request in which nothing exists and a healthy ApiVersions behind it are written together; the strict decoder
of `Connection` refuses bytes left over, fields cut short and answers out of order.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.server.registry import Entry, Registry
from protocol.api import ApiKey
from protocol.client.connection import Connection
from protocol.codec.schema import Struct, version_range
from protocol.messages.api_versions_request import ApiVersionsRequest
from protocol.records import Record, build_batch
from tests.support.broker import BrokerProcess

pytestmark = pytest.mark.cluster

ENTRIES = list(Registry.discover())
NOWHERE = "nowhere/to be found"  # no topic can have this name, so none is made
# What these are asked for here is no failure, or they have no error field.
MAY_SUCCEED = frozenset(
    {
        ApiKey.API_VERSIONS,
        ApiKey.METADATA,
        ApiKey.LIST_GROUPS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_TRANSACTIONS,
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.OFFSET_FETCH,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
    }
)


def nonsense(cls: type[Struct], version: int) -> Struct:
    """A well-formed struct in which nothing exists: every array has one element, every number is -5."""
    message = cls()
    for field in cls.FIELDS:
        present = version in version_range(field.versions) or version in version_range(field.tagged)
        if present and not (field.kind == "struct" and field.tag >= 0):
            kind = field.kind.removeprefix("[]")
            value = nonsense(field.of, version) if field.of is not None else _VALUES[kind]
            setattr(message, field.name, [value] if field.kind.startswith("[]") else value)
    return message


_VALUES: dict[str, Any] = {
    **dict.fromkeys(("int8", "int16", "int32", "int64"), -5),
    "bool": False,
    "string": NOWHERE,
    "uuid": b"\x42" * 16,
    "bytes": b"\0",
    "records": build_batch([Record(offset=0, timestamp=0, key=b"k", value=b"v")]),
}


def error_codes(message: Struct) -> list[int]:
    """All error codes of a message, at any depth."""
    found: list[int] = []
    for field in message.FIELDS:
        value = getattr(message, field.name)
        if field.name.endswith("error_code"):
            found.append(value)
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, Struct):
                found += error_codes(item)
    return found


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
async def test_failures_keep_the_layout_of_their_version(broker: BrokerProcess, entry: Entry) -> None:
    connection = await Connection.open("127.0.0.1", broker.port)
    try:
        for version in range(entry.min, entry.max + 1):
            request: Any = nonsense(entry.request, version)
            hello = ApiVersionsRequest(client_software_name="tests", client_software_version="1")
            answer, behind = await asyncio.gather(
                connection.send(request, version), connection.send(hello, 3)
            )
            assert behind.error_code == 0
            groups_only = entry.key == ApiKey.FIND_COORDINATOR and version == 0
            if entry.key not in MAY_SUCCEED and not groups_only:
                assert any(error_codes(answer)), f"v{version}: {answer}"
            assert getattr(answer, "throttle_time_ms", 0) == 0
    finally:
        await connection.close()
    assert broker.running
