"""FindCoordinator (key 10): which broker coordinates a group or a transactional id.

- The leader of its partition of `__consumer_offsets` or `__transaction_state`; the topic is made when it is
  first asked for.
- v0 asks for groups only; v4 asks for several keys (KIP-699).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from broker.control.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from broker.server.context import RequestContext
from broker.server.registry import handles
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.find_coordinator_request import FindCoordinatorRequest
from protocol.messages.find_coordinator_response import Coordinator, FindCoordinatorResponse

if TYPE_CHECKING:
    from broker.server.app import Broker

logger = logging.getLogger("isthmus.broker")

_GROUP = 0
_TRANSACTION = 1
_SEVERAL_FROM = 4


@handles(FindCoordinatorRequest, min=0, max=4)
async def find_coordinator(
    request: FindCoordinatorRequest, context: RequestContext
) -> FindCoordinatorResponse:
    if context.api_version >= _SEVERAL_FROM:
        return FindCoordinatorResponse(
            coordinators=[
                await _find(request.key_type, key, context) for key in dict.fromkeys(request.coordinator_keys)
            ]
        )
    found = await _find(request.key_type, request.key, context)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


async def _find(key_type: int, key: str, context: RequestContext) -> Coordinator:
    if key_type not in (_GROUP, _TRANSACTION):
        return _refused(key, ErrorCode.INVALID_REQUEST, f"there are no coordinators of type {key_type}")
    broker = context.broker
    topic = OFFSETS_TOPIC if key_type == _GROUP else TRANSACTIONS_TOPIC
    if key_type == _TRANSACTION and not key:
        return _refused(key, ErrorCode.INVALID_REQUEST, "the transactional id is empty")
    try:
        await broker.topics.ensure_internal_topic(topic)
    except KafkaError as error:
        broker.groups.report_trouble(f"{topic} cannot be made: {error}")
        return _refused(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{topic} cannot be made: {error}")
    coordinator = broker.groups if key_type == _GROUP else broker.transactions
    return _leader(broker, key, topic, coordinator.partition_of(key), context.connection.listener)


def _leader(broker: Broker, key: str, topic: str, partition: int, listener: str) -> Coordinator:
    node_id = broker.metadata.leader(topic, partition)
    endpoint = broker.metadata.endpoint(node_id, listener)
    if endpoint is None:
        return _refused(
            key,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            f"{topic}-{partition} has no leader with a listener {listener}",
        )
    return Coordinator(
        key=key,
        node_id=node_id,
        host=endpoint.host,
        port=endpoint.port,
        error_code=ErrorCode.NONE,
        error_message="",
    )


def _refused(key: str, code: ErrorCode, message: str) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message)
