"""Bad input: Kafka's own error code or a closed connection, one log line, nothing lost.

The same raw frames go to our broker and, with ISTHMUS_ORACLE=1, to Apache Kafka (`tests.support.sides`).
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from crc32c import crc32c

from broker.control.embedded_zookeeper import EmbeddedZooKeeper
from protocol.errors import ErrorCode
from protocol.frames import decode_response, encode_request
from protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records import Record, build_batch
from tests.support.broker import BrokerProcess
from tests.support.sides import SIDES, Side, side_of
from tests.support.waiting import wait_until
from tests.support.zookeeper import fresh_chroot

pytestmark = pytest.mark.cluster

BOUND_S = 60.0
API_VERSIONS = b"\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x07\xff\xff"


@pytest.fixture(scope="module", params=SIDES)
def side(
    request: pytest.FixtureRequest,
    zookeeper_server: EmbeddedZooKeeper,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Side]:
    directory = tmp_path_factory.mktemp("side")
    settings = {"socket.request.max.bytes": "1000000", "auto.create.topics.enable": "false"}
    with side_of(request.param, "bad", settings, lambda: fresh_chroot(zookeeper_server), directory) as made:
        admin = AdminClient({"bootstrap.servers": made.bootstrap})
        topics = [
            NewTopic("plain", 1, 1),
            NewTopic("compacted", 1, 1, config={"cleanup.policy": "compact"}),
        ]
        for done in admin.create_topics(topics, operation_timeout=30).values():
            done.result(30)
        wait_until(
            lambda: all(
                produce_code(made.bootstrap, each.topic, bytes(good())) is ErrorCode.NONE for each in topics
            ),
            "both topics have leaders",
        )
        yield made


def dial(bootstrap: str) -> socket.socket:
    host, _, port = bootstrap.partition(":")
    return socket.create_connection((host, int(port)), timeout=BOUND_S)


def take(sock: socket.socket, count: int) -> bytes:
    parts = b""
    while len(parts) < count:
        part = sock.recv(count - len(parts))
        assert part, "closed"
        parts += part
    return parts


def serves(bootstrap: str) -> None:
    with dial(bootstrap) as sock:
        sock.sendall(API_VERSIONS)
        take(sock, int.from_bytes(take(sock, 4), "big"))


def answers(bootstrap: str) -> bool:
    try:
        serves(bootstrap)
    except (AssertionError, OSError):
        return False
    return True


def produce_code(bootstrap: str, topic: str, records: bytes) -> ErrorCode:
    request = ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[
            TopicProduceData(
                name=topic, partition_data=[PartitionProduceData(index=0, records=memoryview(records))]
            )
        ],
    )
    with dial(bootstrap) as sock:
        sock.sendall(b"".join(bytes(part) for part in encode_request(request, 9, 1, "bad")))
        frame = take(sock, int.from_bytes(take(sock, 4), "big"))
    _, response = decode_response(memoryview(frame), ProduceRequest, 9)
    return ErrorCode.of(response.responses[0].partition_responses[0].error_code)


def good(key: bytes | None = b"k") -> bytearray:
    return bytearray(build_batch([Record(at, 1_700_000_000_000, key, b"value") for at in range(3)]))


def sealed(batch: bytearray) -> bytes:
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    return bytes(batch)


def wrong_checksum() -> bytes:
    batch = good()
    batch[-1] ^= 1
    return bytes(batch)


def fewer_records_than_said() -> bytes:
    batch = good()
    struct.pack_into(">i", batch, 57, 5)  # with a last offset delta of 2
    return sealed(batch)


def more_offsets_than_records() -> bytes:
    batch = good()
    struct.pack_into(">i", batch, 23, 9)
    return sealed(batch)


def negative_count() -> bytes:
    batch = good()
    struct.pack_into(">i", batch, 57, -1)
    return sealed(batch)


def negative_offsets() -> bytes:
    batch = good()
    struct.pack_into(">i", batch, 23, -1)
    return sealed(batch)


def negative_count_and_wrong_checksum() -> bytes:
    batch = good()
    struct.pack_into(">i", batch, 57, -1)
    return bytes(batch)


REFUSED: list[tuple[Callable[[], bytes], str, ErrorCode]] = [
    (wrong_checksum, "plain", ErrorCode.CORRUPT_MESSAGE),
    (fewer_records_than_said, "plain", ErrorCode.INVALID_RECORD),
    (more_offsets_than_records, "plain", ErrorCode.INVALID_RECORD),
    (negative_count, "plain", ErrorCode.INVALID_RECORD),
    (negative_offsets, "plain", ErrorCode.INVALID_RECORD),
    (negative_count_and_wrong_checksum, "plain", ErrorCode.CORRUPT_MESSAGE),
    (lambda: bytes(good(key=None)), "compacted", ErrorCode.INVALID_RECORD),
]


@pytest.mark.parametrize(
    ("batch", "topic", "code"),
    REFUSED,
    ids=[
        *("checksum", "count above", "count below", "count negative", "offsets negative"),
        *("negative and checksum", "no key"),
    ],
)
def test_a_bad_batch_is_refused_with_kafkas_code(
    side: Side, batch: Callable[[], bytes], topic: str, code: ErrorCode
) -> None:
    assert produce_code(side.bootstrap, topic, batch()) is code
    assert produce_code(side.bootstrap, topic, bytes(good())) is ErrorCode.NONE


def frames() -> Iterator[bytes]:
    yield (2_000_000).to_bytes(4, "big") + bytes(100)  # above socket.request.max.bytes
    yield (-5).to_bytes(4, "big", signed=True)
    yield b"\x00\x00\x00\x0a\x03\xe7\x00\x00\x00\x00\x00\x07\xff\xff"  # key 999
    yield b"\x00\x00\x00\x0a\x00\x03\x03\xe7\x00\x00\x00\x07\xff\xff"  # Metadata version 999


@pytest.mark.parametrize("frame", list(frames()), ids=["oversized", "negative", "key", "version"])
def test_a_bad_frame_closes_its_connection_and_says_so_once(side: Side, frame: bytes) -> None:
    before = side.broker.output.count("closing connection") if side.broker else 0
    with dial(side.bootstrap) as bystander, dial(side.bootstrap) as sock:
        sock.sendall(frame)
        with suppress(ConnectionResetError):
            assert sock.recv(1) == b"", "answered"
        bystander.sendall(API_VERSIONS)
        take(bystander, 4)
    serves(side.bootstrap)
    if side.broker is not None:
        assert side.broker.output.count("closing connection") == before + 1


@pytest.fixture
def alone(zookeeper_server: EmbeddedZooKeeper, tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    started: list[BrokerProcess] = []

    def start(**settings: str) -> BrokerProcess:
        given = {name.replace("_", "."): value for name, value in settings.items()}
        broker = BrokerProcess(tmp_path / "broker", fresh_chroot(zookeeper_server), 1, settings=given)
        started.append(broker)
        return broker.start()

    yield start
    for broker in started:
        broker.kill()


def test_half_a_frame_for_ever_ends_with_the_idle_time(alone: Callable[..., BrokerProcess]) -> None:
    broker = alone(connections_max_idle_ms="1500")
    with dial(broker.bootstrap) as sock:
        sock.sendall(b"\x00\x00\x10\x00half")
        assert sock.recv(1) == b"", "closed"
    serves(broker.bootstrap)


def test_connections_above_the_limits_are_closed(alone: Callable[..., BrokerProcess]) -> None:
    """KIP-402's older sisters: per address, and in all. The broker's own connection counts."""
    broker = alone(max_connections_per_ip="10")
    with ExitStack() as stack:
        closed = 0
        for _ in range(20):
            sock = stack.enter_context(dial(broker.bootstrap))
            with suppress(ConnectionError):
                sock.sendall(API_VERSIONS)
                closed += sock.recv(4) == b""
                continue
            closed += 1
        assert 10 <= closed < 20
    wait_until(lambda: answers(broker.bootstrap), "the broker serves again")


def test_the_limit_on_all_connections_closes_the_next(alone: Callable[..., BrokerProcess]) -> None:
    broker = alone(max_connections="10")
    wait_until(lambda: answers(broker.bootstrap), "the broker serves")
    with ExitStack() as stack:
        kept = 0
        for _ in range(20):
            sock = stack.enter_context(dial(broker.bootstrap))
            with suppress(ConnectionError):
                sock.sendall(API_VERSIONS)
                kept += sock.recv(4) != b""
        assert 1 <= kept <= 10
        assert "the limit of 10 connections is reached" in broker.output
    wait_until(lambda: answers(broker.bootstrap), "the broker serves again")


def test_new_connections_above_the_rate_are_served_later(alone: Callable[..., BrokerProcess]) -> None:
    """KIP-612. A second's worth goes at once; the others wait, none is lost."""
    broker = alone(max_connection_creation_rate="20")
    wait_until(lambda: answers(broker.bootstrap), "the broker serves")
    began = time.monotonic()
    for _ in range(50):
        serves(broker.bootstrap)
    assert time.monotonic() - began > 1.0


def test_large_requests_wait_for_memory(alone: Callable[..., BrokerProcess]) -> None:
    """KIP-72: one that is not finished holds what there is, another waits, small ones go on."""
    broker = alone(queued_max_request_bytes="50000")
    wait_until(lambda: answers(broker.bootstrap), "the broker serves")
    request = API_VERSIONS[4:] + bytes(60_000)
    frame = len(request).to_bytes(4, "big") + request
    with dial(broker.bootstrap) as holding, dial(broker.bootstrap) as waiting:
        holding.sendall(frame[:-1])
        for _ in range(3):  # each a turn of the loop, which reads the first one's bytes as well
            serves(broker.bootstrap)
        waiting.sendall(frame)
        waiting.settimeout(1.0)
        with pytest.raises(TimeoutError):
            waiting.recv(1)
        waiting.settimeout(BOUND_S)
        serves(broker.bootstrap)
        holding.sendall(frame[-1:])
        for sock in (holding, waiting):
            take(sock, int.from_bytes(take(sock, 4), "big"))
