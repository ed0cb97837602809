"""The order of requests on a SASL connection, byte by byte; Apache Kafka set alike is the oracle."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from protocol.client.scram import ScramClient
from protocol.codec.schema import Request
from protocol.errors import ErrorCode
from protocol.frames import decode_response, encode_request
from protocol.messages.api_versions_request import ApiVersionsRequest
from protocol.messages.metadata_request import MetadataRequest
from protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from protocol.messages.sasl_handshake_request import SaslHandshakeRequest
from protocol.scram import MECHANISMS
from tests.support.secure_side import PASSWORDS, SecureSide, secure_side
from tests.support.sides import SIDES
from tests.support.zookeeper import fresh_chroot

pytestmark = pytest.mark.cluster
ADA = b"\0ada\0" + PASSWORDS["ada"].encode()
VERSIONS = ApiVersionsRequest(client_software_name="test", client_software_version="1")
SESSION_MS = 3000
WAIT_S = 60.0


@pytest.fixture(scope="module", params=SIDES)
def side(request, zookeeper_server, tmp_path_factory) -> Iterator[SecureSide]:
    settings = {"listener.name.sasl_plaintext.scram-sha-512.connections.max.reauth.ms": str(SESSION_MS)}
    directory = tmp_path_factory.mktemp("secure")
    with secure_side(request.param, directory, fresh_chroot(zookeeper_server), settings) as running:
        yield running


class Wire:
    """A connection without a will of its own."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def frame(self) -> bytes:
        async with asyncio.timeout(WAIT_S):
            size = int.from_bytes(await self._reader.readexactly(4))
            return await self._reader.readexactly(size)

    async def ask(self, request: Request[Any], version: int) -> Any:
        await self.send(b"".join(encode_request(request, version, 7, "test")))
        return decode_response(memoryview(await self.frame()), type(request), version)[1]

    async def bare(self, message: bytes) -> bytes:
        """A message of the mechanism without a Kafka header."""
        await self.send(len(message).to_bytes(4) + message)
        return await self.frame()

    async def is_closed(self) -> bool:
        """Whether the broker ends the connection, and says nothing before."""
        async with asyncio.timeout(WAIT_S):
            try:
                return await self._reader.read(1) == b""
            except ConnectionError:
                return True

    async def shake_hands(self, mechanism: str, version: int = 1) -> Any:
        return await self.ask(SaslHandshakeRequest(mechanism=mechanism), version)

    async def authenticate(self, message: bytes, version: int = 2) -> Any:
        return await self.ask(SaslAuthenticateRequest(auth_bytes=message), version)

    async def scram(self, mechanism: str) -> Any:
        client = ScramClient(MECHANISMS[mechanism], "bob", PASSWORDS["bob"])
        challenge = await self.authenticate(client.first())
        answer = await self.authenticate(client.final(bytes(challenge.auth_bytes)))
        client.verify(bytes(answer.auth_bytes))
        return answer


@asynccontextmanager
async def wire(side: SecureSide, listener: str = "SASL_PLAINTEXT") -> AsyncIterator[Wire]:
    reader, writer = await asyncio.open_connection("127.0.0.1", side.ports[listener])
    try:
        yield Wire(reader, writer)
    finally:
        writer.transport.abort()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)


async def test_versions_handshake_mechanism_and_then_everything(side):
    async with wire(side) as peer:
        versions = await peer.ask(VERSIONS, 3)
        offered = {row.api_key: (row.min_version, row.max_version) for row in versions.api_keys}
        assert (offered[17], offered[36]) == ((0, 1), (0, 2))
        shake = await peer.shake_hands("PLAIN")
        assert (shake.error_code, sorted(shake.mechanisms)) == (0, sorted(["PLAIN", *MECHANISMS]))
        answer = await peer.authenticate(ADA)
        assert (answer.error_code, answer.session_lifetime_ms, bytes(answer.auth_bytes)) == (0, 0, b"")
        assert (await peer.ask(MetadataRequest(topics=[]), 9)).brokers
        # Known already, and no session that ends: both requests are out of place, and no reason to part.
        assert (await peer.shake_hands("PLAIN")).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert (await peer.authenticate(ADA)).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert (await peer.ask(VERSIONS, 3)).error_code == 0


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_every_version_of_authenticate(side, version):
    async with wire(side) as peer:
        assert (await peer.shake_hands("SCRAM-SHA-256")).error_code == 0
        client = ScramClient(MECHANISMS["SCRAM-SHA-256"], "bob", PASSWORDS["bob"])
        challenge = await peer.authenticate(client.first(), version)
        answer = await peer.authenticate(client.final(bytes(challenge.auth_bytes)), version)
        client.verify(bytes(answer.auth_bytes))
        assert (await peer.ask(MetadataRequest(topics=[]), 9)).brokers


async def test_bare_messages_after_the_first_version_of_the_handshake(side):
    async with wire(side) as peer:
        assert (await peer.shake_hands("PLAIN", 0)).error_code == 0
        assert await peer.bare(ADA) == b""
        assert (await peer.ask(MetadataRequest(topics=[]), 9)).brokers
    async with wire(side) as peer:
        await peer.shake_hands("SCRAM-SHA-512", 0)
        client = ScramClient(MECHANISMS["SCRAM-SHA-512"], "bob", PASSWORDS["bob"])
        client.verify(await peer.bare(client.final(await peer.bare(client.first()))))
        assert (await peer.ask(MetadataRequest(topics=[]), 9)).brokers
    async with wire(side) as peer:
        await peer.shake_hands("PLAIN", 0)
        await peer.send(len(b"\0ada\0no").to_bytes(4) + b"\0ada\0no")
        assert await peer.is_closed()


@pytest.mark.parametrize("mechanism", ["GSSAPI", "plain", "", "OAUTHBEARER"])
async def test_another_mechanism_is_refused_with_the_list(side, mechanism):
    async with wire(side) as peer:
        shake = await peer.shake_hands(mechanism)
        assert shake.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert sorted(shake.mechanisms) == sorted(["PLAIN", *MECHANISMS])
        assert await peer.is_closed()


@pytest.mark.parametrize(
    ("mechanism", "message", "told"),
    [
        ("PLAIN", b"\0ada\0wrong", "Authentication failed: Invalid username or password"),
        ("PLAIN", b"\0nobody\0wrong", "Authentication failed: Invalid username or password"),
        ("PLAIN", b"\0\0x", "Authentication failed: username not specified"),
        ("PLAIN", b"\0ada\0", "Authentication failed: password not specified"),
        (
            "PLAIN",
            b"bob" + ADA,
            "Authentication failed: Client requested an authorization id that is different",
        ),
        ("PLAIN", b"nonsense", None),
        (
            "SCRAM-SHA-256",
            b"n,,n=nobody,r=abc",
            "due to invalid credentials with SASL mechanism SCRAM-SHA-256",
        ),
        ("SCRAM-SHA-256", b"nonsense", "due to invalid credentials with SASL mechanism SCRAM-SHA-256"),
        (
            "SCRAM-SHA-256",
            b"n,a=ada,n=bob,r=abc",
            "Authentication failed: Client requested an authorization id",
        ),
    ],
)
async def test_what_a_refused_client_hears(side, mechanism, message, told):
    async with wire(side) as peer:
        await peer.shake_hands(mechanism)
        began = time.monotonic()
        answer = await peer.authenticate(message)
        assert time.monotonic() - began > 0.09  # connection.failed.authentication.delay.ms
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert told is None or told in answer.error_message
        assert await peer.is_closed()


async def test_a_wrong_proof(side):
    async with wire(side) as peer:
        await peer.shake_hands("SCRAM-SHA-256")
        client = ScramClient(MECHANISMS["SCRAM-SHA-256"], "bob", "wrong")
        challenge = await peer.authenticate(client.first())
        answer = await peer.authenticate(client.final(bytes(challenge.auth_bytes)))
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert "due to invalid credentials with SASL mechanism SCRAM-SHA-256" in answer.error_message
        assert await peer.is_closed()


FIRSTS = {
    "another request": b"".join(encode_request(MetadataRequest(topics=[]), 9, 1, "x")),
    "authenticate before the handshake": b"".join(
        encode_request(SaslAuthenticateRequest(auth_bytes=ADA), 2, 1, "x")
    ),
    "a version nobody knows": b"\0\0\0\x0a\0\x11\0\x63\0\0\0\1\xff\xff",
    "a key nobody knows": b"\0\0\0\x0a\x03\xe8\0\0\0\0\0\1\xff\xff",
    "half a request": b"\0\0\0\4\0\x11\0\1",
    "an empty frame": b"\0\0\0\0",
    "a frame above the limit": b"\0\x08\0\1",
    "a negative size": b"\xff\xff\xff\xff",
}


@pytest.mark.parametrize("what", FIRSTS)
async def test_other_beginnings_end_the_connection(side, what):
    async with wire(side) as peer:
        await peer.send(FIRSTS[what])
        assert await peer.is_closed()


async def test_versions_are_asked_for_once(side):
    async with wire(side) as peer:
        assert (await peer.ask(VERSIONS, 3)).error_code == 0
        await peer.send(b"".join(encode_request(VERSIONS, 3, 2, "x")))
        assert await peer.is_closed()


async def test_a_version_of_api_versions_that_is_too_new_may_be_followed_by_one_that_is_not(side):
    async with wire(side) as peer:
        await peer.send(b"\0\0\0\x0b\0\x12\0\x63\0\0\0\1\xff\xff\0")
        assert (await peer.frame())[4:6] == b"\0\x23"
        assert (await peer.ask(VERSIONS, 3)).error_code == 0
        assert (await peer.shake_hands("PLAIN")).error_code == 0


async def test_another_request_amid_the_exchange(side):
    async with wire(side) as peer:
        await peer.shake_hands("SCRAM-SHA-256")
        await peer.authenticate(b"n,,n=bob,r=abc")
        again = await peer.shake_hands("SCRAM-SHA-256")
        assert again.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert await peer.is_closed()


async def test_plain_listeners_have_nothing_to_authenticate(side):
    async with wire(side, "PLAINTEXT") as peer:
        for version in (0, 1):
            assert (await peer.shake_hands("PLAIN", version)).error_code == ErrorCode.ILLEGAL_SASL_STATE
        for version in (0, 1, 2):
            answer = await peer.authenticate(ADA, version)
            assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert (await peer.ask(MetadataRequest(topics=[]), 9)).brokers


async def test_a_session_is_renewed_and_ends_otherwise(side):
    """KIP-368."""
    async with wire(side) as peer:
        await peer.shake_hands("SCRAM-SHA-512")
        began = time.monotonic()
        assert (await peer.scram("SCRAM-SHA-512")).session_lifetime_ms == SESSION_MS
        assert (await peer.ask(MetadataRequest(topics=[]), 9)).brokers
        assert (await peer.shake_hands("SCRAM-SHA-512")).error_code == 0  # the first may come at once
        assert (await peer.scram("SCRAM-SHA-512")).session_lifetime_ms == SESSION_MS
        began = time.monotonic()
        while time.monotonic() - began < SESSION_MS / 1000 + 0.1:
            await asyncio.sleep(0.1)  # time itself is what is tested
        # After the end only a handshake is taken, and it may be late.
        assert (await peer.shake_hands("SCRAM-SHA-512")).error_code == 0
        assert (await peer.scram("SCRAM-SHA-512")).session_lifetime_ms == SESSION_MS
        assert (await peer.ask(MetadataRequest(topics=[]), 9)).brokers
        began = time.monotonic()
        while time.monotonic() - began < SESSION_MS / 1000 + 0.1:
            await asyncio.sleep(0.1)
        await peer.send(b"".join(encode_request(MetadataRequest(topics=[]), 9, 3, "x")))
        assert await peer.is_closed()


async def test_a_session_keeps_its_user_and_its_mechanism(side):
    async with wire(side) as peer:
        await peer.shake_hands("SCRAM-SHA-512")
        await peer.scram("SCRAM-SHA-512")
        assert (await peer.shake_hands("PLAIN")).error_code == 0
        await peer.send(b"".join(encode_request(SaslAuthenticateRequest(auth_bytes=ADA), 2, 3, "x")))
        assert await peer.is_closed()


async def test_large_requests_are_taken_once_the_client_is_known(side):
    async with wire(side) as peer:
        await peer.shake_hands("PLAIN")
        await peer.authenticate(ADA)
        await peer.send(b"\0\x0c\0\0" + b"\0\3\0\x09\0\0\0\1\xff\xff\0")  # announces 786,432 bytes
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await peer.is_closed()
