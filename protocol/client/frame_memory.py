"""Memory for large frames that is used again once nobody looks at it any more.

A fresh buffer costs its zeroing and a page fault for every 4 KB: an eighth of what a link spends on data.
Whether a buffer is free it says itself: Python does not let a bytearray change its size while a view of it
exists, so nobody has to give anything back, and what is still being read is never written over.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

LARGE: Final = 256 * 1024
"""Smaller frames are not worth it."""
SPARE_BYTES: Final = 8 << 20
"""Of free buffers that may be left."""
IDLE_S: Final = 5.0
"""How long buffers are kept when no large frame comes."""
_LOOKED_AT: Final = 16
"""So many are asked each time whether they are free, in turn."""
_STEPS: Final = 8
"""Sizes between two powers of two: answers of nearly one size should fit into each other's buffers."""


class FrameMemory:
    """Belongs to one event loop; connections of one client share it."""

    def __init__(self) -> None:
        self._given: deque[bytearray] = deque()
        """What may still be in use."""
        self._free: list[bytearray] = []
        self._timer: asyncio.TimerHandle | None = None
        self._used = False

    def take(self, size: int) -> memoryview:
        """Writable room of `size` bytes with any content, free again when no view of it is left."""
        if size < LARGE:
            return memoryview(bytearray(size))
        self._used = True
        self._collect()
        buffer = self._fitting(size)
        while sum(map(len, self._free)) > SPARE_BYTES:
            del self._free[0]
        if buffer is None:
            step = (1 << (size - 1).bit_length()) // 2 // _STEPS
            buffer = bytearray(-(-size // step) * step)
        self._given.append(buffer)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(IDLE_S, self._look)
        return memoryview(buffer)[:size]

    def _collect(self) -> None:
        """Find out what has become free."""
        for _ in range(min(_LOOKED_AT, len(self._given))):
            buffer = self._given.popleft()
            (self._free if _is_free(buffer) else self._given).append(buffer)

    def _fitting(self, size: int) -> bytearray | None:
        for at, buffer in enumerate(self._free):
            if size <= len(buffer) <= 2 * size:
                return self._free.pop(at)
        return None

    def _look(self) -> None:
        self._timer = None
        if self._used:
            self._used = False
            self._timer = asyncio.get_running_loop().call_later(IDLE_S, self._look)
        else:
            self._given.clear()
            self._free.clear()


def _is_free(buffer: bytearray) -> bool:
    try:
        last = buffer.pop()
    except BufferError:  # a view exists
        return False
    buffer.append(last)
    return True
