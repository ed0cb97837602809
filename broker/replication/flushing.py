"""Waiting for the disk where `flush.messages` asks for it, without making anybody else wait.

An append is answered, and readers see it, when it is on disk (Kafka does both inside of the append). The disk
takes milliseconds, so it is waited for in a thread; appends that come meanwhile share the next flush. Knows
nothing of requests.
"""

import asyncio

from broker.log import AppendRefused
from broker.replication.partition import Partition
from protocol.errors import ErrorCode


async def on_disk(partition: Partition, last_offset: int) -> None:
    """Until the record at `last_offset` is on disk. Raises `AppendRefused`, also when it was truncated."""
    log = partition.log
    for _ in range(2):  # the flush that is under way may have begun before the append
        if log.recovery_point > last_offset:
            return
        if partition.flushing is None:
            partition.flushing = asyncio.create_task(_flush(partition), name=f"flush {partition}")
        await asyncio.shield(partition.flushing)
    if log.recovery_point <= last_offset:
        code = ErrorCode.KAFKA_STORAGE_ERROR if partition.is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER
        raise AppendRefused(code, f"{partition}: offset {last_offset} did not get to the disk")


async def _flush(partition: Partition) -> None:
    try:
        await asyncio.to_thread(partition.log.flush_due_appends)
    finally:
        partition.flushing = None
    partition.flushed()
