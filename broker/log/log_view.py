"""What a log lets others see: its offsets, batches, times, epochs and aborted transactions.

Owns everything about a partition log that changes nothing. `read` never waits for the disk; `read_blocking`
and the look-ups by time do, and may run in a thread while the log is appended to or its old segments are
deleted.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from broker.log import time_lookup
from broker.log.config import LogConfig
from broker.log.errors import OffsetOutOfRange, StorageFailed
from broker.log.leader_epochs import LeaderEpochs
from broker.log.producer_state import ProducerStates
from broker.log.segment_list import SegmentList
from broker.log.segment_view import remember
from broker.log.time_lookup import FoundOffset
from broker.log.txn_index import AbortedTxn


class LogSlice(NamedTuple):
    """Whole batches; `next_offset` is where the next read goes on."""

    segments: list[bytes | memoryview]
    size: int
    next_offset: int


LAST_BYTES: Final = 4096
"""The largest batch that is kept for those who wait for it."""


class _Last(NamedTuple):
    """The batch at the log's end, as long as `boundaries` is the table of the segment in which it stands."""

    base: int
    end: int
    boundaries: dict[int, int]
    data: bytes


class LogView:
    __slots__ = (
        "_config", "_end", "_high_watermark", "_last", "_where", "directory", "epochs", "producers",
        "segments", "start_offset", "storage_failed",
    )  # fmt: skip

    def __init__(
        self,
        directory: str,
        config: LogConfig,
        segments: SegmentList,
        producers: ProducerStates,
        epochs: LeaderEpochs,
    ) -> None:
        self.directory = directory
        self._where = producers.where
        self._config = config
        self.segments = segments
        self.producers = producers
        self.epochs = epochs
        self.storage_failed: Callable[[str, OSError], None] | None = None
        """Hears of every refusal of the disk, whatever was being done, also in other threads: one mechanism
        for taking a directory out of use.
        """
        self.start_offset = 0
        self._end = 0
        self._high_watermark = 0
        self._last: _Last | None = None

    @property
    def config(self) -> LogConfig:
        return self._config

    # --- offsets

    @property
    def end_offset(self) -> int:
        return self._end

    @property
    def high_watermark(self) -> int:
        return self._high_watermark

    @high_watermark.setter
    def high_watermark(self, offset: int) -> None:
        """Kept between log start and end."""
        self._high_watermark = offset = max(self.start_offset, min(offset, self._end))
        self.producers.on_high_watermark(offset)

    @property
    def last_stable_offset(self) -> int:
        """Below it no transaction is open; never above the high watermark (KIP-98), nor before the start."""
        first = self.producers.first_unstable
        if first is None or first > self._high_watermark:
            return self._high_watermark
        return max(first, self.start_offset)

    @property
    def size(self) -> int:
        """Bytes of batches."""
        return self.segments.size

    def epoch_at(self, offset: int) -> int:
        """Leader epoch that wrote an offset, or writes at the log's end; -1 when unknown."""
        return self.epochs.current if offset >= self._end else self.epochs.epoch_at(offset)

    def epoch_end_offset(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the largest epoch not above `epoch`; (-1, -1) when unknown (KIP-279)."""
        return self.epochs.end_offset(epoch, self._end)

    # --- reading

    def read(
        self,
        offset: int,
        max_bytes: int,
        max_offset: int | None = None,
        min_one: bool = True,
        *,
        blocking: bool = False,
    ) -> LogSlice:
        """Whole batches from the one that holds `offset`, up to `max_bytes`, none from `max_offset` on.

        With `min_one` the first batch comes even when it is larger. There may be more to read than what
        comes: all bytes are of one segment. Raises `OffsetOutOfRange`; `NotCached` when the disk would have
        to be waited for: then call `read_blocking` in a thread.
        """
        end = self._end
        if offset < self.start_offset or offset > end:
            raise OffsetOutOfRange(self._where, offset, self.start_offset, end)
        limit = end if max_offset is None or max_offset > end else max_offset
        if offset >= limit:
            return LogSlice([], 0, offset)
        last = self._last
        if (
            last is not None
            and last.base == offset
            and last.end == limit == end
            and (min_one or len(last.data) <= max_bytes)
            and last.boundaries is self.segments.active.boundaries
        ):
            return LogSlice([last.data], len(last.data), end)
        try:
            data, next_offset = self.segments.read(
                offset, max_bytes, limit, end, at_least_one=min_one, blocking=blocking
            )
            if next_offset > limit:  # in a thread: appended to since `end` was taken; look for the limit
                data, next_offset = self.segments.read(
                    offset, max_bytes, limit, limit + 1, at_least_one=min_one, blocking=blocking
                )
        except OSError as error:
            raise self._unreadable(error) from error
        return LogSlice([data] if data else [], len(data), next_offset)

    def keep_last(self, batch: memoryview, base: int, end: int) -> None:
        """Somebody waits for this batch, which was just appended: a small one need not be read back, nor even
        looked for.
        """
        if len(batch) <= LAST_BYTES:
            active = self.segments.active
            remember(active.boundaries, base, active.size - len(batch))
            self._last = _Last(base, end, active.boundaries, bytes(batch))

    def read_blocking(
        self, offset: int, max_bytes: int, max_offset: int | None = None, min_one: bool = True
    ) -> LogSlice:
        """`read` that waits for the disk; may run in a thread."""
        return self.read(offset, max_bytes, max_offset, min_one, blocking=True)

    def offset_for_timestamp(self, timestamp: int) -> FoundOffset | None:
        """First record at or after a time (ms). Waits for the disk; may run in a thread."""
        start = self.start_offset
        try:
            return time_lookup.first_at_or_after(self.segments.from_offset(start), timestamp, start)
        except OSError as error:
            raise self._unreadable(error) from error

    def max_timestamp_offset(self) -> FoundOffset | None:
        """First record with the largest timestamp of all (KIP-734). Waits for the disk; may run in a
        thread.
        """
        start = self.start_offset
        try:
            return time_lookup.latest(self.segments.from_offset(start), start)
        except OSError as error:
            raise self._unreadable(error) from error

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTxn]:
        """What a read_committed reader of this range must drop."""
        try:
            return self.segments.aborted(start_offset, end_offset)
        except OSError as error:
            raise self._unreadable(error) from error

    def report(self, error: OSError) -> None:
        """Tell whoever looks after the log directory what its disk has answered. May run in a thread."""
        if self.storage_failed is not None:
            self.storage_failed(self.directory, error)

    def _unreadable(self, error: OSError) -> StorageFailed:
        self.report(error)
        return StorageFailed(f"{self._where}: cannot read {self.directory}: {error.strerror}")
