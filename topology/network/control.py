"""How commands talk to the running network: one JSON line there, one back, over a Unix socket.

Requests: {"do": "show"} and {"do": "set"|"reset", "from": SITE|null, "to": SITE|null, "both": bool,
"changes": {…}}, with the fields of `LineSettings` as changes. Answers: {"ok": true, "result": [state of each
direction that was asked for]} or {"ok": false, "error": "…"}.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from topology.network.line import LineSettings
from topology.network.network import Network, Pair, UnknownSite

_FIELDS = frozenset(asdict(LineSettings()))
_ANSWER_S = 20.0


class NetworkNotRunning(Exception):
    """No network listens at the socket."""


class NetworkRefused(Exception):
    """The network said no; the message is its own."""


class NetworkControl:
    """Serves `network` at `path`; `changed` is called after each change, before the answer."""

    def __init__(self, network: Network, path: Path, changed: Callable[[], None]) -> None:
        self._network = network
        self._path = path
        self._changed = changed
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
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
                writer.write(json.dumps(self._answer(line)).encode() + b"\n")
                await writer.drain()
        except (ConnectionError, ValueError):  # gone, or a line without end
            pass
        finally:
            writer.close()

    def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            pairs = self._do(json.loads(line))
        except UnknownSite as error:
            return {"ok": False, "error": str(error)}
        except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
            return {"ok": False, "error": f"not done: {error}"}
        state = self._network.state()
        return {"ok": True, "result": [item for item in state if (item["from"], item["to"]) in pairs]}

    def _do(self, request: dict[str, Any]) -> list[Pair]:
        both = bool(request.get("both", False))
        pairs = self._network.pairs(request.get("from"), request.get("to"), both=both)
        verb = request["do"]
        if verb == "set":
            changes = request["changes"]
            unknown = set(changes) - _FIELDS
            if unknown:
                raise ValueError(f"there is no setting {', '.join(sorted(unknown))}")
            self._network.change(pairs, **changes)
        elif verb == "reset":
            self._network.reset(pairs)
        elif verb != "show":
            raise ValueError(f"there is no request '{verb}'")
        if verb != "show":
            self._changed()
        return pairs


async def ask(path: Path, request: dict[str, Any]) -> list[dict[str, Any]]:
    """State of the directions that were asked for. Raises NetworkNotRunning, NetworkRefused."""
    try:
        reader, writer = await asyncio.open_unix_connection(path)
    except OSError:
        raise NetworkNotRunning(f"no simulated network runs at {path}") from None
    try:
        async with asyncio.timeout(_ANSWER_S):
            writer.write(json.dumps(request).encode() + b"\n")
            await writer.drain()
            line = await reader.readline()
    except (OSError, TimeoutError):
        line = b""
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    if not line:
        raise NetworkNotRunning(f"the simulated network at {path} does not answer")
    answer = json.loads(line)
    if not answer["ok"]:
        raise NetworkRefused(answer["error"])
    result: list[dict[str, Any]] = answer["result"]
    return result
