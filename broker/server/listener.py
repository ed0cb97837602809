"""One listening socket: its connections, the tasks that still owe answers, idle closing, clean stop.

Connections without traffic for `idle_s` are closed (`connections.max.idle.ms`); one whose answer we owe is
not idle. Each refused connection gives one log line, as far as `Offences` allows.
"""

from __future__ import annotations

import asyncio
import logging
import math
import socket
import ssl
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from broker.security.principals import certificate_principal
from broker.server.answer_order import Outcome
from broker.server.connection_limits import ConnectionLimits
from broker.server.context import ANONYMOUS, ConnectionInfo
from broker.server.edge import CloseConnectionError, Connection, ConnectionOwner, Serve
from broker.server.intake import FrameSizeError
from broker.server.offences import Offences
from broker.server.request_memory import RequestMemory
from broker.server.sasl_gate import SaslGate

BACKLOG = 1024
# A connection quiet for this long gives its receive buffer back.
BUFFER_IDLE_S = 10.0
# A client has this long for the handshake of TLS; until it is through, nothing counts or names it.
TLS_HANDSHAKE_S = 30.0


class Listener(ConnectionOwner):
    """Accepts connections on one address. `name` is the Kafka listener name; `now` is monotonic seconds.

    `buffers`: sizes for SO_SNDBUF and SO_RCVBUF; without them the kernel adapts them to the connection.
    """

    def __init__(
        self,
        name: str,
        serve: Serve,
        *,
        max_frame: int,
        idle_s: float,
        now: Callable[[], float],
        backlog: int = BACKLOG,
        buffers: Mapping[int, int] | None = None,
        limits: ConnectionLimits | None = None,
        memory: RequestMemory | None = None,
        tls: ssl.SSLContext | None = None,
        gate: SaslGate | None = None,
    ) -> None:
        self.name = name
        self.port = 0
        self.connections: set[Connection] = set()
        self.accepted = 0
        self.refused_count = 0
        self.idle_closed = 0
        self.throttled = 0
        self._serve = serve if gate is None else gate.serve
        self._max_frame = max_frame if gate is None else gate.max_receive
        self._tls = tls
        self.gate = gate
        if gate is not None:
            gate.refused = self.refused
        self._idle_s = idle_s
        self._now = now
        self._backlog = backlog
        self._buffers = buffers or {}
        self.memory = memory
        self._limits = limits or ConnectionLimits()
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[Outcome]] = set()
        self.offences = Offences(now)

    async def open(self, host: str, port: int) -> int:
        """Bind and accept; returns the bound port (port 0 asks for a free one). Raises OSError."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Connection(self, self._serve, self._max_frame),
            host or None,
            port,
            family=socket.AF_UNSPEC,
            backlog=self._backlog,
            reuse_address=True,
            ssl=self._tls,
            ssl_handshake_timeout=None if self._tls is None else TLS_HANDSHAKE_S,
        )
        for accepting in self._server.sockets:
            for option, size in self._buffers.items():
                accepting.setsockopt(socket.SOL_SOCKET, option, size)  # accepted sockets inherit it
        self._sweeper = loop.create_task(self._sweep(), name=f"idle-connections-{self.name}")
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self.port

    async def close(self) -> None:
        """Stop accepting, close every connection, cancel what still waits."""
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            connection.abort()
        tasks = list(self._tasks)
        if self._sweeper is not None:
            self._sweeper.cancel()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *([self._sweeper] if self._sweeper else []), return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()
            self._server = None

    @property
    def last_active(self) -> float:
        """When a connection that is open has sent or taken something, in seconds of `now`."""
        return max((connection.last_active for connection in self.connections), default=-math.inf)

    # -- what connections ask

    def now(self) -> float:
        return self._now()

    def start(self, coroutine: Coroutine[Any, Any, Outcome]) -> asyncio.Task[Outcome]:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def connection_made(self, connection: Connection) -> None:
        self.accepted += 1
        self.connections.add(connection)
        if self.gate is not None:
            self.gate.admit(connection)
        elif self._tls is not None:
            connection.info.principal = _tls_principal(connection)
        refusal = self._limits.enter(connection.info.peer_host)
        wait_s = self._limits.wait_s(self._now()) if refusal is None else 0.0
        if refusal is not None:
            self._turn_away(connection, refusal)
        elif wait_s is None:
            self._turn_away(connection, "too many new connections wait for max.connection.creation.rate")
        elif wait_s:
            self.throttled += 1
            connection.hold()
            asyncio.get_running_loop().call_later(wait_s, connection.let_go)

    def _turn_away(self, connection: Connection, why: str) -> None:
        self.refused(connection.info, CloseConnectionError(why))
        connection.abort()

    def connection_lost(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self._limits.leave(connection.info.peer_host)

    def refused(self, info: ConnectionInfo, error: BaseException) -> None:
        """One line about why a connection is closed."""
        self.refused_count += 1
        expected = isinstance(error, CloseConnectionError | FrameSizeError)
        self.offences.say(
            "closing connection",
            info,
            error if expected else f"{type(error).__name__}: {error}",
            level=logging.WARNING if expected else logging.ERROR,
            error=None if expected else error,
        )

    # -- idle connections

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(max(0.05, min(self._idle_s / 4, BUFFER_IDLE_S)))
            now = self._now()
            for connection in list(self.connections):
                quiet = now - connection.last_active
                if self.gate is not None and self.gate.overdue(connection.info):
                    self._turn_away(connection, "it has not authenticated in time")
                elif quiet > self._idle_s and not connection.waiting:
                    self.idle_closed += 1
                    if connection.unfinished:
                        half = f"half a request: {connection.unfinished} bytes came"
                        self._turn_away(connection, f"{half}, nothing more for {quiet:.0f} s")
                    else:
                        connection.abort()
                elif quiet > BUFFER_IDLE_S:
                    connection.release_buffer()


def _tls_principal(connection: Connection) -> str:
    """Whom the client's certificate names."""
    certificate = connection.transport_info("peercert")
    return certificate_principal(certificate) if certificate else ANONYMOUS
