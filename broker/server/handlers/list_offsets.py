"""ListOffsets (key 2): the first, last or time-matched offset of partitions that this broker leads.

- -1 is the end that the client may read up to: the high watermark, or the last stable offset for
  read_committed; -2 (and -4, KIP-405) the log's start; -3 the record with the largest timestamp (KIP-734).
- A leader whose high watermark has not reached the beginning of its term does not say where the end is:
  OFFSET_NOT_AVAILABLE (KIP-207), for consumers may have read further already.
- Replica -2 (Kafka's DebuggingConsumerId) asks any replica, also one without a leader, where its log begins
  and ends: that is what an unclean election, and who compares replicas, has to know.
- A time looks up the first record at or after it, inside the batch too, and only below that end.
"""

from __future__ import annotations

import asyncio
from functools import partial

from broker.log import CorruptLog, Log, StorageFailed
from broker.server.context import RequestContext
from broker.server.registry import handles
from broker.server.turns import NO_LIMIT, Turns
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest
from protocol.messages.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
READ_COMMITTED = 1
ANY_REPLICA = -2
NO_EPOCH = -1
_EPOCH_FROM = 4
_NOT_AVAILABLE_FROM = 5
_OLDEST_SPECIAL = {7: MAX_TIMESTAMP, 8: EARLIEST_LOCAL}


@handles(ListOffsetsRequest, min=1, max=8, max_items=NO_LIMIT)
async def list_offsets(request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse:
    response, turns = ListOffsetsResponse(), Turns()
    seen: set[tuple[str, int]] = set()
    async for topic in turns.of(request.topics):
        answers = []
        async for wanted in turns.of(topic.partitions):
            key = (topic.name, wanted.partition_index)
            answer = ListOffsetsPartitionResponse(partition_index=wanted.partition_index)
            try:
                if key in seen:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, f"{topic.name}-{key[1]} is asked for twice")
                if request.replica_id == ANY_REPLICA and wanted.timestamp in (LATEST, EARLIEST):
                    _look_up_extent(topic.name, wanted, context, answer)
                else:
                    await _look_up(topic.name, wanted, request.isolation_level, context, answer)
                if context.api_version < _EPOCH_FROM:
                    answer.leader_epoch = NO_EPOCH
            except KafkaError as error:
                answer.error_code = error.code
            except (CorruptLog, StorageFailed) as error:
                answer.error_code = context.broker.damage.code(f"{topic.name}-{key[1]}", error)
            seen.add(key)
            answers.append(answer)
        response.topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return response


def _look_up_extent(
    topic: str, wanted: ListOffsetsPartition, context: RequestContext, answer: ListOffsetsPartitionResponse
) -> None:
    """Where this replica's log begins or ends, whoever leads. Raises KafkaError."""
    log = context.broker.replicas.hosted(topic, wanted.partition_index).log
    if wanted.timestamp == EARLIEST:
        answer.offset = log.start_offset
        return
    answer.offset, answer.leader_epoch = log.end_offset, log.epochs.current


async def _look_up(
    topic: str,
    wanted: ListOffsetsPartition,
    isolation: int,
    context: RequestContext,
    answer: ListOffsetsPartitionResponse,
) -> None:
    """Fill in the answer. Raises KafkaError."""
    time = wanted.timestamp
    if time < _OLDEST_SPECIAL.get(context.api_version, EARLIEST):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"v{context.api_version} has no timestamp {time}")
    partition = context.broker.replicas.leader(topic, wanted.partition_index, wanted.current_leader_epoch)
    log = partition.log
    if time not in (EARLIEST, EARLIEST_LOCAL) and not partition.knows_its_end:
        code = (
            ErrorCode.OFFSET_NOT_AVAILABLE
            if context.api_version >= _NOT_AVAILABLE_FROM
            else ErrorCode.LEADER_NOT_AVAILABLE
        )
        raise KafkaError(code, f"{partition}: the new leader does not know the high watermark yet")
    readable_end = log.last_stable_offset if isolation == READ_COMMITTED else log.high_watermark
    if time == LATEST:
        answer.offset = readable_end
        answer.leader_epoch = log.epochs.current
    elif time in (EARLIEST, EARLIEST_LOCAL):
        answer.offset = log.start_offset
        answer.leader_epoch = log.epoch_at(log.start_offset)
    else:
        await _look_up_time(context, log, time, readable_end, answer)


async def _look_up_time(
    context: RequestContext, log: Log, time: int, readable_end: int, answer: ListOffsetsPartitionResponse
) -> None:
    look = log.max_timestamp_offset if time == MAX_TIMESTAMP else partial(log.offset_for_timestamp, time)
    found = await asyncio.get_running_loop().run_in_executor(context.broker.disk_readers, look)
    if found is not None and found.offset < readable_end:
        answer.offset, answer.timestamp = found.offset, found.timestamp
        answer.leader_epoch = found.leader_epoch
