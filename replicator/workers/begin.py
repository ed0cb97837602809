"""How a worker begins before its group does, and the lease that keeps others away meanwhile.

Owns the claim by which the first worker of a link starts at once: a group that was empty lets nobody in for
some seconds (`group.initial.rebalance.delay.ms`). The claim is a lease among the link's own records (rules:
`replicator.lease`), renewed until a round of the group is over. Then the group's leader renews one in the
name of all workers, so that a version that knows of no workers sees that the link is run, and ends. A worker
that may not use groups at the target stays alone under its claim, as one without `shared` does.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from protocol.client import ClusterClient, GroupDescription
from protocol.errors import ErrorCode, KafkaError, ProtocolError
from replicator.lease import RENEW_S, TTL_S, Lease, LeaseHeld, LeaseLost, LeaseView, is_dead
from replicator.progress import ProgressStore
from replicator.workers.membership import Membership
from replicator.workers.messages import PROTOCOL_TYPE, MemberState, UnreadableError, WorkerInfo
from replicator.workers.permit import Permit, now

_log = logging.getLogger("isthmus.replicator")

_ALL = "workers"
_ONE = "worker:"
_LOOK_AGAIN_S = 0.25
_STAYS_OUTSIDE_S = 30.0
"""A worker that holds the claim and does not join for so long has no intention to."""


class Begin:
    """Of one worker. `early`: it works under its own claim, all partitions are its own."""

    def __init__(
        self,
        link: str,
        info: WorkerInfo,
        client: ClusterClient,
        membership: Membership,
        store: ProgressStore,
        permit: Permit,
        *,
        ttl_s: float = TTL_S,
        renew_s: float = RENEW_S,
    ) -> None:
        self._link = link
        self._info = info
        self._client = client
        self._membership = membership
        self._store = store
        self._permit = permit
        self._ttl_s = ttl_s
        self._renew_s = renew_s
        self.early = False
        self.waiting = False
        """As leader: for a worker outside the group."""
        self._claim: Lease | None = None
        self._heard = (0, 0.0)
        self._outside_since = 0.0

    async def acquire(self) -> None:
        """Returns when this worker may begin alone (`early`), or should join others.

        Raises LeaseHeld when the link is run by a version that shares it with nobody, ProtocolError.
        """
        view = (await self._store.refresh()).lease
        while True:
            if await self._others():
                return
            holder = view.holder
            by_itself = holder is not None and holder.owner != _ALL and not is_dead(holder)
            if holder is not None and by_itself and await self._lives(view):
                if holder.owner.startswith(_ONE):
                    return
                raise LeaseHeld(self._link, holder)
            sent_at = now()
            claim = replace(view.claim(), owner=f"{_ONE}{self._info.incarnation}")
            await self._store.save_lease(claim)
            await self._store.refresh()
            if view.holder is not None and view.holder.owner == claim.owner:
                self._claim, self.early = claim, True
                self._permit.extend(sent_at, self._ttl_s)
                return

    async def _others(self) -> bool:
        """Whether the group has members that live; dead ones of this machine are taken out."""
        try:
            group = await self._described()
        except KafkaError as error:
            if error.code is ErrorCode.GROUP_AUTHORIZATION_FAILED or not error.retriable:
                return False
            raise
        if group.protocol_type not in ("", PROTOCOL_TYPE) and group.members:
            _log.error("group %s has members that are no workers of the link", group.group_id)
        dead = [member.member_id for member in group.members if _is_dead(member.metadata)]
        if dead:
            _log.info("%s: %d workers of this machine are dead", self._link, len(dead))
            await self._membership.remove(dead)
        return len(dead) < len(group.members)

    async def _described(self) -> GroupDescription:
        return (await self._client.describe_groups([self._membership.group]))[self._membership.group]

    async def _lives(self, view: LeaseView) -> bool:
        """Watches until the holder renews; False when it was silent for too long, or is gone."""
        heard, until = view.heard, now() + self._ttl_s
        _log.info("%s: watching whether its last owner (%s) lives", self._link, view.holder)
        while not view.free and now() < until:
            await asyncio.sleep(_LOOK_AGAIN_S)
            await self._store.refresh()
            if view.heard > heard:
                return True
        return False

    async def tend(
        self,
        leads: Callable[[], bool],
        lost: Callable[[str], Awaitable[None]],
    ) -> None:
        """Renews for ever what is to be renewed. Raises LeaseLost when another version has taken over."""
        while True:
            await asyncio.sleep(self._renew_s / 2)
            try:
                await self._tend(leads, lost)
            except ProtocolError as error:
                _log.warning("%s: its lease is not renewed: %s", self._link, error)

    async def _tend(self, leads: Callable[[], bool], lost: Callable[[str], Awaitable[None]]) -> None:
        view = (await self._store.refresh()).lease
        holder = view.holder
        if self.early and self._claim is not None:
            if holder is None or holder.owner != self._claim.owner:
                self.early = False
                await lost(f"its claim was ended by {holder}")
                return
            sent_at = now()
            await self._store.save_lease(self._claim)
            if self.early:  # else the group grants it now, for a time of its own
                self._permit.extend(sent_at, self._ttl_s)
        elif holder is not None and not holder.owner.startswith((_ALL, _ONE)) and not is_dead(holder):
            raise LeaseLost(self._link, holder)
        elif leads() and not self.waiting:
            await self._renew_for_all(view)

    async def _renew_for_all(self, view: LeaseView) -> None:
        held = view.holder
        if held is not None and held.owner == _ALL:
            await self._store.save_lease(held)
            return
        # Without a machine nobody can take it for dead while workers are there.
        claim = replace(view.claim(), owner=_ALL, machine="", started="")
        await self._store.save_lease(claim)

    def somebody_else(self, members: Mapping[str, bytes]) -> bool:
        """Whether a worker that is none of the group's members may still copy under a claim of its own.

        Asked by the leader, after it has read the records. Raises LeaseHeld when that goes on and on.
        """
        view = self._store.lease
        holder = view.holder
        if view.heard != self._heard[0]:
            self._heard = (view.heard, now())
        self.waiting = (
            holder is not None
            and holder.owner.startswith(_ONE)
            and not is_dead(holder)
            and holder.owner not in {f"{_ONE}{_incarnation(data)}" for data in members.values()}
            and now() - self._heard[1] < self._ttl_s
        )
        if not self.waiting or holder is None:
            self._outside_since = 0.0
            return False
        self._outside_since = self._outside_since or now()
        if now() - self._outside_since > _STAYS_OUTSIDE_S:
            raise LeaseHeld(self._link, holder)
        return True

    async def nobody_left(self) -> bool:
        """Whether the group is empty, or this worker was never in it."""
        if self.early:
            return True
        group = await self._described()
        return not group.members

    async def release(self) -> None:
        """Lets whoever comes next begin at once: after the last worker has left."""
        await self._store.refresh()
        holder = self._store.lease.holder
        if holder is not None and holder.owner in (_ALL, f"{_ONE}{self._info.incarnation}"):
            await self._store.save_lease(holder, released=True)


def _is_dead(metadata: bytes) -> bool:
    try:
        return bool(metadata) and MemberState.decode(metadata).info.dead
    except UnreadableError:
        return False


def _incarnation(metadata: bytes) -> str:
    try:
        return MemberState.decode(metadata).info.incarnation
    except UnreadableError:
        return ""
