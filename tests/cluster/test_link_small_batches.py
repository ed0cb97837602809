"""Batches of one record, as producers without linger write them: joined on their way, exact all the same."""

import asyncio

import confluent_kafka
import pytest

from protocol.client import ClusterClient, Isolation
from protocol.records import iter_headers
from protocol.types import TopicPartition
from replicator.progress import read_ledgers
from tests.cluster.links import LinkProcess, consumed, copied_to, create, eventually, fresh, running

COUNT = 6000
FEW = 200


def write_one_by_one(bootstrap: str, topic: str, count: int = COUNT, codec: str = "none") -> None:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "batch.num.messages": 1,
            "linger.ms": 0,
            "enable.idempotence": True,
            "compression.type": codec,
        }
    )
    for number in range(count):
        producer.produce(topic, key=b"%d" % (number % 7), value=b"%06d" % number + b"x" * 60, partition=0)
        producer.poll(0)
    assert producer.flush(60) == 0


async def batches(client: ClusterClient, topic: str) -> int:
    """How many batches a partition's log holds."""
    tp, position, found = TopicPartition(topic, 0), 0, 0
    while position < COUNT:
        fetched = await client.fetch(tp, position, isolation=Isolation.READ_UNCOMMITTED)
        for _, header in iter_headers(fetched.records):
            found += header.base_offset >= position
        position = max(header.next_offset for _, header in iter_headers(fetched.records))
    return found


@pytest.mark.parametrize("codec", ["none", "zstd"])
async def test_a_link_that_is_killed_again_and_again_joins_batches_and_stays_exact(
    pair, clients, tmp_path, codec
):
    east, west = clients
    topic = fresh("small")
    await create(east, topic)
    # Small chunks, and progress that is seldom stored: each kill leaves joined batches that no ledger knows.
    flow = {"fetch_max_bytes": 1 << 16, "fetch_partition_max_bytes": 1 << 14, "max_bytes_in_flight": 1 << 20}
    link = pair.link(topic, flow=flow, progress_interval_s=5, progress_bytes=300_000)
    process = LinkProcess(link, str(tmp_path / "link.log"))
    first, rest = COUNT * 3 // 4, COUNT - COUNT * 3 // 4  # which the last one copies
    writing = asyncio.create_task(asyncio.to_thread(write_one_by_one, pair.east, topic, first, codec=codec))
    target = f"{link.source.alias}.{topic}"
    tp = TopicPartition(target, 0)

    async def end() -> int:
        if target not in (await west.metadata(None)).topics:
            return 0
        return (await west.list_offsets({tp: -1}))[tp].offset

    try:
        for share in (0.1, 0.5):
            await process.start()

            async def far(share: float = share) -> bool:
                return await end() >= COUNT * share

            await eventually(far, f"{share:.0%} copied", 60)
            await process.kill()
        await writing
        await process.start()
        await asyncio.to_thread(write_one_by_one, pair.east, topic, rest, codec=codec)
        await copied_to(west, link, topic, COUNT)
        assert await process.stop() == 0
    finally:
        await process.kill()
    source, copy = await consumed(pair.east, topic, COUNT), await consumed(pair.west, target, COUNT)
    assert copy == source  # offsets too: nothing is there twice
    assert await end() == COUNT
    ledger = (await read_ledgers(west, link.name))[TopicPartition(topic, 0)]
    assert list(ledger.runs) == [(0, 0, COUNT)]
    assert (ledger.records, ledger.batches) == (COUNT, COUNT)
    assert await batches(west, target) < await batches(east, topic) / 4


async def test_where_a_target_takes_single_batches_only_they_arrive_as_the_source_has_them(pair, clients):
    east, west = clients
    topic = fresh("narrow")
    await create(east, topic)
    await asyncio.to_thread(write_one_by_one, pair.east, topic, FEW)
    link = pair.link(topic, sync_topic_configs=False)
    target = f"{link.source.alias}.{topic}"
    await create(west, target, max_message_bytes="200")
    async with running(link) as run:
        await copied_to(west, link, topic, FEW)
        assert run.partition(topic)["lane"] == "raw"
    assert await consumed(pair.west, target, FEW) == await consumed(pair.east, topic, FEW)
    ledger = (await read_ledgers(west, link.name))[TopicPartition(topic, 0)]
    assert not ledger.gaps
