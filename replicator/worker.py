"""One link as a process part: connects both clusters and runs everything until told to stop.

Owns start, the periodic jobs, and an orderly end. What is copied is decided in `discovery`, how a partition
starts in `partitions`, moving is `transfer`'s. Exit codes: 0 all copied so far without a gap, 1 the link
could not go on, 3 it ended but gaps or refused partitions are on record (also from earlier runs).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Set
from contextlib import AsyncExitStack
from typing import Any

from prometheus_client import CollectorRegistry

from protocol.client import ClusterClient
from protocol.errors import ProtocolError
from protocol.types import TopicPartition
from replicator.acknowledgements import Difference, open_differences
from replicator.book import Account, State
from replicator.discovery import discover
from replicator.jobs import Job, Jobs
from replicator.lease import LeaseHeld, LeaseLost
from replicator.lease_keeper import LeaseKeeper
from replicator.link_report import readable_ends
from replicator.metrics import LinkMetrics
from replicator.parts import Parts
from replicator.reach import Reach
from replicator.settings import LinkSettings
from replicator.starting import Start
from replicator.upkeep import Upkeep
from transfer.ledger import PartitionLedger

_log = logging.getLogger("isthmus.replicator")

EXIT_OK, EXIT_FAILED, EXIT_DIFFERENCES = 0, 1, 3

_LOOK_AT_CLUSTERS_S = 1.0
_LAST_SAVE_S = 5.0
_ONCE_MORE = ("groups", "checkpoints", "offset syncs")


async def run_link(
    settings: LinkSettings, stop: asyncio.Event, registry: CollectorRegistry, status: LinkStatus | None = None
) -> int:
    """Runs the link until `stop` is set; the exit code says how it ended."""
    status = status or LinkStatus(settings.name)
    metrics = LinkMetrics(settings.name, registry)
    reach = status.reach = Reach(settings, metrics)
    async with AsyncExitStack() as stack:
        clients = await reach.connect(stop, stack)
        if clients is None:
            why = "; ".join(reach.problems.values()) or "stopped before both clusters had answered"
            _log.error("%s ended and has copied nothing: %s", status.name, why)
            return EXIT_FAILED
        status.connected.set()
        link = Link(settings, *clients, metrics, reach)
        status.link = link
        return await link.run(stop)


class LinkStatus:
    """What others may look at while a link runs; `to_json` at any time."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.reach: Reach | None = None
        self.link: Link | None = None
        self.connected = asyncio.Event()
        """Both clusters have answered once."""

    def to_json(self) -> dict[str, Any]:
        """Link, topics, partitions, groups."""
        if self.link is None:
            problems = dict(self.reach.problems) if self.reach is not None else {}
            return {"link": self.name, "state": "connecting", "problems": problems}
        return self.link.to_json()


class Link:
    """The running parts of one link."""

    def __init__(
        self,
        settings: LinkSettings,
        source: ClusterClient,
        target: ClusterClient,
        metrics: LinkMetrics,
        reach: Reach,
    ) -> None:
        self._parts = parts = Parts(settings, source, target, metrics)
        self._reach = reach
        self._jobs = Jobs(settings.name, metrics)
        self._lease = LeaseKeeper(settings.name, parts.store)
        self._upkeep = Upkeep(parts, self.ledgers)
        self._start = Start(parts, self._upkeep.acls)
        self._only: Set[str] | None = None
        """Topics that the link keeps to: those of its start, when it is told not to look for more."""
        self._state = "starting"
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
        return self._parts.topics.problems

    async def run(self, stop: asyncio.Event) -> int:
        """Until `stop`, or until something breaks that waiting does not cure."""
        jobs = [asyncio.create_task(self._start_and_discover())]
        stopping = asyncio.create_task(stop.wait())
        try:
            jobs += self._periodic()
            await asyncio.wait({stopping, *jobs}, return_when=asyncio.FIRST_COMPLETED)
            broken = next((job.exception() for job in jobs if job.done() and not job.cancelled()), None)
            return await self._end(jobs, broken)
        finally:
            for task in (stopping, *jobs):
                task.cancel()
            await asyncio.gather(stopping, *jobs, return_exceptions=True)
            await self._parts.aclose()

    async def _end(self, jobs: list[asyncio.Task[None]], broken: BaseException | None) -> int:
        self._state = "stopping"
        self._parts.engine.stop()
        for running in jobs:
            running.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)
        if isinstance(broken, LeaseHeld | LeaseLost):
            _log.error("%s", broken)  # the other owner writes progress and groups now
            return EXIT_FAILED
        drained = await self._parts.engine.drain(self._parts.settings.drain_s)
        await self._write_last()
        if broken is not None:
            _log.error("the link cannot go on: %r", broken, exc_info=broken)
            return EXIT_FAILED
        if not drained:
            _log.warning("what was on its way was given up; the next start finds out what arrived")
        return EXIT_DIFFERENCES if self._open_differences() or self._parts.book.refused else EXIT_OK

    def _open_differences(self) -> list[Difference]:
        """What nobody has acknowledged."""
        return open_differences(self.ledgers(), self._parts.store.acknowledged)

    async def _write_last(self) -> None:
        first = (("progress", self._parts.save), ("acknowledgements", self._parts.store.refresh))
        for what, job in (*first, *self._at_the_end, ("lease", self._lease.release)):
            try:
                async with asyncio.timeout(_LAST_SAVE_S):
                    await job()
            except (ProtocolError, TimeoutError) as error:
                _log.warning("%s could not be written at the end: %s", what, error or "no time left")
                break  # the others need the same cluster

    def _periodic(self) -> list[asyncio.Task[None]]:
        parts = self._parts
        upkeep = self._upkeep.jobs()
        self._at_the_end = [(one.what, one.job) for one in upkeep if one.what in _ONCE_MORE]
        return [
            asyncio.create_task(one)
            for one in (
                self._jobs.every("lag", lambda: parts.settings.refresh_topics_interval_s, self._look_at_lag),
                self._jobs.every("clusters", lambda: _LOOK_AT_CLUSTERS_S, self._look_at_clusters),
                *(self._jobs.every(one.what, one.interval_s, one.job) for one in upkeep),
                self._store_progress(),
                self._lease.keep(),
                parts.engine.run(),
            )
        ]

    async def _start_and_discover(self) -> None:
        parts = self._parts
        await self._jobs.until_done("progress", parts.store.load)
        await self._jobs.until_done("lease", self._lease.acquire)
        await self._jobs.until_done("start", self._start.load)
        self._state = "running"
        settings = parts.settings
        await self._jobs.attempt("topics", self._discover)
        if settings.sync_topic_configs:
            await self._jobs.attempt("topic settings", self._upkeep.sync_settings)
        if settings.sync_topic_acls:
            await self._jobs.attempt("ACLs", self._upkeep.sync_acls)
        await self._jobs.every(
            "topics", lambda: parts.settings.refresh_topics_interval_s, self._discover, parts.poke
        )

    async def _discover(self) -> None:
        parts = self._parts
        source = (await parts.source_client.metadata(None)).topics
        if self._only is not None:
            source = {name: source[name] for name in self._only & source.keys()}
        target = await parts.target_client.metadata(None)
        found = discover(source, target.topics, parts.topic_filter, parts.naming)
        if self._only is None and not parts.settings.refresh_topics:
            self._only = found.wanted.keys()
        if await parts.topics.ensure(found.wanted.values()):
            target = await parts.target_client.metadata(None)
            found = discover(source, target.topics, parts.topic_filter, parts.naming)
            await self._upkeep.note_settings()
        parts.found = found
        parts.partitions.reconcile(found.wanted)

    async def _look_at_lag(self) -> None:
        """Asks for the source's ends, so that the lag is also true of partitions that stand still."""
        parts = self._parts
        spots = [
            tp
            for tp, account in parts.book.accounts.items()
            if account.state is not State.GONE and tp.topic in parts.found.wanted
        ]
        ends, _ = await readable_ends(parts.source_client, spots)
        for tp, end in ends.items():
            parts.book.accounts[tp].source_end = end

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
            parts.book.observe()
            self._upkeep.observe()

    def to_json(self) -> dict[str, Any]:
        """The link's status."""
        parts = self._parts
        with_acls = parts.settings.sync_topic_acls
        return {
            "link": parts.settings.name,
            "state": self._state,
            "source_cluster": parts.source_client.cluster_id,
            "target_cluster": parts.target_client.cluster_id,
            "problems": {**self._reach.problems, **self._jobs.problems, **parts.topics.problems},
            "topics": sorted(parts.found.wanted),
            "topics_not_copied": parts.found.refused,
            "partitions": parts.book.to_json(),
            "groups": self._upkeep.groups_json(),
            "acls": self._upkeep.acls.to_json() if with_acls else {"reason": "switched off"},
            "differences": parts.book.differences,
            "not_acknowledged": len(self._open_differences()),
            "bytes_in_flight": parts.engine.bytes_in_flight,
        }
