"""How late records are: a histogram with a bounded relative error, and since when a partition is behind.

Owns counting, pure, with the clock passed in. Buckets are 1/16 of a power of two wide (HDR histograms): a
percentile is at most 6 % above the truth, whatever came before, and nothing is sampled or decays. Percentiles
are those of the last one to two minutes. Knows nothing of metrics or partitions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

_WINDOW_S = 60.0
_STEPS = 16
_MOST_MARKS = 256


class Latencies:
    """Of a link or a partition, in seconds; kept in microseconds."""

    __slots__ = ("_before", "_current", "_turned")

    def __init__(self, now: float) -> None:
        self._current: dict[int, int] = {}
        self._before: dict[int, int] = {}
        self._turned = now

    def add(self, seconds: float, count: int = 1) -> None:
        """So many records were this late."""
        bucket = _bucket(int(seconds * 1e6))
        self._current[bucket] = self._current.get(bucket, 0) + count

    def counts(self) -> dict[int, int]:
        """Records by bucket. Another thread may ask while records are added."""
        found, current = dict(self._before), dict(self._current)
        for bucket, count in current.items():
            found[bucket] = found.get(bucket, 0) + count
        return found

    def turn(self, now: float) -> None:
        """Lets go of what is too old; call it now and then."""
        passed = now - self._turned
        if passed >= _WINDOW_S:
            self._before = self._current if passed < 2 * _WINDOW_S else {}
            self._current = {}
            self._turned = now


def added(parts: Iterable[Mapping[int, int]]) -> dict[int, int]:
    """Records by bucket of all of them together: percentiles of a sum are those of all its records."""
    found: dict[int, int] = {}
    for part in parts:
        for bucket, count in part.items():
            found[bucket] = found.get(bucket, 0) + count
    return found


def quantiles(counts: Mapping[int, int], shares: Sequence[float]) -> tuple[float, ...] | None:
    """For each share, in rising order, the least latency (seconds) that at least so many of the records did
    not exceed; None without records."""
    total = sum(counts.values())
    if not total:
        return None
    found: list[float] = []
    seen = 0
    for bucket in sorted(counts):
        seen += counts[bucket]
        while len(found) < len(shares) and seen >= shares[len(found)] * total:
            found.append(_upper(bucket) / 1e6)
    return tuple(found)


def _bucket(micros: int) -> int:
    if micros < 2 * _STEPS:
        return max(micros, 0)
    shift = micros.bit_length() - _STEPS.bit_length()
    return shift * _STEPS + (micros >> shift)


def _upper(bucket: int) -> int:
    if bucket < 2 * _STEPS:
        return bucket
    shift = bucket // _STEPS - 1
    return ((bucket - shift * _STEPS + 1) << shift) - 1


class Behind:
    """Since when a source's log has been longer than its copy: by the time at which its end was heard of,
    so record times, which producers set, play no part."""

    def __init__(self) -> None:
        self._marks: deque[tuple[float, int]] = deque()

    def seconds(self, now: float, end: int, position: int) -> float:
        """The source ends at `end` as far as is known, and what stands before `position` is copied."""
        marks = self._marks
        while len(marks) > 1 and marks[-2][1] >= end:
            marks.pop()
        if marks and marks[-1][1] > end:  # it was truncated, or made again
            marks[-1] = (marks[-1][0], end)
        if not marks or end > marks[-1][1]:
            marks.append((now, end))
        while marks and marks[0][1] <= position:
            marks.popleft()
        if len(marks) > _MOST_MARKS:  # of a partition that stands still: every other one tells as much
            self._marks = marks = deque(list(marks)[::2])
        return now - marks[0][0] if marks else 0.0
