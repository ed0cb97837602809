"""A real MirrorMaker 2 4.3 is stopped, or killed, half way; our link takes its file and goes on.

The whole source is at the target exactly once afterwards (MirrorMaker 2 itself would write up to a minute
again after a kill), and a group far behind the take-over is translated exactly. Each test has aliases, and so
internal topics, of its own.
"""

import asyncio

import pytest

from protocol.client import ClusterClient, Committed
from protocol.types import TopicPartition
from replicator.mirrormaker.file import parse_mirrormaker
from replicator.progress import read_ledgers
from tests.cluster.links import Pair, content, create, eventually, fresh, produce, records, running, some
from tests.interop.mirrormaker.launcher import mirrormaker
from tests.support.apache_kafka import apache_kafka
from tests.support.slow import slow

pytestmark = [
    pytest.mark.interop,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    slow("starts MirrorMaker 2, two minutes"),
]

BOUND_S = 600
"""MirrorMaker 2 takes some twenty seconds of CPU before it copies its first record."""


@pytest.fixture(scope="module")
def pair():
    with apache_kafka("taken-east") as east, apache_kafka("taken-west") as west:
        yield Pair("apache", east, west)


def settings(pair, pattern, tag, flush):
    return f"""
    clusters = east{tag}, west{tag}
    east{tag}.bootstrap.servers = {pair.east}
    west{tag}.bootstrap.servers = {pair.west}
    east{tag}->west{tag}.enabled = true
    topics = {pattern}
    groups = {pattern}
    sync.group.offsets.enabled = true
    replication.factor = 1
    offset-syncs.topic.replication.factor = 1
    checkpoints.topic.replication.factor = 1
    heartbeats.topic.replication.factor = 1
    offset.storage.replication.factor = 1
    status.storage.replication.factor = 1
    config.storage.replication.factor = 1
    offset.storage.partitions = 3
    offset.flush.interval.ms = {flush}
    refresh.topics.interval.seconds = 2
    emit.heartbeats.enabled = false
    """


async def mirrored(client, topic, count, process, partition=0):
    async def there():
        process.must_run()
        return len(await records(client, topic, partition)) >= count

    await eventually(there, f"MirrorMaker 2 copies {count} records of {topic}", BOUND_S)


@pytest.mark.parametrize("end", ["kill", "stop"])
async def test_a_link_goes_on_where_mirrormaker_stopped(pair, tmp_path, end):
    topic = fresh(f"taken-{end}")
    group = f"{topic}-group"
    text = settings(pair, f"{topic}.*", end, 500 if end == "stop" else 60_000)
    here, there = TopicPartition(topic, 0), TopicPartition(f"east{end}.{topic}", 0)
    (link,) = parse_mirrormaker(text).links
    async with ClusterClient(pair.east) as east, ClusterClient(pair.west) as west:
        await create(east, topic, 2)
        await create(west, there.topic, 2)
        await produce(west, there.topic, some(13, "foreign"))  # so that offsets differ on the two sides
        for number in range(10):
            await produce(east, topic, some(250, f"before-{number}"))
        await produce(east, topic, some(30, "other"), 1)
        with mirrormaker(text, tmp_path) as process:
            await mirrored(west, there.topic, 13 + 2500, process)
            await mirrored(west, there.topic, 30, process, 1)
            async with running(link) as ours:

                async def waits():
                    return "still copies" in str(ours.status.to_json().get("problems"))

                await eventually(waits, "the link says that MirrorMaker 2 runs", 60)
                assert ours.partition(topic) == {}
                await asyncio.to_thread(process.stop if end == "stop" else process.kill)
                assert len(await records(west, there.topic)) == 13 + 2500
                await east.commit(group, {here: Committed(1111)})
                await produce(east, topic, some(77, "after"))

                async def complete():
                    return len(await records(west, there.topic)) >= 13 + 2577

                await eventually(complete, "the link goes on", 120)

                async def translated():
                    return (await west.committed(group)).get(there, Committed(-1)).offset == 13 + 1111

                await eventually(translated, "the group's position behind the take-over is exact", 120)
                notes = [note for note, _ in ours.partition(topic)["notes"]]
                assert any("taken over from MirrorMaker 2 at source offset 2500" in note for note in notes), (
                    notes
                )
                assert await ours.stop() == 0
        source, target = await content(east, topic), await content(west, there.topic)
        assert target[13:] == source  # nothing lost, nothing twice, in order
        assert await content(east, topic, 1) == await content(west, there.topic, 1)
        ledger = (await read_ledgers(west, link.name))[here]
        assert [tuple(run) for run in ledger.runs] == [(0, 13, 2577)]
