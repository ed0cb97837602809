"""Work that repeats while the broker runs: each task has a name, an interval and one owner that ends it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

logger = logging.getLogger("isthmus.broker")

Action = Callable[[], Awaitable[None]]
# asyncio's timers overflow far above this; Kafka's "never" is 2^63-1 ms.
_LONGEST_S = 10 * 365 * 86_400.0


class PeriodicTasks:
    """Runs actions one after the other at their intervals. A failing action is logged and tried again."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def every(self, interval_s: float, name: str, action: Action) -> None:
        self._tasks.append(
            asyncio.create_task(self._repeat(min(interval_s, _LONGEST_S), name, action), name=name)
        )

    async def stop(self) -> None:
        """Cancel all and wait until they have ended."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _repeat(self, interval_s: float, name: str, action: Action) -> None:
        while True:
            await asyncio.sleep(interval_s)
            try:
                await action()
            except Exception:
                logger.exception("%s failed, it will be tried again in %.0f s", name, interval_s)
