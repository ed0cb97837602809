"""Producer ids for idempotent producers, unique in the cluster (KIP-98, KIP-730).

Ids are handed out from a block of a thousand that the broker has claimed for itself in ZooKeeper. A restart
claims a new block: ids left over in the old one are lost, which costs nothing of 2^63.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol


class Block(Protocol):
    """A range of ids, both ends included."""

    @property
    def first(self) -> int: ...

    @property
    def last(self) -> int: ...


class ProducerIds:
    """`claim` takes the next free block of the cluster."""

    def __init__(self, claim: Callable[[], Awaitable[Block]]) -> None:
        self._claim = claim
        self._claiming = asyncio.Lock()
        self._next = 0
        self._last = -1

    def at_hand(self) -> int | None:
        """Return a fresh id without waiting, or None if a block has to be claimed first."""
        if self._next > self._last:
            return None
        taken = self._next
        self._next += 1
        return taken

    async def take(self) -> int:
        """Return a fresh id. Raises what `claim` raises."""
        while True:
            taken = self.at_hand()
            if taken is not None:
                return taken
            async with self._claiming:
                if self._next > self._last:  # whoever was first has claimed for all
                    block = await self._claim()
                    self._next, self._last = block.first, block.last
