"""Carries out what groups decide and keeps time for them: the I/O side of the state machine.

Owns the timer, the tasks and the futures of parked requests; knows no rule of the protocol. One timer serves
all groups: it is set for the earliest deadline and, as heartbeats only move deadlines away, mostly finds on
waking that there is nothing to do yet.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine

from broker.clock import Clock
from broker.coordinator.groups.events import Answer, Store, StoreReason
from broker.coordinator.groups.group import Group
from broker.coordinator.groups.transitions import on_deadline, on_stored
from broker.coordinator.instant import Instant
from broker.coordinator.offsets_log import as_coordinator_error
from broker.coordinator.records import group_record
from broker.coordinator.settings import GroupSettings
from broker.coordinator.shard import Shard
from broker.coordinator.shards import Led, Shards
from broker.coordinator.unstored import Unstored
from protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger("isthmus.broker.coordinator")

#: Share of the largest batch from which on a group's record is near to being refused.
_NEARLY = 0.7


class Runtime:
    """`partition_count` tells how many partitions the offsets topic has, or will have once it is made."""

    def __init__(self, clock: Clock, settings: GroupSettings, partition_count: Callable[[], int]) -> None:
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms = 0
        self._activation_hooks: list[Callable[[Led], None]] = []
        self.unstored = Unstored(clock.monotonic)
        self.shards = Shards(
            clock=clock,
            limits=settings.limits,
            partition_count=partition_count,
            on_active=self._activated,
            on_closed=self._closed,
        )

    def now(self) -> Instant:
        """Return the present on both clocks."""
        return Instant(int(self._clock.monotonic() * 1000), self._clock.now_ms())

    def on_activation(self, hook: Callable[[Led], None]) -> None:
        """Have `hook` called for every shard that has become complete."""
        self._activation_hooks.append(hook)

    def spawn(self, work: Coroutine[None, None, None], name: str) -> None:
        """Run `work` until it ends or the runtime is closed."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("%s failed", task.get_name(), exc_info=error)

    async def close(self) -> None:
        """Give up all shards, which answers whoever waits, and stop the timer and all tasks."""
        await self.shards.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- effects ---------------------------------------------------------------------------------------

    def settle(self, led: Led, group: Group) -> None:
        """Do what the group wants done after a call, then set the timer."""
        while effects := group.take_effects():
            for effect in effects:
                if isinstance(effect, Answer):
                    _answer(effect)
                else:
                    self._store(led, group, effect)
        self._set_timer(led.shard.deadlines.next_ms())

    def _store(self, led: Led, group: Group, store: Store) -> None:
        try:
            batch = led.log.build([group_record(group.group_id, store.image, self._clock.now_ms())])
            _warn_of_size(led, group, len(batch))
            last = led.log.append_built(batch)
        except KafkaError as error:
            self._stored(group, store, error)
            return
        if led.log.is_safe(last):
            self._stored(group, store, None)
        else:
            self.spawn(self._finish_store(led, group, store, last), f"store group {group.group_id}")

    async def _finish_store(self, led: Led, group: Group, store: Store, last: int) -> None:
        try:
            await led.log.wait_safe(last)
        except KafkaError as error:
            self._stored(group, store, error)
        else:
            self._stored(group, store, None)
        self.settle(led, group)

    def _stored(self, group: Group, store: Store, error: KafkaError | None) -> None:
        code = ErrorCode.NONE
        if error is not None:
            code = as_coordinator_error(error.code, too_large=ErrorCode.UNKNOWN_SERVER_ERROR)
            self.unstored.say(f"group {group.group_id!r} ({store.reason.value})", error)
        if store.reason is not StoreReason.EMPTY:
            on_stored(group, store, code, self.now())

    async def write(self, led: Led, batch: memoryview) -> int:
        """Append a batch and wait until it is safe; returns the last record's offset. Raises `KafkaError`."""
        last = led.log.append_built(batch)
        if not led.log.is_safe(last):
            await led.log.wait_safe(last)
        return last

    # -- shards ----------------------------------------------------------------------------------------

    def _activated(self, led: Led) -> None:
        led.shard.activate(self.now())
        for group in led.shard.groups.values():
            self.settle(led, group)
        for hook in self._activation_hooks:
            hook(led)

    def _closed(self, shard: Shard) -> None:
        for group in shard.close(ErrorCode.NOT_COORDINATOR):
            for effect in group.take_effects():
                if isinstance(effect, Answer):
                    _answer(effect)

    # -- time ------------------------------------------------------------------------------------------

    def _set_timer(self, at_ms: int | None) -> None:
        if at_ms is None or (self._timer is not None and self._timer_at_ms <= at_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        delay_s = max(0.0, at_ms / 1000 - self._clock.monotonic())
        self._timer_at_ms = at_ms
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        for led in self.shards.active():
            now = self.now()
            deadlines = led.shard.deadlines
            while (key := deadlines.pop_due(now.monotonic_ms)) is not None:
                group = led.shard.groups.get(key.group_id)
                if group is not None:
                    on_deadline(group, key, now)
                    self.settle(led, group)
            self._set_timer(deadlines.next_ms())


def _answer(effect: Answer) -> None:
    waiter = effect.waiter
    assert isinstance(waiter, asyncio.Future)
    if not waiter.done():  # done when its client has gone away
        waiter.set_result(effect.result)


def _warn_of_size(led: Led, group: Group, size: int) -> None:
    limit = led.log.max_batch_bytes
    if size > limit * _NEARLY:
        logger.warning(
            "group %r: its members and assignments take %d bytes, %s takes %d (max.message.bytes); beyond "
            "that the group cannot be balanced any more: raise it, or set offsets.topic.compression.codec",
            group.group_id,
            size,
            led.log,
            limit,
        )
