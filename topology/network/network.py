"""All lines between the sites and all relays over them; applies changes while connections are open.

Owns who may be named, and what outlives a restart of this process (`state`, `restore`). File and socket are
its callers' (`process`, `control`).
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from topology.network.line import Line, LineSettings
from topology.network.relay import Relay, Route

Pair = tuple[str, str]


class UnknownSite(Exception):
    """Names what was asked for and what there is."""


class Network:
    """Between each two of `sites` there is a line in each direction; inside a site there is none."""

    def __init__(self, sites: Iterable[str], declared: Mapping[Pair, LineSettings], *, seed: int = 0) -> None:
        self.sites = tuple(sites)
        chance = random.Random(seed).random
        pairs = [(a, b) for a in self.sites for b in self.sites if a != b]
        self.lines = {pair: Line(declared.get(pair, LineSettings()), chance) for pair in pairs}
        for (a, b), line in self.lines.items():
            line.opposite = self.lines[b, a]
        self.declared = {pair: line.settings for pair, line in self.lines.items()}
        self.relays: list[Relay] = []

    async def open(self, routes: Iterable[Route]) -> None:
        """Listen for every route. Raises OSError, with the routes before it open: call `close`."""
        for route in routes:
            there, back = self.lines[route.source, route.target], self.lines[route.target, route.source]
            relay = Relay(route, there, back)
            self.relays.append(relay)
            await relay.open()

    async def close(self) -> None:
        for relay in self.relays:
            await relay.close()

    def pairs(self, source: str | None, target: str | None, *, both: bool) -> list[Pair]:
        """The directions that are meant: from `source` to `target`, None for all; `both` adds the way back.

        Raises UnknownSite.
        """
        for name in (source, target):
            if name is not None and name not in self.sites:
                raise UnknownSite(f"there is no site '{name}': the sites are {', '.join(self.sites)}")
        if source is not None and source == target:
            raise UnknownSite(f"from {source} to {source} is no link: inside a site nothing is simulated")
        return [
            (a, b)
            for a, b in self.lines
            if (source in (None, a) and target in (None, b))
            or (both and source in (None, b) and target in (None, a))
        ]

    def change(self, pairs: Iterable[Pair], **changes: Any) -> None:
        """Set fields of `LineSettings`; connections that are open feel it at once."""
        for pair in pairs:
            self._apply(pair, replace(self.lines[pair].settings, **changes))

    def reset(self, pairs: Iterable[Pair]) -> None:
        """Back to what the topology declares."""
        for pair in pairs:
            self._apply(pair, self.declared[pair])

    def state(self) -> list[dict[str, Any]]:
        """Every direction: settings, bytes carried so far, connections open now."""
        connections = dict.fromkeys(self.lines, 0)
        for relay in self.relays:
            connections[relay.route.source, relay.route.target] += len(relay.connections)
        return [
            {
                "from": pair[0],
                "to": pair[1],
                "up": line.settings.up,
                "delay_ms": line.settings.delay_s * 1e3,
                "jitter_ms": line.settings.jitter_s * 1e3,
                "loss": line.settings.loss,
                "bandwidth_bytes_per_second": line.settings.bandwidth,
                "round_trip_ms": line.round_trip_s * 1e3,
                "bytes": line.carried,
                "connections": connections[pair],
            }
            for pair, line in self.lines.items()
        ]

    def restore(self, state: Iterable[Mapping[str, Any]]) -> None:
        """Settings as `state` gave them; directions that are no more are passed over."""
        for item in state:
            pair = (item["from"], item["to"])
            if pair in self.lines:
                settings = LineSettings(
                    delay_s=item["delay_ms"] / 1e3,
                    jitter_s=item["jitter_ms"] / 1e3,
                    loss=item["loss"],
                    bandwidth=item["bandwidth_bytes_per_second"],
                    up=item["up"],
                )
                self._apply(pair, settings)

    def _apply(self, pair: Pair, settings: LineSettings) -> None:
        line = self.lines[pair]
        if line.settings == settings:
            return
        line.change(settings)
        for relay in self.relays:
            if line in (relay.there, relay.back):
                relay.line_changed(line)
