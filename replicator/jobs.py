"""The periodic jobs of a link: what a cluster cannot do now is said once and tried again.

Owns trying, waiting and remembering what is wrong now (`troubles`, by job). It must not know what the jobs
do. A client that meets another cluster than before (`WrongClusterError`) ends the link: no waiting helps.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from protocol.client import WrongClusterError
from protocol.errors import ProtocolError
from replicator.metrics import LinkMetrics
from replicator.reach import set_within
from replicator.troubles import Troubles

_log = logging.getLogger("isthmus.replicator")

Job = Callable[[], Awaitable[object]]

_TRY_AGAIN_S = 1.0
_FAILED_AGAIN_S = 5.0


class Jobs:
    """Jobs of the link `name`."""

    def __init__(self, name: str, metrics: LinkMetrics) -> None:
        self._name = name
        self._metrics = metrics
        self.troubles = Troubles()

    async def attempt(self, what: str, job: Job) -> bool:
        """Whether the job went through. What a cluster could not do now is tried again by the caller."""
        try:
            await job()
        except WrongClusterError:
            raise
        except ProtocolError as error:
            if self.troubles.note(what, error):
                _log.warning("%s: %s: %s", self._name, what, error)
            self._metrics.errors.labels(self._name, what).inc()
            return False
        self.troubles.pop(what, None)
        return True

    async def until_done(self, what: str, job: Job) -> None:
        """Tries until it went through once."""
        while not await self.attempt(what, job):  # noqa: ASYNC110 (nobody could set an event)
            await asyncio.sleep(_TRY_AGAIN_S)

    async def every(
        self, what: str, interval_s: Callable[[], float], job: Job, poke: asyncio.Event | None = None
    ) -> None:
        """Runs it for ever, at once when poked; the interval is asked for each time. What failed is tried
        again within seconds, however long that is."""
        never = asyncio.Event()
        while True:
            done = await self.attempt(what, job)
            await set_within(poke or never, interval_s() if done else min(interval_s(), _FAILED_AGAIN_S))
            if poke is not None:
                poke.clear()
