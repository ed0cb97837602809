"""A listening port that stands for a distant one: what connects here is carried to the target over two lines.

The edge of this package: sockets and timers, nothing else; `Stream` says what arrives when. A connection is
dialled when its handshake has arrived there, and its first bytes leave when the answer is back: opening one
costs a round trip. A client's own connect() succeeds at once, whatever the line: the kernel answers it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Self, cast

from topology.network.line import Line
from topology.network.stream import Item, Mark, Stream

_TICK_S = 0.0005
"""Event loops' timers count milliseconds; what is due within half of one is delivered at once."""
_EARLY = 65536
"""Bytes that a client's socket takes before the connection is open."""
_AT_ONCE = struct.pack("ii", 1, 0)
"""SO_LINGER of no time: closing resets."""
HOST = "127.0.0.1"


@dataclass(frozen=True)
class Route:
    """Who connects to `port` here is in `source` and speaks to `target_port` in `target`."""

    name: str
    """What listens at the target, for people."""
    source: str
    target: str
    port: int
    target_port: int


class _Way:
    """One direction of a connection: takes from one end, delivers what has arrived to the other."""

    def __init__(self, connection: Connection, line: Line, take: Callable[[Mark], None]) -> None:
        self.stream = Stream(line)
        self.giver: _End | None = None
        self.taker: _End | None = None
        self._take_mark = take
        self._connection = connection
        self._loop = connection.loop
        self._timer: asyncio.TimerHandle | None = None

    def send(self, item: Item) -> None:
        self.stream.send(self._loop.time(), item)
        self.deliver()

    def deliver(self) -> None:
        """Hand over what has arrived and come back when the next piece does."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.taker is not None and self.taker.paused:
            return
        for item in self.stream.arrived(self._loop.time() + _TICK_S):
            if self._connection.closed:
                return
            if isinstance(item, Mark):
                self._take_mark(item)
            elif self.taker is not None:
                self.taker.write(item)
        if self._connection.closed:
            return
        due = self.stream.next_arrival()
        if due is not None:
            self._timer = self._loop.call_at(due, self.deliver)
        if self.giver is not None:
            self.giver.read_on(not self.stream.full())

    def line_changed(self, line: Line) -> None:
        """Also of the opposite line: its delay counts for the window of this one."""
        if line is self.stream.line:
            self.stream.replan(self._loop.time())
        self.deliver()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class _End(asyncio.Protocol):
    """One socket of a connection: what it says goes into `out`, what `back` delivers is written to it."""

    def __init__(self, connection: Connection, out: _Way, back: _Way) -> None:
        self.paused = False
        self._connection = connection
        self._out, self._back = out, back
        self._transport: asyncio.Transport | None = None
        self._reading = True
        self.ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._out.giver = self
        self._back.taker = self
        self._connection.end_is_there(self)

    def data_received(self, data: bytes) -> None:
        self._connection.said(self, self._out, data)

    def eof_received(self) -> bool:
        self._connection.said(self, self._out, Mark.END)
        return True

    def connection_lost(self, error: Exception | None) -> None:
        self._out.giver = None
        self._back.taker = None
        self.paused = False
        self._transport = None
        self._connection.end_is_gone(self)

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        self._back.deliver()

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def finish(self) -> None:
        """The peer may be gone without the event loop having heard of it: healing the other links goes on."""
        self.ended = True
        if self._transport is not None and self._transport.can_write_eof():
            with contextlib.suppress(OSError):
                self._transport.write_eof()

    def abort(self) -> None:
        """Reset it: the peer gets an error, not an end."""
        if self._transport is not None:
            with contextlib.suppress(OSError):
                made = self._transport.get_extra_info("socket")
                made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
            self._transport.abort()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def read_on(self, wanted: bool) -> None:
        if wanted == self._reading or self._transport is None or self._transport.is_closing():
            return
        self._reading = wanted
        if wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()


class Connection:
    """A connection of a client to a target over two lines."""

    def __init__(self, relay: Relay) -> None:
        self.loop = relay.loop
        self.closed = False
        self._relay = relay
        self._there = _Way(self, relay.there, self._at_target)
        self._back = _Way(self, relay.back, self._at_client)
        self._client = _End(self, self._there, self._back)
        self._target: _End | None = None
        self._dialled = False
        self._early: list[Item] | None = []
        """What the client said before the handshake's answer was back; None after it."""

    @property
    def client(self) -> _End:
        return self._client

    def end_is_there(self, end: _End) -> None:
        if end is self._client:
            self._relay.connections.add(self)
            self._there.send(Mark.OPEN)
        elif self.closed:
            end.abort()
        else:
            self._target = end
            self._back.send(Mark.OPEN)

    def said(self, end: _End, out: _Way, item: Item) -> None:
        if end is not self._client or self._early is None:
            out.send(item)
        elif item is Mark.END and not self._there.stream.line.settings.up:
            self._close()  # it gave up: the other side never hears of it
        else:
            self._early.append(item)
            if sum(len(part) for part in self._early if not isinstance(part, Mark)) > _EARLY:
                end.read_on(False)

    def end_is_gone(self, end: _End) -> None:
        """A socket was closed or reset: the other one hears of it when the news arrives there."""
        if self.closed:
            return
        if end is self._client:
            if not self._dialled or self._target is None:
                self._close()
            else:
                self._there.send(Mark.RESET)
        else:
            self._back.send(Mark.RESET)

    def line_changed(self, line: Line) -> None:
        for way in (self._there, self._back):
            if not self.closed:
                way.line_changed(line)

    def abort(self) -> None:
        self._close()

    def _at_target(self, mark: Mark) -> None:
        if mark is Mark.OPEN:
            self._dialled = True
            self._relay.start(self._dial())
        elif self._target is not None:
            self._end(self._target, mark)

    def _at_client(self, mark: Mark) -> None:
        if mark is Mark.OPEN:
            early, self._early = self._early or [], None
            for item in early:
                self._there.send(item)
        else:
            self._end(self._client, mark)

    def _end(self, end: _End, mark: Mark) -> None:
        if mark is Mark.END:
            end.finish()
            if self._target is not None and self._client.ended and self._target.ended:
                self._close(abort=False)
        else:
            self._close()

    async def _dial(self) -> None:
        target = _End(self, self._back, self._there)
        try:
            await self.loop.create_connection(lambda: target, HOST, self._relay.route.target_port)
        except OSError:
            if not self.closed:
                self._back.send(Mark.RESET)

    def _close(self, *, abort: bool = True) -> None:
        if self.closed:
            return
        self.closed = True
        self._relay.connections.discard(self)
        for way in (self._there, self._back):
            way.stop()
        for end in (self._client, self._target):
            if end is not None:
                end.abort() if abort else end.close()


class Relay:
    """Listens for one route."""

    def __init__(self, route: Route, there: Line, back: Line) -> None:
        self.route = route
        self.there = there
        self.back = back
        self.connections: set[Connection] = set()
        self.loop = asyncio.get_running_loop()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> Self:
        """Raises OSError when the port is taken."""
        self._server = await self.loop.create_server(
            lambda: Connection(self).client, HOST, self.route.port, backlog=512
        )
        return self

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            connection.abort()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()

    def line_changed(self, line: Line) -> None:
        for connection in list(self.connections):
            connection.line_changed(line)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
