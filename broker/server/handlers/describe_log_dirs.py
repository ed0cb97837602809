"""DescribeLogDirs (key 35, KIP-113, KIP-827): which replicas each data directory holds, and how big they are.

Null topics mean all of them. Future replicas (moving between directories) do not exist here. Offset lag is 0
for a replica that leads. A directory that failed answers KAFKA_STORAGE_ERROR and names no topics.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable

from broker.server.context import RequestContext
from broker.server.registry import handles
from protocol.errors import ErrorCode
from protocol.messages.describe_log_dirs_request import DescribeLogDirsRequest
from protocol.messages.describe_log_dirs_response import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from protocol.types import TopicPartition


@handles(DescribeLogDirsRequest, min=1, max=4)
def describe_log_dirs(request: DescribeLogDirsRequest, context: RequestContext) -> DescribeLogDirsResponse:
    logs = context.broker.logs
    wanted: Iterable[TopicPartition] = logs
    if request.topics is not None:
        wanted = [
            TopicPartition(topic.topic, index) for topic in request.topics for index in topic.partitions
        ]
    found: dict[str, dict[str, list[DescribeLogDirsPartition]]] = {path: {} for path in logs.log_dirs}
    for tp in wanted:
        log = logs.get(tp)
        if log is not None:
            lag = max(0, log.high_watermark - log.end_offset)
            found[logs.log_dir(tp)].setdefault(tp.topic, []).append(
                DescribeLogDirsPartition(
                    partition_index=tp.partition, partition_size=log.size, offset_lag=lag, is_future_key=False
                )
            )
    failed = [
        DescribeLogDirsResult(log_dir=path, error_code=ErrorCode.KAFKA_STORAGE_ERROR)
        for path in logs.offline_dirs
    ]
    return DescribeLogDirsResponse(results=[_result(path, topics) for path, topics in found.items()] + failed)


def _result(path: str, topics: dict[str, list[DescribeLogDirsPartition]]) -> DescribeLogDirsResult:
    result = DescribeLogDirsResult(
        log_dir=path,
        topics=[
            DescribeLogDirsTopic(name=name, partitions=partitions) for name, partitions in topics.items()
        ],
    )
    try:
        usage = shutil.disk_usage(path)
    except OSError:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    else:
        result.total_bytes, result.usable_bytes = usage.total, usage.free
    return result
