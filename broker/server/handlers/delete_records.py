"""DeleteRecords (key 21, KIP-107): move the log's start forward; -1 means up to the high watermark.

The answer comes when every in-sync replica has done the same, or the request's time is over.

Refused beyond the high watermark (OFFSET_OUT_OF_RANGE) and on topics that are only compacted
(POLICY_VIOLATION, KIP-107's rule that deletion needs `cleanup.policy` delete). So it is on mirrors, which
begin where their source does.
"""

from __future__ import annotations

import asyncio

from broker.log import StorageFailed
from broker.replication import Partition
from broker.server.context import RequestContext
from broker.server.registry import handles
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.delete_records_request import DeleteRecordsPartition, DeleteRecordsRequest
from protocol.messages.delete_records_response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

TO_HIGH_WATERMARK = -1
_NO_OFFSET = -1


@handles(DeleteRecordsRequest, min=0, max=2)
async def delete_records(request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsResponse:
    response = DeleteRecordsResponse()
    waits = []
    for topic in request.topics:
        result = DeleteRecordsTopicResult(name=topic.name)
        response.topics.append(result)
        for wanted in topic.partitions:
            answer = DeleteRecordsPartitionResult(
                partition_index=wanted.partition_index, low_watermark=_NO_OFFSET
            )
            result.partitions.append(answer)
            partition = _delete(topic.name, wanted, answer, context)
            if partition is not None:
                waits.append(_wait(partition, answer, request.timeout_ms / 1000))
    await asyncio.gather(*waits)
    return response


def _delete(
    topic: str, wanted: DeleteRecordsPartition, answer: DeleteRecordsPartitionResult, context: RequestContext
) -> Partition | None:
    """The partition whose log begins later now; its followers may not have heard of it."""
    try:
        partition = context.broker.replicas.leader(topic, wanted.partition_index)
        log = partition.log
        if log.config.is_mirror:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION, f"{topic} is a mirror, its source's log start counts"
            )
        if not log.config.deletes:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"{topic} is compacted, its records are not deleted")
        offset = log.high_watermark if wanted.offset == TO_HIGH_WATERMARK else wanted.offset
        if not 0 <= offset <= log.high_watermark:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{topic}: {offset} is past {log.high_watermark}")
        log.delete_before(offset)
    except KafkaError as error:
        answer.error_code = error.code
    except StorageFailed:
        answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    else:
        answer.low_watermark = partition.low_watermark
        return partition if answer.low_watermark < offset else None
    return None


async def _wait(partition: Partition, answer: DeleteRecordsPartitionResult, timeout_s: float) -> None:
    answer.error_code = await partition.wait_deleted(partition.log.start_offset, timeout_s)
    answer.low_watermark = partition.low_watermark
