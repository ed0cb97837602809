"""The wire of a chaos run, a process of its own: every connection goes through it and can be held or slowed.

    python -m tests.chaos.relay        # JSON lines on stdin, one answer each; the end of stdin ends it

Owns one listening port for each target. Data has a direction: of a connection that A has dialled to B,
`there` is from A to B and `back` from B to A. What is held waits here and is delivered when it is released,
late and in order, as TCP would do; nobody hears meanwhile that the other end has gone. Refused connections
are reset. Faults have tokens, so that two on one wire do not undo each other. Must not know protocols.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
import sys
from collections import deque
from collections.abc import Iterable
from typing import Any, Final, cast

import uvloop

from tests.chaos.origin import dialer

_QUEUE_BYTES: Final = 1 << 20
ANYBODY: Final = "client"
"""Who dials and is no named process."""


class Flow:
    """One direction of all connections between one that dials and one target."""

    def __init__(self) -> None:
        self.ends: set[End] = set()
        self.held = self.refused = False
        self.delay_s = 0.0
        self.bytes_per_s = 0.0
        self.free_at = 0.0
        """When what was sent so far has left, where there is a limit of bandwidth."""
        self._faults: dict[str, dict[str, Any]] = {}

    def disturb(self, token: str, fault: dict[str, Any] | None) -> None:
        """None ends the fault with this token."""
        if fault is not None:
            self._faults[token] = fault
        elif self._faults.pop(token, None) is None:
            return
        faults = self._faults.values()
        self.held = any(each.get("held") for each in faults)
        self.refused = any(each.get("refused") for each in faults)
        self.delay_s = max((each.get("delay_s", 0.0) for each in faults), default=0.0)
        rates = [each["bytes_per_s"] for each in faults if each.get("bytes_per_s")]
        self.bytes_per_s = min(rates, default=0.0)
        for end in list(self.ends):
            end.changed()


class End(asyncio.Protocol):
    """One end of a relayed connection: what it reads goes to `other` when its flow lets it."""

    def __init__(self, relay: Relay, target: str) -> None:
        self.flow = Flow()  # until the one that dials is known
        self.other: End | None = None
        self.transport: asyncio.Transport | None = None
        self._relay = relay
        self._target = target
        self._queue: deque[tuple[float, bytes]] = deque()
        self._size = 0
        self._timer: asyncio.TimerHandle | None = None
        self._is_full = False  # of what this end should write
        self._has_ended = False

    # -- of asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        if self.other is None:
            self._relay.dialled(self, self._target)
        else:
            self.changed()
            self.other.changed()

    def data_received(self, data: bytes) -> None:
        self._queue.append((self._relay.time() + self.flow.delay_s, data))
        self._size += len(data)
        self.changed()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._has_ended = True
        self.changed()

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        if self.other is not None:
            self.other.changed()

    # -- what flows

    def changed(self) -> None:
        """Do what can be done now: data, faults or room have come or gone."""
        other = self.other
        if self.flow.refused:
            self.abort()
            return
        if other is not None and other.transport is not None:
            self._send(other)
        elif not self._has_ended and other is not None:
            self._relay.reach(self, other, self._target)
        if self._has_ended:
            is_reached = other is not None and other.transport is not None
            if is_reached and self._queue and not cast(End, other)._has_ended:
                return
            self._forget()
            if other is not None and other.transport is not None and not self.flow.held:
                other.transport.close()
        elif self.transport is not None and not self.transport.is_closing():
            if self._size > _QUEUE_BYTES or (other is not None and other._is_full):
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()

    def _send(self, other: End) -> None:
        assert other.transport is not None
        flow = self.flow
        while self._queue and not flow.held and not other._is_full and not other.transport.is_closing():
            due, data = self._queue[0]
            now = self._relay.time()
            if flow.bytes_per_s:
                due = max(due, flow.free_at)
            if due > now:
                if self._timer is None:
                    self._timer = self._relay.loop.call_at(due, self._later)
                return
            self._queue.popleft()
            self._size -= len(data)
            if flow.bytes_per_s:
                flow.free_at = max(now, flow.free_at) + len(data) / flow.bytes_per_s
            other.transport.write(data)

    def _later(self) -> None:
        self._timer = None
        self.changed()

    def abort(self) -> None:
        """A reset, at both ends."""
        for end in (self, self.other):
            if end is not None:
                end._forget()
                end._queue.clear()
                if end.transport is not None:
                    _reset(end.transport)

    def _forget(self) -> None:
        if not self.flow.held:
            self.flow.ends.discard(self)


def _reset(transport: asyncio.Transport) -> None:
    """The peer gets a reset and not an end."""
    if not transport.is_closing():
        own = transport.get_extra_info("socket")
        with socket.socket(fileno=os.dup(own.fileno())) as same:
            same.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


class Relay:
    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.time = self.loop.time
        self._ports: dict[str, int] = {}
        self._listening: dict[str, tuple[asyncio.Server, int]] = {}
        self._names: dict[int, str] = {}
        self._flows: dict[tuple[str, str, str], Flow] = {}
        self._reaching: dict[End, asyncio.Task[None]] = {}

    def flow(self, source: str, target: str, way: str) -> Flow:
        return self._flows.setdefault((source, target, way), Flow())

    def dialled(self, end: End, target: str) -> None:
        """Somebody has connected: from now on it is under the faults between the two."""
        assert end.transport is not None
        peer = end.transport.get_extra_info("peername")
        if peer is None:  # it has gone already
            end.transport.abort()
            return
        source = dialer(peer[1], self._listening[target][1], self._names) or ANYBODY
        other = End(self, target)
        end.flow, other.flow = self.flow(source, target, "there"), self.flow(source, target, "back")
        end.other, other.other = other, end
        end.flow.ends.add(end)
        other.flow.ends.add(other)
        end.changed()

    def reach(self, end: End, other: End, target: str) -> None:
        """Connect to the target, unless a packet of the handshake would be lost."""
        if end.flow.held or other.flow.held or end in self._reaching or end.transport is None:
            return
        self._reaching[end] = self.loop.create_task(self._reach(end, other, target))

    async def _reach(self, end: End, other: End, target: str) -> None:
        try:
            await self.loop.create_connection(lambda: other, "127.0.0.1", self._ports[target])
        except (OSError, KeyError):
            end.abort()
        finally:
            self._reaching.pop(end, None)

    async def obey(self, command: dict[str, Any]) -> object:
        """`listen`, `point`, `name`, `disturb`, `clear`: see `network.Network`."""
        match command["do"]:
            case "listen":
                target: str = command["target"]
                server = await self.loop.create_server(lambda: End(self, target), "127.0.0.1", 0)
                port: int = server.sockets[0].getsockname()[1]
                self._listening[target] = server, port
                return port
            case "point":
                self._ports[command["target"]] = command["port"]
            case "name":
                self._names[command["pid"]] = command["name"]
            case "disturb":
                for flow in self._named(command["flows"]):
                    flow.disturb(command["token"], command["fault"])
            case "clear":
                for flow in list(self._flows.values()):
                    flow.disturb(command["token"], None)
            case unknown:
                raise ValueError(f"no such command: {unknown}")
        return None

    def _named(self, flows: Iterable[tuple[str, str, str]]) -> Iterable[Flow]:
        return [self.flow(source, target, way) for source, target, way in flows]


async def main() -> None:
    relay = Relay()
    lines = asyncio.StreamReader()
    await relay.loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await lines.readline():
        answer = await relay.obey(json.loads(line))
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    uvloop.run(main())
