"""Deadlines by key, cheap to move later.

A heartbeat moves one deadline further away, a million times for each time one passes. So moving later is one
dictionary write: the heap keeps the old entry and is corrected when that entry comes up.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Deadlines(Generic[K]):
    """A set of deadlines in milliseconds of the monotonic clock, at most one for each key."""

    __slots__ = ("_at", "_heap", "_queued", "_sequence")

    def __init__(self) -> None:
        self._at: dict[K, int] = {}
        self._queued: dict[K, int] = {}  # the earliest heap entry of each key
        self._heap: list[tuple[int, int, K]] = []
        self._sequence = 0  # ties are served in the order in which they were set

    def __len__(self) -> int:
        return len(self._at)

    def __contains__(self, key: K) -> bool:
        return key in self._at

    def get(self, key: K) -> int | None:
        """Return when `key` is due, or None."""
        return self._at.get(key)

    def set(self, key: K, at_ms: int) -> None:
        """Set or move the deadline of `key`."""
        self._at[key] = at_ms
        queued = self._queued.get(key)
        if queued is None or at_ms < queued:
            self._push(key, at_ms)

    def cancel(self, key: K) -> None:
        """Forget the deadline of `key`, if there is one."""
        self._at.pop(key, None)
        if len(self._heap) > 64 and len(self._heap) > 4 * len(self._at):
            self._rebuild()

    def next_ms(self) -> int | None:
        """Return the earliest deadline, or None if there is none."""
        while self._heap:
            queued, _, key = self._heap[0]
            at = self._at.get(key)
            if at == queued:
                return at
            heapq.heappop(self._heap)
            self._settle(key, queued, at)
        return None

    def pop_due(self, now_ms: int) -> K | None:
        """Remove and return the key that is due first, or None if nothing is due at `now_ms`."""
        first = self.next_ms()
        if first is None or first > now_ms:
            return None
        queued, _, key = heapq.heappop(self._heap)
        del self._at[key]
        self._settle(key, queued, None)
        return key

    def _settle(self, key: K, popped: int, at: int | None) -> None:
        """An entry of `key` has left the heap: queue the key again if it is still due later."""
        if self._queued.get(key) == popped:
            del self._queued[key]
            if at is not None:
                self._push(key, at)

    def _push(self, key: K, at_ms: int) -> None:
        self._sequence += 1
        self._queued[key] = at_ms
        heapq.heappush(self._heap, (at_ms, self._sequence, key))

    def _rebuild(self) -> None:
        self._heap.clear()
        self._queued.clear()
        for key, at in self._at.items():
            self._push(key, at)
