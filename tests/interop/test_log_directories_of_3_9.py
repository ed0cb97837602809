"""Log directories of Apache Kafka 3.9 are read and continued by our log, and served again by 3.9 and by 4.3.

One data directory goes through it all: every codec, several segments and leader epochs, transactions that
were committed, aborted and left open, a compacted topic, the topics of offsets and transactions; once after a
clean end and once after SIGKILL. DumpLogSegments of both releases finds nothing wrong in what we leave.
Needs Kafka 3.9's jars, see `tests.support.kafka_directories`; more than a minute, so ISTHMUS_SLOW=1.
"""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer
from confluent_kafka import TopicPartition as At
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from broker.clock import SystemClock
from broker.log import AppendRefused, Log, LogConfig
from broker.log.checkpoints import read_epochs, read_offsets, read_topic_id
from broker.log.producer_snapshot import decode_snapshot
from protocol.records import Codec
from protocol.types import TopicPartition
from tests.support.batches import T0, batch, records_of
from tests.support.cleaning import clean
from tests.support.kafka_directories import BEFORE_4, NEWEST, Kafka, dump, earlier_kafka
from tests.support.slow import slow
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    slow("Kafka 3.9's log directories"),
]
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
PER_CODEC: Final = 500
SMALL: Final = {"segment.bytes": "300000", "index.interval.bytes": "1024"}
COMPACTED: Final = {
    "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "max.compaction.lag.ms": "2000",
    "segment.bytes": "100000",
}  # fmt: skip
QUICK: Final = ("log.cleaner.backoff.ms=200", "log.initial.task.delay.ms=200")
OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
Found = list[tuple[int, bytes | None, bytes | None]]
"""Offset, key and value."""


class Written(NamedTuple):
    """A data directory that Kafka 3.9 left, and what its clients had read."""

    data: Path
    records: dict[str, Found]


def transactional(kafka: Kafka, name: str) -> Producer:
    producer = Producer({
        "bootstrap.servers": kafka.bootstrap, "transactional.id": name, "transaction.timeout.ms": 900_000,
        "log_level": 0,
    })  # fmt: skip
    producer.init_transactions(60)
    producer.begin_transaction()
    return producer


def fill(kafka: Kafka, codec: str) -> None:
    """A part of both topics: one codec, idempotent producers."""
    producer = Producer({
        "bootstrap.servers": kafka.bootstrap, "compression.type": codec, "enable.idempotence": True,
        "batch.size": 20_000, "linger.ms": 20, "log_level": 0,
    })  # fmt: skip
    for i in range(PER_CODEC):
        value = b"%s-%d" % (codec.encode(), i) + os.urandom(500)
        producer.produce("t", key=b"k%d" % i, value=value, timestamp=T0 + i)
        producer.produce("c", key=b"k%d" % (i % 50), value=None if i % 50 == 7 else value)
        producer.poll(0)
    assert producer.flush(60) == 0


def end_transactions(kafka: Kafka) -> None:
    """One committed, one aborted, with offsets of a group in both."""
    for name, commit in (("committed", True), ("aborted", False)):
        producer = transactional(kafka, name)
        for topic in ("t", "c"):
            producer.produce(topic, key=b"txn", value=name.encode())
        reader = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "in-transactions"})
        producer.send_offsets_to_transaction(
            [At("t", 0, 5 if commit else 9)], reader.consumer_group_metadata(), 60
        )
        reader.close()
        (producer.commit_transaction if commit else producer.abort_transaction)(60)


def consumed(bootstrap: str, topic: str) -> Found:
    """Everything up to the end, aborted records too."""
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_uncommitted",
        "enable.auto.commit": False, "enable.partition.eof": True,
    })  # fmt: skip
    found: Found = []
    consumer.assign([At(topic, 0, OFFSET_BEGINNING)])
    try:
        while (message := consumer.poll(60)) is not None:
            if message.error() is not None:
                assert message.error().name() == "_PARTITION_EOF", message.error()
                consumer.commit(offsets=[At(topic, 0, message.offset())], asynchronous=False)
                return found
            found.append((message.offset(), message.key(), message.value()))
    finally:
        consumer.close()
    raise AssertionError(f"{topic}: the end does not come after {len(found)} records")


def read_all(log: Log) -> Found:
    found, offset = [], log.start_offset
    while offset < log.end_offset:
        data = log.read_blocking(offset, 1 << 20)
        found += [
            (record.offset, record.key, record.value)
            for record in records_of(data.segments)
            if record.offset >= offset
        ]
        offset = data.next_offset
    return found


def committed(records: Found) -> dict[bytes | None, bytes | None]:
    """Newest value of each key, without what was aborted or left open."""
    return {key: value for _, key, value in records if value not in (b"aborted", b"open")}


@pytest.fixture
def kafka() -> Iterator[Kafka]:
    earlier_kafka()
    server = Kafka("before-4", BEFORE_4)
    try:
        server.start(*QUICK)
        yield server
    finally:
        server.run("wipe")


def write(kafka: Kafka) -> dict[str, Found]:
    """Fill both topics over two leader epochs; returns what Kafka's clients read of them."""
    topics = [NewTopic("t", 1, 1, config=SMALL), NewTopic("c", 1, 1, config=COMPACTED)]
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    for created in admin.create_topics(topics).values():
        created.result(60)
    for codec in CODECS[:3]:
        fill(kafka, codec)
    kafka.run("stop")
    kafka.start(*QUICK)  # a leader epoch further
    for codec in CODECS[3:]:
        fill(kafka, codec)
    end_transactions(kafka)
    left_open = transactional(kafka, "open")
    left_open.produce("t", key=b"txn", value=b"open")
    assert left_open.flush(60) == 0
    directory = kafka.data / "c-0"
    wait_until(lambda: len(list(directory.glob("*.log"))) < 5, "Kafka's cleaner merges segments", bound_s=60)
    return {"t": consumed(kafka.bootstrap, "t")}


def open_log(directory: Path, config: LogConfig, *, clean_start: bool) -> Log:
    points = read_offsets(str(directory.parent / "recovery-point-offset-checkpoint"))
    topic, _, number = directory.name.rpartition("-")
    return Log.open(
        directory, config, SystemClock(), clean=clean_start,
        recovery_point=points.get(TopicPartition(topic, int(number)), 0),
    )  # fmt: skip


SMALL_LOG: Final = LogConfig(segment_bytes=300_000, index_interval_bytes=1024)
COMPACT_LOG: Final = LogConfig(cleanup_policy="compact", segment_bytes=100_000, file_delete_delay_ms=0)


def check_read(data: Path, records: dict[str, Found], *, clean_start: bool) -> None:
    """What our log finds is what Kafka's clients found, and its state is Kafka's own."""
    log = open_log(data / "t-0", SMALL_LOG, clean_start=clean_start)
    assert read_all(log) == records["t"]
    assert len(log.segments) > 3
    assert {value.partition(b"-")[0].decode() for _, _, value in records["t"] if value} >= set(CODECS)
    (aborted,) = log.aborted_transactions(0, log.end_offset)
    values = {offset: value for offset, _, value in records["t"]}
    assert (values[aborted.first_offset], values[log.last_stable_offset]) == (b"aborted", b"open")
    assert log.last_stable_offset == log.end_offset - 1
    assert log.epochs.entries() == read_epochs(str(data / "t-0" / "leader-epoch-checkpoint"))
    assert len(log.epochs.entries()) >= 2
    at = log.offset_for_timestamp(T0 + PER_CODEC - 1)
    assert at is not None
    assert at[1] == PER_CODEC - 1
    if clean_start:
        newest = max((data / "t-0").glob("*.snapshot"))
        theirs = decode_snapshot(newest.read_bytes(), newest.name)
        assert sorted(entry[:5] for entry in log.producers.to_snapshot()) == sorted(e[:5] for e in theirs)
    log.release()
    compacted = open_log(data / "c-0", COMPACT_LOG, clean_start=clean_start)
    kept = committed(read_all(compacted))
    wanted = committed(records["t"])
    last = {b"k%d" % n: wanted[b"k%d" % (PER_CODEC - 50 + n)] for n in range(50) if n != 7}
    assert kept.pop(b"k7", None) is None
    assert kept == {**last, b"txn": b"committed"}
    compacted.release()
    for topic in (OFFSETS, TRANSACTIONS):
        log = open_log(data / f"{topic}-0", COMPACT_LOG, clean_start=clean_start)
        assert len(read_all(log)) >= 3
        log.release()


def continued(data: Path) -> tuple[Found, dict[bytes | None, bytes | None]]:
    """Our log writes on, rolls, and compacts. Returns what is in both topics."""
    log = open_log(data / "t-0", SMALL_LOG, clean_start=True)
    epoch = log.epochs.latest
    at = max(log.producers.to_snapshot(), key=lambda entry: entry.last_sequence)
    pid = (at.producer_id, at.epoch, at.last_sequence + 1)
    with pytest.raises(AppendRefused):
        log.append(batch(2, producer=(pid[0], pid[1], pid[2] + 5)), epoch)
    stored = log.append(batch([b"next", b"one"], producer=pid), epoch)
    again = log.append(batch([b"next", b"one"], producer=pid), epoch)
    assert (again.duplicate, again.base_offset) == (True, stored.base_offset)
    for i in range(1200):
        log.append(batch([b"ours-%d" % i + os.urandom(500)], codec=Codec(i % 5)), epoch)
    log.high_watermark = log.end_offset
    log.close()
    wrote = read_all(log)

    point = read_offsets(str(data / "cleaner-offset-checkpoint"))[TopicPartition("c", 0)]
    log = open_log(data / "c-0", COMPACT_LOG, clean_start=True)
    for i in range(60):
        log.append(batch([b"ours"], keys=[b"k%d" % i], timestamps=[T0 + 1]), log.epochs.latest)
    log.high_watermark = log.end_offset
    log.roll()
    clock = SystemClock()
    assert clean(log, clock, point) == log.end_offset
    log.segments.sweep(clock.now_ms() + 1)
    log.close()
    return wrote, committed(read_all(log))


def check_dumped(data: Path, release: str) -> None:
    """Both tools' checks over every partition that our log or theirs has written."""
    everything = [data / name for name in ("t-0", "c-0", f"{OFFSETS}-0", f"{TRANSACTIONS}-0")]
    printed = dump(data / "t-0", "--deep-iteration", "--print-data-log", release=release)
    assert {codec.lower() for codec in re.findall(r"compresscodec: (\w+)", printed)} == set(CODECS)
    assert re.search(r"endTxnMarker: ABORT", printed)
    every_kind = ("log", "index", "timeindex", "snapshot", "txnindex")
    dump(everything, "--deep-iteration", kinds=every_kind, holes=True, release=release)
    indexes = ("index", "timeindex")
    dump(everything, "--verify-index-only", kinds=indexes, release=release)
    checked = dump(everything, "--index-sanity-check", kinds=indexes, release=release)
    files = [path for place in everything for kind in indexes for path in place.glob(f"*.{kind}")]
    assert checked.count("passed sanity check") + checked.count("is empty.") == len(files) >= 16
    logs = ("log",)
    offsets = dump(everything[2], "--offsets-decoder", kinds=logs, holes=True, release=release)
    assert "in-transactions" in offsets
    states = dump(everything[3], "--transaction-log-decoder", kinds=logs, holes=True, release=release)
    assert re.search(r'state=CompleteCommit|"transactionStatus":4', states)
    assert re.search(r'state=Ongoing|"transactionStatus":1', states)


def internal_logs_pass_through(data: Path) -> None:
    """Offsets and transactions are opened, rolled and closed by us too: indexes and snapshots are ours."""
    for topic in (OFFSETS, TRANSACTIONS):
        log = open_log(data / f"{topic}-0", COMPACT_LOG, clean_start=True)
        before = read_all(log)
        log.roll()
        log.close()
        assert read_all(log) == before


def check_served(kafka: Kafka, records: Found, newest: dict[bytes | None, bytes | None]) -> None:
    """By Kafka: all that was there; the open transaction ends when its producer comes back."""
    assert consumed(kafka.bootstrap, "t")[: len(records)] == records
    assert committed(consumed(kafka.bootstrap, "c")) == newest
    producer = transactional(kafka, "open")
    producer.produce("t", key=b"txn", value=b"again")
    producer.commit_transaction(60)
    group = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "in-transactions"})
    assert [at.offset for at in group.committed([At("t", 0)], timeout=60)] == [5]
    group.close()


def sizes_of_4(kafka: Kafka) -> None:
    """Kafka 4 does not start with topics whose `segment.bytes` is below a mebibyte (KIP-1030)."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    entry = ConfigEntry("segment.bytes", "1048576", incremental_operation=AlterConfigOpType.SET)
    for topic in ("t", "c"):
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(60)


@pytest.mark.timeout(2700)
def test_through_our_log_and_back_to_3_9_and_4_3(kafka: Kafka) -> None:
    records = write(kafka)
    kafka.run("stop")
    assert read_topic_id(str(kafka.data / "t-0" / "partition.metadata")) is not None
    check_read(kafka.data, records, clean_start=True)
    check_read(kafka.data, records, clean_start=False)
    wrote, newest = continued(kafka.data)
    internal_logs_pass_through(kafka.data)
    for release in (BEFORE_4, NEWEST):
        check_dumped(kafka.data, release)

    later = Kafka("after-ours", NEWEST)
    try:
        kafka.start(*QUICK)
        check_served(kafka, wrote, newest)
        sizes_of_4(kafka)
        kafka.run("stop")
        shutil.copytree(kafka.data, later.data)
        later.start(*QUICK)
        check_served(later, wrote, newest)
        later.run("stop")
        for data in (kafka.data, later.data):  # and once more, what they wrote behind it
            log = open_log(data / "t-0", SMALL_LOG, clean_start=True)
            assert log.last_stable_offset == log.end_offset
            assert read_all(log)[: len(wrote)] == wrote
            assert read_all(log)[-1][2] == b"again"
            log.release()
    finally:
        later.run("wipe")


@pytest.mark.timeout(1800)
def test_what_a_killed_3_9_leaves(kafka: Kafka, tmp_path: Path) -> None:
    records = write(kafka)
    kafka.kill()
    check_read(kafka.data, records, clean_start=False)
    torn = tmp_path / "data"
    shutil.copytree(kafka.data, torn)
    with max((torn / "t-0").glob("*.log")).open("ab") as file:
        file.write(bytes(range(200)))
    check_read(torn, records, clean_start=False)
