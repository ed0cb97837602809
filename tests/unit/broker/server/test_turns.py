"""Requests that name very many things leave turns to everybody else (I11)."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from broker.control.metadata_cache import MetadataCache
from broker.server.handlers.describe_topic_partitions import describe_topic_partitions
from broker.server.handlers.elect_leaders import elect_leaders
from broker.server.handlers.reassignments import alter_partition_reassignments
from protocol.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from protocol.messages.describe_topic_partitions_request import DescribeTopicPartitionsRequest, TopicRequest
from protocol.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions

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
