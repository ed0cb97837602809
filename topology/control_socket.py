"""One JSON line there, one back, over a Unix socket: how commands talk to what runs in the background.

Requests: {"do": VERB, …}. Answers: {"ok": true, "result": …} or {"ok": false, "error": "…",
"kind": EXCEPTION}. Owns the socket's file, the framing and the errors; what a verb does, and which of its
exceptions are refusals whose words the asker shall read, is passed in. Must not know supervisors or networks.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

Request = Mapping[str, Any]
Verb = Callable[[Request], Any | Awaitable[Any]]


class NobodyListens(Exception):
    """No process serves the socket, or it went away before it answered; the message says which."""


class NotAllowed(NobodyListens):
    """The socket belongs to another user."""


class Refused(Exception):
    """The other side said no; the message is its own, `kind` names its exception."""

    def __init__(self, message: str, kind: str = "") -> None:
        super().__init__(message)
        self.kind = kind


class ControlSocket:
    """Serves `verbs` at `path` from `open` to `close`."""

    def __init__(
        self, path: Path, verbs: Mapping[str, Verb], refusals: tuple[type[Exception], ...] = ()
    ) -> None:
        """Exceptions of `refusals` are answered in their own words, mistakes in a request as such."""
        self._path = path
        self._verbs = dict(verbs)
        self._refusals = refusals
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Raises OSError. A socket file that a killed process left behind is replaced."""
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
        except (ConnectionError, ValueError):  # gone, or a line without end
            pass
        finally:
            writer.close()

    async def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
            name = request["do"]
            if name not in self._verbs:
                known = ", ".join(sorted(self._verbs))
                raise ValueError(f"there is no request '{name}'; there are {known}")
            result = self._verbs[name](request)
            return {"ok": True, "result": await result if inspect.isawaitable(result) else result}
        except self._refusals as error:
            return {"ok": False, "error": str(error), "kind": type(error).__name__}
        except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
            return {"ok": False, "error": f"not done: {error}"}


async def ask(path: Path, request: Request, *, within_s: float | None = None) -> Any:
    """Result of one request. Raises NobodyListens, NotAllowed, Refused; waits for ever without `within_s`."""
    try:
        reader, writer = await asyncio.open_unix_connection(path)
    except PermissionError:
        raise NotAllowed(f"{path} belongs to another user") from None
    except OSError:
        raise NobodyListens(f"nobody listens at {path}") from None
    try:
        async with asyncio.timeout(within_s):
            writer.write(json.dumps(dict(request)).encode() + b"\n")
            await writer.drain()
            line = await reader.readline()
    except (OSError, TimeoutError):
        line = b""
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    if not line:
        raise NobodyListens(f"who listened at {path} went away, or does not answer")
    answer = json.loads(line)
    if not answer["ok"]:
        raise Refused(answer["error"], answer.get("kind", ""))
    return answer["result"]
