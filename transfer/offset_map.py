"""The offset map: which source offset became which target offset, exact in both directions.

Owns the arithmetic of runs: appending, merging, translating, cutting and a compact byte codec. Knows nothing
about clusters, topics or I/O. A position is "the next record to read", as in a committed group offset.

Invariants (DESIGN §4): translation never skips a copied record (I5), is monotonic, and is exact for every
position up to the copied end. Holes between runs are offsets that hold no copied record: transaction markers,
aborted or compacted records at the source, records of other producers at the target, recorded gaps.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

_VERSION = 1


class Run(NamedTuple):
    """`length` records at source offsets `source…` that sit at target offsets `target…`."""

    source: int
    target: int
    length: int


class Translation(NamedTuple):
    """A translated position. `exact` is false when the position lies beyond what has been copied."""

    offset: int
    exact: bool


class OffsetMap:
    """Runs in source order. Coverage starts at `source_start` and ends before `source_end`."""

    __slots__ = (
        "_lengths",
        "_sources",
        "_targets",
        "changes",
        "shortest",
        "source_end",
        "source_start",
        "target_start",
    )

    def __init__(self, source_start: int = 0, target_start: int = 0) -> None:
        self.source_start = source_start
        self.target_start = target_start
        self.source_end = source_start
        self.changes = 0
        """How often it was appended to, covered or cut: what was translated is as before while that is."""
        self.shortest = sys.maxsize
        """The fewest runs that it was cut to since somebody who keeps parts of it set this back: those before
        have not changed since, but for the last of them."""
        self._sources = array("q")
        self._targets = array("q")
        self._lengths = array("q")

    @property
    def target_end(self) -> int:
        """The target offset behind the last copied record (`target_start` while nothing is copied)."""
        return self._targets[-1] + self._lengths[-1] if self._targets else self.target_start

    @property
    def records(self) -> int:
        """How many records the runs hold."""
        return sum(self._lengths)

    def append(self, run: Run) -> None:
        """Adds a run behind all others; adjacent ones merge. Raises ValueError when it would go back."""
        source, target, length = run
        if length <= 0:
            raise ValueError(f"a run holds at least one record: {run}")
        if source < self.source_end or target < self.target_end:
            raise ValueError(
                f"{run} goes back: the map already ends at source {self.source_end}, target {self.target_end}"
            )
        self.changes += 1
        if self._sources:
            last = self._lengths[-1]
            if source - self._sources[-1] == last and target - self._targets[-1] == last:
                self._lengths[-1] = last + length
                self.source_end = source + length
                return
        self._sources.append(source)
        self._targets.append(target)
        self._lengths.append(length)
        self.source_end = source + length

    def cover_to(self, source_end: int) -> None:
        """States that everything before `source_end` is dealt with (markers, aborted records, gaps)."""
        if source_end > self.source_end:
            self.source_end = source_end
            self.changes += 1

    def truncate_source(self, source_offset: int) -> None:
        """Forgets everything at and behind `source_offset` (the source lost or replaced those records)."""
        self.changes += 1
        while self._sources and self._sources[-1] >= source_offset:
            self._pop()
        if self._sources and self._sources[-1] + self._lengths[-1] > source_offset:
            self._lengths[-1] = source_offset - self._sources[-1]
        if not self._sources:  # what the source has now may begin before what this copy began with
            self.source_start = min(self.source_start, source_offset)
        self.source_end = min(self.source_end, source_offset)
        self.shortest = min(self.shortest, len(self))

    def to_target(self, source_offset: int) -> Translation:
        """The target position of the first copied record at or behind `source_offset`.

        While nothing is copied that is `target_start`: the next record copied cannot land before it.
        """
        return self._translate(source_offset, self._sources, self._targets, self.source_end, self.target_end)

    def to_source(self, target_offset: int) -> Translation:
        """The source position of the first copied record at or behind `target_offset`."""
        return self._translate(target_offset, self._targets, self._sources, self.target_end, self.source_end)

    def _translate(
        self, position: int, here: array[int], there: array[int], here_end: int, there_end: int
    ) -> Translation:
        if not here:
            return Translation(there_end, position <= here_end)
        index = bisect_right(here, position) - 1
        if index < 0:
            return Translation(there[0], True)
        inside = position - here[index]
        if inside < self._lengths[index]:
            return Translation(there[index] + inside, True)
        if index + 1 < len(here):
            return Translation(there[index + 1], True)
        return Translation(there_end, position <= here_end)

    def number_at(self, target_offset: int) -> int:
        """The number of the run that holds a target offset, or of the last one before it; 0 before all."""
        return max(bisect_right(self._targets, target_offset) - 1, 0)

    def between(self, source_start: int, source_end: int) -> OffsetMap:
        """A copy of the part that covers `source_start ≤ offset < source_end`."""
        start = min(max(self.source_start, source_start), self.source_end)
        at = self.to_target(start)
        part = OffsetMap(start, at.offset)
        first = max(bisect_right(self._sources, start) - 1, 0)
        for index in range(first, len(self._sources)):
            source, target, length = self._sources[index], self._targets[index], self._lengths[index]
            if source >= source_end:
                break
            skip = max(start - source, 0)
            keep = min(length, source_end - source) - skip
            if keep > 0:
                part.append(Run(source + skip, target + skip, keep))
        part.cover_to(min(source_end, self.source_end))
        return part

    def part(self, first: int, last: int | None = None) -> OffsetMap:
        """A copy of runs `first` to before `last` (by number); the parts put together are the whole."""
        stop = len(self) if last is None else last
        if first == 0:
            made = OffsetMap(self.source_start, self.target_start)
        else:
            made = OffsetMap(self._sources[first], self._targets[first])
        made._sources = self._sources[first:stop]
        made._targets = self._targets[first:stop]
        made._lengths = self._lengths[first:stop]
        whole = stop == len(self) or not made._sources
        made.source_end = self.source_end if whole else made._sources[-1] + made._lengths[-1]
        return made

    def extend(self, later: OffsetMap) -> None:
        """Appends all runs of a map that continues this one."""
        for run in later:
            self.append(run)
        self.cover_to(later.source_end)

    def encode(self) -> bytes:
        """Compact bytes: varint distances, three per run (a run costs 3 bytes when holes are small)."""
        out = bytearray((_VERSION,))
        source, target = self.source_start, self.target_start
        for value in (source, target, len(self)):
            _put(out, value)
        for run in self:
            _put(out, run.source - source)
            _put(out, run.target - target)
            _put(out, run.length)
            source, target = run.source + run.length, run.target + run.length
        _put(out, self.source_end - source)
        return bytes(out)

    @classmethod
    def decode(cls, data: bytes) -> OffsetMap:
        """Reads what `encode` wrote. Raises ValueError for anything else."""
        if not data or data[0] != _VERSION:
            raise ValueError("not an offset map, or one of a newer version")
        source, pos = _take(data, 1)
        target, pos = _take(data, pos)
        count, pos = _take(data, pos)
        made = cls(source, target)
        for _ in range(count):
            skip_source, pos = _take(data, pos)
            skip_target, pos = _take(data, pos)
            length, pos = _take(data, pos)
            made.append(Run(source + skip_source, target + skip_target, length))
            source, target = made.source_end, made.target_end
        rest, pos = _take(data, pos)
        if pos != len(data):
            raise ValueError(f"{len(data) - pos} bytes behind the end of an offset map")
        made.cover_to(source + rest)
        return made

    def _pop(self) -> None:
        self._sources.pop()
        self._targets.pop()
        self._lengths.pop()

    def __len__(self) -> int:
        return len(self._sources)

    def __getitem__(self, index: int) -> Run:
        return Run(self._sources[index], self._targets[index], self._lengths[index])

    def __iter__(self) -> Iterator[Run]:
        return map(Run, self._sources, self._targets, self._lengths)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, OffsetMap):
            return NotImplemented
        return (self.source_start, self.target_start, self.source_end, list(self)) == (
            other.source_start,
            other.target_start,
            other.source_end,
            list(other),
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return (
            f"OffsetMap({len(self)} runs, source {self.source_start}..{self.source_end}, "
            f"target {self.target_start}..{self.target_end})"
        )


def _put(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _take(data: bytes, pos: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if pos >= len(data) or shift > 63:
            raise ValueError("an offset map is cut short or damaged")
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, pos
        shift += 7
