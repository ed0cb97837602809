"""One segment of a partition log: its data file and its two sparse indexes (Kafka's LogSegment).

Owns what is appended and cut, where the segment ends and when it is full or old enough. Its files are in
`segment_files`, reading in `segment_view`. Does not know about other segments, producers, epochs or the high
watermark. Appends happen on one thread; `save_indexes` may run beside them in another.
"""

import os
import threading

from broker.log import scan
from broker.log.config import LogConfig
from broker.log.errors import CorruptLog
from broker.log.files import OpenFile, remove_files, sync_file
from broker.log.offset_index import ENTRY_SIZE as OFFSET_ENTRY
from broker.log.offset_index import OffsetIndex
from broker.log.segment_view import MAX_RELATIVE_OFFSET, SegmentView
from broker.log.time_index import ENTRY_SIZE as TIME_ENTRY
from broker.log.time_index import NO_TIMESTAMP, TimeIndex, read_last


class Segment(SegmentView):
    __slots__ = (
        "_saving", "aborted_nothing", "bytes_since_index", "created_ms", "first_timestamp", "index_bytes",
        "indexes_full", "jitter_ms", "max_timestamp", "max_timestamp_offset",
    )  # fmt: skip

    def __init__(
        self, directory: str, base_offset: int, *, size: int, config: LogConfig, now_ms: int, suffix: str = ""
    ) -> None:
        super().__init__(
            directory, base_offset, size=size, suffix=suffix, index_interval=config.index_interval_bytes
        )
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
        self._saving = threading.Lock()

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

    # --- appending

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

    # --- the end

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

    # --- onto the disk

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

    def sync(self, *, closing: bool) -> None:
        """Get the segment onto the disk. Indexes of one still in use can be made again, they are only
        saved.
        """
        self.file.sync()
        self.save_indexes(closing=closing)
        for kind in ("index", "timeindex", "txnindex") if closing else ("txnindex",):
            sync_file(self.path(kind))
