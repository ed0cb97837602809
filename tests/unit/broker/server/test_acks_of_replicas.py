"""acks=all with followers: what a producer is told about each partition, whatever happens meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from protocol.client import Connection
from protocol.errors import ErrorCode
from protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.produce_response import PartitionProduceResponse
from tests.support.lone_broker import BROKER_ID
from tests.support.served import Served, batch
from tests.support.waiting import eventually

FOLLOWER = 2
ALL = (BROKER_ID, FOLLOWER)
# The first goes the way of plain requests, the other that of messages.
VERSIONS = (11, 8)


def led_with_a_follower(node: Served, partitions: int, *, only: range | None = None) -> None:
    node.topics.create("t", partitions)
    for index in only or range(partitions):
        node.broker.replicas.leader("t", index).lead(BROKER_ID, 1, ALL, ALL)


async def send(
    node: Served,
    *data: tuple[int, bytes],
    version: int,
    timeout_ms: int = 60_000,
    acks: int = -1,
    connection: Connection | None = None,
) -> dict[int, PartitionProduceResponse]:
    parts = [PartitionProduceData(index=index, records=records) for index, records in data]
    request = ProduceRequest(
        acks=acks, timeout_ms=timeout_ms, topic_data=[TopicProduceData(name="t", partition_data=parts)]
    )
    answer = await (connection or node.connection).send(request, version)
    return {part.index: part for topic in answer.responses for part in topic.partition_responses}


def replicated(node: Served, index: int, end: int) -> None:
    node.broker.replicas.leader("t", index).followed(FOLLOWER, end, 0, 1.0)


async def appended(node: Served, *indexes: int) -> None:
    async def ends() -> list[int]:
        return [node.broker.replicas.leader("t", index).log.end_offset for index in indexes]

    await eventually(ends, all)


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_new_term_of_the_same_leader_does_not_fail_what_waits_behind_another_partition(
    node: Served, version: int
) -> None:
    """A producer that is not idempotent would write again what is stored."""
    led_with_a_follower(node, 2)
    waiting = asyncio.create_task(send(node, (0, batch(b"a")), (1, batch(b"b")), version=version))
    await appended(node, 0, 1)
    node.broker.replicas.leader("t", 1).lead(BROKER_ID, 2, ALL, ALL, 1)  # a member of its ISR has died
    replicated(node, 1, 1)
    replicated(node, 0, 1)
    answer = await waiting
    assert {index: (part.error_code, part.base_offset) for index, part in answer.items()} == {
        0: (ErrorCode.NONE, 0),
        1: (ErrorCode.NONE, 0),
    }


@pytest.mark.parametrize("version", VERSIONS)
async def test_each_partition_has_its_own_answer(node: Served, version: int) -> None:
    """0 alone, 1 replicated, 2 not in time, 3 led by somebody else meanwhile, 4 damaged, 5 unknown."""
    led_with_a_follower(node, 5, only=range(1, 5))
    bad = bytearray(batch(b"x" * 50))
    bad[-1] ^= 1
    data = [(index, batch(b"a")) for index in range(4)] + [(4, bytes(bad)), (9, batch(b"a"))]
    waiting = asyncio.create_task(send(node, *data, version=version, timeout_ms=1000))
    await appended(node, *range(4))
    replicated(node, 1, 1)
    node.broker.replicas.leader("t", 3).lead(FOLLOWER, 2, ALL, ALL, 1)
    answer = await waiting
    assert {index: (part.error_code, part.base_offset) for index, part in answer.items()} == {
        0: (ErrorCode.NONE, 0),
        1: (ErrorCode.NONE, 0),
        2: (ErrorCode.REQUEST_TIMED_OUT, -1),
        3: (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1),
        4: (ErrorCode.CORRUPT_MESSAGE, -1),
        9: (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
    }
    replicated(node, 2, 1)
    again = await send(node, (2, batch(b"b")), version=version, acks=1)
    assert again[2].base_offset == 1, "what was not in time is stored all the same"


@pytest.mark.parametrize("version", VERSIONS)
async def test_an_isr_that_shrinks_below_the_minimum_is_told_after_the_append(
    node: Served, version: int
) -> None:
    node.topics.create("t", 1, min_insync_replicas=2)
    partition = node.broker.replicas.leader("t", 0)
    partition.lead(BROKER_ID, 1, ALL, ALL)
    waiting = asyncio.create_task(send(node, (0, batch(b"a")), version=version))
    await appended(node, 0)
    partition.settle_isr((BROKER_ID,), 1)
    assert (await waiting)[0].error_code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    refused = await send(node, (0, batch(b"b")), version=version)
    assert refused[0].error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert partition.log.end_offset == 1


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_retry_waits_for_what_was_appended_before_it(node: Served, version: int) -> None:
    led_with_a_follower(node, 1)
    first = batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0)
    lost = asyncio.create_task(send(node, (0, first), version=version, timeout_ms=1))
    assert (await lost)[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    second = batch(b"b", producer_id=7, producer_epoch=0, base_sequence=1)
    partition = node.broker.replicas.leader("t", 0)

    async def waits() -> int:
        return len(partition._unacknowledged)

    async with node.another() as another:
        later = asyncio.create_task(send(node, (0, second), version=version))
        await appended(node, 0)
        retried = asyncio.create_task(send(node, (0, first), version=version, connection=another))
        await eventually(waits, lambda count: count == 2)  # the one that timed out is forgotten
        replicated(node, 0, 1)
        assert (await retried)[0].base_offset == 0, "of the first append, which is replicated now"
        assert not later.done()
        replicated(node, 0, 2)
        assert (await later)[0].base_offset == 1
