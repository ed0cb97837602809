"""CreateTopics (key 19): any broker takes it, the controller does it.

- The answer comes when this broker's metadata shows a leader for every partition, or with REQUEST_TIMED_OUT
  after the request's timeout; the topic is created in both cases.
- Topics of one request succeed or fail each for itself. v5+ answers with the numbers and settings in force.
- -1 partitions or replicas mean the broker's defaults (KIP-464).
- More than 10,000 partitions in one request are refused before anything is planned, as Kafka does.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from broker.config.view import topic_entries
from broker.control.topic_plan import DEFAULT, Wanted, check_number
from broker.server.context import RequestContext
from broker.server.registry import handles
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from protocol.messages.create_topics_response import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from broker.server.app import Broker


@handles(CreateTopicsRequest, min=2, max=7)
async def create_topics(request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse:
    try:
        check_number(sum(_partitions(topic, context.broker) for topic in request.topics))
    except KafkaError as error:
        names = dict.fromkeys(topic.name for topic in request.topics)
        return CreateTopicsResponse(
            topics=[await _refused(name, error.code, error.message) for name in names]
        )
    named = Counter(topic.name for topic in request.topics)
    results = await asyncio.gather(
        *(
            _create(context.broker, topic, request)
            if named[topic.name] == 1
            else _refused(
                topic.name, ErrorCode.INVALID_REQUEST, "the request names this topic more than once"
            )
            for topic in {topic.name: topic for topic in request.topics}.values()
        )
    )
    return CreateTopicsResponse(topics=list(results))


async def _create(
    broker: Broker, topic: CreatableTopic, request: CreateTopicsRequest
) -> CreatableTopicResult:
    try:
        wanted = _wanted(topic)
        created = await broker.topics.create(
            wanted, validate_only=request.validate_only, wait_s=max(request.timeout_ms, 0) / 1000
        )
    except KafkaError as error:
        return await _refused(topic.name, error.code, error.message)
    if not created.ready and not request.validate_only:
        return await _refused(
            topic.name, ErrorCode.REQUEST_TIMED_OUT, "the topic is created, but has not all leaders yet"
        )
    return CreatableTopicResult(
        name=topic.name,
        topic_id=created.topic_id,
        error_message=None,
        num_partitions=len(created.assignment),
        replication_factor=len(next(iter(created.assignment.values()))),
        configs=[
            CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=entry.source,
                is_sensitive=entry.sensitive,
            )
            for entry in topic_entries(broker.config, wanted.configs, broker.topics.configs.stored)
        ],
    )


def _partitions(topic: CreatableTopic, broker: Broker) -> int:
    if topic.num_partitions == DEFAULT:
        return len(topic.assignments) or broker.config.num_partitions
    return max(topic.num_partitions, 0)


def _wanted(topic: CreatableTopic) -> Wanted:
    """Raises KafkaError for what the request's form allows but no topic can be."""
    configs: dict[str, str] = {}
    for item in topic.configs:
        if item.value is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{item.name}: a topic setting needs a value")
        if item.name in configs:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{item.name}: given more than once")
        configs[item.name] = item.value
    assignment = {item.partition_index: tuple(item.broker_ids) for item in topic.assignments} or None
    if assignment is not None and len(assignment) != len(topic.assignments):
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "a partition is assigned more than once")
    return Wanted(topic.name, topic.num_partitions, topic.replication_factor, configs, assignment)


async def _refused(name: str, code: ErrorCode, message: str) -> CreatableTopicResult:
    """The answer for a topic that was not created; a coroutine, so that it stands beside `_create`."""
    return CreatableTopicResult(
        name=name, error_code=code, error_message=message, configs=None, topic_config_error_code=0
    )
