"""Requests that name very many things leave turns to everybody else (I11)."""

import asyncio
import contextlib
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from broker.control.metadata_cache import MetadataCache
from broker.server.fetch_job import ClientFetch
from broker.server.handlers.describe_topic_partitions import describe_topic_partitions
from broker.server.handlers.elect_leaders import elect_leaders
from broker.server.handlers.reassignments import alter_partition_reassignments
from broker.server.turns import CALLS_IN_A_TURN, CallsInTurns
from protocol.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from protocol.messages.describe_topic_partitions_request import DescribeTopicPartitionsRequest, TopicRequest
from protocol.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from tests.support.served import Served, batch

MANY = 10_000


def elections() -> Any:
    topics = [TopicPartitions(topic="nope", partitions=list(range(MANY)))]
    return elect_leaders(ElectLeadersRequest(topic_partitions=topics), context())


def reassignments() -> Any:
    partitions = [ReassignablePartition(partition_index=index) for index in range(MANY)]
    topics = [ReassignableTopic(name="nope", partitions=partitions)]
    return alter_partition_reassignments(AlterPartitionReassignmentsRequest(topics=topics), context())


def descriptions() -> Any:
    topics = [TopicRequest(name=str(number)) for number in range(MANY)]
    return describe_topic_partitions(DescribeTopicPartitionsRequest(topics=topics), context())


def context() -> Any:
    return SimpleNamespace(broker=SimpleNamespace(metadata=MetadataCache()), api_version=2)


@pytest.mark.parametrize("request_of", [elections, reassignments, descriptions])
async def test_others_get_their_turns(request_of: Any) -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    await asyncio.sleep(0)
    before = turns
    await request_of()
    task.cancel()
    assert turns - before >= 10


async def test_many_readers_of_one_partition_are_answered_in_turns(
    node: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands may wait for the same batch, and others do not wait until all of them have it."""
    node.topics.create("t")
    partition = node.broker.replicas.leader("t", 0, -1)
    attempts = longest = 0
    attempt = ClientFetch.attempt

    def counted(self: ClientFetch) -> Any:
        nonlocal attempts
        attempts += 1
        return attempt(self)

    def another_turn() -> None:
        nonlocal attempts, longest
        longest = max(longest, attempts)
        attempts = 0
        asyncio.get_running_loop().call_soon(another_turn)

    many = 3 * CALLS_IN_A_TURN + 1
    async with contextlib.AsyncExitStack() as clients:
        readers = [await clients.enter_async_context(node.another()) for _ in range(many)]
        request = node.fetch_request("t", 0, max_wait_ms=60_000)
        polls = [asyncio.create_task(reader.send(request, 17)) for reader in readers]
        async with asyncio.timeout(30):
            while len(partition._watchers) < many:
                await asyncio.sleep(0.01)
            monkeypatch.setattr(ClientFetch, "attempt", counted)
            another_turn()
            assert (await node.produce("t", batch(b"news"))).error_code == 0
            answers = await asyncio.gather(*polls)
    assert all(answer.responses[0].partitions[0].records for answer in answers)
    assert longest == CALLS_IN_A_TURN


async def test_a_call_that_fails_takes_no_other_with_it() -> None:
    failed: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failed.append(context["exception"]))
    made: list[int] = []
    calls = CallsInTurns()

    def call(number: int) -> None:
        if number == 1:
            raise ValueError(number)
        made.append(number)
        if number == 2:
            calls.add(partial(call, 100))

    for number in range(4):
        calls.add(partial(call, number))
    for _ in range(5):
        await asyncio.sleep(0)
    assert (made, len(failed)) == ([0, 2, 3, 100], 1)
