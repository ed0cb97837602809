"""DescribeTopicPartitions (key 75, KIP-966): topics by name, page by page, for Kafka 4's admin client.

At most `response_partition_limit` partitions (and 2,000) come in one answer, in the order of names; the next
page begins at the answer's cursor, whose topic must be one that the request names. No topics named means all.
There are no eligible leader replicas here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from broker.control.metadata_cache import MetadataCache, PartitionInfo
from broker.control.topic_rules import wrong_name
from broker.server.context import RequestContext
from broker.server.registry import handles
from broker.server.turns import NO_LIMIT, in_turns
from protocol.errors import ErrorCode
from protocol.messages.describe_topic_partitions_request import Cursor as Start
from protocol.messages.describe_topic_partitions_request import DescribeTopicPartitionsRequest
from protocol.messages.describe_topic_partitions_response import (
    Cursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

MAX_PARTITIONS: Final = 2000
"""Kafka's default of `max.request.partition.size.limit`."""
_OPERATIONS: Final = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))


@handles(DescribeTopicPartitionsRequest, min=0, max=0, max_items=NO_LIMIT)
async def describe_topic_partitions(
    request: DescribeTopicPartitionsRequest, context: RequestContext
) -> DescribeTopicPartitionsResponse:
    metadata = context.broker.metadata
    wanted = {topic.name for topic in request.topics} or metadata.topics.keys()
    names = sorted(wanted)
    start = request.cursor
    if start is not None:
        if start.partition_index < 0 or (request.topics and start.topic_name not in wanted):
            return _refused(request)
        names = names[bisect_left(names, start.topic_name) :]
    limit = max(1, min(request.response_partition_limit, MAX_PARTITIONS))
    return await _page(metadata, names, start, limit)


def _refused(request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(
        topics=[
            DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=topic.name)
            for topic in request.topics
        ]
    )


async def _page(
    metadata: MetadataCache, names: Sequence[str], start: Start | None, limit: int
) -> DescribeTopicPartitionsResponse:
    response = DescribeTopicPartitionsResponse()
    async for name in in_turns(names):
        if limit == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        first = start.partition_index if start is not None and start.topic_name == name else 0
        topic, rest = _topic(metadata, name, first, limit)
        response.topics.append(topic)
        limit -= len(topic.partitions)
        if rest is not None:
            response.next_cursor = Cursor(topic_name=name, partition_index=rest)
            break
    return response


def _topic(
    metadata: MetadataCache, name: str, first: int, limit: int
) -> tuple[DescribeTopicPartitionsResponseTopic, int | None]:
    """Up to `limit` partitions of a topic from `first` on, and the first one that did not fit."""
    known = metadata.topic(name)
    if known is None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if wrong_name(name) is not None:
            code = ErrorCode.INVALID_TOPIC_EXCEPTION
        unknown = DescribeTopicPartitionsResponseTopic(
            error_code=code, name=name, topic_authorized_operations=_OPERATIONS
        )
        return unknown, None
    indexes = [index for index in sorted(known.partitions) if index >= first]
    topic = DescribeTopicPartitionsResponseTopic(
        name=name,
        topic_id=known.topic_id,
        is_internal=known.is_internal,
        topic_authorized_operations=_OPERATIONS,
        partitions=[_partition(metadata, known.partitions[index]) for index in indexes[:limit]],
    )
    return topic, indexes[limit] if len(indexes) > limit else None


def _partition(metadata: MetadataCache, info: PartitionInfo) -> DescribeTopicPartitionsResponsePartition:
    led = info.leader in metadata.brokers
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.NONE if led else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=info.partition,
        leader_id=info.leader if led else -1,
        leader_epoch=info.leader_epoch,
        replica_nodes=list(info.replicas),
        isr_nodes=list(info.isr),
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=info.offline(metadata.brokers),
    )
