"""A partition that mirrors one of another cluster: how its leader appends, follows the source, is cut back.

The leader of a mirror appends as a follower does, batch for batch; its own followers copy from it as ever,
and as content and epochs are the source's, whoever leads next goes on with the same. Which batches come is
the link's to say. Must not know links, requests or coordinators.
"""

from __future__ import annotations

import logging

from broker.log import AppendRefused, Origin
from broker.log.mirrored import check_mirrored
from broker.replication.partition import Partition
from protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger("isthmus.broker")


def check_mirror(partition: Partition, source: str) -> None:
    """Raise unless this broker leads it and it mirrors `source`."""
    partition.check_leader()
    mine = partition.log.config.isthmus_mirror_source
    if not mine or mine != source:
        text = f"is a mirror of {mine}" if mine else "is no mirror"
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{partition} {text}, not one of {source}")


def append_mirrored(partition: Partition, batches: memoryview, expected: int, source_start: int) -> int:
    """Append what the source has from `expected` on, which has to be this log's end; returns the last offset.

    `source_start`: the source has nothing below it, -1: not known. Raises KafkaError, `AppendRefused`.
    """
    log = partition.log
    if expected != log.end_offset:
        raise AppendRefused(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{partition}: the mirror goes on at {log.end_offset}, not {expected}",
        )
    empty = log.start_offset == log.end_offset
    first = check_mirrored(
        str(partition),
        batches,
        log_end=-1 if empty else log.end_offset,
        last_epoch=log.epochs.latest,
        leader_epoch=partition.leader_epoch,
    )
    if empty and first < log.end_offset:  # the source's log starts inside of this batch
        log.truncate_fully(first)
    else:
        begin_at(partition, min(source_start, first))
    result = partition.append(batches, all_replicas=True, origin=Origin.REPLICATION, flush_later=True)
    follow_start(partition, source_start)
    return result.last_offset


def begin_at(partition: Partition, source_start: int) -> None:
    """Where the source has nothing any more up to an offset behind this log's end, this log begins there."""
    log = partition.log
    if source_start > log.end_offset:
        if log.end_offset > log.start_offset:
            logger.warning(
                "%s: offsets %d to %d are dropped, as the source has none below %d",
                partition, log.start_offset, log.end_offset, source_start,
            )  # fmt: skip
        log.truncate_fully(source_start)
        partition.wake(0)


def follow_start(partition: Partition, source_start: int) -> None:
    """Let go of what the source has let go of."""
    log = partition.log
    start = min(source_start, log.high_watermark)
    if start > log.start_offset:
        log.delete_before(start)


def cut(partition: Partition, offset: int, now: float) -> int:
    """Remove everything from `offset` on, readable or not; returns the new log end.

    Followers find out by epochs, in a term that nothing was appended in. What they had does not count any
    more, else the high watermark would pass records that they do not have.
    """
    log = partition.log
    if log.end_offset > offset:
        logger.warning(
            "%s: offsets %d to %d are cut off, the log that it mirrors has others there",
            partition, offset, log.end_offset,
        )  # fmt: skip
        if offset < log.start_offset:  # nothing of it is left below: it begins anew where it was cut
            log.truncate_fully(offset)
        else:
            log.truncate_to(offset)
        partition.in_sync.cut(partition.replicas, log.end_offset, now)
        partition.wake(0)
    return log.end_offset
