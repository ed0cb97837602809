"""LeaderAndIsr, UpdateMetadata, StopReplica (keys 4 to 6): what the controller tells a broker; and
ControlledShutdown (key 7): what a stopping broker asks the controller.

- Orders of an old controller epoch, or meant for an earlier life of this broker (KIP-380), are refused (I3).
- Only the newest versions are served: brokers of one cluster speak the same (schemas: Kafka 3.9, ZooKeeper
  mode).
- LeaderAndIsr of type 2 (KIP-516) lists all that this broker should host: replicas that are not in it
  belong to topics deleted while it was away. They are set aside, not deleted. Topics that it names without
  partitions are not known well enough: what is here of them stays.
- Orders are carried out one after the other. Thousands of partitions are made in a thread and led, stopped or
  set aside in slices, so that clients of others do not wait for their directories.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from broker.control.controller_store import ControllerMoved
from broker.control.metadata_cache import FULL
from broker.server.context import RequestContext
from broker.server.registry import handles
from broker.server.turns import NO_LIMIT
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.controlled_shutdown_request import ControlledShutdownRequest
from protocol.messages.controlled_shutdown_response import ControlledShutdownResponse, RemainingPartition
from protocol.messages.leader_and_isr_request import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from protocol.messages.leader_and_isr_response import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from protocol.messages.stop_replica_request import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from protocol.messages.stop_replica_response import StopReplicaPartitionError, StopReplicaResponse
from protocol.messages.update_metadata_request import UpdateMetadataRequest
from protocol.messages.update_metadata_response import UpdateMetadataResponse
from protocol.types import TopicPartition

if TYPE_CHECKING:
    from broker.server.app import Broker

logger = logging.getLogger("isthmus.broker")

SLICE = 100
"""Partitions in one turn of the event loop: a few milliseconds."""


@handles(LeaderAndIsrRequest, min=5, max=7, notes="between brokers", max_items=NO_LIMIT)
async def leader_and_isr(request: LeaderAndIsrRequest, context: RequestContext) -> LeaderAndIsrResponse:
    broker = context.broker
    refusal = _refusal(broker, request)
    if refusal:
        return LeaderAndIsrResponse(error_code=refusal)
    await _load_settings(broker, request)
    async with broker.replicas.state_change:
        refusal = _refusal(broker, request)  # a newer controller may have spoken meanwhile
        if refusal:
            return LeaderAndIsrResponse(error_code=refusal)
        if request.type == FULL:
            await _set_strays_aside(broker, request)
        response = await _lead_in_slices(broker, request)
    response.partition_errors = []  # versions before 5 had them here, and by topic name
    for topic in response.topics:
        for error in topic.partition_errors:
            error.topic_name = ""
    return response


async def _lead_in_slices(broker: Broker, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
    errors: dict[bytes, list[LeaderAndIsrPartitionError]] = {}
    for topics in _slices(request.topic_states, _part_to_lead):
        prepare = partial(broker.replicas.prepare, topics, is_new=request.type != FULL)
        await asyncio.to_thread(prepare)
        done = broker.replicas.apply_leader_and_isr(
            LeaderAndIsrRequest(
                controller_id=request.controller_id,
                controller_epoch=request.controller_epoch,
                type=request.type,
                topic_states=topics,
                live_leaders=request.live_leaders,
            )
        )
        if done.error_code:
            return done
        for topic in done.topics:
            errors.setdefault(topic.topic_id, []).extend(topic.partition_errors)
    return LeaderAndIsrResponse(
        topics=[LeaderAndIsrTopicError(topic_id=key, partition_errors=each) for key, each in errors.items()]
    )


class _Topic(Protocol):
    partition_states: Any


T = TypeVar("T", bound=_Topic)


def _slices(topics: list[T], part_of: Callable[[T, Any], T]) -> Iterator[list[T]]:
    """The same partitions in the same order, at most `SLICE` at a time. `part_of` gives a topic fewer."""
    room, part = SLICE, []
    for topic in topics:
        at = 0
        while at < len(topic.partition_states):
            states = topic.partition_states[at : at + room]
            part.append(part_of(topic, states))
            at += len(states)
            room -= len(states)
            if not room:
                yield part
                room, part = SLICE, []
    if part:
        yield part


def _part_to_lead(
    topic: LeaderAndIsrTopicState, states: list[LeaderAndIsrPartitionState]
) -> LeaderAndIsrTopicState:
    return LeaderAndIsrTopicState(
        topic_name=topic.topic_name, topic_id=topic.topic_id, partition_states=states
    )


def _part_to_stop(
    topic: StopReplicaTopicState, states: list[StopReplicaPartitionState]
) -> StopReplicaTopicState:
    return StopReplicaTopicState(topic_name=topic.topic_name, partition_states=states)


@handles(UpdateMetadataRequest, min=7, max=8, notes="between brokers", max_items=NO_LIMIT)
def update_metadata(request: UpdateMetadataRequest, context: RequestContext) -> UpdateMetadataResponse:
    broker = context.broker
    refusal = _refusal(broker, request)
    if refusal:
        return UpdateMetadataResponse(error_code=refusal)
    gone = broker.metadata.update(request)
    for name in {topic for topic, _ in gone} | {topic.topic_name for topic in request.topic_states}:
        if broker.metadata.topic(name) is None:
            broker.topics.forget(name)
            broker.metrics.forget_topic(name)
    return UpdateMetadataResponse()


@handles(StopReplicaRequest, min=3, max=4, notes="between brokers", max_items=NO_LIMIT)
async def stop_replica(request: StopReplicaRequest, context: RequestContext) -> StopReplicaResponse:
    broker = context.broker
    async with broker.replicas.state_change:
        refusal = _refusal(broker, request)
        if refusal:
            return StopReplicaResponse(error_code=refusal)
        return await _stop_in_slices(broker, request)


async def _stop_in_slices(broker: Broker, request: StopReplicaRequest) -> StopReplicaResponse:
    errors: list[StopReplicaPartitionError] = []
    for topics in _slices(request.topic_states, _part_to_stop):
        done = broker.replicas.stop_replicas(
            StopReplicaRequest(
                controller_id=request.controller_id,
                controller_epoch=request.controller_epoch,
                topic_states=topics,
            )
        )
        if done.error_code:
            return done
        errors += done.partition_errors
        await asyncio.sleep(0)
    return StopReplicaResponse(partition_errors=errors)


@handles(ControlledShutdownRequest, min=1, max=3, notes="between brokers")
async def controlled_shutdown(
    request: ControlledShutdownRequest, context: RequestContext
) -> ControlledShutdownResponse:
    controller = context.broker.controller
    if controller is None or controller.core is None:
        return ControlledShutdownResponse(error_code=ErrorCode.NOT_CONTROLLER)
    leaving = controller.core.brokers.get(request.broker_id)
    if leaving is None:
        return ControlledShutdownResponse(error_code=ErrorCode.BROKER_ID_NOT_REGISTERED)
    if 0 <= request.broker_epoch < leaving.epoch:
        return ControlledShutdownResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    try:
        # By its epoch as it is now: the job waits for its turn, and the broker may be back by then.
        remaining = await controller.leave(request.broker_id, leaving.epoch)
    except ControllerMoved:
        return ControlledShutdownResponse(error_code=ErrorCode.NOT_CONTROLLER)
    except KafkaError as error:
        return ControlledShutdownResponse(error_code=error.code)
    return ControlledShutdownResponse(
        remaining_partitions=[
            RemainingPartition(topic_name=partition.topic, partition_index=partition.partition)
            for partition in remaining
        ]
    )


def _refusal(
    broker: Broker, request: LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest
) -> ErrorCode:
    """NONE, or why this order is not obeyed."""
    seen = max(broker.metadata.controller_epoch, broker.replicas.controller_epoch)
    if request.controller_epoch < seen:
        logger.warning(
            "%s of controller %d with epoch %d is refused: epoch %d was seen",
            type(request).__name__,
            request.controller_id,
            request.controller_epoch,
            seen,
        )
        return ErrorCode.STALE_CONTROLLER_EPOCH
    if 0 <= request.broker_epoch < broker.metadata.broker_epoch:
        return ErrorCode.STALE_BROKER_EPOCH
    return ErrorCode.NONE


async def _load_settings(broker: Broker, request: LeaderAndIsrRequest) -> None:
    """Settings must be there before a replica's log is made; those of a re-created topic are read anew."""
    configs = broker.topics.configs
    for topic in request.topic_states:
        if topic.partition_states and broker.metadata.topic_id(topic.topic_name) != topic.topic_id:
            configs.forget(topic.topic_name)
    await configs.load_missing(topic.topic_name for topic in request.topic_states)


async def _set_strays_aside(broker: Broker, request: LeaderAndIsrRequest) -> None:
    named = {
        TopicPartition(topic.topic_name, state.partition_index)
        for topic in request.topic_states
        for state in topic.partition_states
    }
    unclear = {topic.topic_name for topic in request.topic_states if not topic.partition_states}
    strays = [item for item in broker.logs if item not in named and item.topic not in unclear]
    for count, partition in enumerate(strays, 1):
        logger.warning("%s is not this broker's any more, its log is set aside", partition)
        if broker.replicas.get(*partition) is not None:
            broker.replicas.stop_replicas(_stop_of(partition, request.controller_epoch))
        broker.logs.set_aside(partition)
        if count % SLICE == 0:
            await asyncio.sleep(0)


def _stop_of(partition: TopicPartition, controller_epoch: int) -> StopReplicaRequest:
    stop = StopReplicaPartitionState(partition_index=partition.partition, leader_epoch=-1)
    topic = StopReplicaTopicState(topic_name=partition.topic, partition_states=[stop])
    return StopReplicaRequest(controller_epoch=controller_epoch, topic_states=[topic])
