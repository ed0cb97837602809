"""How commands talk to the running network (`topology.control_socket`).

Requests: {"do": "show"} and {"do": "set"|"reset", "from": SITE|null, "to": SITE|null, "both": bool,
"changes": {…}}, with the fields of `LineSettings` as changes. The result is the state of each direction that
was asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from topology import control_socket
from topology.control_socket import ControlSocket, NobodyListens, Refused, Request
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
        self._changed = changed
        verbs = {"show": self._show, "set": self._set, "reset": self._reset}
        self._socket = ControlSocket(path, verbs, refusals=(UnknownSite,))

    async def open(self) -> None:
        await self._socket.open()

    async def close(self) -> None:
        await self._socket.close()

    def _show(self, request: Request) -> list[dict[str, Any]]:
        pairs = self._pairs(request)
        return [item for item in self._network.state() if (item["from"], item["to"]) in pairs]

    def _set(self, request: Request) -> list[dict[str, Any]]:
        changes = request["changes"]
        unknown = set(changes) - _FIELDS
        if unknown:
            raise ValueError(f"there is no setting {', '.join(sorted(unknown))}")
        self._network.change(self._pairs(request), **changes)
        self._changed()
        return self._show(request)

    def _reset(self, request: Request) -> list[dict[str, Any]]:
        self._network.reset(self._pairs(request))
        self._changed()
        return self._show(request)

    def _pairs(self, request: Request) -> list[Pair]:
        both = bool(request.get("both", False))
        return self._network.pairs(request.get("from"), request.get("to"), both=both)


async def ask(path: Path, request: Request) -> list[dict[str, Any]]:
    """State of the directions that were asked for. Raises NetworkNotRunning, NetworkRefused."""
    try:
        result: list[dict[str, Any]] = await control_socket.ask(path, request, within_s=_ANSWER_S)
    except NobodyListens as error:
        raise NetworkNotRunning(f"the simulated network does not answer: {error}") from None
    except Refused as error:
        raise NetworkRefused(str(error)) from None
    return result
