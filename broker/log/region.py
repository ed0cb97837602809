"""Batches to be sent straight from their file: found by their headers, never read into memory.

`locate` is `LogView.read` for large answers: the same whole batches, but as a range of the segment's file
that a socket can be fed from (`sendfile`). The file stays open while a region refers to it, whatever
retention does. Whether the range is in the page cache is only sampled, because asking for every page would
cost as much as reading it; a page that was missed costs one wait for the disk. With `blocking` it is read
past the page cache (`cold_reads`) or brought there first, in a thread.
"""

from __future__ import annotations

import os
from typing import Final, NamedTuple

from broker.log import cold_reads, page_cache
from broker.log.cold_reads import ColdRegion, Rooms
from broker.log.disk_errors import FAILED
from broker.log.errors import CorruptLog, NotCached, OffsetOutOfRange, StorageFailed
from broker.log.files import OpenFile
from broker.log.log_view import LogView
from broker.log.segment_view import SPAN, SegmentView, remember
from protocol.records import HEADER_SIZE
from protocol.records.header import LENGTH_OVERHEAD

WORTH_LOCATING: Final = 32 * 1024
"""Below this many bytes one read is cheaper than the calls that avoid it."""
_ROOMS: Final = Rooms()


class FileRegion:
    """Bytes of a file that never change. `len()` is what a receiver gets."""

    __slots__ = ("_file", "_log", "position", "size")

    def __init__(self, file: OpenFile, position: int, size: int, log: LogView | None = None) -> None:
        self._log = log
        self._file = file
        self.position = position
        self.size = size

    def __len__(self) -> int:
        return self.size

    @property
    def fd(self) -> int:
        return self._file.fd

    def advance(self, count: int) -> None:
        """Forget the first `count` bytes."""
        self.position += count
        self.size -= count

    def read(self, count: int) -> bytes:
        """Up to `count` bytes from the front; waits for the disk."""
        return self._file.read(self.position, min(count, self.size))

    def send(self, to: int, most: int) -> int:
        """`sendfile` up to `most` bytes to a socket; how many it took. Raises BlockingIOError for none."""
        return os.sendfile(to, self.fd, self.position, min(self.size, most))

    def failed(self, error: OSError) -> None:
        """Sending it failed: the disk may be the reason, long after the answer was put together."""
        if self._log is not None and error.errno in FAILED:
            self._log.report(error)

    def ready(self, blocking: bool) -> FileRegion | ColdRegion:
        """The range where it can be sent from: the page cache or, with `blocking`, a buffer it was read to.

        `blocking` waits for the disk; without it, raises `NotCached`.
        """
        if not blocking:
            if not self.is_cached():
                raise NotCached
            return self
        cold = cold_reads.read(self.fd, self.position, self.size, _ROOMS)
        if cold is not None:
            return cold
        page_cache.bring(self.fd, self.position, self.size)
        return self

    def is_cached(self) -> bool:
        """Whether the range is in the page cache."""
        return page_cache.is_cached(self.fd, self.position, self.size)


class Located(NamedTuple):
    """What `LogSlice` is, with regions in place of bytes."""

    segments: list[FileRegion | ColdRegion]
    size: int
    next_offset: int


def locate(
    log: LogView, offset: int, max_bytes: int, max_offset: int, min_one: bool, *, blocking: bool = False
) -> Located | None:
    """Like `LogView.read`; None where reading is the better way (little data, or at a segment's border).

    Raises `OffsetOutOfRange`, `StorageFailed`; `NotCached` when the disk would have to be waited for: then
    call it with `blocking`, in a thread.
    """
    log_end = log.end_offset
    if offset < log.start_offset or offset > log_end:
        raise OffsetOutOfRange(log.directory, offset, log.start_offset, log_end)
    if max_bytes < WORTH_LOCATING or offset >= max_offset:
        return None
    segment = log.segments.from_offset(offset)[0]
    boundaries = segment.boundaries  # before the size: of the log as it is now, should it be cut
    end = segment.size  # taken first: bytes below it are complete, whatever is appended meanwhile
    if end < WORTH_LOCATING:
        return None
    try:
        if blocking or max_offset < log_end:  # a thread may have been overtaken by appends
            end = segment.find(max_offset, blocking=blocking)
        start = segment.find(offset, blocking=blocking)
        if end - start < WORTH_LOCATING:
            return None
        stop, next_offset = _whole(segment, boundaries, start, end, max_bytes, min_one, blocking)
        file = segment.file
        if not file.at_random:
            page_cache.read_at_random(file.fd)
            file.at_random = True
        region = FileRegion(file, start, stop - start, log)
        if region.size < WORTH_LOCATING:
            return None
        ready = region.ready(blocking)
    except CorruptLog:
        return None  # reading serves what stands before the damage
    except OSError as error:
        log.report(error)
        raise StorageFailed(f"{log.directory} cannot be read: {error.strerror}") from error
    return Located([ready], ready.size, next_offset)


def _whole(
    segment: SegmentView,
    boundaries: dict[int, int],
    start: int,
    end: int,
    max_bytes: int,
    min_one: bool,
    blocking: bool,
) -> tuple[int, int]:
    """Where the last whole batch within the limits ends, and the offset after it.

    Walks headers from the last indexed batch on.
    """
    limit = min(start + max_bytes, end)
    at = max(start, segment.offset_index.floor_position(limit - HEADER_SIZE))
    next_offset = -1
    while at + HEADER_SIZE <= limit:
        file = segment.file
        span = file.read(at, SPAN.size) if blocking else file.read_cached(at, SPAN.size)
        if len(span) < SPAN.size:
            if blocking:
                raise CorruptLog(f"{segment.path('log')} ends at byte {at}")
            raise NotCached  # it crosses into a page that is not cached
        base, length, delta = SPAN.unpack(span)
        size = length + LENGTH_OVERHEAD
        if size < HEADER_SIZE:
            raise CorruptLog(f"{segment.path('log')}: no batch starts at byte {at}")
        if at + size > limit and not (min_one and at == start):
            next_offset = max(next_offset, base)
            break
        at += size
        next_offset = base + delta + 1
    if next_offset >= 0:
        remember(boundaries, next_offset, at)
    return at, next_offset
