"""What every link does before it copies: it connects both clusters and says meanwhile what it waits for.

Exit codes of links: 0 all copied so far without a gap, 1 the link could not go on, 3 it ended but gaps or
refused partitions are on record, also from earlier runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, Protocol

from prometheus_client import CollectorRegistry

from protocol.client import ClusterClient
from replicator.link_standing import has_ended
from replicator.metrics import LinkMetrics
from replicator.phase import CLUSTERS, Phase
from replicator.reach import Reach
from replicator.settings import LinkSettings
from replicator.troubles import now_ms
from replicator.workers.announcing import announcing

_log = logging.getLogger("isthmus.replicator")

EXIT_OK, EXIT_FAILED, EXIT_DIFFERENCES = 0, 1, 3


class Running(Protocol):
    """A link whose clusters are connected."""

    async def run(self, stop: asyncio.Event) -> int:
        """Its exit code."""

    def to_json(self) -> dict[str, Any]:
        """Its status."""


async def run_connected(
    settings: LinkSettings,
    stop: asyncio.Event,
    registry: CollectorRegistry,
    status: LinkStatus | None,
    make: Callable[[ClusterClient, ClusterClient, LinkMetrics, Reach], Running],
    rest: str = "",
) -> int:
    """Connects both clusters, then runs what `make` gives. `rest` is where this process answers."""
    status = status or LinkStatus(settings.name)
    metrics = LinkMetrics(settings.name, registry, settings.metrics_max_series)
    reach = status.reach = Reach(settings, metrics)
    async with AsyncExitStack() as stack:
        async with announcing(settings, reach, status.standing, rest):
            clients = await reach.connect(stop, stack)
        if clients is None:
            why = "; ".join(reach.troubles.texts.values()) or "stopped before both clusters had answered"
            _log.error("%s ended and has copied nothing: %s", status.name, why)
            return EXIT_FAILED
        status.connected.set()
        status.link = running = make(*clients, metrics, reach)
        return await running.run(stop)


class LinkStatus:
    """What others may look at while a link runs; `to_json` at any time."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.reach: Reach | None = None
        self.link: Running | None = None
        self.connected = asyncio.Event()
        """Both clusters have answered once."""
        self._phase = Phase(CLUSTERS)
        self._ended: dict[str, Any] | None = None

    def ended(self, code: int) -> None:
        """It runs no more, though its process goes on."""
        self._ended = has_ended(code, now_ms())

    @property
    def problems(self) -> dict[str, str]:
        """Of clusters that do not answer, by alias."""
        return self.reach.troubles.texts if self.reach is not None else {}

    def standing(self) -> dict[str, Any]:
        """Its state and, before both clusters have answered, what it waits for."""
        if self._ended is not None:
            return self._ended
        troubles = self.reach.troubles if self.reach is not None else {}
        return self._phase.to_json(next(iter(troubles.values()), None), link=self.name)

    def to_json(self) -> dict[str, Any]:
        """Link, topics, partitions, groups."""
        if self.link is None:
            return {"link": self.name, **self.standing(), "problems": self.problems}
        return self.link.to_json() | (self._ended or {})
