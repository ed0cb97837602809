"""One segment of a partition log: its data file and its two sparse indexes (Kafka's LogSegment).

Owns the files `<base offset>.log|.index|.timeindex`, where the segment ends, and how to find and read whole
batches in it. Does not know about other segments, producers, epochs or the high watermark.
Appends happen on one thread; `find`, `read` and `save_indexes` may run beside them in another, because they
only look below `size`, which grows after the bytes are there.
"""

import contextlib
import os
import threading
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final

from broker.log import scan
from broker.log.config import LogConfig
from broker.log.errors import CorruptLog, NotCached
from broker.log.files import OpenFile, remove_files, sync_file
from broker.log.offset_index import ENTRY_SIZE as OFFSET_ENTRY
from broker.log.offset_index import OffsetIndex
from broker.log.time_index import ENTRY_SIZE as TIME_ENTRY
from broker.log.time_index import NO_TIMESTAMP, TimeIndex, read_last
from protocol.records import HEADER_SIZE, BatchHeader
from protocol.records.header import LENGTH_OVERHEAD, MAGIC

MAX_RELATIVE_OFFSET: Final = (1 << 31) - 1
_MAX_BOUNDARIES: Final = 16
_SPAN: Final = Struct(">qi11xi")
"""Base offset, batch length and last offset delta of a batch header."""


def remember(boundaries: dict[int, int], offset: int, position: int) -> None:
    """A batch that starts at `position` is where the next read will go on."""
    if len(boundaries) >= _MAX_BOUNDARIES:
        boundaries.clear()
    boundaries[offset] = position


class Segment:
    __slots__ = (
        "_boundaries", "_file", "_offset_index", "_saving", "_time_index", "_used", "aborted_nothing",
        "base_offset", "bytes_since_index", "created_ms", "directory", "first_timestamp", "index_bytes",
        "index_interval", "indexes_full", "jitter_ms", "max_timestamp", "max_timestamp_offset",
        "preallocated", "size", "suffix",
    )  # fmt: skip

    def __init__(
        self, directory: str, base_offset: int, *, size: int, config: LogConfig, now_ms: int, suffix: str = ""
    ) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.suffix = suffix
        """What follows the ordinary names of its files: `.cleaned` while written, `.deleted` at the end."""
        self.size = size
        self.index_interval = config.index_interval_bytes
        self.index_bytes = config.segment_index_bytes
        self.indexes_full = False
        """Whether one more entry might make an index larger than `segment.index.bytes`: time to roll."""
        self.created_ms = now_ms
        self.jitter_ms = config.random_jitter_ms()
        """What this segment is closed earlier than `segment.ms` says, so that not all are closed together."""
        self.aborted_nothing = False
        """Whether its transaction index has been found empty and stays so (`SegmentList.aborted`)."""
        self.bytes_since_index = 0
        self.first_timestamp = NO_TIMESTAMP
        """Largest timestamp of the first batch: what `segment.ms` counts from."""
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        self.preallocated = False
        """Whether blocks behind its end are reserved for it (`preallocate`); its size does not show them."""
        self._file: OpenFile | None = None
        self._offset_index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._saving = threading.Lock()
        self._used = True
        self._boundaries: dict[int, int] = {}
        """Offset -> position of batches where recent reads ended, so that the next one needs no search."""

    @classmethod
    def create(
        cls, directory: str, base_offset: int, config: LogConfig, now_ms: int, *, suffix: str = ""
    ) -> "Segment":
        """A new, empty segment. Raises OSError, also when there is one with this base offset."""
        segment = cls(directory, base_offset, size=0, config=config, now_ms=now_ms, suffix=suffix)
        segment._file = OpenFile(segment.path("log"), create=True)
        if config.preallocate:
            segment.preallocated = segment._file.allocate(config.segment_bytes)
        segment._offset_index = OffsetIndex(base_offset)
        segment._time_index = TimeIndex(base_offset)
        remove_files([segment.path("index"), segment.path("timeindex"), segment.path("txnindex")])
        return segment

    def without_indexes(self) -> None:
        """An empty segment whose index files are empty or missing: there is nothing to load."""
        self._offset_index = OffsetIndex(self.base_offset)
        self._time_index = TimeIndex(self.base_offset)

    def path(self, kind: str) -> str:
        return f"{self.directory}/{self.base_offset:020d}.{kind}{self.suffix}"

    def retire(self, kinds: Sequence[str], suffix: str) -> list[str]:
        """Rename the files, so that others may take their names; returns the new paths.

        Who reads the segment in a thread goes on with the renamed ones.
        """
        before = {kind: self.path(kind) for kind in kinds}
        self.suffix = suffix
        renamed = []
        for kind, path in before.items():
            with contextlib.suppress(FileNotFoundError):
                os.rename(path, self.path(kind))
                renamed.append(self.path(kind))
        return renamed

    def trim(self) -> None:
        """Give back what was reserved and not written. Raises OSError."""
        if self.preallocated:
            self.file.truncate(self.size)
            self.preallocated = False

    def restore(self, kinds: Sequence[str]) -> None:
        """Give the files their ordinary names back, also after a `retire` that failed in the middle."""
        suffixed = {kind: self.path(kind) for kind in kinds}
        self.suffix = ""
        for kind, path in suffixed.items():
            with contextlib.suppress(FileNotFoundError):
                os.rename(path, self.path(kind))

    @property
    def file(self) -> OpenFile:
        file = self._file
        while file is None:
            suffix = self.suffix
            file = OpenFile(self.path("log"))
            if suffix == self.suffix:
                self._file = file
            else:  # retired in between: this may be the file that took its name
                file = None
        return file

    def release(self) -> None:
        """Let go of the descriptor and the loaded indexes; the next use brings them back."""
        self._file = None
        self._offset_index = None
        self._time_index = None
        self._boundaries = {}

    def release_file(self) -> None:
        """Let go of the descriptor alone; the next use opens the file again."""
        self._file = None

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

    def save_indexes(self, *, closing: bool = False) -> None:
        """Write what is new in the indexes; a flush in a thread and a roll may both be at it.

        `closing` adds the largest timestamp, which retention and look-ups read later.
        """
        with self._saving:
            times, offsets = self._time_index, self._offset_index
            if times is not None:
                if closing:
                    times.append(self.max_timestamp, self.max_timestamp_offset)
                times.save(self.path("timeindex"))
            if offsets is not None:
                if closing and self.size and not len(offsets):
                    offsets.saved = -1  # an empty one is written too: Kafka's tools open it beside the other
                offsets.save(self.path("index"))

    @property
    def largest_timestamp(self) -> int:
        """Largest record timestamp; without any, when the file was last written (as Kafka does)."""
        if self.max_timestamp == NO_TIMESTAMP and self.size:
            last = read_last(self.path("timeindex"), self.base_offset) or self.time_index.last()
            self.max_timestamp, self.max_timestamp_offset = last
        if self.max_timestamp != NO_TIMESTAMP:
            return self.max_timestamp
        try:
            return os.stat(self.path("log")).st_mtime_ns // 1_000_000
        except FileNotFoundError:
            return self.created_ms

    @property
    def earliest_timestamp(self) -> int:
        """Largest timestamp of the first batch, -1 without one: since when its records have been waiting."""
        if self.first_timestamp == NO_TIMESTAMP and self.size:
            first = next(scan.headers(self.file, 0, self.size), None)
            if first is not None:
                self.first_timestamp = first[1].max_timestamp
        return self.first_timestamp

    # --- writing

    def has_room(self, size: int, timestamp: int, last_offset: int, now_ms: int, config: LogConfig) -> bool:
        """Whether a batch of `size` bytes still belongs here, or the segment is full or old enough."""
        if last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
            return False
        if not self.size:
            return size <= config.segment_bytes
        # Record time where there is one, as Kafka does: old data that is loaded again keeps its segments.
        first = self.first_timestamp
        return (
            self.size + size <= config.segment_bytes
            and (timestamp - first if first >= 0 else now_ms - self.created_ms)
            <= config.longest_segment_ms - self.jitter_ms
            and not self.indexes_full
        )

    def write(self, data: memoryview) -> None:
        """Put whole batches at the end; on OSError the file is as it was. Call `note` for each batch next."""
        file, end = self._file or self.file, self.size
        try:
            done = os.pwrite(file.fd, data, end)
            if done != len(data):
                file.write(data[done:], end + done)
        except OSError:
            # What was written of it lies behind `size`, where nobody looks, should this fail as well.
            file.truncate(end)
            raise

    def append(self, batch: memoryview, last_offset: int, max_timestamp: int) -> None:
        """`write` and `note` of one batch, where a call less counts."""
        position, size = self.size, len(batch)
        file = self._file or self.file
        try:
            done = os.pwrite(file.fd, batch, position)
            if done != size:
                file.write(batch[done:], position + done)
        except OSError:
            file.truncate(position)
            raise
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if not position:
            self.first_timestamp = max_timestamp
        if self.bytes_since_index > self.index_interval:
            self._index(last_offset, position)
        self.bytes_since_index += size
        self.size = position + size

    def note(self, last_offset: int, max_timestamp: int, size: int) -> None:
        """Take a batch that was written at `size` into the segment."""
        position = self.size
        if not position:
            self.first_timestamp = max_timestamp
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if self.bytes_since_index > self.index_interval:
            self._index(last_offset, position)
        self.bytes_since_index += size
        self.size = position + size

    def _index(self, last_offset: int, position: int) -> None:
        """Entries for the batch at `position`. Most get one, so nothing is called without need."""
        offsets, times = self._offset_index, self._time_index
        if offsets is None or times is None:
            offsets, times = self.offset_index, self.time_index
        offsets.offsets.append(last_offset - self.base_offset)
        positions = offsets.positions
        positions.append(position)
        times.append(self.max_timestamp, self.max_timestamp_offset)
        self.bytes_since_index = 0
        self.indexes_full = (
            len(positions) * OFFSET_ENTRY + OFFSET_ENTRY > self.index_bytes
            or len(times.entries) + 2 * TIME_ENTRY > self.index_bytes  # closing adds one more
        )

    def _check_indexes(self, offsets: OffsetIndex, times: TimeIndex) -> None:
        self.indexes_full = (
            len(offsets.positions) * OFFSET_ENTRY + OFFSET_ENTRY > self.index_bytes
            or len(times.entries) + 2 * TIME_ENTRY > self.index_bytes  # closing adds one more
        )

    def truncate(self, end_offset: int) -> int:
        """Cut the file before the batch that reaches `end_offset`; returns the next offset, maybe a lower
        one.
        """
        position = self.find(end_offset)
        next_offset = self.rewind(position, end_offset)
        self.file.truncate(position)
        return next_offset

    def rewind(self, position: int, end_offset: int) -> int:
        """Take the segment to end at a batch boundary, leaving the file alone; returns the next offset.

        Recovery then calls `note` for each good batch from there on.
        """
        self.offset_index.truncate(position)
        self.time_index.truncate(end_offset)
        self.size = position
        self._boundaries = {}
        return self.load_end()

    def load_end(self) -> int:
        """Bring what appends need to know up to date from the file; returns the next offset.

        Reads from the last index entry on, so an opened segment costs one small read.
        """
        next_offset = self.base_offset
        if not self.size:  # of thousands of idle partitions no file is opened
            self.max_timestamp, self.max_timestamp_offset = NO_TIMESTAMP, next_offset
            self.first_timestamp = NO_TIMESTAMP
            self.bytes_since_index = 0
            self.indexes_full = False
            return next_offset
        self.max_timestamp, self.max_timestamp_offset = self.time_index.last()
        position = min(
            self.offset_index.lookup(self.max_timestamp_offset), self.offset_index.floor_position(self.size)
        )
        indexed = self.offset_index.floor_position(self.size)
        for at, header in scan.headers(self.file, position, self.size):
            next_offset = header.next_offset
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp, self.max_timestamp_offset = header.max_timestamp, header.last_offset
            position = at + header.size
        self.bytes_since_index = position - indexed
        self._check_indexes(self.offset_index, self.time_index)
        self.first_timestamp = NO_TIMESTAMP
        first = next(scan.headers(self.file, 0, self.size), None) if self.size else None
        if first is not None:
            self.first_timestamp = first[1].max_timestamp
        if position != self.size:
            raise CorruptLog(f"{self.path('log')}: no batch starts at byte {position}")
        return next_offset

    def sync(self, *, closing: bool) -> None:
        """Get the segment onto the disk. Indexes of one still in use can be made again, they are only
        saved.
        """
        self.file.sync()
        self.save_indexes(closing=closing)
        for kind in ("index", "timeindex", "txnindex") if closing else ("txnindex",):
            sync_file(self.path(kind))

    # --- reading

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
        span = _SPAN.unpack_from(data, at)
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
