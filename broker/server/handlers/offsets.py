"""OffsetCommit (8), OffsetFetch (9), OffsetDelete (47): positions of groups.

- A commit is checked partition by partition: one that does not exist (3) or too long a text (12) fails alone;
  an error of the group fails all. OffsetCommit v2-4 may carry a retention time, which becomes the offset's
  own expiry.
- "No offset" is -1 without an error, and only ever said by a coordinator that has read its log to the end.
  An error of the group is repeated on every asked partition.
- OffsetFetch v2+ with null topics asks for all positions; v8 asks for several groups (KIP-709). Who asks for
  stable ones is told UNSTABLE_OFFSET_COMMIT where an open transaction commits a position (v7+, KIP-447).
- OffsetDelete leaves alone what a member reads (GROUP_SUBSCRIBED_TO_TOPIC, KIP-496).
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import TypeVar

from broker.coordinator.groups.group import Group
from broker.coordinator.groups.states import GroupState
from broker.coordinator.groups.subscription import CONSUMER
from broker.coordinator.offsets.committed import NO_EXPIRY, CommittedOffset
from broker.server.context import RequestContext
from broker.server.registry import handles
from broker.server.turns import MANY_ITEMS, Turns
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.offset_commit_request import OffsetCommitRequest, OffsetCommitRequestPartition
from protocol.messages.offset_commit_response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from protocol.messages.offset_delete_request import OffsetDeleteRequest
from protocol.messages.offset_delete_response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from protocol.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from protocol.messages.offset_fetch_response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from protocol.types import TopicPartition

_BATCHED_FROM = 8
_NO_OFFSET = CommittedOffset(-1, -1, "", -1)

P = TypeVar("P", OffsetFetchResponsePartition, OffsetFetchResponsePartitions)
Wanted = list[tuple[str, list[int]]] | None
"""Topics and partitions; None asks for all that the group has."""


# -- commit ------------------------------------------------------------------------------------------------


@handles(OffsetCommitRequest, min=2, max=8, max_items=MANY_ITEMS)
async def offset_commit(request: OffsetCommitRequest, context: RequestContext) -> OffsetCommitResponse:
    offsets = context.broker.groups.offsets
    now_ms = context.broker.clock.now_ms()
    retention_ms = request.retention_time_ms
    expire_ms = NO_EXPIRY if retention_ms < 0 else now_ms + retention_ms
    refused: dict[TopicPartition, ErrorCode] = {}
    accepted: dict[TopicPartition, CommittedOffset] = {}
    turns = Turns()
    async for topic in turns.of(request.topics):
        async for each in turns.of(topic.partitions):
            partition = TopicPartition(topic.name, each.partition_index)
            known = context.broker.metadata.partition(*partition) is not None
            error = _refusal(known, each, offsets.metadata_max)
            if error is not ErrorCode.NONE:
                refused[partition] = error
                continue
            accepted[partition] = CommittedOffset(
                each.committed_offset,
                each.committed_leader_epoch,
                each.committed_metadata or "",
                now_ms,
                expire_ms,
            )
    code = await _commit(request, accepted, context)
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=each.partition_index,
                        error_code=refused.get(TopicPartition(topic.name, each.partition_index), code),
                    )
                    async for each in turns.of(topic.partitions)
                ],
            )
            async for topic in turns.of(request.topics)
        ]
    )


def _refusal(known: bool, each: OffsetCommitRequestPartition, metadata_max: int) -> ErrorCode:
    if not known:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if len(each.committed_metadata or "") > metadata_max:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE


async def _commit(
    request: OffsetCommitRequest, accepted: dict[TopicPartition, CommittedOffset], context: RequestContext
) -> ErrorCode:
    try:
        code: ErrorCode = await context.broker.groups.offsets.commit(
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
            accepted,
        )
    except KafkaError as error:
        return error.code
    return code


# -- fetch -------------------------------------------------------------------------------------------------

Positions = dict[str, list[P]]


@handles(OffsetFetchRequest, min=1, max=8, max_items=MANY_ITEMS)
async def offset_fetch(request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
    turns, stable = Turns(), request.require_stable
    if context.api_version >= _BATCHED_FROM:
        groups = []
        async for group in turns.of(request.groups):
            found, code = await _positions(
                OffsetFetchResponsePartitions, group.group_id, _batched(group), context, stable, turns
            )
            topics = [OffsetFetchResponseTopics(name=name, partitions=each) for name, each in found.items()]
            groups.append(OffsetFetchResponseGroup(group_id=group.group_id, error_code=code, topics=topics))
        return OffsetFetchResponse(groups=groups)
    wanted = None if request.topics is None else [(t.name, t.partition_indexes) for t in request.topics]
    positions, code = await _positions(
        OffsetFetchResponsePartition, request.group_id, wanted, context, stable, turns
    )
    return OffsetFetchResponse(
        error_code=code,
        topics=[OffsetFetchResponseTopic(name=name, partitions=each) for name, each in positions.items()],
    )


def _batched(group: OffsetFetchRequestGroup) -> Wanted:
    return None if group.topics is None else [(topic.name, topic.partition_indexes) for topic in group.topics]


async def _positions(
    made: type[P], group_id: str, wanted: Wanted, context: RequestContext, stable: bool, turns: Turns
) -> tuple[Positions[P], ErrorCode]:
    """Positions by topic, in the order asked for, and the group's error, which then holds for all of them.

    All are of one moment, though others get their turns: what is read is a copy.
    """
    partitions = None
    if wanted is not None:
        every = (TopicPartition(name, index) for name, indexes in wanted for index in indexes)
        partitions = {partition: None async for partition in turns.of(every)}
    known: Mapping[TopicPartition, CommittedOffset] = {}
    unstable: Set[TopicPartition] = frozenset()
    code = ErrorCode.NONE
    try:
        known, pending = context.broker.groups.offsets.fetch(group_id, partitions)
        if stable:
            unstable = pending
    except KafkaError as error:
        code = error.code
    positions: Positions[P] = {}
    async for partition in turns.of(known if partitions is None else partitions):
        is_unstable = partition in unstable
        committed = _NO_OFFSET if is_unstable else known.get(partition, _NO_OFFSET)
        position = made(
            partition_index=partition.partition,
            committed_offset=committed.offset,
            committed_leader_epoch=committed.leader_epoch,
            metadata=committed.metadata,
            error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT if is_unstable else code,
        )
        positions.setdefault(partition.topic, []).append(position)
    return positions, code


# -- delete ------------------------------------------------------------------------------------------------


@handles(OffsetDeleteRequest, min=0, max=0)
async def offset_delete(request: OffsetDeleteRequest, context: RequestContext) -> OffsetDeleteResponse:
    coordinator = context.broker.groups
    try:
        group: Group | None = coordinator.find(request.group_id)
        refusal = _deletion_refusal(request.group_id, group)
        if group is None or refusal is not ErrorCode.NONE:
            return OffsetDeleteResponse(error_code=refusal)
        asked = [
            TopicPartition(topic.name, each.partition_index)
            for topic in request.topics
            for each in topic.partitions
        ]
        refused: dict[TopicPartition, ErrorCode] = {}
        for partition in asked:
            if context.broker.metadata.partition(*partition) is None:
                refused[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif group.members and group.may_read(partition.topic):
                refused[partition] = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        accepted = [partition for partition in asked if partition not in refused]
        code = await coordinator.offsets.delete(request.group_id, accepted)
    except KafkaError as error:
        return OffsetDeleteResponse(error_code=error.code)
    if code is not ErrorCode.NONE:
        return OffsetDeleteResponse(error_code=code)
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=each.partition_index,
                        error_code=refused.get(
                            TopicPartition(topic.name, each.partition_index), ErrorCode.NONE
                        ),
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _deletion_refusal(group_id: str, group: Group | None) -> ErrorCode:
    if not group_id:
        return ErrorCode.INVALID_GROUP_ID
    if group is None:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if group.state is not GroupState.EMPTY and group.protocol_type != CONSUMER:
        return ErrorCode.NON_EMPTY_GROUP  # what its members read is not known
    return ErrorCode.NONE
