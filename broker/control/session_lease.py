"""Extends this broker's lease to lead (`replication/lease`) as long as ZooKeeper has heard from it.

Owns the rule how long that is. The clock starts when a question was sent that the ensemble's leader then
answered: a `sync`, because a server that was cut off from the others answers pings for a while. A server
tells the leader of its clients' signs of life every half tick, and a session lasts at least two ticks, so it
lives for three quarters of its timeout after such a question, whatever happens. A session that was lost has
given leadership away: the lease then also waits for the controller's next word. Must not know partitions.
"""

from __future__ import annotations

import asyncio
import logging
import math

from broker.control.metadata_cache import MetadataCache
from broker.control.zookeeper import ZooKeeper
from broker.control.zookeeper_types import SessionEvent
from broker.replication.lease import Lease

_log = logging.getLogger("isthmus.broker")
_HELD = 0.75
"""Share of the session's timeout; the rest is for what the ensemble's leader hears later."""
_QUESTIONS = 6
"""In one session timeout."""
_PAUSE_S = 0.05


class SessionLease:
    def __init__(self, lease: Lease, zookeeper: ZooKeeper, metadata: MetadataCache) -> None:
        self._lease = lease
        self._zookeeper = zookeeper
        self._metadata = metadata
        self._heard = -math.inf
        self._lost = False  # the controller has not spoken since a session was lost
        self._told = -1  # what it had said until then
        self._over = False
        self._ended = False
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Before this broker is registered: from then on somebody may count on it, or not."""
        self._lease.until = -math.inf
        self._zookeeper.on_session(self._session_event)
        self._metadata.on_change(self._extend)
        self._tasks = [
            asyncio.create_task(self._ask(), name="session-lease"),
            asyncio.create_task(self._tell(), name="session-lease-log"),
        ]

    def end(self) -> None:
        """This broker is about to give its registration back: what it leads is somebody else's then."""
        self._ended = True
        self._extend()

    @property
    def holds(self) -> bool:
        """Whether partitions with other in-sync replicas take writes here, if this broker leads them."""
        return not self._lease.over

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _session_event(self, event: SessionEvent) -> None:
        if event is SessionEvent.EXPIRED:
            self._lost = True
            # Our own epoch may still be the old one here: who hears first of a lost session is not settled.
            self._told = self._metadata.told_epoch
            self._heard = -math.inf
            self._extend()

    def _extend(self) -> None:
        metadata = self._metadata
        if self._lost and 0 <= metadata.broker_epoch <= metadata.told_epoch > self._told:
            self._lost = False
        self._lease.until = -math.inf if self._lost or self._ended else self._heard + self._held_s

    @property
    def _held_s(self) -> float:
        return _HELD * self._zookeeper.session_timeout_s

    async def _ask(self) -> None:
        while True:
            session, sent = self._zookeeper.session_id, self._lease.monotonic()
            heard = await self._zookeeper.heard()
            if heard and session == self._zookeeper.session_id != 0:
                self._heard = max(self._heard, sent)
                self._extend()
                pause = self._zookeeper.session_timeout_s / _QUESTIONS
                await asyncio.sleep(pause - (self._lease.monotonic() - sent))
            else:
                await asyncio.sleep(_PAUSE_S)

    async def _tell(self) -> None:
        """Say in the log when writes stop and when they go on."""
        while True:
            await asyncio.sleep(self._zookeeper.session_timeout_s / _QUESTIONS)
            over = self._lease.over
            if over and not self._over:
                _log.warning(
                    "ZooKeeper at %s has not heard from this broker for %.1f s: another one may be elected, "
                    "so partitions with other in-sync replicas take no writes here until it answers",
                    self._zookeeper.address,
                    self._held_s,
                )
            elif self._over and not over:
                _log.warning("ZooKeeper answers again, leaders here take writes")
            self._over = over
