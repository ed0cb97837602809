"""Expected positions: where each source record should stand at the target, for a whole column at once.

Owns the vector form of the offset map inside a split. A source record outside every run has no position at
the target; it gets a number of its own below zero, so that nothing can match it by accident.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from transfer.offset_map import OffsetMap

Offsets = npt.NDArray[np.int64]


class Positions:
    """For one split of the source side."""

    def __init__(self, runs: bytes, gaps: tuple[tuple[int, int], ...]) -> None:
        decoded = list(OffsetMap.decode(runs)) if runs else []
        self._sources = np.array([run.source for run in decoded], dtype=np.int64)
        self._shifts = np.array([run.target - run.source for run in decoded], dtype=np.int64)
        self._ends = np.array([run.source + run.length for run in decoded], dtype=np.int64)
        self._gap_starts = np.array([start for start, _ in sorted(gaps)], dtype=np.int64)
        self._gap_ends = np.array([end for _, end in sorted(gaps)], dtype=np.int64)

    def expected(self, offsets: Offsets) -> Offsets:
        """Target offsets; `-1 - offset` where the map has none."""
        outside: Offsets = -1 - offsets
        if not len(self._sources):
            return outside
        at = np.searchsorted(self._sources, offsets, side="right") - 1
        safe = np.maximum(at, 0)
        inside = (at >= 0) & (offsets < self._ends[safe])
        return np.where(inside, offsets + self._shifts[safe], outside)

    def on_record(self, offsets: Offsets, side: int) -> npt.NDArray[np.bool_]:
        """Which offsets of a side the map knows as copied, or as copies."""
        starts = self._sources if side == 0 else self._sources + self._shifts
        if not len(starts):
            return np.zeros(len(offsets), dtype=bool)
        at = np.searchsorted(starts, offsets, side="right") - 1
        safe = np.maximum(at, 0)
        result: Any = (at >= 0) & (offsets - starts[safe] < (self._ends - self._sources)[safe])
        return result  # type: ignore[no-any-return]

    def in_gap(self, offsets: Offsets) -> npt.NDArray[np.bool_]:
        """Which offsets lie in a recorded gap."""
        if not len(self._gap_starts):
            return np.zeros(len(offsets), dtype=bool)
        at = np.searchsorted(self._gap_starts, offsets, side="right") - 1
        result: Any = (at >= 0) & (offsets < self._gap_ends[np.maximum(at, 0)])
        return result  # type: ignore[no-any-return]
