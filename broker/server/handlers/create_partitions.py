"""CreatePartitions (key 37): topics can grow, never shrink.

The answer comes when this broker's metadata shows leaders for the new partitions, or with REQUEST_TIMED_OUT.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from broker.server.context import RequestContext
from broker.server.registry import handles
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from protocol.messages.create_partitions_response import (
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from broker.server.app import Broker


@handles(CreatePartitionsRequest, min=0, max=3)
async def create_partitions(
    request: CreatePartitionsRequest, context: RequestContext
) -> CreatePartitionsResponse:
    named = Counter(topic.name for topic in request.topics)
    unique = {topic.name: topic for topic in request.topics}
    results = await asyncio.gather(
        *(_grow(context.broker, topic, named[name], request) for name, topic in unique.items())
    )
    return CreatePartitionsResponse(results=list(results))


async def _grow(
    broker: Broker, topic: CreatePartitionsTopic, count: int, request: CreatePartitionsRequest
) -> CreatePartitionsTopicResult:
    result = CreatePartitionsTopicResult(name=topic.name, error_message=None)
    assignment = None if topic.assignments is None else [item.broker_ids for item in topic.assignments]
    try:
        if count > 1:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the request names this topic more than once")
        ready = await broker.topics.create_partitions(
            topic.name,
            topic.count,
            assignment,
            request.validate_only,
            wait_s=max(request.timeout_ms, 0) / 1000,
        )
        if not ready:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, "the partitions are created, but have not all leaders yet"
            )
    except KafkaError as error:
        result.error_code, result.error_message = error.code, error.message
    return result
