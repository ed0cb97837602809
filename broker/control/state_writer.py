"""Writes the partition states that the core wants, and brings back what is stored then.

Owns what happens where somebody else was quicker: their state is taken and the core decides again; a state
that somebody removed is made again; one that cannot be read is left alone. What does not come to an end is
given back for later, so that one partition never stops the others (I10). Must not decide.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence

from broker.control import last_replica
from broker.control.controller_core import ControllerCore, StateWrite
from broker.control.controller_reads import StatesRead
from broker.control.controller_store import ControllerStore, Reign
from protocol.types import TopicPartition

_log = logging.getLogger("isthmus.broker")
_ATTEMPTS = 5

NotReadable = Callable[[set[TopicPartition]], Awaitable[None]]


class StateWriter:
    """For one reign. `not_readable` is told of states that turn out damaged."""

    def __init__(
        self, core: ControllerCore, store: ControllerStore, reign: Reign, not_readable: NotReadable
    ) -> None:
        self._core = core
        self._store = store
        self._reign = reign
        self._not_readable = not_readable

    async def write(self, writes: Sequence[StateWrite]) -> set[TopicPartition]:
        """Returns what could not be written yet. Raises ControllerMoved, SessionExpired."""
        for _ in range(_ATTEMPTS):
            if not writes:
                return set()
            done, refused = await self._store.write(self._reign, writes)
            self._core.all_written(done)
            waiting = [(partition, state) for partition, state, _ in done if state.suspects]
            if waiting:
                _log.error("controller: %s", last_replica.warning(waiting))
            writes = await self._again(refused)
        _log.warning("controller: %d partition states could not be written yet, again soon", len(writes))
        return {item.partition for item in writes}

    async def write_isr(self, writes: Sequence[StateWrite]) -> set[TopicPartition]:
        """Leaders' own changes: returns what somebody else wrote first; all replicas hear what is so now."""
        if not writes:
            return set()
        done, refused = await self._store.write(self._reign, writes)
        for partition, state, version in done:
            self._core.isr_written(partition, state, version)
        if refused:
            await self._again(refused)
        return set(refused)

    async def _again(self, refused: Sequence[TopicPartition]) -> list[StateWrite]:
        if not refused:
            return []
        read = await self.read(refused)
        missing = set(refused) - read.states.keys() - read.unreadable
        return [*self._core.reconsider(read.states), *self._core.lost(missing)]

    async def read(self, partitions: Sequence[TopicPartition]) -> StatesRead:
        """Take what is stored."""
        read = await self._store.states(partitions)
        for partition, stored in read.states.items():
            self._core.found(partition, *stored)
        if read.unreadable:
            await self._not_readable(read.unreadable)
        return read
