"""Time for the broker, passed in wherever it is needed so that tests can move it.

`now_ms` is wall time, what goes into files and onto the wire; it may jump. `monotonic` never goes back and
is for time-outs and intervals. Nothing in the broker calls the `time` module itself.
"""

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since the epoch."""

    def monotonic(self) -> float:
        """Seconds since some fixed moment of this process."""


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()
