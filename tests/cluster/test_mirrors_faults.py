"""Mirrors with three replicas while everything dies: the link, and the leaders of the mirror's partitions.

What is left on every replica's disk is, batch for batch, what the source has; Kafka's own tool reads it.
"""

import asyncio
import threading

import pytest

from protocol.client import ClusterClient
from protocol.records import complete_end
from protocol.types import TopicPartition
from replicator.mirrors.assessing import find_mirrors
from replicator.mirrors.switching import failover
from tests.cluster.links import LinkProcess, create, eventually, fresh
from tests.cluster.mirrors import ends, log_bytes, mirror_link, read, transactional, write
from tests.support.apache_kafka import kafka_script, kafka_tool
from tests.support.slow import slow

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

PARTITIONS = 3
SAFE = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}


class Writing(threading.Thread):
    """Transactions, every fourth of them aborted, until told to stop; the values of those that committed."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        self._producer = transactional(bootstrap, topic)
        self._topic = topic
        self.stopped = threading.Event()
        self.committed: list[list[str]] = [[] for _ in range(PARTITIONS)]

    def run(self) -> None:
        number = 0
        while not self.stopped.wait(0.02):
            self._producer.begin_transaction()
            values = [f"{number}-{index}" for index in range(PARTITIONS)]
            for index, value in enumerate(values):
                self._producer.produce(self._topic, value * 20, partition=index)
            if number % 4 == 3:
                self._producer.abort_transaction(30)
            else:
                self._producer.commit_transaction(30)
                for index, value in enumerate(values):
                    self.committed[index].append(value * 20)
            number += 1


def directory(broker, topic, partition):
    return broker.directory / "data" / "log" / f"{topic}-{partition}"


def stored(broker, topic, partition):
    """The batches of a replica, from its directory."""
    folder = directory(broker, topic, partition)
    data = b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))
    return data[: complete_end(data)]


@slow("a minute of killed brokers; test_mirrors kills nothing, test_mirrors_commands the link once")
async def test_killed_links_and_leaders_leave_every_replica_as_the_source(broker, start_three, tmp_path):
    three = start_three(SAFE)
    topic = fresh("faults")
    link = mirror_link(broker.bootstrap, three.bootstrap, topic, replication_factor=3)
    async with ClusterClient(broker.bootstrap) as east:
        await create(east, topic, PARTITIONS)
        writing = await asyncio.to_thread(Writing, broker.bootstrap, topic)
        writing.start()
        process = LinkProcess(link, str(tmp_path / "link.log"))
        await process.start()
        try:
            for round_number in range(4):
                await _goes_on(three, topic)
                if round_number % 2:
                    await process.kill()
                    await process.start()
                else:
                    await _kill_a_leader(three, topic)
            writing.stopped.set()
            await asyncio.to_thread(writing.join, 60)
            async with ClusterClient(three.bootstrap) as west:

                async def level():
                    return await ends(east, topic, PARTITIONS) == await ends(west, topic, PARTITIONS)

                await eventually(level, "all is mirrored", 120)
                originals = [await log_bytes(east, topic, index) for index in range(PARTITIONS)]
                for index, original in enumerate(originals):
                    assert await log_bytes(west, topic, index) == original
                    for each in three.brokers.values():

                        async def copied(each=each, index=index, original=original):
                            return stored(each, topic, index) == original

                        what = f"replica {each.broker_id} of {topic}-{index} is the same"
                        await eventually(copied, what, 90)
                for index in range(PARTITIONS):
                    values = writing.committed[index]
                    found = await asyncio.to_thread(
                        read, three.bootstrap, topic, len(values), partition=index, start=0
                    )
                    assert [value for _, value in found] == values
                assert len(writing.committed[0]) > 50
                await process.kill()
                await failover(None, west, link, await find_mirrors(west, link), lambda text: None)
                producer = await asyncio.to_thread(transactional, three.bootstrap, topic)
                producer.begin_transaction()
                assert await asyncio.to_thread(write, producer, topic, ["after"]) == [None]
                await asyncio.to_thread(producer.commit_transaction, 30)
        finally:
            writing.stopped.set()
            await process.kill()
    _dumped(three, topic)


def _dumped(three, topic) -> None:
    """Kafka's own tool reads what is there after all that."""
    try:
        kafka_script()
    except pytest.skip.Exception:
        return  # said aloud by every test that is about that tool
    for each in three.brokers.values():
        segments = sorted(directory(each, topic, 0).glob("*.log"))
        text = kafka_tool(
            "org.apache.kafka.tools.DumpLogSegments", "--files", ",".join(map(str, segments)), timeout=180
        )
        assert "isvalid: true" in text
        assert "isvalid: false" not in text


async def _goes_on(three, topic) -> None:
    """Until the mirrors have grown since now."""
    async with ClusterClient(three.bootstrap) as west:

        async def there():
            topics = (await west.metadata([topic])).topics
            return topic in topics and len(topics[topic].partitions) == PARTITIONS

        await eventually(there, "the mirror exists", 60)
        before = await ends(west, topic, PARTITIONS)

        async def grown():
            now = await ends(west, topic, PARTITIONS)
            return all(after > earlier + 20 for after, earlier in zip(now, before, strict=True))

        await eventually(grown, f"mirrors grow behind {before}", 120)


async def _kill_a_leader(three, topic) -> None:
    """SIGKILL for the leader of the first partition; it comes back when another one leads."""
    async with ClusterClient(three.bootstrap) as west:
        old = await west.leader(TopicPartition(topic, 0))
        victim = three.brokers[old.node]
        await asyncio.to_thread(victim.kill)

        async def moved():
            await west.metadata([topic])
            west.forget_leader(TopicPartition(topic, 0))
            return (await west.leader(TopicPartition(topic, 0))).node not in (old.node, -1)

        await eventually(_quietly(moved), "another leader", 60)
    await asyncio.to_thread(victim.start)


def _quietly(check):
    async def without_errors():
        from protocol.errors import ProtocolError

        try:
            return await check()
        except ProtocolError:
            return False

    return without_errors
