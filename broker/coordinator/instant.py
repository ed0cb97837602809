"""One moment on the two clocks that a coordinator needs.

Deadlines run on the monotonic clock, so that a wall clock set back or forward neither expires living members
nor keeps dead ones. Times that are written to disk and shown to people come from the wall clock.
"""

from __future__ import annotations

from typing import NamedTuple


class Instant(NamedTuple):
    """`monotonic_ms` for deadlines, `wall_ms` (epoch milliseconds) for what is stored."""

    monotonic_ms: int
    wall_ms: int
