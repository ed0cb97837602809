"""ApiVersions, and what happens to requests that nobody serves."""

from __future__ import annotations

import asyncio

import pytest

from broker.server.registry import Registry, handles
from protocol.errors import ErrorCode
from protocol.frames import decode_response, encode_request
from protocol.messages.api_versions_request import ApiVersionsRequest
from protocol.messages.api_versions_response import ApiVersionsResponse
from protocol.messages.fetch_request import FetchRequest
from protocol.messages.produce_request import ProduceRequest
from protocol.private.index import FIRST_KEY, PrivateKey
from tests.support.served import Served


async def raw(node: Served, frame: bytes) -> bytes:
    """What the broker sends back for one frame until it closes or has answered."""
    reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
    writer.write(len(frame).to_bytes(4, "big") + frame)
    try:
        async with asyncio.timeout(10):
            size = int.from_bytes(await reader.readexactly(4), "big")
            return await reader.readexactly(size)
    except asyncio.IncompleteReadError:
        return b""
    finally:
        writer.close()
        await writer.wait_closed()


def header(key: int, version: int, body: bytes = b"") -> bytes:
    return key.to_bytes(2, "big") + version.to_bytes(2, "big") + (77).to_bytes(4, "big") + b"\xff\xff" + body


@pytest.mark.parametrize("version", range(5))
async def test_what_is_registered_is_advertised(node: Served, version: int) -> None:
    request = ApiVersionsRequest(client_software_name="tests", client_software_version="1.0")
    answer = await node.connection.send(request, version)
    offered = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
    named = version >= 3  # older ones have no place for a name: it is still that of this connection's start
    assert offered == {
        entry.key: (entry.advertised_min, entry.max)
        for entry in node.broker.registry
        if not (named and entry.key >= FIRST_KEY)
    }
    assert offered[0] == (0, 12), "old librdkafka compresses only when it sees Produce v0"
    assert offered[11][0] == 0, "old librdkafka balances consumers only when it sees JoinGroup v0"
    assert offered[18] == (0, 4)
    assert 68 not in offered
    assert answer.finalized_features == []


async def test_private_apis_are_named_to_isthmus_only(node: Served) -> None:
    ours = ApiVersionsRequest(client_software_name="isthmus", client_software_version="1.0")
    answer = await node.connection.send(ours)
    assert {api.api_key for api in answer.api_keys} >= set(PrivateKey)
    frame = encode_request(ApiVersionsRequest(), 0, 1)  # nobody has said who asks
    answer = decode_response(await raw(node, b"".join(frame)[4:]), ApiVersionsRequest, 0)[1]
    assert not [api for api in answer.api_keys if api.api_key >= FIRST_KEY]


@pytest.mark.parametrize("version", [5, 99, -1 & 0xFFFF])
async def test_an_unknown_version_is_answered_in_a_version_0_body(node: Served, version: int) -> None:
    answered = await raw(node, header(18, version, b"\0garbage"))
    correlation_id, message = decode_response(answered, ApiVersionsRequest, 0)
    assert correlation_id == 77
    assert message.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert (18, 0, 4) in [(api.api_key, api.min_version, api.max_version) for api in message.api_keys]


@pytest.mark.parametrize("name", ["", "-x", "x-", "a b", "ünï"])
async def test_malformed_client_software_is_an_invalid_request(node: Served, name: str) -> None:
    segments = encode_request(
        ApiVersionsRequest(client_software_name=name, client_software_version="1"), 3, 5, "c"
    )
    answered = await raw(node, b"".join(bytes(segment) for segment in segments)[4:])
    _, message = decode_response(answered, ApiVersionsRequest, 3)
    assert isinstance(message, ApiVersionsResponse)
    assert message.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    "frame",
    [header(999, 0), header(68, 0), header(3, 99), header(1, 0), header(3, 9), b"", b"\0\3", header(18, 3)],
    ids=["no-key", "not-served", "too-new", "too-old", "no-body", "empty", "cut", "cut-api-versions"],
)
async def test_other_strangers_are_hung_up_on_and_nobody_else_notices(node: Served, frame: bytes) -> None:
    assert await raw(node, frame) == b""
    again = await node.connection.send(
        ApiVersionsRequest(client_software_name="tests", client_software_version="1"), 3
    )
    assert again.error_code == 0


def test_two_handlers_for_one_key_are_a_mistake() -> None:
    first = handles(FetchRequest, min=4, max=17)(lambda request, context: None)
    second = handles(FetchRequest, min=4, max=12)(lambda request, context: None)
    entries = [each.__dict__["__kafka_entries__"][0] for each in (first, second)]
    with pytest.raises(ValueError, match="two handlers"):
        Registry(entries)


def test_versions_without_a_schema_cannot_be_registered() -> None:
    marked = handles(ProduceRequest, min=0, max=11)(lambda request, context: None)
    with pytest.raises(ValueError, match="schema has 3-13"):
        Registry(marked.__dict__["__kafka_entries__"])
