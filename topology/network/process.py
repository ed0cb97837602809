"""The process that carries the simulated network: opens relays and control socket, keeps changes in a file.

Changes made with `isthmus net` outlive a crash of this process but not the next start of the topology: the
file names the supervision (`session`) that they belong to.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from topology.network.control import NetworkControl
from topology.network.line import LineSettings
from topology.network.network import Network, Pair
from topology.network.relay import Route


class NetworkFailed(Exception):
    """A port or the socket could not be opened; the message names it."""


@dataclass(frozen=True)
class NetworkPlan:
    sites: tuple[str, ...]
    declared: Mapping[Pair, LineSettings]
    routes: tuple[Route, ...]
    socket: Path
    state_file: Path
    session: int
    """Number of the supervision; changes of another one are not taken over."""


async def carry(plan: NetworkPlan, ready: Callable[[str], None]) -> None:
    """Until SIGTERM or Ctrl-C. Raises NetworkFailed."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    network = Network(plan.sites, plan.declared)
    network.restore(_saved(plan))
    control = NetworkControl(network, plan.socket, lambda: _save(plan, network.state()))
    try:
        await _open(network, control, plan.routes)
        ready(f"{len(plan.sites)} sites, {len(network.lines)} links, {len(plan.routes)} routes")
        await stop.wait()
    finally:
        await control.close()
        await network.close()


async def _open(network: Network, control: NetworkControl, routes: Iterable[Route]) -> None:
    try:
        await network.open(routes)
        await control.open()
    except OSError as error:
        raise NetworkFailed(f"the simulated network cannot listen: {error.strerror or error}") from None


def _saved(plan: NetworkPlan) -> list[dict[str, Any]]:
    try:
        kept = json.loads(plan.state_file.read_text(encoding="utf-8"))
        links: list[dict[str, Any]] = kept["links"] if kept["session"] == plan.session else []
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return links


def _save(plan: NetworkPlan, links: list[dict[str, Any]]) -> None:
    fresh = plan.state_file.with_suffix(".tmp")
    fresh.write_text(json.dumps({"session": plan.session, "links": links}, indent=2) + "\n", encoding="utf-8")
    os.replace(fresh, plan.state_file)
