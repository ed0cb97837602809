"""The receive buffer of one connection: bytes in, whole frames out, no sockets.

A frame is a 4-byte big-endian length and that many bytes. The buffer grows towards the announced length only
as bytes arrive, by at most what has arrived already and never by more than `GROWTH_STEP`, so an announced
length costs nothing (invariant I11). A returned frame is a view into the buffer: it is valid until the next
call of `space()`, because its room is used again for the bytes that follow.
"""

from __future__ import annotations

from struct import Struct

_LENGTH = Struct(">i").unpack_from
START = 16 * 1024
GROWTH_STEP = 8 * 1024 * 1024
# A busy connection keeps this much between requests, so that 1 MB produce requests do not fault in fresh
# pages each time; more is given back as soon as the frame that needed it is done.
KEPT = 2 * 1024 * 1024
# From this size on, a frame gets a read that ends with it: the next frame then starts at the buffer's head
# and is never moved.
ALIGNED = 64 * 1024


class FrameSizeError(Exception):
    """A length that no client may announce; only closing the connection is left."""


class FrameBuffer:
    """One growing buffer. `space()` gives room to receive into, `received(n)` says how much came."""

    __slots__ = ("_buffer", "_end", "_start", "_view", "max_frame")

    def __init__(self, max_frame: int) -> None:
        self.max_frame = max_frame
        self._buffer: bytearray | None = None
        self._view = memoryview(b"")
        self._start = 0
        self._end = 0

    @property
    def pending(self) -> int:
        """Bytes received and not yet taken as frames."""
        return self._end - self._start

    @property
    def announced(self) -> int:
        """Length of the frame at the head with its prefix; 0 while that is not known."""
        if self._end - self._start < 4:
            return 0
        return 4 + int(_LENGTH(self._view, self._start)[0])

    @property
    def capacity(self) -> int:
        return len(self._view)

    def space(self) -> memoryview:
        """Writable room for the next bytes; empty when whole frames fill the buffer and must go first."""
        if self._start == self._end:
            self._start = self._end = 0
            if len(self._view) > KEPT or self._buffer is None:
                self._allocate(START)
        missing = self._missing()
        if missing > 0:
            self._make_room(missing)
        elif self._end == len(self._view):
            return self._view[:0]
        if missing >= ALIGNED:
            return self._view[self._end : self._end + missing]
        return self._view[self._end :]

    def received(self, count: int) -> None:
        self._end += count

    def next_frame(self) -> memoryview | None:
        """The next whole frame without its length, or None while bytes are missing. Raises FrameSizeError."""
        start = self._start
        if self._end - start < 4:
            return None
        size = int(_LENGTH(self._view, start)[0])
        if not 0 <= size <= self.max_frame:
            raise FrameSizeError(f"announced frame of {size} bytes, allowed are 0 to {self.max_frame}")
        stop = start + 4 + size
        if stop > self._end:
            return None
        self._start = stop
        return self._view[start + 4 : stop]

    def release(self) -> bool:
        """Give the memory back if nothing is pending (an idle connection holds no buffer)."""
        if self._start != self._end or self._buffer is None:
            return False
        self._buffer = None
        self._view = memoryview(b"")
        self._start = self._end = 0
        return True

    def discard(self) -> None:
        """Forget what has come."""
        self._start = self._end
        self.release()

    def _missing(self) -> int:
        """How many bytes the frame at the head still lacks; at most 0 when it is complete."""
        have = self._end - self._start
        if have < 4:
            return 4 - have
        return 4 + int(_LENGTH(self._view, self._start)[0]) - have

    def _make_room(self, missing: int) -> None:
        have = self._end - self._start
        if len(self._view) - self._end >= min(missing, max(have, START // 2)):
            return
        wanted = min(have + missing, have + max(have, START), have + GROWTH_STEP)
        if wanted > len(self._view):
            self._allocate(wanted)
        elif self._start:
            self._view[:have] = self._view[self._start : self._end]
            self._start, self._end = 0, have

    def _allocate(self, size: int) -> None:
        """Move what is pending to a new buffer; not resized in place, handlers may hold views of it."""
        have = self._end - self._start
        buffer = bytearray(size)
        view = memoryview(buffer)
        view[:have] = self._view[self._start : self._end]
        self._buffer, self._view = buffer, view
        self._start, self._end = 0, have
