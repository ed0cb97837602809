"""What is read of one segment: whole batches by offset, found with two sparse indexes.

Owns the indexes, loaded when they are needed and made again from the batches where their files are missing or
another log's, and where recent reads ended. Changes nothing in the data file. `find` and `read` may run in a
thread beside appends, because they only look below `size`.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final

from broker.log import scan
from broker.log.errors import CorruptLog, NotCached
from broker.log.offset_index import OffsetIndex
from broker.log.segment_files import SegmentFiles
from broker.log.time_index import NO_TIMESTAMP, TimeIndex
from protocol.records import HEADER_SIZE, BatchHeader
from protocol.records.header import LENGTH_OVERHEAD, MAGIC

MAX_RELATIVE_OFFSET: Final = (1 << 31) - 1
_MAX_BOUNDARIES: Final = 16
SPAN: Final = Struct(">qi11xi")
"""Base offset, batch length and last offset delta of a batch header."""


def remember(boundaries: dict[int, int], offset: int, position: int) -> None:
    """A batch that starts at `position` is where the next read will go on."""
    if len(boundaries) >= _MAX_BOUNDARIES:
        boundaries.clear()
    boundaries[offset] = position


class SegmentView(SegmentFiles):
    __slots__ = ("_boundaries", "_offset_index", "_time_index", "_used", "index_interval")

    def __init__(
        self, directory: str, base_offset: int, *, size: int, suffix: str, index_interval: int
    ) -> None:
        super().__init__(directory, base_offset, size=size, suffix=suffix)
        self.index_interval = index_interval
        """Bytes of batches for each index entry."""
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._used = True
        self._boundaries: dict[int, int] = {}
        """Offset -> position of batches where recent reads ended, so that the next one needs no search."""

    def release(self) -> None:
        """Let go of the descriptor and the loaded indexes; the next use brings them back."""
        self._file = None
        self._offset_index = None
        self._time_index = None
        self._boundaries = {}

    def release_idle(self, *, written: bool = False) -> None:
        """Let go of what nobody has used for reading since the last call.

        `written`: the segment is in use for appends, so its indexes must stay and only the descriptor goes.
        """
        if self._used:
            self._used = False
        elif written:
            self.release_file()
        else:
            self.release()

    # --- indexes

    @property
    def offset_index(self) -> OffsetIndex:
        index = self._offset_index
        if index is None:
            index = OffsetIndex.load(self.path("index"), self.base_offset, self.size)
            if index is None or not self._fits(index):
                index, _ = self._rebuild_indexes()
            self._offset_index = index
        return index

    @property
    def time_index(self) -> TimeIndex:
        index = self._time_index
        if index is None:
            index = TimeIndex.load(self.path("timeindex"), self.base_offset)
            if index is None:
                _, index = self._rebuild_indexes()
            self._time_index = index
        return index

    def _fits(self, index: OffsetIndex) -> bool:
        """Whether the last entry points at a batch of this file: an index may be whole and yet another
        log's.
        """
        if not len(index):
            return True
        for _, header in scan.headers(self.file, index.positions[-1], self.size):
            return header.base_offset <= index.base_offset + index.offsets[-1]
        return False

    def _rebuild_indexes(self) -> tuple[OffsetIndex, TimeIndex]:
        """Make both indexes again from the batch headers."""
        offsets, times = OffsetIndex(self.base_offset), TimeIndex(self.base_offset)
        offsets.saved = times.saved = -1
        since, largest = 0, (NO_TIMESTAMP, self.base_offset)
        for position, header in scan.headers(self.file, 0, self.size):
            if not self.base_offset <= header.last_offset <= self.base_offset + MAX_RELATIVE_OFFSET:
                break  # not a batch of this segment; who reads that far will say so
            if header.max_timestamp > largest[0]:
                largest = (header.max_timestamp, header.last_offset)
            if since > self.index_interval:
                offsets.append(header.last_offset, position)
                times.append(*largest)
                since = 0
            since += header.size
        times.append(*largest)
        self._offset_index, self._time_index = offsets, times
        return offsets, times

    # --- batches

    def find(self, offset: int, *, blocking: bool = True) -> int:
        """Position of the first batch that reaches `offset`; `size` when none does.

        Raises `NotCached` unless `blocking`.
        """
        self._used = True
        known = self._boundaries.get(offset)
        if known is not None:
            return known
        if not blocking and self._offset_index is None:
            raise NotCached
        position, end = self.offset_index.lookup(offset), self.size
        start, window = position, memoryview(b"")
        while position + HEADER_SIZE <= end:
            at = position - start
            if at + HEADER_SIZE > len(window):
                start, at = position, 0
                window = self._bytes(
                    position, min(self.index_interval + HEADER_SIZE, end - position), blocking
                )
            base, length, delta = self._span(window, at, position, blocking)
            if base + delta >= offset:
                return position
            position += length + LENGTH_OVERHEAD
        return end

    @property
    def boundaries(self) -> dict[int, int]:
        """Positions where reads may go on, by offset. Another table after each cut: what a thread finds in a
        log that is cut back meanwhile goes into the table that it has taken before, and is lost with it.
        """
        return self._boundaries

    def read(
        self,
        offset: int,
        max_bytes: int,
        end: int,
        boundaries: dict[int, int],
        *,
        at_least_one: bool,
        blocking: bool,
    ) -> tuple[memoryview, int]:
        """Whole batches from the one that reaches `offset`, none past position `end`, and the offset after
        them. `boundaries` were taken before `end` was.

        Empty when there is nothing for `offset` before `end`, or when the first batch is larger than
        `max_bytes` and `at_least_one` is off. Raises `NotCached` unless `blocking`.
        """
        start = self.find(offset, blocking=blocking)
        left = end - start
        if left < HEADER_SIZE:
            return memoryview(b""), offset
        data = self._bytes(start, min(max(max_bytes, HEADER_SIZE), left), blocking)
        length, next_offset = self._whole(data, start, blocking)
        if not length:
            _, first, _ = self._span(data, 0, start, blocking)
            first += LENGTH_OVERHEAD
            if first > max_bytes and not at_least_one:
                return memoryview(b""), offset
            data = self._bytes(start, min(first, left), blocking)
            length, next_offset = self._whole(data, start, blocking)
            if not length:
                if blocking:
                    raise CorruptLog(f"{self.path('log')}: the batch at byte {start} is cut short")
                raise NotCached
        remember(boundaries, next_offset, start + length)
        return data[:length], next_offset

    def _bytes(self, position: int, size: int, blocking: bool) -> memoryview:
        if blocking:
            return memoryview(self.file.read(position, size))
        return self.file.read_cached(position, size)

    def _span(self, data: memoryview, at: int, position: int, blocking: bool) -> tuple[int, int, int]:
        if at + HEADER_SIZE > len(data):
            if blocking:
                raise CorruptLog(f"{self.path('log')}: no batch header at byte {position}")
            raise NotCached
        span = SPAN.unpack_from(data, at)
        if span[1] < HEADER_SIZE - LENGTH_OVERHEAD or data[at + 16] != MAGIC:
            raise CorruptLog(f"{self.path('log')}: no batch starts at byte {position}")
        return span

    def _whole(self, data: memoryview, start: int, blocking: bool) -> tuple[int, int]:
        """How many bytes of `data`, which begins at `start`, are whole batches, and the offset after them.

        Walks only from the last indexed batch on. Stops before damage, so that it costs no sound batch that
        stands in front of it; raises CorruptLog when nothing does.
        """
        have = len(data)
        at = max(0, self.offset_index.floor_position(start + have - HEADER_SIZE) - start)
        try:
            base, length, delta = self._span(data, at, start + at, blocking)
        except CorruptLog:
            if at == 0:
                raise
            at = 0
            base, length, delta = self._span(data, at, start, blocking)
        next_offset = base
        while at + length + LENGTH_OVERHEAD <= have:
            at += length + LENGTH_OVERHEAD
            next_offset = base + delta + 1
            if at + HEADER_SIZE > have:
                break
            try:
                base, length, delta = self._span(data, at, start + at, blocking)
            except CorruptLog:
                break
        return at, next_offset

    def batches_from(self, offset: int) -> Iterator[tuple[int, BatchHeader]]:
        """(position, header) from the batch that reaches `offset` on. Waits for the disk."""
        return scan.headers(self.file, self.find(offset), self.size)
