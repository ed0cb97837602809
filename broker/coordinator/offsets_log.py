"""One partition of `__consumer_offsets` as the coordinator sees it: append, know what is safe, read all.

A write goes into the log at once, so that records stand in the order in which things happened, and counts
when all in-sync replicas have it. Kafka's codes for a failed write are turned into codes that group members
and committing clients understand.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

from broker.log.errors import AppendRefused, LogError, NotCached
from broker.log.incoming import Origin
from protocol.errors import ErrorCode, KafkaError
from protocol.records import Record, build_batch

if TYPE_CHECKING:
    from broker.replication.partition import Partition

OFFSETS_TOPIC = "__consumer_offsets"

_READ_BYTES = 1 << 20

_TRY_LATER = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
_TOO_LARGE = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_FETCH_SIZE,
    }
)
_MOVED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


def as_coordinator_error(code: ErrorCode, *, too_large: ErrorCode) -> ErrorCode:
    """Return what a client of the coordinator is told when a write ended with `code`."""
    if code in _TRY_LATER:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if code in _MOVED:
        return ErrorCode.NOT_COORDINATOR
    return too_large if code in _TOO_LARGE else code


class OffsetsLog:
    """`codec` compresses what is written; `timeout_s` bounds the wait for the replicas."""

    def __init__(self, partition: Partition, *, codec: int, timeout_s: float) -> None:
        self._partition = partition
        self._leader_epoch = partition.leader_epoch
        self._codec = codec
        self._timeout_s = timeout_s

    def __str__(self) -> str:
        return str(self._partition)

    def goes_on(self, later: OffsetsLog) -> bool:
        """Whether `later` is the next term of the same leader: nobody else can have written in between, and
        what is known of this log stays true. From then on this one is of that term too.
        """
        if later._partition is not self._partition or later._leader_epoch != self._leader_epoch + 1:
            return False
        self._leader_epoch = later._leader_epoch
        return True

    def append(self, records: Sequence[Record], producer: tuple[int, int] | None = None) -> int:
        """Append `records` and return the offset of the last one. Raises `KafkaError`.

        With a producer (id, epoch) they belong to its open transaction.
        """
        return self.append_built(self.build(records, producer))

    def build(self, records: Sequence[Record], producer: tuple[int, int] | None = None) -> memoryview:
        """Build what `append_built` takes. Looks at nothing that changes: a thread may do it."""
        if producer is None:
            built = build_batch(records, codec=self._codec)
        else:
            built = build_batch(
                records,
                codec=self._codec,
                producer_id=producer[0],
                producer_epoch=producer[1],
                base_sequence=0,
                transactional=True,
            )
        return memoryview(bytearray(built))

    def append_built(self, batch: memoryview) -> int:
        """`append` for a batch that is built."""
        self._check_leader()
        try:
            return self._partition.append(batch, all_replicas=True, origin=Origin.COORDINATOR).last_offset
        except AppendRefused as refused:
            raise KafkaError(refused.code, f"{self}: {refused.message}") from refused
        except LogError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self}: {error}") from error

    def is_safe(self, last_offset: int) -> bool:
        """Say whether all in-sync replicas have the record at `last_offset`."""
        return self._partition.acknowledged(last_offset)

    async def wait_safe(self, last_offset: int) -> None:
        """Wait until `is_safe`. Raises `KafkaError` if leadership or the time ends first."""
        code = await self._partition.wait_acknowledged(last_offset, self._leader_epoch, self._timeout_s)
        if code != ErrorCode.NONE:
            raise KafkaError(code, f"{self}: offset {last_offset} is not replicated in time")

    def _check_leader(self) -> None:
        self._partition.check_leader(self._leader_epoch)

    @property
    def max_batch_bytes(self) -> int:
        """Largest batch that the topic takes."""
        return self._partition.log.max_batch_bytes

    @property
    def is_empty(self) -> bool:
        """Say whether there is nothing to read."""
        return self._partition.log.start_offset == self._partition.log.end_offset

    async def read_all(self) -> AsyncIterator[memoryview]:
        """Yield whole batches from the start to the end of the log as it is now. Raises `LogError`."""
        log = self._partition.log
        offset, end = log.start_offset, log.end_offset
        while offset < end:
            try:
                found = log.read(offset, _READ_BYTES, end, blocking=False)
            except NotCached:
                found = await asyncio.to_thread(log.read_blocking, offset, _READ_BYTES, end)
            if not found.size:
                return
            for segment in found.segments:
                yield memoryview(segment)
            offset = found.next_offset
