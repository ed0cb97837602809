"""Which partitions are being moved to other replicas now (KIP-455), for whoever looks at replicas.

A move shows more replicas than were asked for, some of them not in sync: that is neither drift nor a lack.
"""

from __future__ import annotations

from dataclasses import dataclass

from protocol.client import ClusterClient
from protocol.client.failures import failure
from protocol.messages.list_partition_reassignments_request import ListPartitionReassignmentsRequest
from protocol.types import TopicPartition


@dataclass(frozen=True)
class Move:
    """Replicas that come and go; one that stays is in neither."""

    adding: frozenset[int]
    removing: frozenset[int]


async def moves_under_way(client: ClusterClient) -> dict[TopicPartition, Move]:
    """Raises ProtocolError."""
    answer = await client.send_controller(ListPartitionReassignmentsRequest(topics=None))
    if answer.error_code:
        raise failure(answer.error_code, "ListPartitionReassignments", answer.error_message)
    return {
        TopicPartition(topic.name, each.partition_index): Move(
            frozenset(each.adding_replicas), frozenset(each.removing_replicas)
        )
        for topic in answer.topics
        for each in topic.partitions
    }
