"""Which shards this broker leads: opened and loaded when leadership begins, closed when it ends.

Owns the answer to "is this broker the coordinator of that group": NOT_COORDINATOR (16) if it does not lead
the group's partition, COORDINATOR_LOAD_IN_PROGRESS (14) until the log has been read to its end. Nothing is
ever looked up in a shard that is not complete, so a group's offsets are never missed for being late.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator

from broker.clock import Clock
from broker.coordinator.groups.limits import GroupLimits
from broker.coordinator.java_hash import partition_for
from broker.coordinator.loading import load
from broker.coordinator.offsets_log import OffsetsLog
from broker.coordinator.shard import Shard, ShardState
from broker.log.errors import LogError
from protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger("isthmus.broker.coordinator")

#: Pause before a log that could not be read is tried again, in seconds.
_RETRY_S = 1.0


class Led:
    """A shard with the log behind it and the task that fills it."""

    __slots__ = ("loading", "log", "shard")

    def __init__(self, shard: Shard, log: OffsetsLog) -> None:
        self.shard = shard
        self.log = log
        self.loading: asyncio.Task[None] | None = None


class Shards:
    """All shards of this broker. `partition_count` is that of the offsets topic in the whole cluster."""

    def __init__(
        self,
        *,
        clock: Clock,
        limits: GroupLimits,
        partition_count: Callable[[], int],
        on_active: Callable[[Led], None],
        on_closed: Callable[[Shard], None],
    ) -> None:
        self._clock = clock
        self._limits = limits
        self._partition_count = partition_count
        self._on_active = on_active
        self._on_closed = on_closed
        self._led: dict[int, Led] = {}
        self._stopping: set[asyncio.Task[None]] = set()

    def of(self, group_id: str) -> Led:
        """Return the complete shard of a group. Raises `KafkaError` with 16 or 14."""
        index = partition_for(group_id, self._partition_count())
        led = self._led.get(index)
        if led is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, f"offsets partition {index} is not led here")
        if led.shard.state is not ShardState.ACTIVE:
            raise KafkaError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"offsets partition {index} is being read"
            )
        return led

    def __iter__(self) -> Iterator[Led]:
        return iter(list(self._led.values()))

    def active(self) -> Iterator[Led]:
        """Yield the shards that are complete."""
        return (led for led in self if led.shard.state is ShardState.ACTIVE)

    @property
    def any_loading(self) -> bool:
        """Say whether some shard is not complete yet."""
        return any(led.shard.state is ShardState.LOADING for led in self._led.values())

    def lead(self, index: int, leader_epoch: int, log: OffsetsLog) -> None:
        """Leadership of a partition began, or goes on in a new epoch.

        Groups are read again only where somebody else may have led in between.
        """
        known = self._led.get(index)
        if known is not None and known.log.goes_on(log):
            known.shard.leader_epoch = leader_epoch
            return
        self.resign(index)
        led = self._led[index] = Led(Shard(index, leader_epoch, self._limits), log)
        if log.is_empty:  # as in a topic made just now, whose first group waits already
            self._on_active(led)
            return
        led.loading = asyncio.get_running_loop().create_task(self._load(led), name=f"load {log}")

    def resign(self, index: int) -> None:
        """Leadership of a partition ended: forget its groups, send whoever waits to the new coordinator."""
        led = self._led.pop(index, None)
        if led is None:
            return
        if led.loading is not None and not led.loading.done():
            led.loading.cancel()
            self._stopping.add(led.loading)
            led.loading.add_done_callback(self._stopping.discard)
        self._on_closed(led.shard)

    async def close(self) -> None:
        """Give up all shards and wait for their tasks."""
        tasks = [led.loading for led in self._led.values() if led.loading is not None]
        for index in list(self._led):
            self.resign(index)
        await asyncio.gather(*tasks, *self._stopping, return_exceptions=True)

    async def _load(self, led: Led) -> None:
        shard, started = led.shard, self._clock.monotonic()
        while True:
            try:
                records = await load(shard, led.log, self._clock)
                break
            except LogError as error:
                logger.error("%s: cannot be read, its groups have to wait: %s", led.log, error)
                await asyncio.sleep(_RETRY_S)
                again = Shard(shard.index, shard.leader_epoch, self._limits)
                # Topics deleted while the first attempt read: nobody says so again. Markers of that time are
                # in the log that is read now.
                again.deleted_meanwhile = shard.deleted_meanwhile
                led.shard = shard = again
        self._on_active(led)
        if records:
            logger.info(
                "%s: %d records read in %.1f s, %d groups",
                led.log,
                records,
                self._clock.monotonic() - started,
                len(shard.groups),
            )
