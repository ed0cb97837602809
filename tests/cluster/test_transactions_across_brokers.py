"""Transactions whose coordinator, partitions and group are led by different brokers (KIP-98, KIP-890)."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from confluent_kafka import Consumer, TopicPartition

from protocol.client import ClusterClient, Connection
from protocol.client.topic_calls import NewTopic
from protocol.errors import ErrorCode
from protocol.messages.find_coordinator_request import FindCoordinatorRequest
from tests.support.broker import Cluster
from tests.support.transactions import TIMEOUT_S, producer, raw_fetch
from tests.support.transactions_v2 import BOUND_S, V1, RawProducer

pytestmark = pytest.mark.cluster
NONE = ErrorCode.NONE
TOPIC = "spread"
PARTITIONS = 4


@pytest.fixture
def two(cluster: Callable[[int], Cluster]) -> Cluster:
    return cluster(2)


async def connect(two: Cluster, broker: int) -> Connection:
    return await Connection.open("127.0.0.1", two.brokers[broker].port)


async def create(two: Cluster) -> dict[int, int]:
    """The leader of each partition; every broker leads some."""
    async with ClusterClient(two.bootstrap) as client:
        await client.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])
        async with asyncio.timeout(BOUND_S):
            while True:
                known = (await client.metadata([TOPIC])).topics.get(TOPIC)
                leaders = {} if known is None else {at: p.leader for at, p in known.partitions.items()}
                if len(leaders) == PARTITIONS and set(leaders.values()) == {1, 2}:
                    return leaders
                await asyncio.sleep(0.05)


def committed(bootstrap: str, count: int) -> list[str]:
    """Values that read_committed readers find in all partitions, sorted, once there are `count`."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    found: list[str] = []
    deadline = time.monotonic() + BOUND_S
    try:
        consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
        while len(found) < count and time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                found.append((message.value() or b"").decode())
        late = consumer.poll(1.0)
        assert late is None or late.error() is not None, "more than was committed"
    finally:
        consumer.close()
    return sorted(found)


async def test_a_producer_of_version_1(two: Cluster) -> None:
    """librdkafka: batches are checked, and markers written, where the partitions are led."""
    await create(two)
    for name in ("x", "y", "z"):  # their coordinators are on both brokers
        made = await asyncio.to_thread(producer, two.bootstrap, name)
        for commit in (True, False, True):
            made.begin_transaction()
            for index in range(PARTITIONS):
                made.produce(TOPIC, f"{name}-{commit}-{index}", partition=index)
            group = Consumer({"bootstrap.servers": two.bootstrap, "group.id": f"group-{name}"})
            try:
                positions = [TopicPartition(TOPIC, index, 7) for index in range(PARTITIONS)]
                await asyncio.to_thread(
                    made.send_offsets_to_transaction, positions, group.consumer_group_metadata(), TIMEOUT_S
                )
            finally:
                group.close()
            end = made.commit_transaction if commit else made.abort_transaction
            await asyncio.to_thread(end, TIMEOUT_S)
    expected = sorted(f"{name}-True-{index}" for name in "xyz" for index in range(PARTITIONS) for _ in "ab")
    assert await asyncio.to_thread(committed, two.bootstrap, len(expected)) == expected


@asynccontextmanager
async def raw(two: Cluster, name: str, leader: int) -> AsyncIterator[tuple[RawProducer, RawProducer]]:
    """The producer as its coordinator and as the leader of a partition see it."""
    coordinator = await coordinator_of(two, name)
    here = await connect(two, coordinator)
    there = await connect(two, leader)
    try:
        yield RawProducer(here, name), RawProducer(there, name)
    finally:
        await here.close()
        await there.close()


async def coordinator_of(two: Cluster, name: str) -> int:
    connection = await connect(two, 1)
    try:
        async with asyncio.timeout(BOUND_S):
            while True:
                found = await connection.send(FindCoordinatorRequest(key=name, key_type=1), 3)
                if not found.error_code:
                    return int(found.node_id)
                await asyncio.sleep(0.05)
    finally:
        await connection.close()


async def coordinated_elsewhere(two: Cluster, broker: int) -> str:
    """A transactional id whose coordinator is not this broker."""
    for number in range(50):
        name = f"id-{number}"
        if await coordinator_of(two, name) != broker:
            return name
    raise AssertionError("one broker leads the whole transactions topic")


async def test_the_leader_asks_the_coordinator(two: Cluster) -> None:
    leaders = await create(two)
    name = await coordinated_elsewhere(two, leaders[0])
    async with raw(two, name, leaders[0]) as (made, writer):
        first = writer.identity = await made.begin()
        # Version 1: the partition has to be added.
        assert await writer.produce(TOPIC, "no", 0, version=9) is ErrorCode.INVALID_TXN_STATE
        assert await writer.produce(TOPIC, "no", 0, version=11) is ErrorCode.TRANSACTION_ABORTABLE
        assert await made.add(TOPIC) is NONE
        assert await writer.produce(TOPIC, "one", 0, version=9) is NONE
        assert (await made.end(True, version=V1)).code is NONE
        assert (await made.end(True, version=V1)).code is NONE, "answered once the markers are written"
        late = await writer.produce(TOPIC, "no", 1, version=9)
        assert late is ErrorCode.INVALID_TXN_STATE, "it came after the end"
        # Version 2: the leader adds it.
        assert await writer.produce(TOPIC, "two", 1) is NONE
        assert (await made.end(False)).code is NONE
        writer.identity = made.identity
        assert await writer.produce(TOPIC, "three", 0) is NONE
        assert (await made.end(True)).code is NONE
        assert (await made.end(True, identity=writer.identity, follow=False)).code is NONE
        late = await writer.produce(TOPIC, "no", 1, identity=first)
        assert late is ErrorCode.INVALID_PRODUCER_EPOCH
        await nothing_is_open(two, leaders[0])
    assert await asyncio.to_thread(committed, two.bootstrap, 2) == ["one", "three"]


async def nothing_is_open(two: Cluster, leader: int) -> None:
    connection = await connect(two, leader)
    try:
        found = await raw_fetch(connection, TOPIC, 12, "read_committed")
        assert found.last_stable_offset == found.high_watermark
    finally:
        await connection.close()


async def test_a_leader_whose_coordinator_is_dead_lets_the_producer_wait(two: Cluster) -> None:
    leaders = await create(two)
    name = await coordinated_elsewhere(two, leaders[0])
    coordinator = await coordinator_of(two, name)
    async with raw(two, name, leaders[0]) as (made, writer):
        writer.identity = await made.begin()
        two.brokers[coordinator].kill()
        waiting = asyncio.create_task(writer.produce(TOPIC, "waits", 0))
        two.brokers[coordinator].start()  # not in a thread: the broker ends with the thread that started it
        assert await waiting is NONE
        again = await connect(two, coordinator)
        try:
            made = RawProducer(again, name)
            made.identity = writer.identity
            async with asyncio.timeout(BOUND_S):
                while (ended := await made.end(True)).code is not NONE:
                    assert ended.code in (
                        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                        ErrorCode.NOT_COORDINATOR,
                    )
                    await asyncio.sleep(0.05)
        finally:
            await again.close()
    assert await asyncio.to_thread(committed, two.bootstrap, 1) == ["waits"]
