"""OffsetForLeaderEpoch (key 23, KIP-101, KIP-320): where a leader epoch ended in this leader's log.

Clients and followers use it to find out whether, and from where, their data differ after a leader change.
librdkafka speaks version 2 alone. An epoch that is newer than any here is answered with -1/-1, which has
readers begin anew by their policy, unless another broker may lead by now: who was deposed and has not heard
of it is asked by clients too, and the epoch may be that of the leader.
"""

from __future__ import annotations

from broker.server.context import RequestContext
from broker.server.registry import handles
from broker.server.turns import NO_LIMIT, Turns
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
)
from protocol.messages.offset_for_leader_epoch_response import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)


@handles(OffsetForLeaderEpochRequest, min=2, max=4, max_items=NO_LIMIT)
async def offset_for_leader_epoch(
    request: OffsetForLeaderEpochRequest, context: RequestContext
) -> OffsetForLeaderEpochResponse:
    turns = Turns()
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    _end(topic.topic, wanted, context) async for wanted in turns.of(topic.partitions)
                ],
            )
            async for topic in turns.of(request.topics)
        ]
    )


def _end(topic: str, wanted: OffsetForLeaderPartition, context: RequestContext) -> EpochEndOffset:
    answer = EpochEndOffset(partition=wanted.partition)
    try:
        partition = context.broker.replicas.leader(topic, wanted.partition, wanted.current_leader_epoch)
    except KafkaError as error:
        answer.error_code = error.code
        return answer
    epoch, end = partition.log.epoch_end_offset(wanted.leader_epoch)
    if epoch < 0 and partition.may_be_deposed():
        answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return answer
    answer.error_code = ErrorCode.NONE
    answer.leader_epoch, answer.end_offset = epoch, end
    return answer
