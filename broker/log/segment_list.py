"""The segments of one partition in offset order; the last one is active, all others never change.

Owns finding the segment of an offset, reading across segment borders, and adding and removing segments with
their files. Removed files are renamed to `.deleted` and unlinked later by `sweep`, because unlinking a
large file is slow; who reads one meanwhile keeps it open. Does not know about producers, epochs or who may
see which offset.
"""

import itertools
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence

from broker.log.config import LogConfig
from broker.log.errors import CorruptLog
from broker.log.files import remove_files
from broker.log.segment import Segment
from broker.log.txn_index import AbortedTxn, read_aborted, truncate_aborted
from protocol.records import HEADER_SIZE, iter_headers

_KINDS = ("index", "timeindex", "txnindex", "log")
#: More bytes than this in one read are taken to hold records without a look.
_LOOK_THROUGH = 4096


class SegmentList:
    __slots__ = ("_bases", "_condemned", "directory", "items")

    def __init__(self, directory: str, segments: list[Segment]) -> None:
        self.directory = directory
        self.items = segments
        self._bases = [segment.base_offset for segment in segments]
        self._condemned: list[tuple[int, str]] = []
        """(due ms, path) of files that were renamed to be deleted."""

    @property
    def active(self) -> Segment:
        return self.items[-1]

    @property
    def start(self) -> int:
        return self._bases[0]

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.items)

    def from_offset(self, offset: int) -> list[Segment]:
        """The segment that covers `offset` and all behind it. May run in a thread."""
        items = self.items
        at = max(0, bisect_right(self._bases, offset) - 1)
        behind = items[at + 1].base_offset if at + 1 < len(items) else offset + 1
        if at >= len(items) or (at and items[at].base_offset > offset) or behind <= offset:
            # Segments went or were merged between the two looks.
            at = max(0, bisect_right([segment.base_offset for segment in items], offset) - 1)
        return items[at:]

    def read(
        self,
        offset: int,
        max_bytes: int,
        max_offset: int,
        log_end: int,
        *,
        at_least_one: bool,
        blocking: bool,
    ) -> tuple[memoryview, int]:
        """Whole batches that begin below `max_offset`, and the offset after them.

        All are of one segment, unless it holds no record from there on: compaction may leave segments of
        headers only, and clients that get no record ask for more bytes each time until they give up
        (librdkafka: MSG_SIZE_TOO_LARGE). Then what follows comes with it.
        """
        headers: list[memoryview] = []
        for segment in self.from_offset(offset):
            if segment.base_offset >= max_offset:
                break
            boundaries = segment.boundaries  # before the size: of the log as it is now, should it be cut
            end = segment.size  # taken first: bytes below it are complete, whatever is appended meanwhile
            if max_offset < log_end:
                end = segment.find(max_offset, blocking=blocking)
            try:
                data, next_offset = segment.read(
                    offset,
                    max_bytes,
                    end,
                    boundaries,
                    at_least_one=at_least_one and not headers,
                    blocking=blocking,
                )
            except CorruptLog:
                if not headers:
                    raise
                break  # what stands before the damage is served
            if data:
                headers.append(data)
                offset, max_bytes = next_offset, max_bytes - len(data)
                if max_bytes < HEADER_SIZE or not _only_headers(data):
                    break
            elif next_offset != offset or segment.find(offset, blocking=blocking) < end:
                offset = next_offset
                break
        if len(headers) == 1:
            return headers[0], offset
        return memoryview(b"".join(headers)), offset

    def aborted(self, start_offset: int, end_offset: int) -> list[AbortedTxn]:
        """Aborted transactions with records in `start_offset..end_offset`.

        An entry stands in the segment of its marker, which may be far behind the records. A segment that has
        none is not looked at again: whoever writes one clears `aborted_nothing` first.
        """
        found: list[AbortedTxn] = []
        for segment in self.from_offset(start_offset):
            if segment.aborted_nothing:
                continue
            entries = read_aborted(segment.path("txnindex"))
            segment.aborted_nothing = not entries
            for txn in entries:
                if txn.last_offset >= start_offset and txn.first_offset < end_offset:
                    found.append(txn)
                if txn.last_stable_offset >= end_offset:
                    return found
        return found

    def add(self, base_offset: int, config: LogConfig, now_ms: int) -> Segment:
        """Create a new active segment. On OSError nothing has changed."""
        segment = Segment.create(self.directory, base_offset, config, now_ms)
        self.items.append(segment)
        self._bases.append(base_offset)
        return segment

    def drop_unused(self, log_end: int) -> None:
        """Take back a segment that was added above the log end, over a hole, and got nothing."""
        if len(self.items) > 1 and not self.active.size and self.active.base_offset > log_end:
            segment = self.items.pop()
            self._bases.pop()
            segment.release()
            self.active.aborted_nothing = False
            remove_files([segment.path(kind) for kind in _KINDS])

    def drop_first(self, count: int, due_ms: int) -> list[Segment]:
        """Take the oldest `count` segments out of the log; their files go at `due_ms`."""
        gone = self.items[:count]
        self.items = self.items[count:]
        self._bases = self._bases[count:]
        for segment in gone:
            self._condemn(segment, due_ms)
        return gone

    def truncate(self, end_offset: int) -> int:
        """Remove everything from the batch that reaches `end_offset` on; returns where the log ends now.

        There must be a segment that starts at or below it.
        """
        keep = max(1, bisect_right(self._bases, end_offset))
        behind = self.items[keep:]
        del self.items[keep:], self._bases[keep:]
        for segment in reversed(behind):  # from the end: a crash in between leaves no hole
            segment.release()
            remove_files([segment.path(kind) for kind in reversed(_KINDS)])
        active = self.active
        active.aborted_nothing = False
        log_end = active.truncate(end_offset)
        truncate_aborted(active.path("txnindex"), log_end)
        return log_end

    def replace_all(self, base_offset: int, config: LogConfig, now_ms: int) -> None:
        """Start anew with one empty segment at `base_offset`."""
        for segment in reversed(self.items):
            segment.release()
            remove_files([segment.path(kind) for kind in reversed(_KINDS)])
        self.items = []
        self._bases = []
        self.add(base_offset, config, now_ms)

    def replace(self, old: Sequence[Segment], new: Segment, due_ms: int, put: Callable[[], None]) -> None:
        """Let `new` stand for the neighbours `old`; `put` gives it its names once theirs are free.

        The files of `old` go at `due_ms`. On OSError nothing has changed, unless names cannot be given back
        either: then another OSError, of that, is raised from it, and what was renamed is still in use.
        """
        at, condemned = self.items.index(old[0]), self._condemned
        self._condemned = list(condemned)
        try:
            for segment in old:
                self._condemn(segment, due_ms)
            put()
        except OSError as error:
            self._condemned = condemned
            try:
                for segment in old:
                    if segment.suffix:
                        segment.restore(_KINDS)
            except OSError as second:
                raise second from error
            raise
        self.items = [*self.items[:at], new, *self.items[at + len(old) :]]
        self._bases = [segment.base_offset for segment in self.items]

    def _condemn(self, segment: Segment, due_ms: int) -> None:
        # A segment that was cleaned twice in a short time would take the name of its first original, and the
        # kernel would free all of that file inside the rename: 50 ms for 50 MB.
        named = segment.path("log")
        suffixes = itertools.chain([".deleted"], (f".{number}.deleted" for number in itertools.count(2)))
        free = next(each for each in suffixes if not os.path.exists(named + each))
        self._condemned += [(due_ms, path) for path in segment.retire(_KINDS, free)]

    def sweep(self, now_ms: int) -> int:
        """Unlink what is due; returns how many files went. Slow with large files: call it from a thread."""
        condemned = self._condemned
        due = [item for item in list(condemned) if item[0] <= now_ms] if condemned else []
        for item in due:
            condemned.remove(item)  # in place: the owner may add to the list meanwhile
            remove_files([item[1]])
        return len(due)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)


def _only_headers(data: memoryview) -> bool:
    """Whether there is not one record in these whole batches."""
    return len(data) <= _LOOK_THROUGH and all(not header.record_count for _, header in iter_headers(data))
