"""How late records are: a histogram with a bounded relative error, and since when a partition is behind.

Owns counting, pure, with the clock passed in. Buckets are 1/16 of a power of two wide (HDR histograms): a
percentile is at most 6 % above the truth, whatever came before, and nothing is sampled or decays. Percentiles
are those of the last one to two minutes. Knows nothing of metrics or partitions.
"""

from __future__ import annotations

from collections import deque

_WINDOW_S = 60.0
_STEPS = 16
_MOST_MARKS = 256


class Latencies:
    """Of one link, in seconds; kept in microseconds."""

    def __init__(self, now: float) -> None:
        self._current: dict[int, int] = {}
        self._before: dict[int, int] = {}
        self._turned = now

    def add(self, seconds: float, count: int = 1) -> None:
        """So many records were this late."""
        bucket = _bucket(int(seconds * 1e6))
        self._current[bucket] = self._current.get(bucket, 0) + count

    def quantile(self, share: float) -> float | None:
        """The least latency that at least this share of the records did not exceed; None without records."""
        total = sum(self._current.values()) + sum(self._before.values())
        if not total:
            return None
        seen = 0
        buckets = sorted(self._current.keys() | self._before.keys())
        for bucket in buckets:
            seen += self._current.get(bucket, 0) + self._before.get(bucket, 0)
            if seen >= share * total:
                return _upper(bucket) / 1e6
        return _upper(buckets[-1]) / 1e6

    def turn(self, now: float) -> None:
        """Lets go of what is too old; call it now and then."""
        passed = now - self._turned
        if passed >= _WINDOW_S:
            self._before = self._current if passed < 2 * _WINDOW_S else {}
            self._current = {}
            self._turned = now


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
        if not marks or end > marks[-1][1]:
            marks.append((now, end))
        while marks and marks[0][1] <= position:
            marks.popleft()
        if len(marks) > _MOST_MARKS:  # of a partition that stands still: every other one tells as much
            self._marks = marks = deque(list(marks)[::2])
        return now - marks[0][0] if marks else 0.0
