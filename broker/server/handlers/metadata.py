"""Metadata (key 3): brokers, topics, leaders, as this broker's cache knows them.

- v0: an empty list of topics means all of them; from v1 null means all and empty means none.
- A topic that does not exist is created first where the client (v4+) and `auto.create.topics.enable` allow
  it; the answer then waits a moment for its leaders, and says LEADER_NOT_AVAILABLE if they are not there yet.
- Topics may be asked for by id from v12 (KIP-516; v10 and v11 have the field, their clients' use of it was
  broken). Authorized operations that were not asked for are -2147483648, which is the field's default.
- Until the controller has told this broker about itself, questions wait: an answer without brokers would
  leave clients stuck, librdkafka does not ask again.
- A topic that is asked for more than once is answered once, as Kafka does.
- With thousands of partitions an answer is dear, and many clients ask for the same: the bytes of each topic
  are kept until the controller changes it or the set of living brokers changes.
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
from protocol.codec import dumps
from protocol.codec.schema import Encoded
from protocol.codec.wire import uvarint
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
_FLEXIBLE_FROM = 9
_JOIN_S = 5.0
# Topics that one request may create: each costs writes to ZooKeeper, directories and descriptors (I11).
MOST_CREATED = 100
# All operations on a cluster or a topic, as bits of AclOperation: everything is allowed until there are ACLs.
_CLUSTER_OPERATIONS = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))
_TOPIC_OPERATIONS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))


@handles(MetadataRequest, min=0, max=12, max_items=NO_LIMIT)
async def metadata(request: MetadataRequest, context: RequestContext) -> Encoded:
    broker = context.broker
    if not broker.metadata.brokers:
        await _joined(broker)
    operations = request.include_topic_authorized_operations
    if request.topics is None or (context.api_version == 0 and not request.topics):
        everything = list(broker.metadata.topics.values())
        pieces = [_known(broker, topic, context, operations) async for topic in in_turns(everything)]
    else:
        topics = {(topic.name, topic.topic_id): topic for topic in request.topics}
        missing = [name for name, _ in topics if name is not None and broker.metadata.topic(name) is None]
        refused: dict[str, ErrorCode] = {}
        if missing and request.allow_auto_topic_creation and broker.config.auto_create_topics_enable:
            refused = await _create(broker, missing)
        pieces = [
            _answer(broker, wanted, refused, context, operations)
            async for wanted in in_turns(topics.values())
        ]
    shell = _cluster(broker, context)
    if request.include_cluster_authorized_operations:
        shell.cluster_authorized_operations = _CLUSTER_OPERATIONS
    return _joined_up(shell, pieces, context.api_version)


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


class EncodedMetadata(Encoded):
    API_KEY = MetadataResponse.API_KEY


def _behind_topics(version: int) -> int:
    """Bytes of the answer after the array of topics: cluster operations (v8 to v10), tags (v9+)."""
    return (4 if 8 <= version <= 10 else 0) + (version >= _FLEXIBLE_FROM)


def _joined_up(shell: MetadataResponse, pieces: list[bytes], version: int) -> EncodedMetadata:
    """The answer `shell`, which has no topics, around the encoded topics."""
    empty = dumps(shell, version)
    behind = len(empty) - _behind_topics(version)
    flexible = version >= _FLEXIBLE_FROM
    ahead = behind - (1 if flexible else 4)
    count = uvarint(len(pieces) + 1) if flexible else len(pieces).to_bytes(4, "big")
    return EncodedMetadata([b"".join((empty[:ahead], count, *pieces, empty[behind:]))])


def _piece(topic: MetadataResponseTopic, version: int, operations: bool) -> bytes:
    """One topic as it stands in the array."""
    if operations:
        topic.topic_authorized_operations = _TOPIC_OPERATIONS
    whole = dumps(MetadataResponse(topics=[topic]), version)
    behind = _behind_topics(version)
    return whole[len(dumps(MetadataResponse(), version)) - behind : len(whole) - behind]


def _known(broker: Broker, topic: TopicInfo, context: RequestContext, operations: bool) -> bytes:
    """A topic that is there, from its cache if nothing has changed."""
    generation = broker.metadata.brokers_generation
    key = (generation, context.api_version, context.connection.listener, operations)
    found = topic.encoded.get(key)
    if found is None:
        found = _piece(_describe(broker, topic, context), context.api_version, operations)
        if any(older[0] != generation for older in topic.encoded):
            topic.encoded = {}
        topic.encoded[key] = found
    return found


def _answer(
    broker: Broker,
    wanted: MetadataRequestTopic,
    refused: dict[str, ErrorCode],
    context: RequestContext,
    operations: bool,
) -> bytes:
    """One asked-for topic, by name or by id."""
    if wanted.topic_id != ZERO_UUID or wanted.name is None:
        known, unknown = _by_id(broker, wanted, context)
    else:
        known, unknown = _by_name(broker, wanted.name, refused)
    if known is not None:
        return _known(broker, known, context, operations)
    return _piece(unknown, context.api_version, operations)


def _by_name(
    broker: Broker, name: str, refused: dict[str, ErrorCode]
) -> tuple[TopicInfo | None, MetadataResponseTopic]:
    """The topic, and the answer if there is none."""
    code = refused.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if wrong_name(name) is not None:  # also where nothing may be created
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
    return broker.metadata.topic(name), MetadataResponseTopic(error_code=code, name=name)


def _by_id(
    broker: Broker, wanted: MetadataRequestTopic, context: RequestContext
) -> tuple[TopicInfo | None, MetadataResponseTopic]:
    """The topic, and the answer if there is none."""
    if context.api_version < _IDS_FROM or wanted.topic_id == ZERO_UUID:
        return None, MetadataResponseTopic(
            error_code=ErrorCode.INVALID_REQUEST, name=wanted.name or "", topic_id=wanted.topic_id
        )
    name = broker.metadata.topic_name(wanted.topic_id)
    unknown = MetadataResponseTopic(
        error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=wanted.topic_id
    )
    return None if name is None else broker.metadata.topic(name), unknown


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
                offline_replicas=info.offline(brokers),
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
