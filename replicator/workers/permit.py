"""Until when this worker may write: a fence by time, so that a worker nobody hears of stops by itself.

Owns one moment on the machine's clock. Whoever sends to the target for the link asks `allows` right before
sending: a process that was stopped (SIGSTOP, a frozen machine) and wakes up finds that its time is over
before it can write again. The moment counts from the *sending* of the request that was answered, so it lies
before the one at which the coordinator gives the worker up (KIP-62's session timeout).
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # goes on while a machine is suspended
_SHARE = 0.9
"""Of the time that is granted: clocks of two machines do not run alike, and a request takes its way."""

_ASK_AGAIN_S = 0.1


def now() -> float:
    """Seconds on the clock that `Permit` counts by."""
    return time.clock_gettime(_CLOCK)


async def permitted(may_write: Callable[[], bool]) -> None:
    """Returns when this worker may write; whoever waits is cancelled where it has lost its partitions."""
    while not may_write():  # noqa: ASYNC110 (a permit sets no event)
        await asyncio.sleep(_ASK_AGAIN_S)


class Permit:
    """Not given at first."""

    def __init__(self) -> None:
        self._until = -math.inf
        self._since = -math.inf
        """What was asked for before counts no more."""

    def allows(self) -> bool:
        """Whether this process may write now."""
        return now() < self._until

    def extend(self, sent_at: float, seconds: float) -> None:
        """Granted for `seconds` from `sent_at` on; never shortens what was granted before."""
        if sent_at >= self._since:
            self._until = max(self._until, sent_at + seconds * _SHARE)

    def replace(self, sent_at: float, seconds: float) -> None:
        """Granted like this and no longer, whatever was granted before."""
        self._until = -math.inf
        self.extend(sent_at, seconds)

    def withdraw(self) -> None:
        """Others may write from now on, whatever an answer says that was asked for earlier."""
        self._until, self._since = -math.inf, now()
