"""Apache Kafka reads what our cleaner leaves, and our log reads what Kafka's cleaner leaves.

DumpLogSegments checks every file of a log that was compacted here, indexes deeply. A compacted topic of
Apache Kafka is opened, compacted further and continued by our log, and Kafka serves it again.
"""

import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from broker.clock import SystemClock
from broker.log import Log, LogConfig, Origin
from broker.log.checkpoints import read_offsets
from protocol.records import Codec
from protocol.types import TopicPartition
from tests.support.batches import T0, batch, marker, records_of
from tests.support.cleaning import clean
from tests.support.clock import VirtualClock
from tests.support.kafka_directories import Kafka, dump
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.slow]
COMPACT = LogConfig(
    cleanup_policy="compact", segment_bytes=60_000, delete_retention_ms=60_000, index_interval_bytes=500,
    file_delete_delay_ms=0,
)  # fmt: skip


@pytest.fixture
def cleaned_directory(tmp_path: Path) -> Path:
    """Compacted twice: every codec, tombstones with a horizon, markers, emptied batches of producers."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    clock = VirtualClock()
    log = Log.open(directory, COMPACT, clock)
    checkpoint = None
    for part in range(3):
        for i in range(150):
            keys = [b"k%d" % ((i * 7 + n * 13 + part) % 90) for n in range(7)]
            values = [None if (i + n) % 11 == 0 else b"%d-%d" % (part, i) + bytes(150) for n in range(7)]
            times = [T0 + part * 10_000 + i * 10 + n for n in (0, 5, 3, 1, 2, 4, 6)]
            data = batch(
                values, keys=keys, timestamps=times, codec=Codec(i % 5),  # type: ignore[arg-type]
                producer=(50 + i % 3, 0, 7 * (part * 50 + i // 3)),
            )  # fmt: skip
            log.append(data, part)
            if i % 50 == 10:
                log.append(
                    batch(2, keys=[b"k1", b"k2"], producer=(60, part * 3 + i // 50, 0), transactional=True),
                    part,
                )
                log.append(marker(60, part * 3 + i // 50, commit=i == 60), part, Origin.COORDINATOR)
        log.high_watermark = log.end_offset
        log.roll()
        checkpoint = clean(log, clock, checkpoint)
        clock.advance(61)
    log.segments.sweep(clock.now_ms())
    log.close()
    return directory


def test_dump_log_segments_reads_a_cleaned_log(cleaned_directory: Path) -> None:
    printed = dump(cleaned_directory, "--print-data-log", kinds=("log",), holes=True)
    assert "isvalid: true" in printed
    assert "deleteHorizonMs: OptionalLong[" in printed
    assert printed.count("| offset: ") < 1000
    indexes = len([*cleaned_directory.glob("*.index"), *cleaned_directory.glob("*.timeindex")])
    checked = dump(cleaned_directory, "--index-sanity-check", kinds=("index", "timeindex"))
    assert checked.count("passed sanity check") + checked.count("is empty.") == indexes >= 4
    dump(cleaned_directory, "--verify-index-only", kinds=("index", "timeindex"))
    dump(cleaned_directory, kinds=("index", "timeindex"))
    aborted = dump(cleaned_directory, kinds=("snapshot", "txnindex"))
    assert "producerId: 52" in aborted


def fill(bootstrap: str) -> dict[bytes, bytes | None]:
    """Many values of few keys with every codec, a transaction of each kind; returns what shall be left."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    config = {
        "cleanup.policy": "compact", "segment.bytes": "1048576", "min.cleanable.dirty.ratio": "0.01",
        "max.compaction.lag.ms": "3000",
    }  # fmt: skip
    admin.create_topics([NewTopic("t", 1, 1, config=config)])["t"].result(30)
    expected: dict[bytes, bytes | None] = {}
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        producer = Producer({
            "bootstrap.servers": bootstrap, "compression.type": codec, "enable.idempotence": True,
            "batch.size": 20_000, "linger.ms": 20,
        })  # fmt: skip
        for i in range(2000):
            key, value = b"k%d" % (i % 300), b"%s-%d" % (codec.encode(), i) + bytes(700)
            producer.produce("t", key=key, value=value)
            expected[key] = value
            producer.poll(0)
        producer.produce("t", key=b"gone", value=None)
        assert producer.flush(60) == 0
    expected[b"gone"] = None
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "x"})
    producer.init_transactions(60)
    for finish, value in ((producer.commit_transaction, b"kept"), (producer.abort_transaction, b"dropped")):
        producer.begin_transaction()
        producer.produce("t", key=b"txn", value=value)
        producer.flush(60)
        finish(60)
    expected[b"txn"] = b"kept"
    return expected


def newest(log: Log) -> dict[bytes | None, bytes | None]:
    """Last committed value of each key."""
    aborted = log.aborted_transactions(0, log.end_offset)
    found: dict[bytes | None, bytes | None] = {}
    offset = log.start_offset
    while offset < log.end_offset:
        data = log.read_blocking(offset, 1 << 20)
        for record in records_of(data.segments):
            if record.value != b"dropped":
                found[record.key] = record.value
            else:
                assert any(txn.first_offset <= record.offset <= txn.last_offset for txn in aborted)
        offset = data.next_offset
    return found


def consumed(bootstrap: str, wanted: int) -> dict[bytes | None, bytes | None]:
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
    })  # fmt: skip
    consumer.subscribe(["t"])
    found: dict[bytes | None, bytes | None] = {}
    deadline = time.monotonic() + 60
    try:
        while len(found) < wanted and time.monotonic() < deadline:
            for message in consumer.consume(5000, timeout=1):
                assert message.error() is None
                found[message.key()] = message.value()
    finally:
        consumer.close()
    return found


def test_a_compacted_directory_of_kafkas_is_continued_and_goes_back() -> None:
    kafka = Kafka("clean")
    try:
        kafka.start("log.cleaner.backoff.ms=200", "log.initial.task.delay.ms=200")
        expected = fill(kafka.bootstrap)
        directory = kafka.data / "t-0"
        wait_until(lambda: len(list(directory.glob("*.log"))) < 4, "Kafka's cleaner merges segments")
        kafka.run("stop")
        end = read_offsets(str(kafka.data / "recovery-point-offset-checkpoint"))[TopicPartition("t", 0)]
        checkpoint = read_offsets(str(kafka.data / "cleaner-offset-checkpoint"))[TopicPartition("t", 0)]
        assert 0 < checkpoint <= end

        config = LogConfig(cleanup_policy="compact", segment_bytes=1 << 20, file_delete_delay_ms=0)
        clock = SystemClock()
        for clean_start in (True, False):
            log = Log.open(directory, config, clock, recovery_point=end, clean=clean_start)
            assert log.end_offset == end
            assert newest(log) == expected
            log.release()
        log = Log.open(directory, config, clock, recovery_point=end, clean=True)
        log.roll()
        for i in range(300):
            log.append(batch([b"ours"], keys=[b"k%d" % i], timestamps=[clock.now_ms()]), log.epochs.latest)
            expected[b"k%d" % i] = b"ours"
        log.high_watermark = log.end_offset
        log.roll()
        assert clean(log, clock, checkpoint) == log.end_offset
        assert newest(log) == expected
        log.segments.sweep(clock.now_ms() + 1)
        log.close()
        dump(directory, holes=True)

        kafka.start("log.cleaner.backoff.ms=200", "log.initial.task.delay.ms=200")
        assert consumed(kafka.bootstrap, len(expected)) == expected
    finally:
        kafka.run("wipe")
