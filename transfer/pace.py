"""A limit in bytes per second: reading waits while more was taken than the time that has passed allows.

Owns a bucket that fills at the rate and holds a quarter of a second. It may go below zero, since a chunk is
taken whole; then it waits for as long as that costs. Whose turn it is when little may be taken is the
engine's to say.
"""

from __future__ import annotations

import asyncio
import time

_HOLDS_S = 0.25


class Pace:
    """No limit at first. `limit` may be set at any time."""

    def __init__(self) -> None:
        self._limit = 0.0
        self._tokens = 0.0
        self._at = time.monotonic()
        self._changed = asyncio.Event()

    @property
    def limit(self) -> float:
        """Bytes per second; 0: none."""
        return self._limit

    @limit.setter
    def limit(self, bytes_per_second: float) -> None:
        if bytes_per_second != self._limit:
            self._limit = max(bytes_per_second, 0.0)
            self._tokens = min(self._tokens, 0.0) if self._limit else 0.0
            self._changed.set()

    def spend(self, size: int) -> None:
        """So many bytes were taken."""
        if self._limit:
            self._fill()
            self._tokens -= size

    @property
    def debt_s(self) -> float:
        """So long nothing more should be taken; 0: something may be."""
        if not self._limit:
            return 0.0
        self._fill()
        return max(-self._tokens / self._limit, 0.0)

    async def wait(self, owing_s: float = 0.0) -> None:
        """Until something may be taken, or no more than so much is owed."""
        while (debt_s := self.debt_s) > owing_s:
            self._changed.clear()
            try:
                async with asyncio.timeout(debt_s - owing_s):
                    await self._changed.wait()
            except TimeoutError:
                pass

    def _fill(self) -> None:
        now = time.monotonic()
        self._tokens = min(self._tokens + (now - self._at) * self._limit, self._limit * _HOLDS_S)
        self._at = now
