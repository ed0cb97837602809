"""Metadata (key 3): brokers, topics, leaders, as this broker's cache knows them.

- v0: an empty list of topics means all of them; from v1 null means all and empty means none.
- A topic that does not exist is created first where the client (v4+) and `auto.create.topics.enable` allow
  it; the answer then waits a moment for its leaders, and says LEADER_NOT_AVAILABLE if they are not there yet.
- Topics may be asked for by id from v12 (KIP-516; v10 and v11 have the field, their clients' use of it was
  broken). Authorized operations that were not asked for are -2147483648, which is the field's default.
- Until the controller has told this broker about itself, questions wait: an answer without brokers would
  leave clients stuck, librdkafka does not ask again.
- A topic that is asked for more than once is answered once, as Kafka does.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from broker.control.metadata_cache import PartitionInfo, TopicInfo
from broker.control.topic_rules import wrong_name
from broker.server.context import RequestContext
from broker.server.edge import CloseConnectionError
from broker.server.registry import handles
from broker.server.turns import NO_LIMIT, in_turns
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from protocol.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from protocol.types import ZERO_UUID

if TYPE_CHECKING:
    from broker.server.app import Broker

logger = logging.getLogger("isthmus.broker")

_IDS_FROM = 12
_JOIN_S = 5.0
# Topics that one request may create: each costs writes to ZooKeeper, directories and descriptors (I11).
MOST_CREATED = 100
# All operations on a cluster or a topic, as bits of AclOperation: everything is allowed until there are ACLs.
_CLUSTER_OPERATIONS = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))
_TOPIC_OPERATIONS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))


@handles(MetadataRequest, min=0, max=12, max_items=NO_LIMIT)
async def metadata(request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    broker = context.broker
    if not broker.metadata.brokers:
        await _joined(broker)
    response = _cluster(broker, context)
    if request.topics is None or (context.api_version == 0 and not request.topics):
        response.topics = [_describe(broker, topic, context) for topic in broker.metadata.topics.values()]
    else:
        topics = {(topic.name, topic.topic_id): topic for topic in request.topics}
        missing = [name for name, _ in topics if name is not None and broker.metadata.topic(name) is None]
        refused: dict[str, ErrorCode] = {}
        if missing and request.allow_auto_topic_creation and broker.config.auto_create_topics_enable:
            refused = await _create(broker, missing)
            response = _cluster(broker, context)
        response.topics = [
            _answer(broker, wanted, refused, context) async for wanted in in_turns(topics.values())
        ]
    _add_operations(request, response)
    return response


async def _joined(broker: Broker) -> None:
    """Until this broker belongs to its cluster. A killed predecessor's session may have to end first."""
    wait_s = broker.config.zookeeper_session_timeout_ms / 1000 + _JOIN_S
    if not await broker.metadata.wait_until(lambda: bool(broker.metadata.brokers), wait_s):
        raise CloseConnectionError("Metadata was asked for, but this broker does not know its cluster yet")


def _cluster(broker: Broker, context: RequestContext) -> MetadataResponse:
    cache, listener = broker.metadata, context.connection.listener
    return MetadataResponse(
        cluster_id=cache.cluster_id or None,
        controller_id=cache.controller_id,
        brokers=[
            MetadataResponseBroker(
                node_id=info.broker_id,
                host=info.endpoints[listener].host,
                port=info.endpoints[listener].port,
                rack=info.rack,
            )
            for info in cache.alive(listener)
        ],
    )


def _answer(
    broker: Broker, wanted: MetadataRequestTopic, refused: dict[str, ErrorCode], context: RequestContext
) -> MetadataResponseTopic:
    """One asked-for topic, by name or by id."""
    if wanted.topic_id != ZERO_UUID or wanted.name is None:
        return _answer_by_id(broker, wanted, context)
    known = broker.metadata.topic(wanted.name)
    if known is not None:
        return _describe(broker, known, context)
    code = refused.get(wanted.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if wrong_name(wanted.name) is not None:  # also where nothing may be created
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
    return MetadataResponseTopic(error_code=code, name=wanted.name)


def _answer_by_id(
    broker: Broker, wanted: MetadataRequestTopic, context: RequestContext
) -> MetadataResponseTopic:
    if context.api_version < _IDS_FROM or wanted.topic_id == ZERO_UUID:
        return MetadataResponseTopic(
            error_code=ErrorCode.INVALID_REQUEST, name=wanted.name or "", topic_id=wanted.topic_id
        )
    name = broker.metadata.topic_name(wanted.topic_id)
    known = None if name is None else broker.metadata.topic(name)
    if known is None:
        return MetadataResponseTopic(
            error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=wanted.topic_id
        )
    return _describe(broker, known, context)


def _describe(broker: Broker, topic: TopicInfo, context: RequestContext) -> MetadataResponseTopic:
    brokers, listener = broker.metadata.brokers, context.connection.listener
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[
            MetadataResponsePartition(
                error_code=_partition_error(broker, info, listener),
                partition_index=info.partition,
                leader_id=info.leader if info.leader in brokers else -1,
                leader_epoch=info.leader_epoch,
                replica_nodes=list(info.replicas),
                isr_nodes=list(info.isr),
                offline_replicas=[replica for replica in info.replicas if replica not in brokers],
            )
            for info in topic.partitions.values()
        ],
    )


def _partition_error(broker: Broker, info: PartitionInfo, listener: str) -> ErrorCode:
    leader = broker.metadata.brokers.get(info.leader)
    if leader is None:
        return ErrorCode.LEADER_NOT_AVAILABLE
    return ErrorCode.NONE if listener in leader.endpoints else ErrorCode.LISTENER_NOT_FOUND


async def _create(broker: Broker, names: list[str]) -> dict[str, ErrorCode]:
    """Create missing topics with the broker's defaults; the code to answer for those that are not there.

    Those above `MOST_CREATED` have to be asked for again, as clients do with this code.
    """
    refused: dict[str, ErrorCode] = {}
    for number, name in enumerate(dict.fromkeys(names)):
        if number >= MOST_CREATED:
            refused[name] = ErrorCode.LEADER_NOT_AVAILABLE
            continue
        try:
            await broker.topics.auto_create(name)
        except KafkaError as error:
            code = error.code
            refused[name] = ErrorCode.LEADER_NOT_AVAILABLE if code == ErrorCode.TOPIC_ALREADY_EXISTS else code
        else:
            refused[name] = ErrorCode.LEADER_NOT_AVAILABLE  # unless it has shown up by the time of the answer
    return refused


def _add_operations(request: MetadataRequest, response: MetadataResponse) -> None:
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = _CLUSTER_OPERATIONS
    if request.include_topic_authorized_operations:
        for topic in response.topics:
            topic.topic_authorized_operations = _TOPIC_OPERATIONS
