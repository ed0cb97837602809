"""DeleteRecords (key 21, KIP-107): move the log's start forward; -1 means up to the high watermark.

Refused beyond the high watermark (OFFSET_OUT_OF_RANGE) and on topics that are only compacted
(POLICY_VIOLATION, KIP-107's rule that deletion needs `cleanup.policy` delete).
"""

from __future__ import annotations

from broker.log import StorageFailed
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
def delete_records(request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[_delete(topic.name, wanted, context) for wanted in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _delete(
    topic: str, wanted: DeleteRecordsPartition, context: RequestContext
) -> DeleteRecordsPartitionResult:
    answer = DeleteRecordsPartitionResult(partition_index=wanted.partition_index, low_watermark=_NO_OFFSET)
    try:
        log = context.broker.replicas.leader(topic, wanted.partition_index).log
        if not log.config.deletes:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"{topic} is compacted, its records are not deleted")
        offset = log.high_watermark if wanted.offset == TO_HIGH_WATERMARK else wanted.offset
        if not 0 <= offset <= log.high_watermark:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{topic}: {offset} is past {log.high_watermark}")
        log.delete_before(offset)
        answer.low_watermark = log.start_offset
    except KafkaError as error:
        answer.error_code = error.code
    except StorageFailed:
        answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    return answer
