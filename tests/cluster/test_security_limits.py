"""What strangers cost on listeners that encrypt or authenticate: bounded time and memory, one log line."""

import asyncio
import os
import re
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack

import psutil
import pytest
from confluent_kafka import Producer

from protocol.client import ClusterClient, Connection
from protocol.client.properties import client_security
from protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from tests.support.broker import BrokerProcess
from tests.support.secure_side import SecureSide, secure_side
from tests.support.waiting import eventually
from tests.support.zookeeper import fresh_chroot

pytestmark = pytest.mark.cluster

_LIMITED_S = 2.0
"""Lines about one address are counted by the second (`broker.server.offences`)."""


@pytest.fixture(scope="module")
def side(zookeeper_server, tmp_path_factory) -> Iterator[SecureSide]:
    with secure_side("isthmus", tmp_path_factory.mktemp("secure"), fresh_chroot(zookeeper_server)) as running:
        yield running


async def gets_in(side: SecureSide, listener: str, mechanism: str = "") -> bool:
    security = client_security(side.java_client(listener, mechanism))
    async with asyncio.timeout(60), ClusterClient(side.address(listener), config=security) as client:
        return bool((await client.metadata(None)).brokers)


async def test_strangers_that_say_nothing_or_nonsense_hold_up_nobody(side):
    assert side.broker is not None
    process = psutil.Process(side.broker.pid)
    before = process.memory_info().rss
    openings = {
        "SASL_PLAINTEXT": [b"", b"\0\0", b"\0\7\xff\xff", b"GET / HTTP/1.1\r\n\r\n"],
        "SSL": [b"", b"\x16\x03\x01\x02\x00\x01", os.urandom(64), b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\xff\xff"],
    }
    with ExitStack() as stack:
        for listener, texts in openings.items():
            for number in range(200):
                peer = stack.enter_context(socket.create_connection(("127.0.0.1", side.ports[listener])))
                peer.sendall(texts[number % len(texts)])
        assert await gets_in(side, "SASL_PLAINTEXT", "SCRAM-SHA-256")
        assert await gets_in(side, "SSL")
        grown = process.memory_info().rss - before
        assert grown < 400 * 64 * 1024, f"{grown} bytes for 400 strangers"
    assert side.broker.running


async def test_a_client_that_does_not_finish_is_let_go(zookeeper_server, tmp_path):
    """By connections.max.idle.ms, as everybody; one that goes on talking is `test_sasl_gate`'s."""
    settings = {"connections.max.idle.ms": "500"}
    with (
        secure_side("isthmus", tmp_path, fresh_chroot(zookeeper_server), settings) as side,
        socket.create_connection(("127.0.0.1", side.ports["SASL_PLAINTEXT"]), timeout=60) as peer,
    ):
        peer.sendall(b"\0\0\0\x40")
        assert peer.recv(1) == b""


async def test_guessing_is_slow_and_every_guess_is_one_line(side):
    broker = side.broker
    assert broker is not None
    await asyncio.sleep(_LIMITED_S)  # what the tests before have had logged counts for this address, too
    lines = len(re.findall("authentication failed", broker.output))
    for _ in range(3):
        began = time.monotonic()
        with pytest.raises(Exception, match="Invalid username or password"):
            await Connection.open(
                "127.0.0.1",
                side.ports["SASL_PLAINTEXT"],
                sasl=client_security(side.java_client("SASL_PLAINTEXT", "PLAIN", "guess")).sasl,
            )
        assert time.monotonic() - began > 0.09

    async def told() -> int:
        return len(re.findall("authentication failed", broker.output)) - lines

    assert await eventually(told, lambda found: found >= 3) == 3
    assert "guess" not in broker.output
    assert "s3cr" not in broker.output


@pytest.mark.parametrize("listener", ["SSL", "SASL_SSL"])
async def test_a_slow_reader_of_much_data_over_tls(side, listener):
    """Answers above every buffer, taken slowly: all bytes come, and the broker does not hold them."""
    assert side.broker is not None
    mechanism = "SCRAM-SHA-512" if listener == "SASL_SSL" else ""
    topic = f"much-{listener}"
    security = client_security(side.java_client(listener, mechanism))
    producer = Producer({**side.client(listener, mechanism), "batch.size": 1_000_000})
    for _ in range(64):
        producer.produce(topic, os.urandom(500_000))
        producer.poll(0)
    assert producer.flush(60) == 0
    process = psutil.Process(side.broker.pid)
    connection = await Connection.open(
        "127.0.0.1", side.ports[listener], ssl=security.ssl, sasl=security.sasl, timeout_s=60
    )
    try:
        before = process.memory_info().rss
        request = FetchRequest(
            max_bytes=1 << 30,
            max_wait_ms=100,
            session_epoch=-1,
            topics=[
                FetchTopic(
                    topic=topic, partitions=[FetchPartition(partition_max_bytes=1 << 30, fetch_offset=0)]
                )
            ],
        )
        assert connection._transport is not None
        asking = asyncio.ensure_future(connection.send(request, 12))
        await asyncio.sleep(0)
        connection._transport.pause_reading()
        await asyncio.sleep(1)
        assert process.memory_info().rss - before < 24 << 20
        connection._transport.resume_reading()
        answer = await asking
        records = answer.responses[0].partitions[0].records
        assert sum(map(len, [records])) > 32_000_000
    finally:
        await connection.close()


async def test_tls_refuses_old_versions_and_strangers_certificates(side):
    for setting in ("minimum_version", "maximum_version"):
        context = ssl.create_default_context(cafile=str(side.authority.certificate_file))
        context.load_cert_chain(side.store)
        setattr(context, setting, ssl.TLSVersion.TLSv1_2)
        connection = await Connection.open("127.0.0.1", side.ports["SSL"], ssl=context)
        await connection.close()
    context = ssl.create_default_context()  # does not know the authority
    with pytest.raises(Exception, match="certificate"):
        await Connection.open("127.0.0.1", side.ports["SSL"], ssl=context)
    assert await gets_in(side, "SSL")


async def test_a_broker_with_a_wrong_store_says_so(zookeeper, tmp_path):
    (tmp_path / "store.pem").write_text("nothing of use")
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(tmp_path / "store.pem"),
    }
    broker = BrokerProcess(tmp_path / "broker", zookeeper, 1, settings=settings)
    broker.launch()
    assert broker.wait(60) == 2
    assert "listener SSL: ssl.keystore.location: is not PEM" in broker.output
