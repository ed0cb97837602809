"""Where the logs of single replicas end, whoever leads: what an unclean election has to know beforehand.

ListOffsets with replica -2 (Kafka's `ListOffsetsRequest.DEBUGGING_REPLICA_ID`) is answered by any replica,
with its log's end and last leader epoch. Must not decide which replica is best.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple

from protocol.client.offset_calls import LATEST
from protocol.client.spread import by_topic
from protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.list_offsets_response import ListOffsetsResponse
from protocol.types import TopicPartition

_ANY_REPLICA = -2


class LogEnd(NamedTuple):
    """Ordered as elections order them: a later epoch is worth more than a longer log."""

    epoch: int
    offset: int


async def log_ends(
    send: Callable[[ListOffsetsRequest], Awaitable[ListOffsetsResponse]], partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, LogEnd]:
    """Ask one broker; partitions that it does not hold, or cannot read, are left out."""
    topics = [
        ListOffsetsTopic(
            name=name,
            partitions=[
                ListOffsetsPartition(partition_index=tp.partition, timestamp=LATEST) for tp, _ in rows
            ],
        )
        for name, rows in by_topic(dict.fromkeys(partitions)).items()
    ]
    answer = await send(ListOffsetsRequest(replica_id=_ANY_REPLICA, topics=topics))
    return {
        TopicPartition(topic.name, row.partition_index): LogEnd(row.leader_epoch, row.offset)
        for topic in answer.topics
        for row in topic.partitions
        if not row.error_code
    }
