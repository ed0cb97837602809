"""Filling a shard from its partition's log while the event loop keeps serving everybody else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from broker.clock import Clock
from broker.coordinator.offsets_log import OffsetsLog
from broker.coordinator.replay import Replay
from broker.coordinator.shard import Shard

#: Longest stretch of loading between two turns of the event loop, in seconds.
SLICE_S = 0.005


async def load(shard: Shard, log: OffsetsLog, clock: Clock) -> int:
    """Read the whole log into `shard`; returns the number of records read. Raises `broker.log.LogError`."""
    replay = Replay(str(log))
    pace = _Pace(clock)
    async for batches in log.read_all():
        await pace.run(replay.feed(batches))
    await pace.run(replay.fill(shard))
    return replay.records


class _Pace:
    """Runs generators in slices of `SLICE_S`."""

    def __init__(self, clock: Clock) -> None:
        self._monotonic = clock.monotonic
        self._started = clock.monotonic()

    async def run(self, steps: Iterator[None]) -> None:
        for _ in steps:
            if self._monotonic() - self._started > SLICE_S:
                await asyncio.sleep(0)
                self._started = self._monotonic()
