"""Partition directories go both ways between this broker and Apache Kafka.

Kafka's DumpLogSegments must understand every file that we write, and a directory that Kafka wrote is opened,
continued by our log, and served by Kafka again.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from broker.clock import SystemClock
from broker.log import Log, LogConfig, Origin
from broker.log.checkpoints import read_meta_properties, read_offsets, read_topic_id
from protocol.records import Codec
from protocol.types import TopicPartition
from tests.support.batches import T0, batch, marker, records_of
from tests.support.clock import VirtualClock
from tests.support.kafka_directories import Kafka, Unsound, dump

pytestmark = [pytest.mark.interop, pytest.mark.slow]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PER_CODEC = 800


@pytest.fixture
def our_directory(tmp_path: Path) -> Path:
    """Several segments with every codec, two transactions, three epochs, all closed properly."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    log = Log.open(directory, LogConfig(segment_bytes=40_000), VirtualClock())
    for i in range(120):
        values = [b"%d" % i + os.urandom(100) for _ in range(7)]
        times = [T0 + i * 10 + n for n in (0, 5, 3, 1, 2, 4, 6)]
        log.append(batch(values, timestamps=times, codec=Codec(i % 5), producer=(50, 0, 7 * i)), i // 50)
    for epoch, commit in ((0, True), (1, False)):
        log.append(batch(2, producer=(60, epoch, 0), transactional=True), 3)
        log.append(marker(60, epoch, commit=commit), 3, Origin.COORDINATOR)
    log.close()
    return directory


def test_kafka_reads_what_we_write(our_directory: Path) -> None:
    segments = len(list(our_directory.glob("*.log")))
    assert segments > 2
    printed = dump(our_directory, "--print-data-log")
    batches = re.findall(r"^baseOffset: .* isvalid: true$", printed, re.MULTILINE)
    assert len(batches) == 120 + 4
    assert len(re.findall(r"^\| offset: ", printed, re.MULTILINE)) == 7 * 120 + 6
    assert {c.lower() for c in re.findall(r"compresscodec: (\w+)", printed)} == set(CODECS)
    assert re.search(r"endTxnMarker: ABORT", printed)
    assert len(re.findall(r"\.timeindex$", printed, re.MULTILINE)) == segments
    checked = dump(our_directory, "--index-sanity-check", kinds=("index", "timeindex"))
    assert checked.count("passed sanity check") == 2 * segments
    dump(our_directory, "--verify-index-only", kinds=("index", "timeindex"))


@pytest.mark.parametrize(("kind", "at"), [("index", 11), ("timeindex", 23), ("log", 500)])
def test_the_tool_would_say_so(our_directory: Path, kind: str, at: int) -> None:
    path = min(our_directory.glob(f"*.{kind}"))
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    with pytest.raises(Unsound):
        dump(our_directory, kinds=(kind,))


def test_kafka_reads_our_snapshots_and_aborted_transactions(our_directory: Path) -> None:
    printed = dump(our_directory, kinds=("snapshot", "txnindex"))
    assert "producerId: 50 producerEpoch: 0" in printed
    assert "lastSequence: 839" in printed
    assert re.search(
        r"version: 0 producerId: 60 firstOffset: 843 lastOffset: 845 lastStableOffset: 846", printed
    )


@pytest.fixture
def kafka() -> Iterator[Kafka]:
    server = Kafka("log")
    try:
        server.start()
        yield server
    finally:
        server.run("wipe")


def fill(bootstrap: str) -> None:
    """Every codec, small segments, one committed and one aborted transaction."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    small = {"segment.bytes": "1048576", "index.interval.bytes": "1024"}
    for created in admin.create_topics([NewTopic("t", 1, 1, config=small)]).values():
        created.result(30)
    for codec in CODECS:
        producer = Producer({
            "bootstrap.servers": bootstrap, "compression.type": codec, "enable.idempotence": True,
            "batch.size": 20_000, "linger.ms": 20,
        })  # fmt: skip
        for i in range(PER_CODEC):
            producer.produce(
                "t", key=b"k%d" % i, value=b"%s-%d" % (codec.encode(), i) + bytes(700), timestamp=T0 + i
            )
            producer.poll(0)
        assert producer.flush(60) == 0
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "x"})
    producer.init_transactions(60)
    for finish in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        producer.produce("t", b"in a transaction")
        producer.flush(60)
        finish(60)


def read_all(log: Log) -> list[bytes | None]:
    found, offset = [], log.start_offset
    while offset < log.end_offset:
        data = log.read_blocking(offset, 1 << 20)
        found += [record.value for record in records_of(data.segments)]
        offset = data.next_offset
    return found


def consumed(bootstrap: str, until: int) -> list[bytes | None]:
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest",
        "isolation.level": "read_uncommitted",
    })  # fmt: skip
    consumer.subscribe(["t"])
    found: list[bytes | None] = []
    try:
        for _ in range(60):
            for message in consumer.consume(5000, timeout=1):
                assert message.error() is None
                found.append(message.value())
            if len(found) >= until:
                break
    finally:
        consumer.close()
    return found


def test_a_directory_of_kafkas_is_continued_and_goes_back(kafka: Kafka) -> None:
    fill(kafka.bootstrap)
    kafka.run("stop")
    directory = kafka.data / "t-0"
    end = read_offsets(str(kafka.data / "recovery-point-offset-checkpoint"))[TopicPartition("t", 0)]
    assert end == 5 * PER_CODEC + 4
    assert read_topic_id(str(directory / "partition.metadata")) is not None
    identity = read_meta_properties(str(kafka.data / "meta.properties"))
    assert identity is not None
    assert identity.broker_id == 1
    config = LogConfig(segment_bytes=1 << 20, index_interval_bytes=1024)

    opened = Log.open(directory, config, SystemClock(), recovery_point=end, clean=True)
    assert opened.end_offset == end
    assert len(opened.segments) > 1
    values = read_all(opened)
    expected = [b"%s-%d" % (codec.encode(), i) + bytes(700) for codec in CODECS for i in range(PER_CODEC)]
    assert values == [*expected, b"in a transaction", b"in a transaction"]
    assert opened.offset_for_timestamp(T0 + PER_CODEC - 1)[1] == PER_CODEC - 1  # type: ignore[index]
    (aborted,) = opened.aborted_transactions(0, end)
    assert (aborted.first_offset, aborted.last_offset) == (end - 2, end - 1)
    assert len(opened.producers) == 6
    snapshot = sorted(opened.producers.to_snapshot())
    opened.release()

    checked = Log.open(directory, config, SystemClock(), clean=False)
    assert checked.end_offset == end, "nothing of it looks damaged to a recovery"
    assert [e[:5] for e in sorted(checked.producers.to_snapshot())] == [e[:5] for e in snapshot]
    more = [b"ours-%d" % i + bytes(700) for i in range(2000)]
    for at in range(0, 2000, 20):
        checked.append(batch(more[at : at + 20], codec=Codec(at // 20 % 5)), checked.epochs.latest)
    checked.close()
    dump(directory)

    kafka.start()
    assert consumed(kafka.bootstrap, len(values) + 2000) == [*values, *more]
