"""AlterPartitionReassignments (45) and ListPartitionReassignments (46), KIP-455, for partitions that stay.

Nothing moves partitions between brokers yet, so none is ever under way: a list is empty, a cancellation finds
nothing, the assignment that a partition has already is accepted, and what Kafka would refuse is refused with
its code. A valid new assignment is refused too, and says why.
"""

from __future__ import annotations

from broker.control.metadata_cache import MetadataCache
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
from protocol.messages.list_partition_reassignments_response import ListPartitionReassignmentsResponse


@handles(
    AlterPartitionReassignmentsRequest,
    min=0,
    max=0,
    notes="partitions do not move between brokers yet",
    max_items=NO_LIMIT,
)
async def alter_partition_reassignments(
    request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    metadata, turns = context.broker.metadata, Turns()
    return AlterPartitionReassignmentsResponse(
        error_message=None,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    _reassign(metadata, topic.name, wanted) async for wanted in turns.of(topic.partitions)
                ],
            )
            async for topic in turns.of(request.topics)
        ],
    )


@handles(ListPartitionReassignmentsRequest, min=0, max=0)
def list_partition_reassignments(
    request: ListPartitionReassignmentsRequest, context: RequestContext
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_message=None)


def _reassign(
    metadata: MetadataCache, topic: str, wanted: ReassignablePartition
) -> ReassignablePartitionResponse:
    result = ReassignablePartitionResponse(partition_index=wanted.partition_index, error_message=None)
    try:
        _check(metadata, topic, wanted)
    except KafkaError as error:
        result.error_code, result.error_message = error.code, error.message
    return result


def _check(metadata: MetadataCache, topic: str, wanted: ReassignablePartition) -> None:
    where = f"{topic}-{wanted.partition_index}"
    partition = metadata.partition(topic, wanted.partition_index)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {where}")
    if wanted.replicas is None:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, f"{where} is not being reassigned")
    if not wanted.replicas:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{where} needs at least one replica")
    if len(set(wanted.replicas)) != len(wanted.replicas):
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"a broker is named twice for {where}")
    unknown = [number for number in wanted.replicas if number not in metadata.brokers]
    if unknown:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{where}: broker {unknown[0]} is not in this cluster"
        )
    if list(wanted.replicas) != list(partition.replicas):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"{where} stays on {list(partition.replicas)}: partitions do not move between brokers yet",
        )
