"""AlterPartitionReassignments (45) and ListPartitionReassignments (46), KIP-455: replicas move.

The controller alone answers; others say NOT_CONTROLLER. An answer says that the move has begun: the new
replicas copy, and the old ones go once all new ones are in sync. What can be seen from here to be wrong is
refused with Kafka's code without asking the controller.
"""

from __future__ import annotations

from functools import partial

from broker.control.controller import Controller
from broker.control.controller_jobs import reassign
from broker.control.controller_store import ControllerMoved
from broker.control.metadata_cache import MetadataCache
from broker.control.nodes import TopicNode
from broker.control.reassignment import is_moving
from broker.server.context import RequestContext
from broker.server.registry import handles
from broker.server.turns import NO_LIMIT, Turns
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
)
from protocol.messages.alter_partition_reassignments_response import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from protocol.messages.list_partition_reassignments_request import ListPartitionReassignmentsRequest
from protocol.messages.list_partition_reassignments_response import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from protocol.types import TopicPartition


@handles(AlterPartitionReassignmentsRequest, min=0, max=0, max_items=NO_LIMIT)
async def alter_partition_reassignments(
    request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    response = AlterPartitionReassignmentsResponse(error_message=None)
    targets: dict[TopicPartition, list[int] | None] = {}
    answers: dict[TopicPartition, ReassignablePartitionResponse] = {}
    turns = Turns()
    async for topic in turns.of(request.topics):
        results = []
        async for wanted in turns.of(topic.partitions):
            answer = ReassignablePartitionResponse(partition_index=wanted.partition_index, error_message=None)
            results.append(answer)
            try:
                _check(context.broker.metadata, topic.name, wanted)
            except KafkaError as error:
                answer.error_code, answer.error_message = error.code, error.message
            else:
                partition = TopicPartition(topic.name, wanted.partition_index)
                targets[partition], answers[partition] = wanted.replicas, answer
        response.responses.append(ReassignableTopicResponse(name=topic.name, partitions=results))
    if targets:
        try:
            begun = await _controller(context).ask(partial(reassign, targets=targets))
        except ControllerMoved as error:
            return AlterPartitionReassignmentsResponse(
                error_code=ErrorCode.NOT_CONTROLLER, error_message=str(error)
            )
        for partition, refusal in begun.items():
            if refusal is not None:
                answers[partition].error_code = refusal.code
                answers[partition].error_message = refusal.message
    return response


@handles(ListPartitionReassignmentsRequest, min=0, max=0)
def list_partition_reassignments(
    request: ListPartitionReassignmentsRequest, context: RequestContext
) -> ListPartitionReassignmentsResponse:
    try:
        core = _controller(context).core
    except ControllerMoved as error:
        return ListPartitionReassignmentsResponse(
            error_code=ErrorCode.NOT_CONTROLLER, error_message=str(error)
        )
    assert core is not None
    asked = None if request.topics is None else {each.name: each.partition_indexes for each in request.topics}
    topics = []
    for name in core.topics if asked is None else asked:
        node = core.topics.get(name)
        if node is None:
            continue
        indexes = node.assignment if asked is None else asked[name]
        moving = [_moving(node, index) for index in indexes if is_moving(node, index)]
        if moving:
            topics.append(OngoingTopicReassignment(name=name, partitions=moving))
    return ListPartitionReassignmentsResponse(error_message=None, topics=topics)


def _moving(node: TopicNode, index: int) -> OngoingPartitionReassignment:
    return OngoingPartitionReassignment(
        partition_index=index,
        replicas=list(node.assignment[index]),
        adding_replicas=list(node.adding.get(index, ())),
        removing_replicas=list(node.removing.get(index, ())),
    )


def _controller(context: RequestContext) -> Controller:
    """Raises ControllerMoved."""
    controller = context.broker.controller
    if controller is None or controller.core is None:
        raise ControllerMoved("this broker is not the controller")
    return controller


def _check(metadata: MetadataCache, topic: str, wanted: ReassignablePartition) -> None:
    where = f"{topic}-{wanted.partition_index}"
    partition = metadata.partition(topic, wanted.partition_index)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {where}")
    if wanted.replicas is None:
        return
    if not wanted.replicas:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{where} needs at least one replica")
    if len(set(wanted.replicas)) != len(wanted.replicas):
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"a broker is named twice for {where}")
    unknown = [number for number in wanted.replicas if number not in metadata.brokers]
    if unknown:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{where}: broker {unknown[0]} is not in this cluster"
        )
