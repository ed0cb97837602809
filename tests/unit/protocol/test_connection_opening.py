"""Opening a connection: versions, SASL, TLS, and who is not there; on both event loops."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable

import pytest
import uvloop

from protocol.api import ApiKey
from protocol.client import (
    AuthenticationError,
    ConnectError,
    Connection,
    NotSupportedError,
    RequestTimeoutError,
    SaslPlain,
)
from protocol.errors import KafkaError
from protocol.messages.api_versions_response import ApiVersion, ApiVersionsResponse
from protocol.messages.list_groups_request import ListGroupsRequest
from protocol.messages.metadata_request import MetadataRequest
from protocol.messages.sasl_authenticate_response import SaslAuthenticateResponse
from protocol.messages.sasl_handshake_response import SaslHandshakeResponse
from tests.support.certificates import Authority
from tests.support.fake_broker import FakeBroker, Peer, Received, Script
from tests.support.talking import echo, groups, names, question, talking


def versions_script(
    refusals: list[Callable[[Peer, Received], Awaitable[None]]], asked_for: list[int]
) -> Script:
    async def script(peer: Peer) -> None:
        while True:
            received = await peer.request(raw_versions=True)
            if received.api_key != ApiKey.API_VERSIONS:
                await peer.answer(received, groups("ok"))
                continue
            asked_for.append(received.version)
            if refusals:
                await refusals.pop(0)(peer, received)
            else:
                peer.versions[ApiKey.LIST_GROUPS] = (0, 3)
                await peer.answer(received, peer.offered())

    return script


async def refuse_naming_2(peer: Peer, received: Received) -> None:
    rows = [ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=2)]
    await peer.answer(received, ApiVersionsResponse(error_code=35, api_keys=rows), version=0)


async def refuse(peer: Peer, received: Received) -> None:
    await peer.answer(received, ApiVersionsResponse(error_code=35), version=0)


async def fail(peer: Peer, received: Received) -> None:
    await peer.answer(received, ApiVersionsResponse(error_code=42))


@pytest.mark.parametrize(
    ("refusals", "expected"), [([], [4]), ([refuse_naming_2], [4, 2]), ([refuse], [4, 0])]
)
async def test_agreeing_on_versions(refusals, expected):
    asked_for: list[int] = []
    async with talking(versions_script(list(refusals), asked_for)) as (_, connection):
        assert asked_for == expected
        assert connection.version_of(ListGroupsRequest) == 3
        assert connection.version_of(ListGroupsRequest, 1) == 1
        assert names(await connection.send(ListGroupsRequest())) == ["ok"]


async def test_versions_that_cannot_be_agreed_on():
    with pytest.raises(KafkaError, match="ApiVersions"):
        async with talking(versions_script([fail], [])):
            pass
    with pytest.raises(KafkaError, match="ApiVersions"):
        async with talking(versions_script([refuse, refuse], [])):
            pass


async def test_apis_that_are_not_common():
    async def script(peer: Peer) -> None:
        del peer.versions[ApiKey.METADATA]
        peer.versions[ApiKey.LIST_GROUPS] = (90, 91)
        await peer.request()

    async with talking(script) as (broker, connection):
        with pytest.raises(NotSupportedError, match=f"{broker.address}.*does not offer Metadata"):
            await connection.send(MetadataRequest())
        with pytest.raises(NotSupportedError, match="ListGroups versions 90 to 91"):
            await connection.send(ListGroupsRequest())


async def test_nobody_there():
    async with FakeBroker(echo) as broker:
        port = broker.port
    with pytest.raises(ConnectError, match=f"127.0.0.1:{port}: cannot connect"):
        await Connection.open("127.0.0.1", port)
    with pytest.raises(ConnectError, match=r"no\.such\.host\.invalid:9092"):
        await Connection.open("no.such.host.invalid", 9092)


async def test_somebody_who_says_nothing():
    async def script(peer: Peer) -> None:
        await peer.reader.read()

    async with FakeBroker(script) as broker:
        with pytest.raises(RequestTimeoutError, match=r"ApiVersions within 0\.05 s"):
            await Connection.open("127.0.0.1", broker.port, timeout_s=0.05)
        with pytest.raises(RequestTimeoutError, match=r"ApiVersions within 0\.05 s"):
            await Connection.open("127.0.0.1", broker.port, connect_timeout_s=0.05)


def sasl_script(password: bytes) -> Script:
    async def script(peer: Peer) -> None:
        shake = await peer.request()
        if shake.body.mechanism != "PLAIN" or not password:
            await peer.answer(shake, SaslHandshakeResponse(error_code=33, mechanisms=["OAUTHBEARER"]))
            return
        await peer.answer(shake, SaslHandshakeResponse(mechanisms=["PLAIN"]))
        login = await peer.request()
        if bytes(login.body.auth_bytes) != b"\0ada\0" + password:
            await peer.answer(login, SaslAuthenticateResponse(error_code=58, error_message="no entry"))
            return
        await peer.answer(login, SaslAuthenticateResponse())
        await echo(peer)

    return script


async def test_sasl_plain():
    async with talking(sasl_script(b"secret"), sasl=SaslPlain("ada", "secret")) as (_, connection):
        assert names(await connection.send(question("a"))) == ["a"]
    with pytest.raises(AuthenticationError, match="user 'ada' is refused: no entry") as refused:
        async with talking(sasl_script(b"other"), sasl=SaslPlain("ada", "secret")):
            pass
    assert "secret" not in str(refused.value)
    with pytest.raises(AuthenticationError, match="offered: OAUTHBEARER"):
        async with talking(sasl_script(b""), sasl=SaslPlain("ada", "secret")):
            pass
    assert "secret" not in repr(SaslPlain("ada", "secret"))


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


async def test_tls(authority):
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(authority.store("fake broker", names=["127.0.0.1"]))
    async with FakeBroker(echo, tls=server) as broker:
        trusting = ssl.create_default_context(cafile=authority.certificate_file)
        connection = await Connection.open("127.0.0.1", broker.port, ssl=trusting)
        big = "y" * 32_000
        answers = await asyncio.gather(*(connection.send(question(f"{n}{big}")) for n in range(20)))
        assert [names(answer)[0] for answer in answers] == [f"{n}{big}" for n in range(20)]
        await connection.close()
        with pytest.raises(ConnectError, match="certificate"):
            await Connection.open("127.0.0.1", broker.port, ssl=ssl.create_default_context())


@pytest.mark.parametrize("case", [test_nobody_there, test_somebody_who_says_nothing])
def test_the_same_on_uvloop(case):
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(case())


def test_tls_on_uvloop(authority):
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test_tls(authority))


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize(
    ("host", "words"),
    [
        ("127.0.0.1", "cannot connect: Connection refused"),
        ("localhost", "cannot connect: Connection refused"),
        ("no-such-host.invalid", "cannot connect: unknown host no-such-host.invalid"),
    ],
)
def test_why_nobody_is_reached_is_said_in_the_same_words_on_both_loops(host, words, loop):
    async def connect() -> None:
        async with FakeBroker(lambda peer: peer.reader.read()) as gone:
            port = gone.port
        with pytest.raises(ConnectError, match=f"{host}:{port}: {words}"):
            await Connection.open(host, port)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(connect())
