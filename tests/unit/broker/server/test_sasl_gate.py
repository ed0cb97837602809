"""The gate before the dispatcher: who waits too long, and what passes once the client is known."""

import asyncio
import contextlib
from typing import Any, cast

import pytest

from broker.security.plain import PlainServer
from broker.server.answer_order import Pending
from broker.server.context import ConnectionInfo
from broker.server.edge import CloseConnectionError
from broker.server.listener import Listener
from broker.server.sasl_gate import AUTHENTICATION_S, SaslGate
from protocol.client import AuthenticationError, Connection, SaslPlain
from protocol.frames import encode_request
from protocol.messages.metadata_request import MetadataRequest
from protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from protocol.messages.sasl_handshake_request import SaslHandshakeRequest
from tests.support.clock import VirtualClock
from tests.support.lone_broker import lone_broker

METADATA = encode_request(MetadataRequest(topics=[]), 9, 1, "x")
HANDSHAKE = encode_request(SaslHandshakeRequest(mechanism="PLAIN"), 1, 1, "x")
PASSWORD = encode_request(SaslAuthenticateRequest(auth_bytes=b"\0ada\0pw"), 2, 1, "x")


class FakeConnection:
    def __init__(self) -> None:
        self.info = ConnectionInfo("here", 1)
        self.most = 0

    def accept_frames(self, most: int) -> None:
        self.most = most


def gate_with(clock: VirtualClock, session_ms: int = 0) -> tuple[SaslGate, FakeConnection]:
    gate = SaslGate(
        lambda frame, info: [b"served"],
        {"PLAIN": lambda: PlainServer({"ada": "pw", "ANONYMOUS": "pw"})},
        session_ms={"PLAIN": session_ms},
        max_receive=1000,
        max_frame=100_000,
        failure_delay_s=0.0,
        now_s=clock.monotonic,
    )
    connection = FakeConnection()
    gate.admit(cast(Any, connection))
    return gate, connection


def serve(gate: SaslGate, connection: FakeConnection, request: Any) -> Any:
    return gate.serve(memoryview(b"".join(request)[4:]), connection.info)


def test_who_is_known_passes_and_has_a_name():
    gate, connection = gate_with(VirtualClock())
    serve(gate, connection, HANDSHAKE)
    assert connection.most == 0
    serve(gate, connection, PASSWORD)
    assert (connection.info.principal, connection.most, gate.authenticated) == ("User:ada", 100_000, 1)
    assert serve(gate, connection, METADATA) == [b"served"]


def test_a_user_may_have_the_name_that_strangers_go_by():
    gate, connection = gate_with(VirtualClock())
    serve(gate, connection, HANDSHAKE)
    serve(gate, connection, encode_request(SaslAuthenticateRequest(auth_bytes=b"\0ANONYMOUS\0pw"), 2, 1, "x"))
    assert (connection.info.principal, connection.most) == ("User:ANONYMOUS", 100_000)
    assert (gate.authenticated, gate.reauthenticated) == (1, 0)


async def test_who_is_not_known_does_not_pass():
    gate, connection = gate_with(VirtualClock())
    refused = serve(gate, connection, METADATA)
    assert isinstance(refused, Pending)
    assert refused.last
    assert await refused.coroutine is None
    assert (connection.info.principal, gate.failed) == ("User:ANONYMOUS", 1)


def test_time_to_authenticate_is_limited_whatever_the_client_sends():
    clock = VirtualClock()
    gate, connection = gate_with(clock)
    clock.advance(AUTHENTICATION_S)
    serve(gate, connection, HANDSHAKE)
    assert not gate.overdue(connection.info)
    clock.advance(0.1)
    assert gate.overdue(connection.info)
    serve(gate, connection, PASSWORD)
    clock.advance(AUTHENTICATION_S + 1)
    assert not gate.overdue(connection.info)


def test_a_session_that_has_ended_closes_at_the_next_request():
    clock = VirtualClock()
    gate, connection = gate_with(clock, session_ms=1000)
    serve(gate, connection, HANDSHAKE)
    serve(gate, connection, PASSWORD)
    clock.advance(0.9)
    assert serve(gate, connection, METADATA) == [b"served"]
    clock.advance(0.2)
    with pytest.raises(CloseConnectionError, match=r"connections\.max\.reauth\.ms"):
        serve(gate, connection, METADATA)
    assert gate.expired == 1


async def test_the_listener_ends_what_is_overdue():
    clock = VirtualClock()
    gate, _ = gate_with(clock)
    listener = Listener("S", gate.serve, max_frame=1000, idle_s=0.2, now=clock.monotonic, gate=gate)
    port = await listener.open("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(30):
            while not listener.connections:
                await asyncio.sleep(0.01)
            clock.advance(AUTHENTICATION_S + 1)
            for connection in listener.connections:
                connection.last_active = clock.monotonic()  # it goes on talking
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read(1) == b""
        assert listener.refused_count == 1
    finally:
        writer.transport.abort()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)
        await listener.close()


async def test_metrics_tell_who_got_in_and_who_did_not(tmp_path):
    jaas = 'PlainLoginModule required username="b" password="pw" user_b="pw";'
    settings = {
        "listeners": "INTERNAL://127.0.0.1:0",
        "listener_security_protocol_map": "INTERNAL:SASL_PLAINTEXT",
        "inter_broker_listener_name": "INTERNAL",
        "sasl_enabled_mechanisms": "PLAIN",
        "sasl_mechanism_inter_broker_protocol": "PLAIN",
        "listener_name_internal_plain_sasl_jaas_config": jaas,
    }
    async with lone_broker(tmp_path, **settings) as (broker, _, port):
        connection = await Connection.open("127.0.0.1", port, sasl=SaslPlain("b", "pw"))
        await connection.close()
        for _ in range(2):
            with pytest.raises(AuthenticationError):
                await Connection.open("127.0.0.1", port, sasl=SaslPlain("b", "no"))
        found = {
            sample.name: sample.value
            for metric in broker.metrics.collect()
            for sample in metric.samples
            if "authentication" in sample.name
        }
    prefix = "kafka_server_socketservermetrics"
    assert found[f"{prefix}_successful_authentication_total"] == 1
    assert found[f"{prefix}_failed_authentication_total"] == 2
