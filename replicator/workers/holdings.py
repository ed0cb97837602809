"""The partitions that this worker has: taking them, giving them up in order, losing them.

Owns the two-step way of a partition that moves: it is drained and its progress stored before anybody is told
that it is free. A worker that was cut off has lost its partitions without that: what was on its way is given
up, and nothing of it is stored, because the next owner's word counts now.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Mapping

from protocol.errors import ProtocolError
from protocol.types import TopicPartition
from replicator.parts import Parts
from replicator.rates import Rates

_log = logging.getLogger("isthmus.replicator")

_TRY_AGAIN_S = 0.5


class Holdings:
    """Of one worker. `alone`: all partitions are its own, whatever `owned` says."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.alone = False
        self.owned: set[TopicPartition] = set()
        self.leaving: set[TopicPartition] = set()
        """Being given up: nobody else may have them yet."""
        self._rates = Rates()

    def owns(self, tp: TopicPartition) -> bool:
        """Whether this worker may copy it."""
        return self.alone or tp in self.owned

    def held(self) -> frozenset[TopicPartition]:
        """What others must not have: also what is being given up."""
        mine = self._parts.book.accounts.keys() if self.alone else self.owned
        return frozenset(mine) | self.leaving

    async def take(self, tps: Collection[TopicPartition]) -> None:
        """Goes on where their last owner had stopped. Raises ProtocolError."""
        new = set(tps) - self.leaving
        await self._parts.fence()
        progress = await self._parts.store.refresh()  # what the last owner stored at its end
        for tp in new:
            entry = progress.entry(tp)
            if entry is not None and tp not in self._parts.book.accounts:
                self._parts.partitions.stored[tp] = entry
        self.owned |= new
        self._parts.poke.set()

    async def give_up(self, tps: Collection[TopicPartition]) -> None:
        """Drains them, stores their progress, forgets them; then they are free."""
        going = set(tps) & (self.owned | set(self._parts.book.accounts))
        self.leaving |= going
        self.owned -= going
        await asyncio.gather(*(self._parts.partitions.let_go(tp) for tp in going))
        while not await self._stored(going):  # noqa: ASYNC110 (a cluster sets no event)
            await asyncio.sleep(_TRY_AGAIN_S)
        self._parts.partitions.forget(going)
        self.leaving -= going

    async def _stored(self, tps: Collection[TopicPartition]) -> bool:
        try:
            await self._parts.save()
        except ProtocolError as error:
            _log.warning("progress of partitions that are given up is not stored yet: %s", error)
        return self._parts.book.dirty.keys().isdisjoint(tps)

    async def lose(self) -> None:
        """Others have them: whatever is on its way is given up, and nothing more is written."""
        gone = set(self._parts.book.accounts) | self.owned | self.leaving
        self.alone = False
        self.owned.clear()
        if self._parts.transactions is not None:
            self._parts.transactions.give_up("this worker was given up by the others")
        await asyncio.gather(*(self._parts.partitions.abandon(tp) for tp in gone))
        self._parts.partitions.forget(gone)
        self.leaving.clear()

    @property
    def rates(self) -> Mapping[TopicPartition, float]:
        """Bytes per second, as last measured; of partitions that were here long enough to tell."""
        return self._rates.known

    def measure(self) -> Mapping[TopicPartition, float]:
        """Counts what flowed since last time."""
        counted = {
            tp: account.entry.ledger.bytes
            for tp, account in self._parts.book.accounts.items()
            if account.entry is not None
        }
        return self._rates.measure(counted, time.monotonic())
