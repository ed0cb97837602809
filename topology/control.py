"""How other commands talk to a running supervisor: one JSON line there, one back, over a Unix socket.

Requests: {"do": "status"} and {"do": "start"|"stop"|"kill"|"down", "parts": [...]}.
Answers: {"ok": true, "result": …} or {"ok": false, "error": "…"}.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from topology.process import ProcessFailed
from topology.runtime import NotRunning, Runtime
from topology.sockets import short_socket_path
from topology.supervisor import Supervisor, UnknownPart


class ControlError(Exception):
    """The supervisor refused or failed the request."""


class ControlServer:
    """Serves `supervisor` until closed; `down` sets the event that the caller waits for."""

    def __init__(self, supervisor: Supervisor) -> None:
        self.down = asyncio.Event()
        self._supervisor = supervisor
        self._path = socket_path(supervisor.runtime)
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()
        self._server = await asyncio.start_unix_server(self._serve, self._path)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            with contextlib.suppress(FileNotFoundError):
                self._path.unlink()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                writer.write(json.dumps(await self._answer(line)).encode() + b"\n")
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
            return {"ok": True, "result": await self._do(request["do"], request.get("parts", []))}
        except (ProcessFailed, UnknownPart) as error:
            return {"ok": False, "error": str(error)}
        except (ValueError, KeyError, TypeError) as error:
            return {"ok": False, "error": f"not a request: {error}"}

    async def _do(self, verb: str, parts: list[str]) -> Any:
        if verb == "status":
            return self._supervisor.status()
        if verb == "down":
            self.down.set()
            return None
        verbs: dict[str, Callable[[list[str]], Awaitable[None]]] = {
            "start": self._supervisor.start_parts,
            "stop": self._supervisor.stop_parts,
            "kill": self._supervisor.kill_parts,
        }
        await verbs[verb](parts)
        return self._supervisor.resolve(parts)


async def request(runtime: Runtime, verb: str, parts: list[str] | None = None) -> Any:
    """Result of one request. Raises NotRunning when no supervisor answers, ControlError when it refuses."""
    try:
        reader, writer = await asyncio.open_unix_connection(socket_path(runtime))
    except PermissionError:
        raise ControlError(f"the supervisor in {runtime.directory} belongs to another user") from None
    except (FileNotFoundError, ConnectionRefusedError):
        raise NotRunning(f"nothing runs in {runtime.directory}: start it with isthmus up FILE") from None
    try:
        writer.write(json.dumps({"do": verb, "parts": parts or []}).encode() + b"\n")
        await writer.drain()
        line = await reader.readline()
    finally:
        writer.close()
        await writer.wait_closed()
    if not line:
        raise NotRunning(f"the supervisor in {runtime.directory} went away")
    answer = json.loads(line)
    if not answer["ok"]:
        raise ControlError(answer["error"])
    return answer["result"]


def socket_path(runtime: Runtime) -> Path:
    return short_socket_path(runtime.socket)
