"""Connections to the brokers of one cluster.

Owns at most one open connection per broker and lane, made when first needed and again after a loss, and the
pause before an address that just failed is tried again. A lane is a name: requests of one connection are
answered in order, so a Fetch that waits for data must not stand in front of others.
"""

import asyncio
import time
from typing import Final

from protocol.client.connection import Connection
from protocol.client.errors import (
    ConnectError,
    ConnectionLostError,
    RequestTimeoutError,
    TokenError,
    TurnedAwayError,
)
from protocol.client.frame_memory import FrameMemory
from protocol.client.security import ClientSecurity

_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 1.0

Address = tuple[str, int]


class _Failures:
    __slots__ = ("count", "error", "until")

    def __init__(self) -> None:
        self.count = 0
        self.until = 0.0
        self.error: ConnectError | None = None


class ConnectionPool:
    """Keyed by address, so that a broker that comes back elsewhere is simply another address."""

    def __init__(
        self, client_id: str, security: ClientSecurity, timeout_s: float, connect_timeout_s: float
    ) -> None:
        self._client_id = client_id
        self._security = security
        self._timeout_s = timeout_s
        self._connect_timeout_s = connect_timeout_s
        self._open: dict[tuple[Address, str], Connection] = {}
        self._opening: dict[tuple[Address, str], asyncio.Lock] = {}
        self._failures: dict[Address, _Failures] = {}
        self._retired: list[Connection] = []
        self._closed = False
        self._memory = FrameMemory()

    def existing(self, address: Address, lane: str) -> Connection | None:
        """An open connection, without making one."""
        connection = self._open.get((address, lane))
        if connection is None or connection.closed or connection.retired:
            return None
        return connection

    def failing(self, address: Address) -> bool:
        """Whether the last attempt to connect failed."""
        return address in self._failures

    async def get(self, address: Address, lane: str) -> Connection:
        """Raises `ConnectError`, at once while an address that just failed is being spared."""
        connection = self.existing(address, lane)
        if connection is not None:
            return connection
        async with self._opening.setdefault((address, lane), asyncio.Lock()):
            return self.existing(address, lane) or await self._connect(address, lane)

    async def _connect(self, address: Address, lane: str) -> Connection:
        if self._was_closed():
            raise ConnectError("this client is closed")
        failures = self._failures.get(address) or _Failures()
        if failures.error is not None and time.monotonic() < failures.until:
            raise type(failures.error)(str(failures.error))
        try:
            connection = await Connection.open(
                *address,
                client_id=self._client_id,
                ssl=self._security.ssl,
                sasl=self._security.sasl,
                timeout_s=self._timeout_s,
                connect_timeout_s=self._connect_timeout_s,
                memory=self._memory,
            )
        except TokenError:
            raise  # says nothing against the broker
        except (ConnectError, ConnectionLostError, RequestTimeoutError) as failure:
            # A peer that takes connections and drops them (a proxy, a dead tunnel) is as good as none.
            error = _not_connected(failure)
            pause = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** min(failures.count, 10))
            failures.count += 1
            failures.until = time.monotonic() + pause
            failures.error = error
            self._failures[address] = failures
            raise error from failure
        self._failures.pop(address, None)
        before = self._open.get((address, lane))
        # Nobody may ever ask again for where a broker was, or for the lane of a reader that has ended.
        self._open = {place: one for place, one in self._open.items() if not one.closed}
        self._open[address, lane] = connection  # before anything waits: whoever asked may give up
        await self._retire(before)
        if self._was_closed():  # while this was connecting
            await self.close()
            raise ConnectError("this client is closed")
        return connection

    def _was_closed(self) -> bool:
        return self._closed

    async def _retire(self, connection: Connection | None) -> None:
        """Its session ends soon: who waits for an answer of it still gets that."""
        if connection is not None and not connection.closed:
            self._retired.append(connection)
        for one in [one for one in self._retired if not one.waiting]:
            await one.close()
        self._retired = [one for one in self._retired if not one.closed]

    async def close(self) -> None:
        self._closed = True
        connections = [*self._open.values(), *self._retired]
        self._open.clear()
        self._retired.clear()
        for connection in connections:  # before anything waits: none stays open where that is given up
            connection.abort()
        for connection in connections:
            await connection.close()


def _not_connected(failure: ConnectError | ConnectionLostError | RequestTimeoutError) -> ConnectError:
    if isinstance(failure, ConnectError):
        return failure
    kind = TurnedAwayError if isinstance(failure, ConnectionLostError) else ConnectError
    return kind(str(failure))
