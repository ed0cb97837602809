"""What a connection still has to write: bytes, and regions of files that go from page cache to socket.

Bytes go through the transport; regions by `sendfile` while the transport holds nothing, so the order is kept
and record bytes are neither copied nor held in memory. When the socket is full, the next piece of a region is
handed to the transport instead, which then says when there is room again. On transports that encrypt, all
regions go in such pieces. A slow reader costs one piece, whatever it asked for.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Iterable
from typing import Any, Protocol

Bytes = bytes | bytearray | memoryview
PIECE = 64 * 1024
# More than a socket takes at once; bounds one call, nothing else.
_MOST_AT_ONCE = 8 * 1024 * 1024


class Region(Protocol):
    """A range of a file that does not change (`broker.log.region.FileRegion`)."""

    @property
    def size(self) -> int: ...
    @property
    def position(self) -> int: ...
    @property
    def fd(self) -> int: ...
    def __len__(self) -> int: ...
    def advance(self, count: int) -> None: ...
    def read(self, count: int) -> bytes: ...
    def failed(self, error: OSError) -> None: ...


class ShortRegionError(Exception):
    """The file ends inside a region that was promised to the client."""


class Outbox:
    """`writable` is kept by the owner: False from `pause_writing` until `resume_writing`."""

    __slots__ = ("_direct", "_queue", "_socket", "_transport", "writable")

    def __init__(self, transport: asyncio.Transport) -> None:
        self.writable = True
        self._transport = transport
        self._socket: Any = transport.get_extra_info("socket")
        self._direct = transport.get_extra_info("sslcontext") is None and self._socket is not None
        self._queue: deque[Bytes | Region] = deque()
        # With a limit of 0 "resume" means that the transport holds nothing: a region may follow directly.
        # asyncio's TLS takes an empty buffer for a full one then, and never says that there is room.
        transport.set_write_buffer_limits(high=0 if self._direct else PIECE)

    def __bool__(self) -> bool:
        """Whether something is left to write."""
        return bool(self._queue)

    def write(self, segments: Iterable[Bytes | Region]) -> None:
        """Add to the end and write what goes now, also of what was there before.

        Raises OSError, ShortRegionError: the connection is to be ended then.
        """
        self._queue.extend(segments)
        queue = self._queue
        while queue and self.writable:
            head = queue[0]
            if isinstance(head, bytes | bytearray | memoryview):
                self._write_bytes()
            else:
                try:
                    sent = self._send(head)
                except OSError as error:
                    head.failed(error)
                    raise
                if sent:
                    queue.popleft()

    def _write_bytes(self) -> None:
        queue = self._queue
        run: list[Bytes] = []
        while queue and isinstance(queue[0], bytes | bytearray | memoryview):
            run.append(queue.popleft())  # type: ignore[arg-type]
        self._transport.writelines(run)

    def _send(self, region: Region) -> bool:
        """Whether all of the region has been handed over."""
        try:
            if not self._direct:
                raise BlockingIOError
            sent = os.sendfile(
                self._socket.fileno(), region.fd, region.position, min(region.size, _MOST_AT_ONCE)
            )
        except BlockingIOError:
            piece = region.read(PIECE)
            sent = len(piece)
            self._transport.write(piece)
        if not sent:
            raise ShortRegionError(f"a segment file ends {region.size} bytes too early")
        region.advance(sent)
        return not region.size

    def clear(self) -> None:
        self._queue.clear()
