"""How many bytes of requests a broker takes in at once (KIP-72, `queued.max.request.bytes`).

A connection claims the length of a frame when it knows it, and gives it back once the frame is served or the
connection is lost. While the claims reach the limit nobody gets more, so they exceed it by at most one frame,
and what was begun can always be finished (Kafka's SimpleMemoryPool). Small frames fit the first buffer
and need no claim. Plain state, knows nothing of sockets: who has to wait is called when it may try again.
"""

from __future__ import annotations

from typing import Protocol


class Claimant(Protocol):
    def memory_is_free(self) -> None:
        """Claim again."""


class RequestMemory:
    """Shared by all listeners of a broker. `used` is in bytes."""

    def __init__(self, limit: int) -> None:
        self.used = 0
        self._limit = limit
        self._claims: dict[Claimant, int] = {}
        self._waiting: dict[Claimant, None] = {}

    @property
    def waiting(self) -> int:
        """How many connections are not read for want of memory."""
        return len(self._waiting)

    def claim(self, who: Claimant, size: int) -> bool:
        """Whether `who` may go on reading its frame; if not, it is called later."""
        if who in self._claims:
            return True
        if self.used >= self._limit:
            self._waiting[who] = None
            return False
        self._waiting.pop(who, None)
        self._claims[who] = size
        self.used += size
        return True

    def give_back(self, who: Claimant) -> None:
        """The frame is served."""
        size = self._claims.pop(who, 0)
        if not size:
            return
        self.used -= size
        while self._waiting and self.used < self._limit:
            first = next(iter(self._waiting))
            del self._waiting[first]
            first.memory_is_free()

    def forget(self, who: Claimant) -> None:
        """The connection is lost."""
        self._waiting.pop(who, None)
        self.give_back(who)
