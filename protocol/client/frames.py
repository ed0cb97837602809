"""The receiving end of a connection: bytes in, whole frames out, without copying the large ones.

Owns cutting the byte stream by its 4-byte sizes. Knows nothing of messages. Bytes arrive in a small buffer;
a frame that does not fit what has arrived gets memory of its own, into which the rest is received directly.
A frame handed out is not written to while a view of it exists, so messages may keep slices of it.
"""

import asyncio
from collections.abc import Callable
from typing import Final, cast

from protocol.client.frame_memory import FrameMemory

_INTAKE: Final = 64 * 1024


class FrameReceiver(asyncio.BufferedProtocol):
    """Calls `on_frame(memoryview)` per frame, and `on_lost(reason)` once, when the connection has ended."""

    def __init__(
        self,
        on_frame: Callable[[memoryview], None],
        on_lost: Callable[[str], None],
        max_frame: int,
        memory: FrameMemory | None = None,
    ) -> None:
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._max_frame = max_frame
        self._memory = memory or FrameMemory()
        self._intake = memoryview(bytearray(_INTAKE))
        self._start = 0
        self._end = 0
        self._frame: memoryview | None = None
        self._filled = 0
        self._transport: asyncio.Transport | None = None
        self._reason = ""
        self._writable = asyncio.Event()
        self._writable.set()
        self.closed = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by class

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._frame is not None:
            return self._frame[self._filled :]
        return self._intake[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._frame is None:
            self._end += nbytes
            self._cut()
            return
        self._filled += nbytes
        if self._filled == len(self._frame):
            frame, self._frame = self._frame, None
            self._on_frame(frame)

    def _cut(self) -> None:
        """Hands out the frames in the intake, and begins the one that is not complete."""
        intake, start, end = self._intake, self._start, self._end
        while end - start >= 4:
            size = int.from_bytes(intake[start : start + 4], "big", signed=True)
            if not 4 <= size <= self._max_frame:
                strange = _other_protocol(bytes(intake[start : start + 4]))
                self.abort(strange or f"it sent a frame of {size} bytes; allowed are 4 to {self._max_frame}")
                return
            start += 4
            have = min(size, end - start)
            frame = self._memory.take(size)
            frame[:have] = intake[start : start + have]
            start += have
            if have < size:
                self._frame, self._filled = frame, have
                break
            self._on_frame(frame)
        left = end - start
        if left:
            intake[:left] = bytes(intake[start:end])
        self._start, self._end = 0, left

    def eof_received(self) -> bool:
        inside = self._frame is not None or self._end
        self._reason = self._reason or f"it closed the connection{' inside an answer' if inside else ''}"
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._writable.set()
        self._frame = None  # whoever keeps a lost connection must not keep a slab with it
        if not self.closed.done():
            self.closed.set_result(None)
        self._on_lost(self._reason or (str(exc) if exc else "the connection was closed"))

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    @property
    def full(self) -> bool:
        """Whether a writer has to wait (`writable`)."""
        return not self._writable.is_set()

    async def writable(self) -> None:
        """Waits while the peer takes bytes more slowly than we have them."""
        await self._writable.wait()

    def abort(self, reason: str) -> None:
        """Ends the connection at once; `on_lost` will say why."""
        self._reason = self._reason or reason
        if self._transport is not None:
            self._transport.abort()


def _other_protocol(first: bytes) -> str:
    """What a peer speaks whose first bytes are no size, if that shows: an alert of TLS (RFC 8446), HTTP."""
    if first.startswith((b"\x15\x03", b"\x16\x03")):
        return "it speaks TLS"
    return "it speaks HTTP" if first == b"HTTP" else ""
