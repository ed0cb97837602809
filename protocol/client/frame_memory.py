"""Memory for large frames that is used again once nobody looks at it any more.

Fresh memory costs its zeroing and a page fault for every 4 KB: a tenth of what a link spends on data. Frames
are laid one behind the other into slabs, since answers come in all sizes and would seldom fit into each
other's buffers. Whether a slab is free it says itself: Python does not let a bytearray change its size while
a view of it exists, so nobody has to give anything back, and what is still being read is never written over.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

LARGE: Final = 256 * 1024
"""Smaller frames are not worth it."""
SLAB: Final = 4608 * 1024
"""A whole answer of the usual 4 MiB, or several smaller ones. A frame that is read slowly holds all of it."""
MOST_BYTES: Final = 48 << 20
"""Of slabs. When frames that nobody lets go hold so many, further ones get memory of just their size."""
SPARE_BYTES: Final = 9 << 20
"""Of free slabs that may be left."""
IDLE_S: Final = 5.0
"""How long slabs are kept when no large frame comes."""


class FrameMemory:
    """Belongs to one event loop; connections of one client share it."""

    def __init__(self) -> None:
        self._slab = bytearray()
        """The one that is being filled, up to `_at`."""
        self._at = 0
        self._full: deque[bytearray] = deque()
        """What may still be in use, oldest first."""
        self._timer: asyncio.TimerHandle | None = None
        self._used = False

    @property
    def held(self) -> int:
        """Bytes of all slabs, in use or not."""
        return len(self._slab) + sum(map(len, self._full))

    def take(self, size: int) -> memoryview:
        """Writable room of `size` bytes with any content, free again when no view of it is left."""
        if size < LARGE:
            return memoryview(bytearray(size))
        self._used = True
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(IDLE_S, self._look)
        if size > len(self._slab) - self._at and not self._turn_to_another(size):
            return memoryview(bytearray(size))
        start, self._at = self._at, self._at + size
        return memoryview(self._slab)[start : self._at]

    def _turn_to_another(self, size: int) -> bool:
        """Begin a slab with room for `size` bytes: one that is free, else a new one while there may be."""
        if self._slab:
            self._full.append(self._slab)
        self._slab, self._at = bytearray(), 0
        spare = 0
        for _ in range(len(self._full)):
            slab = self._full.popleft()
            if not _is_free(slab):
                self._full.append(slab)
            elif not self._slab and len(slab) >= size:
                self._slab = slab
            elif spare + len(slab) <= SPARE_BYTES:
                spare += len(slab)
                self._full.append(slab)
        if not self._slab and self.held + max(SLAB, size) <= MOST_BYTES:
            self._slab = bytearray(max(SLAB, size))
        return bool(self._slab)

    def _look(self) -> None:
        self._timer = None
        if self._used:
            self._used = False
            self._timer = asyncio.get_running_loop().call_later(IDLE_S, self._look)
        else:
            self._slab, self._at = bytearray(), 0
            self._full.clear()


def _is_free(buffer: bytearray) -> bool:
    try:
        last = buffer.pop()
    except BufferError:  # a view exists
        return False
    buffer.append(last)
    return True
