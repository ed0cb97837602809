"""How other commands talk to a running supervisor (`control_socket`).

Requests: {"do": "status"} and {"do": "start"|"stop"|"kill"|"down", "parts": [...]}; the result of the middle
three is the names of the processes that were meant.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from protocol.errors import ProtocolError
from topology import control_socket
from topology.control_socket import ControlSocket, NobodyListens, NotAllowed, Refused, Request
from topology.process import ProcessFailed
from topology.runtime import NotRunning, Runtime
from topology.sockets import short_socket_path
from topology.supervisor import Supervisor, UnknownPart


class ControlError(Exception):
    """The supervisor refused or failed the request."""


class NoSuchPart(ControlError):
    """The request names what the topology does not have; the message lists what it has."""


class ControlServer:
    """Serves `supervisor` until closed; `down` sets the event that the caller waits for."""

    def __init__(self, supervisor: Supervisor) -> None:
        self.down = asyncio.Event()
        self._supervisor = supervisor
        verbs = {
            "status": lambda _: supervisor.status(),
            "down": lambda _: self.down.set(),
            "start": self._with_parts(supervisor.start_parts),
            "stop": self._with_parts(supervisor.stop_parts),
            "kill": self._with_parts(supervisor.kill_parts),
        }
        self._socket = ControlSocket(
            socket_path(supervisor.runtime), verbs, refusals=(ProcessFailed, UnknownPart, ProtocolError)
        )

    async def start(self) -> None:
        await self._socket.open()

    async def close(self) -> None:
        await self._socket.close()

    def _with_parts(
        self, act: Callable[[list[str]], Awaitable[None]]
    ) -> Callable[[Request], Awaitable[list[str]]]:
        async def verb(request: Request) -> list[str]:
            parts = request.get("parts", [])
            await act(parts)
            return self._supervisor.resolve(parts)

        return verb


async def request(runtime: Runtime, verb: str, parts: list[str] | None = None) -> Any:
    """Result of one request. Raises NotRunning when no supervisor answers, ControlError when it refuses,
    NoSuchPart for a name that it does not know."""
    try:
        return await control_socket.ask(socket_path(runtime), {"do": verb, "parts": parts or []})
    except NotAllowed:
        raise ControlError(f"the supervisor in {runtime.directory} belongs to another user") from None
    except NobodyListens:
        raise NotRunning(f"nothing runs in {runtime.directory}: start it with isthmus up FILE") from None
    except Refused as error:
        refused = NoSuchPart if error.kind == UnknownPart.__name__ else ControlError
        raise refused(str(error)) from None


def socket_path(runtime: Runtime) -> Path:
    return short_socket_path(runtime.socket)
