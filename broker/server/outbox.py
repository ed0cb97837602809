"""What a connection still has to write: bytes, and regions of files that go from page cache to socket.

Bytes go through the transport; regions by `sendfile` while the transport holds nothing, so the order is kept
and record bytes are neither copied nor held in memory. When the socket is full, the next piece of a region is
handed to the transport instead, which then says when there is room again. On transports that encrypt, all
regions go in such pieces. A slow reader costs one piece, whatever it asked for. A fast one gets `IN_A_TURN`
bytes of files at a time, so that nobody waits while many megabytes are sent to somebody else.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Iterable
from typing import Any, Protocol

Bytes = bytes | bytearray | memoryview
PIECE = 64 * 1024
IN_A_TURN = 1024 * 1024
"""A fifth of a millisecond of `sendfile`; a turn of its own costs a tenth of that."""


_MORE = getattr(socket, "MSG_MORE", 0)


class Region(Protocol):
    """A range of a file that does not change (`broker.log.region.FileRegion`, `cold_reads.ColdRegion`)."""

    @property
    def size(self) -> int: ...
    def __len__(self) -> int: ...
    def advance(self, count: int) -> None: ...
    def read(self, count: int) -> bytes: ...
    def send(self, to: int, most: int) -> int: ...
    def failed(self, error: OSError) -> None: ...


class ShortRegionError(Exception):
    """The file ends inside a region that was promised to the client."""


class Outbox:
    """`writable` is kept by the owner: False from `pause_writing` on. `queue` is what is left."""

    __slots__ = ("_direct", "_joined", "_socket", "_transport", "_yielded", "queue", "writable")

    def __init__(self, transport: asyncio.Transport) -> None:
        self.writable = True
        self._transport = transport
        self._socket: Any = transport.get_extra_info("socket")
        self._direct = transport.get_extra_info("sslcontext") is None and self._socket is not None
        self.queue: deque[Bytes | Region] = deque()
        self._joined: socket.socket | None = None
        self._yielded = False
        # With a limit of 0 "resume" means that the transport holds nothing: a region may follow directly.
        # asyncio's TLS takes an empty buffer for a full one then, and never says that there is room.
        transport.set_write_buffer_limits(high=0 if self._direct else PIECE)

    def __bool__(self) -> bool:
        """Whether something is left to write."""
        return bool(self.queue)

    def write(self, segments: Iterable[Bytes | Region]) -> bool:
        """Add to the end and write what goes now, also of what was there before.

        True: the socket would take more, but others shall have their turn. Call `go_on` in the next one;
        until then nothing is written. Raises OSError, ShortRegionError: the connection is to be ended then.
        """
        self.queue.extend(segments)
        if self._yielded:
            return False
        queue, left = self.queue, IN_A_TURN
        while queue and self.writable and left > 0:
            head = queue[0]
            if isinstance(head, bytes | bytearray | memoryview):
                self._write_bytes()
                continue
            try:
                left -= self._send(head, left)
            except OSError as error:
                head.failed(error)
                raise
            if not head.size:
                queue.popleft()
        self._yielded = bool(queue) and self.writable
        return self._yielded

    def go_on(self) -> bool:
        """Write on after `write` or this has returned True, whose meaning is the same."""
        self._yielded = False
        return self.write(())

    def _write_bytes(self) -> None:
        queue = self.queue
        run: list[Bytes] = []
        while queue and isinstance(queue[0], bytes | bytearray | memoryview):
            run.append(queue.popleft())  # type: ignore[arg-type]
        if queue and self._direct:
            run = self._write_ahead(run)
        if run:
            self._transport.writelines(run)

    def _write_ahead(self, run: list[Bytes]) -> list[Bytes]:
        """Leave the bytes in front of a region to the kernel, to be sent with it; returns what it did not
        take. As packets of their own they were a sixth of what a fetch of six partitions cost.
        """
        if self._joined is None:
            self._joined = socket.socket(self._socket.family, self._socket.type, 0, self._socket.fileno())
        data = b"".join(run) if len(run) > 1 else run[0]
        try:
            sent = self._joined.send(data, _MORE)
        except BlockingIOError:
            sent = 0
        return [] if sent == len(data) else [memoryview(data)[sent:]]

    def _send(self, region: Region, most: int) -> int:
        """How many bytes of the region have been handed over, at most `most`."""
        try:
            if not self._direct:
                raise BlockingIOError
            sent = region.send(self._socket.fileno(), most)
        except BlockingIOError:
            piece = region.read(PIECE)
            sent = len(piece)
            self._transport.write(piece)
        if not sent:
            raise ShortRegionError(f"a segment file ends {region.size} bytes too early")
        region.advance(sent)
        return sent

    def clear(self) -> None:
        """Forget what is left; nothing may be written afterwards. To be called when the connection ends."""
        self.queue.clear()
        if self._joined is not None:
            self._joined.detach()  # the descriptor is the transport's, which closes it
            self._joined = None
