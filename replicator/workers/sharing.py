"""How a process has its link: together with other workers, or alone under a lease.

Owns the one face of both for `replicator.worker`: begin, take part for ever, end. `Shared` is the rule;
`Exclusive` is for links that are one process's own (ad-hoc copies: `shared` off).
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import replace
from typing import Any, Protocol

from protocol.client import ClusterClient
from protocol.types import TopicPartition
from replicator.lease_keeper import LeaseKeeper
from replicator.parts import Parts
from replicator.progress import ProgressStore
from replicator.settings import LinkSettings
from replicator.workers.crew import Crew
from replicator.workers.holdings import Holdings
from replicator.workers.membership import Membership
from replicator.workers.messages import PROTOCOL_NAME, PROTOCOL_TYPE, WorkerInfo
from replicator.workers.reporting import Reporting, Told

_REBALANCE_S = 30.0


class Sharing(Protocol):
    """What a running link asks of it."""

    @property
    def leading(self) -> bool:
        """Whether this process does what is done once for the link."""

    async def begin(self) -> None:
        """Returns when this process may work. Raises LeaseHeld, ProtocolError."""

    async def run(self) -> None:
        """For ever, from `begin` on. Raises LeaseHeld, LeaseLost, OtherSourceError."""

    async def ready(self) -> None:
        """Returns once it is known what this process has."""

    async def leave(self) -> bool:
        """After all is stored; True when no other process is left."""

    async def release(self) -> None:
        """As the last one: whoever comes next may begin at once."""

    def take_lead(self) -> bool:
        """True once after this process has become the leader."""

    @property
    def workers(self) -> int:
        """How many processes share the link, as far as is known."""

    async def give_up(self, tps: Collection[TopicPartition]) -> None:
        """Stops them in order: the link does not want them any more."""

    def share_out(self, wanted: Collection[TopicPartition]) -> None:
        """Has somebody begin at once with what is new among all that are to be copied."""

    async def report(self) -> None:
        """Tells everybody how this process and its partitions stand. Raises ProtocolError."""

    async def unsay(self) -> None:
        """As one that ends before it may work: nothing of it is left to tell. Raises ProtocolError."""

    @property
    def problem(self) -> str:
        """Why it is not together with the others; empty: it is."""

    def to_json(self) -> dict[str, Any]:
        """For the status."""


class Exclusive:
    """One process, all partitions."""

    def __init__(self, settings: LinkSettings, store: ProgressStore) -> None:
        self._lease = LeaseKeeper(settings.name, store)
        self._store = store

    leading = True
    workers = 1
    problem = ""

    async def unsay(self) -> None:
        pass

    async def give_up(self, tps: Collection[TopicPartition]) -> None:
        pass

    def share_out(self, wanted: Collection[TopicPartition]) -> None:
        pass

    async def report(self) -> None:
        pass

    async def begin(self) -> None:
        await self._lease.acquire()
        self._store.epoch = self._store.highest_epoch + 1

    async def run(self) -> None:
        await self._lease.keep()

    async def ready(self) -> None:
        pass

    async def leave(self) -> bool:
        return True

    async def release(self) -> None:
        await self._lease.release()

    def take_lead(self) -> bool:
        return False

    def to_json(self) -> dict[str, Any]:
        return {"alone": True, "leads": True}


class Shared:
    """A worker among others."""

    def __init__(
        self,
        settings: LinkSettings,
        client: ClusterClient,
        parts: Parts,
        finding: Wanted,
        told: Told,
        rest: str = "",
    ) -> None:
        membership = Membership(
            client,
            settings.workers_group,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=PROTOCOL_NAME,
            session_s=settings.worker_session_timeout_s,
            rebalance_s=_REBALANCE_S,
        )
        self.holdings = Holdings(parts)
        parts.partitions.owns = self.holdings.owns
        self._store = parts.store
        self.crew = Crew(
            settings.name,
            replace(
                WorkerInfo.of_this_process(rest),
                incarnation=parts.incarnation,
                source=parts.source_client.cluster_id or "",
            ),
            client,
            membership,
            parts.store,
            parts.permit,
            self.holdings,
            finding.partitions,
            session_s=settings.worker_session_timeout_s,
            rebalance_s=_REBALANCE_S,
            settings=fingerprint(settings),
        )
        parts.living = self._living
        self._reporting = Reporting(parts, self.holdings, self.crew, told)

    def _living(self) -> list[str]:
        if self.holdings.alone:
            return []
        return [info.incarnation for info in self.crew.orders.members.values()]

    @property
    def leading(self) -> bool:
        return self.crew.leading

    async def begin(self) -> None:
        await self.crew.begin.acquire()
        if self.crew.begin.early:
            self._store.epoch = self._store.highest_epoch + 1
            self.holdings.alone = True

    async def run(self) -> None:
        await self.crew.run()

    async def ready(self) -> None:
        if not self.crew.begin.early:
            await self.crew.joined.wait()

    async def leave(self) -> bool:
        await self._reporting.end()
        return await self.crew.leave()

    @property
    def workers(self) -> int:
        return max(len(self.crew.orders.members), 1)

    async def give_up(self, tps: Collection[TopicPartition]) -> None:
        await self.holdings.give_up(tps)
        self.crew.plan_again()  # the leader is to know that nobody holds them

    def share_out(self, wanted: Collection[TopicPartition]) -> None:
        self.crew.share_out(wanted)

    async def report(self) -> None:
        await self._reporting.once()

    async def unsay(self) -> None:
        await self._reporting.end()

    @property
    def problem(self) -> str:
        return self.crew.problem

    async def release(self) -> None:
        await self.crew.begin.release()

    def take_lead(self) -> bool:
        became = self.crew.became_leader.is_set()
        self.crew.became_leader.clear()
        return became

    def to_json(self) -> dict[str, Any]:
        crew = self.crew
        return {
            "worker": crew.info.worker,
            "alone": self.holdings.alone,
            "leads": crew.leading,
            "may_write": crew.may_write,
            "epoch": crew.orders.epoch,
            "rounds": crew.rounds,
            "workers": sorted(info.worker for info in crew.orders.members.values()),
            "problem": crew.problem,
        }


class Wanted(Protocol):
    """Who knows what there is to copy."""

    async def partitions(self) -> set[TopicPartition]:
        """All partitions of the link. Raises ProtocolError."""


def fingerprint(settings: LinkSettings) -> str:
    """Of everything that workers of one link should agree on. Whoever may describe the group can read it:
    with secrets in it, passwords could be tried against it. How a worker logs in is its own business."""
    agreed = settings.model_dump_json(exclude={"source": {"properties"}, "target": {"properties"}})
    return hashlib.sha256(agreed.encode()).hexdigest()[:16]
