"""One link as a process part: connects both clusters and runs everything until told to stop.

Owns start, the periodic jobs, and an orderly end. What is copied is decided in `discovery`, how a partition
starts in `partitions`, moving is `transfer`'s. Exit codes: 0 all copied so far without a gap, 1 the link
could not go on, 3 it ended but gaps or refused partitions are on record (also from earlier runs).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Set
from contextlib import AsyncExitStack
from typing import Any

from prometheus_client import CollectorRegistry

from protocol.client import LATEST, ClusterClient, Isolation, WrongClusterError
from protocol.errors import ProtocolError
from protocol.types import TopicPartition
from replicator.acknowledgements import Difference, open_differences
from replicator.acl_rules import Scope
from replicator.acl_sync import AclSync
from replicator.book import Account, Book, State
from replicator.dead_letters import DeadLetters
from replicator.discovery import Found, discover
from replicator.emitters import Checkpoints, Heartbeats, OffsetSyncs
from replicator.filters import NameFilter
from replicator.group_sync import GroupSync
from replicator.internal_topics import InternalTopic
from replicator.lease import LeaseHeld, LeaseLost
from replicator.lease_keeper import LeaseKeeper
from replicator.link_report import readable_ends
from replicator.metrics import LinkMetrics
from replicator.mirrormaker.takeover import take_over
from replicator.naming import HEARTBEATS
from replicator.origin import Origin, OriginSink
from replicator.partitions import Partitions
from replicator.progress import Entry, Progress, ProgressStore
from replicator.reach import Reach, set_within
from replicator.refused import RefusedBatches
from replicator.settings import LinkSettings
from replicator.target_topics import TargetTopics
from transfer.engine import Engine
from transfer.kafka.fetcher import FetchSettings
from transfer.kafka.sink import KafkaSink, ProduceSettings
from transfer.kafka.source import KafkaSource
from transfer.ledger import PartitionLedger

_log = logging.getLogger("isthmus.replicator")

EXIT_OK, EXIT_FAILED, EXIT_DIFFERENCES = 0, 1, 3

_TRY_AGAIN_S = 1.0
_LOOK_AT_CLUSTERS_S = 1.0
_LAST_SAVE_S = 5.0


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
        self._settings = settings
        self._source_client = source
        self._target_client = target
        self._metrics = metrics
        self._reach = reach
        self._naming = settings.names()
        self._filter = settings.topic_filter()
        flow = settings.flow
        self._source = KafkaSource(
            source,
            FetchSettings(
                max_bytes=flow.fetch_max_bytes,
                partition_max_bytes=flow.fetch_partition_max_bytes,
                max_wait_ms=flow.fetch_max_wait_ms,
                connections_per_broker=flow.fetch_connections_per_broker,
            ),
        )
        self._sink = KafkaSink(target, ProduceSettings(request_bytes=flow.produce_request_bytes))
        self._poke = asyncio.Event()
        self._book = Book(metrics, settings.retry_refused_s, self._poke.set)
        origin = self._origin()
        self._engine = Engine(
            self._source,
            self._sink if origin is None else OriginSink(self._sink, origin),
            self._book,
            max_bytes=flow.max_bytes_in_flight,
            partition_bytes=flow.partition_bytes_in_flight,
        )
        self._store = ProgressStore(target, settings.progress_topic, settings.internal_replication_factor)
        self._lease = LeaseKeeper(settings.name, self._store)
        self._partitions = Partitions(
            source,
            target,
            self._source,
            self._sink,
            self._engine,
            self._book,
            self._store,
            metrics,
            stop_at_gaps=settings.on_gap == "stop",
            refused=RefusedBatches(
                source,
                target,
                DeadLetters(target, settings) if settings.on_refused == "dead_letter" else None,
                None if origin is None else origin.stamped,
            ),
            origin=origin,
        )
        self._topics = TargetTopics(
            source,
            target,
            exclude=settings.config_properties_exclude,
            replication_factor=settings.replication_factor,
            source_defaults=settings.use_defaults_from == "source",
            example=settings.progress_topic,
        )
        self._group_filter = NameFilter(settings.groups, settings.groups_exclude)
        self._groups = GroupSync(
            source, target, self._group_filter, self.ledgers, write=settings.sync_group_offsets
        )
        self._acls = AclSync(
            source,
            target,
            self._acl_scope,
            self._store.save_acls,
            report_only=settings.acls_report_only,
            revoke_at_most=settings.acls_revoke_at_most,
        )
        self._found = Found()
        self._only: Set[str] | None = None
        """Topics that the link keeps to: those of its start, when it is told not to look for more."""
        self._state = "starting"
        self._problems: dict[str, str] = {}
        self._at_the_end: list[tuple[str, Callable[[], Awaitable[object]]]] = []
        """What is done once more when the link ends in order, so that a planned failover loses nothing."""

    def _origin(self) -> Origin | None:
        if not self._settings.origin_headers:
            return None
        return Origin(
            self._source_client.cluster_id or "",
            self._target_client.cluster_id or "",
            self._naming.at_target,
            self._settings.origin_headers_ignored,
        )

    def ledgers(self) -> Mapping[TopicPartition, PartitionLedger]:
        """Ledgers of all opened partitions by source partition."""
        return {tp: account.entry.ledger for tp, account in self._book.accounts.items() if account.entry}

    @property
    def accounts(self) -> Mapping[TopicPartition, Account]:
        """How each partition stands, by source partition."""
        return self._book.accounts

    @property
    def topic_problems(self) -> Mapping[str, str]:
        """Why a source topic has no complete counterpart at the target."""
        return self._topics.problems

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
            await self._partitions.close()
            await self._source.aclose()
            await self._sink.aclose()

    async def _end(self, jobs: list[asyncio.Task[None]], broken: BaseException | None) -> int:
        self._state = "stopping"
        self._engine.stop()
        for running in jobs:
            running.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)
        if isinstance(broken, LeaseHeld | LeaseLost):
            _log.error("%s", broken)  # the other owner writes progress and groups now
            return EXIT_FAILED
        drained = await self._engine.drain(self._settings.drain_s)
        await self._write_last()
        if broken is not None:
            _log.error("the link cannot go on: %r", broken, exc_info=broken)
            return EXIT_FAILED
        if not drained:
            _log.warning("what was on its way was given up; the next start finds out what arrived")
        return EXIT_DIFFERENCES if self._open_differences() or self._book.refused else EXIT_OK

    def _open_differences(self) -> list[Difference]:
        """What nobody has acknowledged."""
        return open_differences(self.ledgers(), self._store.acknowledged)

    async def _write_last(self) -> None:
        jobs = (("progress", self._save), ("acknowledgements", self._store.refresh), *self._at_the_end)
        for what, job in (*jobs, ("lease", self._lease.release)):
            try:
                async with asyncio.timeout(_LAST_SAVE_S):
                    await job()
            except (ProtocolError, TimeoutError) as error:
                _log.warning("%s could not be written at the end: %s", what, error or "no time left")
                break  # the others need the same cluster

    def _periodic(self) -> list[asyncio.Task[None]]:
        on = self._settings
        jobs: list[tuple[bool, str, float, Callable[[], Awaitable[object]]]] = [
            (on.sync_topic_configs, "topic settings", on.sync_topic_configs_interval_s, self._sync_settings),
            (on.sync_topic_acls, "ACLs", on.sync_topic_acls_interval_s, self._sync_acls),
            (True, "lag", on.refresh_topics_interval_s, self._look_at_lag),
            (True, "clusters", _LOOK_AT_CLUSTERS_S, self._look_at_clusters),
            (True, "groups", on.sync_group_offsets_interval_s, self._groups.once),
            (on.emit_checkpoints, "checkpoints", on.emit_checkpoints_interval_s, self._checkpoints()),
            (on.emit_offset_syncs, "offset syncs", on.emit_offset_syncs_interval_s, self._offset_syncs()),
            (on.emit_heartbeats, "heartbeats", on.emit_heartbeats_interval_s, self._heartbeats()),
        ]
        jobs = [entry for entry in jobs if entry[0]]
        self._at_the_end = [
            (what, job) for _, what, _, job in jobs if what in ("groups", "checkpoints", "offset syncs")
        ]
        running = [asyncio.create_task(self._every(what, interval, job)) for _, what, interval, job in jobs]
        return [
            *running,
            asyncio.create_task(self._store_progress()),
            asyncio.create_task(self._lease.keep()),
            asyncio.create_task(self._engine.run()),
        ]

    async def _start_and_discover(self) -> None:
        await self._until_done("progress", self._store.load)
        await self._until_done("lease", self._lease.acquire)
        await self._until_done("start", self._load)
        self._state = "running"
        settings = self._settings
        await self._attempt("topics", self._discover)
        if settings.sync_topic_configs:
            await self._attempt("topic settings", self._sync_settings)
        if settings.sync_topic_acls:
            await self._attempt("ACLs", self._sync_acls)
        await self._every("topics", settings.refresh_topics_interval_s, self._discover, self._poke)

    async def _load(self) -> None:
        progress = await self._store.refresh()  # also what the owner before us wrote last
        self._topics.ours = dict(progress.settings)
        self._acls.owned = progress.acls()
        if progress.initial is None or self._settings.widens:
            await self._begin(progress)
            progress = await self._store.refresh()
        self._partitions.stored = progress.entries()
        self._partitions.initial = progress.initial or {}

    async def _begin(self, progress: Progress) -> None:
        """Notes where partitions begin that are not known yet: all of them at the link's first start."""
        known = progress.initial or {}
        entries = progress.entries()
        if progress.initial is None and not entries and self._settings.take_over is not None:
            entries = await self._take_over()
        first = await self._first_partitions()
        new = {tp: at for tp, at in first.items() if tp not in known and tp not in entries}
        if progress.initial is None or new:
            await self._store.save_initial({**known, **new})

    async def _take_over(self) -> dict[TopicPartition, Entry]:
        """Stores what MirrorMaker 2 has copied as the link's own progress."""
        source, target = self._source_client, self._target_client
        here, there = await source.metadata(None), await target.metadata(None)
        found = discover(here.topics, there.topics, self._filter, self._naming)
        taken = await take_over(source, target, self._settings, found.wanted)
        if taken:
            await self._store.save(taken)
        return {entry.tp: entry for entry in taken}

    async def _first_partitions(self) -> dict[TopicPartition, int]:
        """Only these begin at "latest"; whatever is born from now on is copied from its first record."""
        found = discover((await self._source_client.metadata(None)).topics, {}, self._filter, self._naming)
        spots = {
            TopicPartition(name, n): -1 for name, one in found.wanted.items() for n in one.source.partitions
        }
        if self._settings.start == "earliest":
            return spots
        listed = await self._source_client.list_offsets(
            dict.fromkeys(spots, LATEST), isolation=Isolation.READ_COMMITTED
        )
        return {tp: at.offset for tp, at in listed.items()}

    async def _discover(self) -> None:
        source = (await self._source_client.metadata(None)).topics
        if self._only is not None:
            source = {name: source[name] for name in self._only & source.keys()}
        target = await self._target_client.metadata(None)
        found = discover(source, target.topics, self._filter, self._naming)
        if self._only is None and not self._settings.refresh_topics:
            self._only = found.wanted.keys()
        if await self._topics.ensure(found.wanted.values()):
            target = await self._target_client.metadata(None)
            found = discover(source, target.topics, self._filter, self._naming)
            await self._note_settings()
        self._found = found
        self._partitions.reconcile(found.wanted)

    async def _look_at_lag(self) -> None:
        """Asks for the source's ends, so that the lag is also true of partitions that stand still."""
        wanted = self._found.wanted
        spots = [
            tp
            for tp, account in self._book.accounts.items()
            if account.state is not State.GONE and tp.topic in wanted
        ]
        ends, _ = await readable_ends(self._source_client, spots)
        for tp, end in ends.items():
            self._book.accounts[tp].source_end = end

    async def _look_at_clusters(self) -> None:
        await self._reach.look(self._source_client, self._target_client)

    async def _sync_settings(self) -> None:
        await self._topics.sync_settings(list(self._found.wanted.values()))
        await self._note_settings()

    def _acl_scope(self) -> Scope:
        topics = {name: topic.target_name for name, topic in self._found.wanted.items()}
        return Scope(self._naming, topics, self._groups.translations.keys(), self._group_filter.accepts)

    async def _sync_acls(self) -> None:
        if self._state == "running" and self._found.wanted:
            await self._acls.once()

    async def _note_settings(self) -> None:
        """What was set at the target is noted there, so that it can be taken back after a restart too."""
        names, self._topics.not_stored = self._topics.not_stored, set()
        if names:
            try:
                await self._store.save_settings({name: self._topics.ours[name] for name in names})
            except BaseException:
                self._topics.not_stored |= names
                raise

    def _checkpoints(self) -> Callable[[], Awaitable[object]]:
        factor = self._settings.checkpoints_topic_replication_factor
        topic = self._internal(self._target_client, self._naming.checkpoints, factor)
        emitter = Checkpoints(topic)
        return lambda: emitter.emit(self._groups.translations)

    def _offset_syncs(self) -> Callable[[], Awaitable[object]]:
        at_source = self._settings.offset_syncs_topic_location == "source"
        client = self._source_client if at_source else self._target_client
        factor = self._settings.offset_syncs_topic_replication_factor
        name = self._naming.offset_syncs(at_source=at_source)
        emitter = OffsetSyncs(self._internal(client, name, factor))
        return lambda: emitter.emit(self.ledgers())

    def _heartbeats(self) -> Callable[[], Awaitable[object]]:
        factor = self._settings.heartbeats_topic_replication_factor
        return Heartbeats(
            self._settings.source.alias,
            self._settings.target.alias,
            self._internal(self._source_client, HEARTBEATS, factor),
            self._internal(self._target_client, HEARTBEATS, factor),
        ).emit

    def _internal(self, client: ClusterClient, name: str, factor: int | None) -> InternalTopic:
        replicas = self._settings.internal_replication_factor if factor is None else factor
        return InternalTopic(client, name, replication_factor=replicas)

    async def _store_progress(self) -> None:
        """Stores what was acknowledged, twice a second or every so many bytes, whichever comes first."""
        loop = asyncio.get_running_loop()
        last = loop.time()
        while True:
            await asyncio.sleep(min(self._settings.progress_interval_s, 0.1))
            due = loop.time() - last >= self._settings.progress_interval_s
            if not due and self._book.bytes_not_stored < self._settings.progress_bytes:
                continue
            last = loop.time()
            await self._attempt("progress", self._save)
            self._book.observe()
            reasons = [standing.reason for standing in self._groups.standings.values()]
            self._metrics.groups.labels(self._settings.name, "in sync").set(reasons.count(None))
            self._metrics.groups.labels(self._settings.name, "with a reason").set(
                len(reasons) - reasons.count(None)
            )

    async def _save(self) -> None:
        entries = self._book.take_dirty()
        if entries:
            try:
                await self._store.save(entries.values())
            except BaseException:
                self._book.put_back(entries)
                raise

    async def _until_done(self, what: str, job: Callable[[], Awaitable[object]]) -> None:
        while not await self._attempt(what, job):  # noqa: ASYNC110 (nobody could set an event)
            await asyncio.sleep(_TRY_AGAIN_S)

    async def _every(
        self,
        what: str,
        interval_s: float,
        job: Callable[[], Awaitable[object]],
        poke: asyncio.Event | None = None,
    ) -> None:
        never = asyncio.Event()
        while True:
            await self._attempt(what, job)
            await set_within(poke or never, interval_s)
            if poke is not None:
                poke.clear()

    async def _attempt(self, what: str, job: Callable[[], Awaitable[object]]) -> bool:
        """Whether the job went through. What a cluster could not do now is tried again by the caller."""
        try:
            await job()
        except WrongClusterError:
            raise
        except ProtocolError as error:
            if self._problems.get(what) != str(error):
                _log.warning("%s: %s: %s", self._settings.name, what, error)
            self._problems[what] = str(error)
            self._metrics.errors.labels(self._settings.name, what).inc()
            return False
        self._problems.pop(what, None)
        return True

    def to_json(self) -> dict[str, Any]:
        """The link's status."""
        return {
            "link": self._settings.name,
            "state": self._state,
            "source_cluster": self._source_client.cluster_id,
            "target_cluster": self._target_client.cluster_id,
            "problems": {**self._reach.problems, **self._problems, **self._topics.problems},
            "topics": sorted(self._found.wanted),
            "topics_not_copied": self._found.refused,
            "partitions": self._book.to_json(),
            "groups": {
                name: {"reason": standing.reason, "partitions": standing.partitions}
                for name, standing in sorted(self._groups.standings.items())
            },
            "acls": self._acls.to_json() if self._settings.sync_topic_acls else {"reason": "switched off"},
            "differences": self._book.differences,
            "not_acknowledged": len(self._open_differences()),
            "bytes_in_flight": self._engine.bytes_in_flight,
        }
