"""A link that translates offsets, as a process part: runs everything until told to stop.

Owns start, the periodic jobs, and an orderly end. What is copied is decided in `discovery`, how a partition
starts in `partitions`, moving is `transfer`'s. Exit codes as in `connected`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from prometheus_client import CollectorRegistry

from protocol.client import ClusterClient
from protocol.errors import ProtocolError
from protocol.types import TopicPartition
from replicator.acknowledgements import Difference
from replicator.book import Account
from replicator.connected import EXIT_DIFFERENCES, EXIT_FAILED, EXIT_OK, LinkStatus, run_connected
from replicator.discovery import Found
from replicator.finding import Finding, partitions_of
from replicator.group_rules import in_short
from replicator.jobs import Job, Jobs
from replicator.lag import look_at_lag
from replicator.lease import LeaseHeld, LeaseLost
from replicator.link_report import mirrors_json
from replicator.metrics import LinkMetrics
from replicator.parts import Parts
from replicator.phase import CLAIM, COPIES, ENDS, FIRST, PROGRESS, WISHES, WORKERS
from replicator.reach import Reach
from replicator.settings import LinkSettings
from replicator.starting import Start
from replicator.troubles import Trouble
from replicator.upkeep import Upkeep
from replicator.workers.obeying import Obeying
from replicator.workers.planning import OtherSourceError
from replicator.workers.report import RESTS_S
from replicator.workers.sharing import Exclusive, Shared, Sharing
from transfer.ledger import PartitionLedger

_log = logging.getLogger("isthmus.replicator")

_LOOK_AT_CLUSTERS_S = 1.0
_LOOK_AT_WISHES_S = 1.0
_REPORT_S = 0.5
_OBSERVE_S = 0.5
_BEGIN_S = 1.0
_LAG_S = 5.0
_LAGS_PER_S = 1000
_LAST_SAVE_S = 5.0
_ONCE_MORE = ("groups", "checkpoints", "offset syncs")


async def run_link(
    settings: LinkSettings,
    stop: asyncio.Event,
    registry: CollectorRegistry,
    status: LinkStatus | None = None,
    rest: str = "",
) -> int:
    """Runs the link until `stop` is set; the exit code says how it ended. `rest`: see `Link`."""

    def make(source: ClusterClient, target: ClusterClient, metrics: LinkMetrics, reach: Reach) -> Link:
        return Link(settings, source, target, metrics, reach, rest)

    return await run_connected(settings, stop, registry, status, make, rest)


class Link:
    """The running parts of one link."""

    def __init__(
        self,
        settings: LinkSettings,
        source: ClusterClient,
        target: ClusterClient,
        metrics: LinkMetrics,
        reach: Reach,
        rest: str = "",
    ) -> None:
        """`rest` is where this process answers requests about its links, for the others to know."""
        self._parts = parts = Parts(settings, source, target, metrics)
        self._reach = reach
        self._jobs = Jobs(settings.name, metrics)
        self._upkeep = Upkeep(parts, self.ledgers)
        self._start = Start(parts, self._upkeep.acls)
        self._finding = Finding(parts, self._upkeep.note_settings)
        self._sharing: Sharing = (
            Shared(settings, target, parts, self._finding, self, rest)
            if settings.shared
            else Exclusive(settings, parts.store)
        )
        self._obeying = Obeying(parts, self._upkeep.groups, self._sharing.give_up)
        self._taking_lead = asyncio.Lock()
        self._begun = asyncio.Event()
        self._nobody_left = True
        self._at_the_end: list[tuple[str, Job]] = []
        """What is done once more when the link ends in order, so that a planned failover loses nothing."""

    def ledgers(self) -> Mapping[TopicPartition, PartitionLedger]:
        """Ledgers of all opened partitions by source partition."""
        return self._parts.ledgers()

    @property
    def accounts(self) -> Mapping[TopicPartition, Account]:
        """How each partition stands, by source partition."""
        return self._parts.book.accounts

    @property
    def topic_problems(self) -> Mapping[str, str]:
        """Why a source topic has no complete counterpart at the target."""
        return {**self._parts.topics.problems, **self._finding.left_out}

    @property
    def found(self) -> Found:
        """What discovery saw last."""
        return self._parts.found

    async def run(self, stop: asyncio.Event) -> int:
        """Until `stop`, or until something breaks that waiting does not cure."""
        sharing = asyncio.create_task(self._share())
        jobs = [asyncio.create_task(self._start_and_discover())]
        stopping = asyncio.create_task(stop.wait())
        try:
            jobs += self._periodic()
            running = [sharing, *jobs]
            await asyncio.wait({stopping, *running}, return_when=asyncio.FIRST_COMPLETED)
            broken = next((job.exception() for job in running if job.done() and not job.cancelled()), None)
            return await self._end(jobs, sharing, broken)
        finally:
            tasks = (stopping, sharing, *jobs)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._parts.aclose()

    async def _share(self) -> None:
        await self._begun.wait()
        await self._sharing.run()

    async def _end(
        self, jobs: list[asyncio.Task[None]], sharing: asyncio.Task[None], broken: BaseException | None
    ) -> int:
        self._parts.phase.enter(ENDS)
        self._parts.engine.stop()
        for running in jobs:
            running.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)
        if isinstance(broken, LeaseHeld | LeaseLost | OtherSourceError):
            _log.error("%s", broken)  # the other owner writes progress and groups now
            return EXIT_FAILED
        drained = await self._parts.engine.drain(self._parts.settings.drain_s)
        await self._write_last(sharing)
        if broken is not None:
            _log.error("the link cannot go on: %r", broken, exc_info=broken)
            return EXIT_FAILED
        if not drained:
            _log.warning("what was on its way was given up; the next start finds out what arrived")
        return EXIT_DIFFERENCES if self.open_differences() or self._parts.book.refused else EXIT_OK

    def open_differences(self) -> list[Difference]:
        """What nobody has acknowledged."""
        return self._parts.open_differences()

    async def _write_last(self, sharing: asyncio.Task[None]) -> None:
        """Others hear of us until our progress is stored. Who leaves last does what is the whole link's."""
        if not await self._last("progress", self._parts.save):
            return
        sharing.cancel()
        await asyncio.gather(sharing, return_exceptions=True)
        last = [("lease", self._sharing.release)]
        if not self._begun.is_set():
            if self._parts.phase.step is not PROGRESS:
                await self._last("report", self._sharing.unsay)
            return
        if not await self._last("workers", self._leave):
            return
        if not self._nobody_left:
            last = []
        for what, job in (("acknowledgements", self._parts.store.refresh), *self._at_the_end, *last):
            if not last and what != "acknowledgements":
                return
            if not await self._last(what, job):
                return  # the others need the same cluster

    async def _leave(self) -> None:
        self._nobody_left = await self._sharing.leave()

    async def _last(self, what: str, job: Job) -> bool:
        try:
            async with asyncio.timeout(_LAST_SAVE_S):
                await job()
        except (ProtocolError, TimeoutError) as error:
            _log.warning("%s could not be written at the end: %s", what, error or "no time left")
            return False
        return True

    def _periodic(self) -> list[asyncio.Task[None]]:
        parts = self._parts
        upkeep = self._upkeep.jobs()
        self._at_the_end = [(one.what, one.job) for one in upkeep if one.what in _ONCE_MORE]
        return [
            asyncio.create_task(one)
            for one in (
                self._jobs.every("lag", self._lag_interval_s, self._look_at_lag),
                self._jobs.every("metrics", lambda: _OBSERVE_S, self._observe),
                self._jobs.every("clusters", lambda: _LOOK_AT_CLUSTERS_S, self._look_at_clusters),
                *(self._jobs.every(one.what, one.interval_s, self._if_leading(one.job)) for one in upkeep),
                self._jobs.every("first positions", lambda: _BEGIN_S, self._learn),
                self._jobs.every("control", lambda: _LOOK_AT_WISHES_S, self._obey),
                self._jobs.every("report", lambda: _REPORT_S, self._report, longest_rest_s=RESTS_S),
                self._store_progress(),
                parts.engine.run(),
            )
        ]

    async def _start_and_discover(self) -> None:
        parts, phase = self._parts, self._parts.phase
        await self._jobs.until_done(PROGRESS.job, parts.store.load)
        phase.enter(CLAIM)
        await self._jobs.until_done(CLAIM.job, self._sharing.begin)
        self._begun.set()
        phase.enter(WORKERS)
        await self._sharing.ready()
        phase.enter(WISHES)
        await self._jobs.until_done(WISHES.job, self._obeying.once)
        phase.enter(FIRST)
        await self._jobs.until_done(FIRST.job, lambda: self._start.load(leading=self._sharing.leading))
        parts.phase.enter(COPIES)
        settings = parts.settings
        await self._jobs.attempt("topics", self._find)
        if settings.sync_topic_configs:
            await self._jobs.attempt("topic settings", self._if_leading(self._upkeep.sync_settings))
        if settings.sync_topic_acls:
            await self._jobs.attempt("ACLs", self._if_leading(self._upkeep.sync_acls))
        await self._jobs.every("topics", self._find_interval_s, self._find, parts.poke)

    def _find_interval_s(self) -> float:
        """Partitions are begun at a look: who looks seldom for new topics does not leave others waiting."""
        interval_s = self._parts.settings.refresh_topics_interval_s
        return min(interval_s, _BEGIN_S) if self._parts.book.begins else interval_s

    def _lag_interval_s(self) -> float:
        """What is idle or stands still tells its end to nobody who does not ask. Answers about thousands are
        read in tasks of the client, so that the job's own rest knows little of them."""
        often_s = min(self._parts.settings.refresh_topics_interval_s, _LAG_S)
        return max(often_s, min(len(self._parts.book.accounts) / _LAGS_PER_S, _LAG_S))

    async def _obey(self) -> None:
        if self._begun.is_set():
            await self._obeying.once()
        parts = self._parts
        parts.engine.pace.limit = parts.settings.rate_limit / self._sharing.workers

    async def _learn(self) -> None:
        if self._begun.is_set() and await self._leading():
            await self._start.learn()

    async def _report(self) -> None:
        if self._parts.phase.step is not PROGRESS:  # before that there may be no topic to write to
            await self._sharing.report()

    async def _find(self) -> None:
        leading = await self._leading()
        if leading:
            await self._start.take_in()
        await self._finding.once(make_topics=leading)
        self._sharing.share_out(partitions_of(self._parts.found))

    async def _leading(self) -> bool:
        """Who begins to lead reads first what was set at the target before."""
        async with self._taking_lead:
            if self._sharing.leading and self._sharing.take_lead():
                await self._start.take_lead()
        return self._sharing.leading

    def _if_leading(self, job: Job) -> Job:
        """What is done once for the link."""

        async def run() -> None:
            if await self._leading():
                await job()

        return run

    async def _look_at_lag(self) -> None:
        parts = self._parts
        await look_at_lag(parts.source_client, parts.book.accounts, parts.found.wanted)

    async def _look_at_clusters(self) -> None:
        await self._reach.look(self._parts.source_client, self._parts.target_client)

    async def _store_progress(self) -> None:
        """Stores what was acknowledged, twice a second or every so many bytes, whichever comes first."""
        loop = asyncio.get_running_loop()
        parts = self._parts
        last = loop.time()
        while True:
            await asyncio.sleep(min(parts.settings.progress_interval_s, 0.1))
            due = loop.time() - last >= parts.settings.progress_interval_s
            if not due and parts.book.bytes_not_stored < parts.settings.progress_bytes:
                continue
            last = loop.time()
            await self._jobs.attempt("progress", parts.save)

    async def _observe(self) -> None:
        """Beside everything else: a cluster that is silent holds up what is stored there, and no gauge."""
        self._parts.book.observe()
        self._upkeep.observe(leading=self._sharing.leading)

    def problems(self) -> dict[str, str]:
        """What is wrong now, by what it concerns."""
        wishes = self._obeying.problem
        transactions = self._parts.transactions.problem if self._parts.transactions else ""
        return {
            **self._reach.troubles.texts,
            **self._jobs.troubles.texts,
            **self.topic_problems,
            **self._parts.topics.told(),
            **({"workers": self._sharing.problem} if self._sharing.problem else {}),
            **({"settings": wishes} if wishes else {}),
            **({"transactions": transactions} if transactions else {}),
        }

    def since(self) -> dict[str, int]:
        """When those of the problems began of which that is known (ms)."""
        return {**self._reach.troubles.since, **self._jobs.troubles.since}

    def standing(self) -> dict[str, Any]:
        """Its state and, before it copies, what it waits for."""
        phase = self._parts.phase
        trouble = self._jobs.troubles.get(phase.step.job)
        if phase.step is WORKERS and self._sharing.problem:
            trouble = Trouble(self._sharing.problem, "", phase.since_ms)
        return phase.to_json(trouble, link=self._parts.settings.name)

    def groups(self) -> dict[str, Any]:
        """How groups stand at the target; empty where they are not synced."""
        if not self._parts.settings.sync_group_offsets:
            return {}
        return in_short({name: one.reason for name, one in self._upkeep.groups.standings.items()})

    def to_json(self) -> dict[str, Any]:
        """The link's status."""
        parts = self._parts
        with_acls = parts.settings.sync_topic_acls
        return {
            "link": parts.settings.name,
            **self.standing(),
            "worker": self._sharing.to_json(),
            "source_cluster": parts.source_client.cluster_id,
            "target_cluster": parts.target_client.cluster_id,
            "problems": self.problems(),
            "topics": sorted(parts.found.wanted),
            "topics_not_copied": parts.found.refused,
            "mirrors": mirrors_json(parts.store.progress.mirrors),
            "guarantee": parts.guarantee(),
            "partitions": parts.book.to_json(),
            "groups": self._upkeep.groups_json(),
            "acls": self._upkeep.acls.to_json() if with_acls else {"reason": "switched off"},
            "differences": parts.book.differences,
            "not_acknowledged": len(self.open_differences()),
            "bytes_in_flight": parts.engine.bytes_in_flight,
        }
