"""Sources whose logs have holes, made by Apache Kafka: transactions with aborted records, and compaction."""

import asyncio

import confluent_kafka
import pytest

from protocol.records import Codec, Record, iter_headers
from protocol.types import TopicPartition
from replicator.progress import read_ledgers
from tests.cluster.links import (
    Pair,
    consumed,
    content,
    copied_to,
    create,
    eventually,
    fresh,
    produce,
    records,
    running,
    some,
)
from tests.support.apache_kafka import apache_kafka

pytestmark = [pytest.mark.interop, pytest.mark.slow]


@pytest.fixture(scope="module")
def pair():
    settings = ("log.cleaner.backoff.ms=200", "log.initial.task.delay.ms=200")
    with apache_kafka("holes-east", *settings) as east, apache_kafka("holes-west") as west:
        yield Pair("apache", east, west)


def transactions(bootstrap, topic, plan):
    """Runs transactions one after the other; `plan` has (tag, records, commit). Returns committed values."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": f"tx-{topic}", "linger.ms": 1}
    )
    producer.init_transactions(30)
    committed = []
    for tag, count, commit in plan:
        producer.begin_transaction()
        values = [f"{tag}-{i}".encode() for i in range(count)]
        for value in values:
            producer.produce(topic, key=b"k", value=value, partition=0)
        producer.flush(30)
        if commit:
            producer.commit_transaction(30)
            committed += values
        else:
            producer.abort_transaction(30)
    return committed


async def test_only_committed_records_are_copied_and_offsets_stay_exact(pair, clients):
    east, west = clients
    topic = fresh("transactions")
    await create(east, topic)
    plan = [("a", 3, True), ("lost", 4, False), ("b", 2, True), ("c", 1, True), ("lost2", 6, False)]
    link = pair.link(topic)
    async with running(link):
        await produce(east, topic, some(5, "plain"))
        committed = await asyncio.to_thread(transactions, pair.east, topic, plan)
        await produce(east, topic, some(5, "after"))
        tp, end = TopicPartition(topic, 0), 5 + 3 + 1 + 4 + 1 + 2 + 1 + 1 + 1 + 6 + 1 + 5

        async def all_marked() -> bool:
            """An abort is answered before its markers are written."""
            return (await east.list_offsets({tp: -1}))[tp].offset == end

        await eventually(all_marked, "the last transaction is marked")
        await copied_to(west, link, topic, end)
    source = await consumed(pair.east, topic, 10 + len(committed))
    target = await consumed(pair.west, f"{link.source.alias}.{topic}", 10 + len(committed))
    assert [row[1:] for row in target] == [row[1:] for row in source]
    assert [value for _, _, value in target[5:-5]] == committed
    ledger = (await read_ledgers(west, link.name))[TopicPartition(topic, 0)]
    assert not ledger.gaps
    assert ledger.records == 10 + len(committed)
    for (here, _, _), (there, _, _) in zip(source, target, strict=True):
        assert ledger.runs.to_target(here) == (there, True)
        assert ledger.runs.to_source(there) == (here, True)


async def test_an_open_transaction_holds_back_only_what_is_behind_it(pair, clients):
    east, west = clients
    topic = fresh("open")
    await create(east, topic)
    await produce(east, topic, some(5, "before"))
    producer = confluent_kafka.Producer({"bootstrap.servers": pair.east, "transactional.id": f"tx-{topic}"})

    def begin():
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(topic, value=b"inside", partition=0)
        producer.flush(30)

    link = pair.link(topic)
    async with running(link):
        await asyncio.to_thread(begin)
        await produce(east, topic, some(5, "behind"))
        await copied_to(west, link, topic, 5)
        assert len(await content(west, f"{link.source.alias}.{topic}")) == 5
        await asyncio.to_thread(producer.commit_transaction, 30)
        await copied_to(west, link, topic, 12)
    assert len(await content(west, f"{link.source.alias}.{topic}")) == 11


async def test_compacted_batches_keep_every_record_and_exact_offsets(pair, clients):
    east, west = clients
    topic = fresh("compacted")
    await create(
        east,
        topic,
        1,
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="0.01",
        segment_ms="200",
        delete_retention_ms="600000",
    )
    tp = TopicPartition(topic, 0)
    for turn, codec in enumerate([*Codec, *Codec]):
        keys = [b"k%d" % (number if number % 3 else turn * 100 + number) for number in range(20)]
        await produce(east, topic, [Record(0, 1000 + turn, key, b"%d" % turn) for key in keys], 0, codec)
    await produce(east, topic, [Record(0, 2000, b"k1", None)])

    async def has_holes():
        await produce(east, topic, [Record(0, 3000, b"last", b"x")])  # rolls the segment before
        await asyncio.sleep(0.3)
        fetched = await east.fetch(tp, 0)
        return any(
            header.record_count != header.last_offset_delta + 1 for _, header in iter_headers(fetched.records)
        )

    await eventually(has_holes, "the cleaner has been here", 60)
    link = pair.link(topic)
    end = (await east.list_offsets({tp: -1}))[tp].offset
    async with running(link):
        await copied_to(west, link, topic, end)
        source = await records(east, topic)
    target = await records(west, f"{link.source.alias}.{topic}")
    latest = {record.key: (record.timestamp, record.value) for record in source}
    assert {record.key: (record.timestamp, record.value) for record in target} == latest
    by_target = {record.offset: record for record in target}
    ledger = (await read_ledgers(west, link.name))[tp]
    assert len(ledger.runs) > 5
    for record in source:  # the cleaner may have gone on since, so the source has a part of what was copied
        there = by_target[ledger.runs.to_target(record.offset).offset]
        assert (there.key, there.value, there.timestamp) == (record.key, record.value, record.timestamp)
