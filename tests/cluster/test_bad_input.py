"""Bad input: Kafka's own error code or a closed connection, one log line, nothing lost.

The same raw frames go to our broker and, with ISTHMUS_ORACLE=1, to Apache Kafka (`tests.support.sides`).
"""

from __future__ import annotations

import gzip
import random
import socket
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from crc32c import crc32c

from broker.control.embedded_zookeeper import EmbeddedZooKeeper
from protocol.errors import ErrorCode
from protocol.frames import decode_response, encode_request
from protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.produce_response import PartitionProduceResponse
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


def dial(bootstrap: str, address: str = "") -> socket.socket:
    host, _, port = bootstrap.partition(":")
    return socket.create_connection((host, int(port)), timeout=BOUND_S, source_address=(address, 0))


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


def produce_code(
    bootstrap: str, topic: str, records: bytes | None, version: int = 9, address: str = ""
) -> ErrorCode:
    return ErrorCode.of(produced(bootstrap, topic, records, version, address).error_code)


def produced(
    bootstrap: str, topic: str, records: bytes | None, version: int = 9, address: str = ""
) -> PartitionProduceResponse:
    """What is said of partition 0. AssertionError: the connection was closed."""
    data = PartitionProduceData(index=0, records=None if records is None else memoryview(records))
    request = ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )
    with dial(bootstrap, address) as sock:
        sock.sendall(b"".join(bytes(part) for part in encode_request(request, version, 1, "bad")))
        frame = take(sock, int.from_bytes(take(sock, 4), "big"))
    _, response = decode_response(memoryview(frame), ProduceRequest, version)
    (only,) = response.responses[0].partition_responses
    return only


def says_once(side: Side, line: str) -> None:
    """Our broker has said it, and once."""
    if side.broker is not None:
        assert side.broker.output.count(line) == 1, line


@pytest.fixture
def address() -> str:
    """A client's address that no other test has: the broker limits its lines for each."""
    return str(IPv4Address(random.randrange(int(IPv4Address("127.1.0.0")), int(IPv4Address("127.255.0.0")))))


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


def old_message(magic: int, value: bytes = b"value", codec: int = 0) -> bytes:
    """A message set of one message of format 0 or 1, as clients before Kafka 0.11 send it."""
    times = struct.pack(">q", 1_700_000_000_000) if magic else b""
    body = bytes([magic, codec]) + times + struct.pack(">i", 1) + b"k" + struct.pack(">i", len(value)) + value
    message = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", 0, len(message)) + message


def old_message_with_wrong_checksum() -> bytes:
    message = bytearray(old_message(0))
    message[-1] ^= 1
    return bytes(message)


def with_length(change: Callable[[int], int]) -> bytes:
    batch = good()
    struct.pack_into(">i", batch, 8, change(len(batch) - 12))
    return bytes(batch)


def format_3() -> bytes:
    batch = good()
    batch[16] = 3
    return bytes(batch)


BATCHES: list[tuple[str, Callable[[], bytes | None], ErrorCode]] = [
    ("format 0", lambda: old_message(0), ErrorCode.INVALID_RECORD),
    ("format 1", lambda: old_message(1), ErrorCode.INVALID_RECORD),
    ("format 0 gzip", lambda: old_message(0, gzip.compress(old_message(0)), 1), ErrorCode.INVALID_RECORD),
    ("format 1 gzip", lambda: old_message(1, gzip.compress(old_message(1)), 1), ErrorCode.INVALID_RECORD),
    ("format 0 checksum", old_message_with_wrong_checksum, ErrorCode.INVALID_RECORD),
    ("format 0 long", lambda: old_message(0, bytes(500)), ErrorCode.INVALID_RECORD),
    ("two of format 0", lambda: old_message(0) * 2, ErrorCode.INVALID_RECORD),
    ("format 3", format_3, ErrorCode.CORRUPT_MESSAGE),
    ("two batches", lambda: bytes(good()) * 2, ErrorCode.INVALID_RECORD),
    ("batch and format 1", lambda: bytes(good()) + old_message(1), ErrorCode.INVALID_RECORD),
    ("half a batch", lambda: bytes(good())[:-9], ErrorCode.INVALID_RECORD),
    ("length above", lambda: with_length(lambda size: size + 1), ErrorCode.INVALID_RECORD),
    ("length below", lambda: with_length(lambda size: size - 1), ErrorCode.CORRUPT_MESSAGE),
    ("length tiny", lambda: with_length(lambda size: 3), ErrorCode.CORRUPT_MESSAGE),
    ("length negative", lambda: with_length(lambda size: -1), ErrorCode.CORRUPT_MESSAGE),
    ("length huge", lambda: with_length(lambda size: 2**31 - 1), ErrorCode.INVALID_RECORD),
    ("empty", lambda: b"", ErrorCode.INVALID_RECORD),
    ("eleven bytes", lambda: bytes(11), ErrorCode.INVALID_RECORD),
    ("null", lambda: None, ErrorCode.INVALID_RECORD),
]
OURS_ALONE = {"length huge", "null"}
"""Kafka answers UNKNOWN_SERVER_ERROR to the first (its own overflow), and nothing at all to the second."""


@pytest.mark.parametrize(("name", "batch", "code"), BATCHES, ids=[case[0] for case in BATCHES])
@pytest.mark.parametrize("version", [3, 9])
def test_what_is_not_one_batch_of_format_2_is_refused(
    side: Side, address: str, name: str, batch: Callable[[], bytes | None], code: ErrorCode, version: int
) -> None:
    """KIP-724, KAFKA-18659. Nothing of it is in the log: the next batch gets the next offset."""
    if side.broker is None and name in OURS_ALONE:
        pytest.skip(f"Kafka has no code for {name}")
    before = produced(side.bootstrap, "plain", bytes(good())).base_offset
    assert produce_code(side.bootstrap, "plain", batch(), version, address) is code
    says_once(side, f"refused a batch from {address}:")
    after = produced(side.bootstrap, "plain", bytes(good()))
    assert (after.error_code, after.base_offset) == (0, before + 3)


def test_a_few_bytes_behind_a_batch_are_passed_over(side: Side) -> None:
    """As in Kafka, which takes them for the beginning of what was cut off; two batches are refused."""
    before = produced(side.bootstrap, "plain", bytes(good()) + b"rubbish")
    after = produced(side.bootstrap, "plain", bytes(good()))
    assert (before.error_code, after.error_code, after.base_offset) == (0, 0, before.base_offset + 3)


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
    side: Side, address: str, batch: Callable[[], bytes], topic: str, code: ErrorCode
) -> None:
    assert produce_code(side.bootstrap, topic, batch(), address=address) is code
    says_once(side, f"refused a batch from {address}:")
    assert produce_code(side.bootstrap, topic, bytes(good())) is ErrorCode.NONE


def frames() -> Iterator[bytes]:
    yield (2_000_000).to_bytes(4, "big") + bytes(100)  # above socket.request.max.bytes
    yield (-5).to_bytes(4, "big", signed=True)
    yield b"\x00\x00\x00\x0a\x03\xe7\x00\x00\x00\x00\x00\x07\xff\xff"  # key 999
    yield b"\x00\x00\x00\x0a\x00\x03\x03\xe7\x00\x00\x00\x07\xff\xff"  # Metadata version 999


@pytest.mark.parametrize("frame", list(frames()), ids=["oversized", "negative", "key", "version"])
def test_a_bad_frame_closes_its_connection_and_says_so_once(side: Side, address: str, frame: bytes) -> None:
    with dial(side.bootstrap) as bystander, dial(side.bootstrap, address) as sock:
        sock.sendall(frame)
        with suppress(ConnectionResetError):
            assert sock.recv(1) == b"", "answered"
        bystander.sendall(API_VERSIONS)
        take(bystander, 4)
    serves(side.bootstrap)
    says_once(side, f"closing connection from {address}:")


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


def test_half_a_frame_for_ever_ends_with_the_idle_time(
    alone: Callable[..., BrokerProcess], address: str
) -> None:
    """And with a line, which one that is merely idle does not get."""
    broker = alone(connections_max_idle_ms="1500")
    with dial(broker.bootstrap, address) as sock, dial(broker.bootstrap) as idle:
        sock.sendall(b"\x00\x00\x10\x00half")
        with suppress(ConnectionResetError):
            assert sock.recv(1) == b"", "closed"
        with suppress(ConnectionResetError):
            assert idle.recv(1) == b"", "closed"
    serves(broker.bootstrap)
    assert broker.output.count("closing connection from") == 1
    assert broker.output.count(f"closing connection from {address}:") == 1


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
