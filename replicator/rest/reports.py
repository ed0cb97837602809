"""How links stand, asked once for all who want to know at a time.

Owns not asking more often than once a second: each report reads a whole progress topic over connections of
its own, in the process that copies. What failed is kept as long. A change by this process makes it ask again.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Final

from protocol.errors import ProtocolError
from replicator.link_report import LinkReport
from replicator.mirrors.report import report_of
from replicator.settings import LinkSettings

KEPT_S: Final = 1.0


class Reports:
    """Of the links of one process."""

    def __init__(
        self,
        ask: Callable[[LinkSettings], Awaitable[LinkReport]] = report_of,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask = ask
        self._clock = clock
        self._asking: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._changes: dict[str, int] = defaultdict(int)
        self._kept: dict[str, tuple[float, int, LinkReport | ProtocolError]] = {}

    async def of(self, settings: LinkSettings) -> LinkReport:
        """Raises ProtocolError."""
        name = settings.name
        async with self._asking[name]:
            at, changes, found = self._kept.get(name, (-KEPT_S, -1, ProtocolError()))
            if changes != self._changes[name] or self._clock() - at >= KEPT_S:
                changes = self._changes[name]
                try:
                    found = await self._ask(settings)
                except ProtocolError as error:
                    found = error
                self._kept[name] = (self._clock(), changes, found)
        if isinstance(found, ProtocolError):
            raise found
        return found

    def forget(self, link: str) -> None:
        """It was changed: what was asked before, or is being asked, is old."""
        self._changes[link] += 1
