"""Taking, renewing and giving up the lease of a link (rules: `lease`), by records in its progress topic.

Owns waiting: a lease of somebody who cannot be asked is watched until it was renewed (the link is refused) or
nothing was heard for `TTL_S` (it is taken over).
"""

from __future__ import annotations

import asyncio
import logging

from protocol.errors import ProtocolError
from replicator.lease import RENEW_S, TTL_S, Lease, LeaseHeld, LeaseLost
from replicator.progress import ProgressStore

_log = logging.getLogger("isthmus.replicator")

_LOOK_AGAIN_S = 0.25
_OR_ELSE = " (isthmus copy of other topics at the same time: with a --name of its own)"


class LeaseKeeper:
    """The lease of one running link."""

    def __init__(
        self, link: str, store: ProgressStore, *, ttl_s: float = TTL_S, renew_s: float = RENEW_S
    ) -> None:
        self._link = link
        self._store = store
        self._ttl_s = ttl_s
        self._renew_s = renew_s
        self._mine: Lease | None = None

    async def acquire(self) -> None:
        """Returns once the lease is ours. Raises LeaseHeld when its holder lives, ProtocolError."""
        self._mine = None
        view = (await self._store.refresh()).lease
        while True:
            if not view.free:
                await self._watch()
            claim = view.claim()
            await self._store.save_lease(claim)
            await self._store.refresh()
            if view.holder is not None and view.holder.owner == claim.owner:
                self._mine = claim
                return

    async def _watch(self) -> None:
        """Until the holder is gone or has been silent too long. Raises LeaseHeld."""
        loop = asyncio.get_running_loop()
        view = (await self._store.refresh()).lease
        heard, holder = view.heard, view.holder
        deadline = loop.time() + self._ttl_s
        _log.info("link %s: watching whether its last owner (%s) lives", self._link, holder)
        while not view.free and loop.time() < deadline:
            await asyncio.sleep(_LOOK_AGAIN_S)
            await self._store.refresh()
            if view.heard > heard and view.holder is not None:
                raise LeaseHeld(self._link, view.holder, _OR_ELSE)

    async def keep(self) -> None:
        """Renews for ever. Raises LeaseLost. A target that does not answer is asked again."""
        while True:
            await asyncio.sleep(self._renew_s)
            try:
                await self._renew()
            except ProtocolError as error:
                _log.warning("link %s: its lease is not renewed: %s", self._link, error)

    async def _renew(self) -> None:
        if self._mine is None:
            return  # not ours yet
        view = (await self._store.refresh()).lease
        if view.holder is None or view.holder.owner != self._mine.owner:
            self._mine = None
            raise LeaseLost(self._link, view.holder)
        await self._store.save_lease(self._mine)

    async def release(self) -> None:
        """Lets the next owner begin at once."""
        mine, self._mine = self._mine, None
        if mine is not None:
            await self._store.save_lease(mine, released=True)
