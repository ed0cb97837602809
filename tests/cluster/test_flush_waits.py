"""`flush.messages` on a slow disk: the answer waits for the disk, readers too, and nobody else does."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.client.cluster import ClusterClient
from protocol.client.topic_calls import NewTopic
from protocol.types import TopicPartition
from tests.support.batches import batch
from tests.support.broker import BrokerProcess
from tests.support.clock_shim import ClockShim

pytestmark = pytest.mark.cluster
SYNC_S = 1.5


@pytest.fixture
def shim(tmp_path: Path) -> ClockShim:
    return ClockShim(tmp_path)


@pytest.fixture
def slow_disk(zookeeper: str, tmp_path: Path, shim: ClockShim) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path / "broker", zookeeper, 1)
    with shim.loaded():
        broker.start()
    yield broker
    shim.set()
    broker.kill()


async def end(client: ClusterClient, tp: TopicPartition) -> int:
    return (await client.list_offsets({tp: -1}))[tp].offset


@pytest.mark.parametrize("acks", [1, -1])
async def test_only_the_answer_waits(slow_disk: BrokerProcess, shim: ClockShim, acks: int) -> None:
    durable, plain = TopicPartition("durable", 0), TopicPartition("plain", 0)
    async with ClusterClient(slow_disk.bootstrap) as client, ClusterClient(slow_disk.bootstrap) as other:
        configs = {"flush.messages": "1"}
        await client.create_topics([NewTopic("durable", 1, 1, configs=configs), NewTopic("plain", 1, 1)])
        await client.produce(durable, bytes(batch(2)), acks=acks)
        await other.produce(plain, bytes(batch(1)))
        shim.set(sync_s=SYNC_S)
        began = time.monotonic()
        waiting = [
            asyncio.create_task(client.produce(durable, bytes(batch(1)), acks=acks)) for _ in range(20)
        ]
        others = seen_early = 0
        while not any(each.done() for each in waiting):
            await other.produce(plain, bytes(batch(1)))
            readable = await end(other, durable)
            if time.monotonic() - began < SYNC_S:
                others, seen_early = others + 1, seen_early + readable - 2
        assert time.monotonic() - began >= SYNC_S, "answered before the disk has it"
        assert others > 5, "other topics were served meanwhile"
        assert seen_early == 0, "readers saw what was not on disk"
        await asyncio.gather(*waiting)
        assert time.monotonic() - began < 12 * SYNC_S, "appends that come together share a flush"
        assert await end(other, durable) == 22


async def test_a_killed_broker_has_what_it_has_answered(slow_disk: BrokerProcess) -> None:
    """The recovery point was not written down: the log is read anew, and all of it is there."""
    tp = TopicPartition("durable", 0)
    async with ClusterClient(slow_disk.bootstrap) as client:
        await client.create_topics([NewTopic("durable", 1, 1, configs={"flush.messages": "1"})])
        for _ in range(5):
            await client.produce(tp, bytes(batch(3)), acks=-1)
    slow_disk.kill()
    slow_disk.start()
    async with ClusterClient(slow_disk.bootstrap) as client:
        assert await end(client, tp) == 15
