"""A backup: cluster to object store, one finite snapshot, the manifest last.

Owns the order of things: group offsets first, then the ends of all partitions, then the data up to there.
So the data covers the offsets, and the backup ends while producers go on. Bytes are moved by `transfer`.
A partition that cannot be read to its end is in the manifest with a gap and a problem (I7, I10); when the
object store fails, there is no manifest and so no backup (I8).
"""

from __future__ import annotations

import asyncio
import logging
import time

from connectors import catalogue, layout
from connectors.backup_sink import BackupSink, SinkResult
from connectors.errors import BackupError
from connectors.group_offsets import snapshot_groups
from connectors.held_up import LONG_MS, held_up, is_long
from connectors.manifest import HeldUp, Manifest, PartitionBackup, TopicBackup
from connectors.object_store import ObjectStore, open_store
from connectors.partition_runs import PartitionRun, PartitionRuns
from connectors.settings import BackupSettings, Progress, Report, quiet
from connectors.topic_facts import Range, TopicFacts, describe_topics, known_ranges
from protocol.client import ClusterClient
from protocol.counted import counted
from protocol.types import TopicPartition, uuid_from_text
from transfer.kafka.source import KafkaSource
from transfer.ledger import Lineage, PartitionLedger
from transfer.offset_map import OffsetMap

_log = logging.getLogger("isthmus.connectors")


async def backup(settings: BackupSettings, progress: Report = quiet) -> Manifest:
    """Takes the backup. Raises ConnectorError or ProtocolError, and then there is no manifest."""
    started_ms = int(time.time() * 1000)
    async with (
        open_store(settings.store) as store,
        settings.access.client("isthmus-backup") as client,
    ):
        await _refuse_taken_id(store, settings.backup_id)
        groups, problems = await snapshot_groups(client, settings.groups, settings.topics)
        facts = await describe_topics(client, settings.topics)  # later: partitions may be new
        made = _Backup(settings, store, client, facts, progress)
        await made.copy()
        manifest = Manifest(
            backup_id=settings.backup_id,
            cluster_id=client.cluster_id or "",
            format=settings.format,
            compression=settings.avro_codec if settings.format == "avro" else "as stored",
            started_ms=started_ms,
            finished_ms=int(time.time() * 1000),
            topics=made.topics(),
            groups=tuple(groups),
            problems=(*problems, *made.problems()),
        )
        await catalogue.write_manifest(store, manifest)
    _log.info(
        "backup %s: %s, %s",
        manifest.backup_id,
        counted(manifest.records, "record"),
        counted(manifest.bytes, "byte"),
    )
    return manifest


async def _refuse_taken_id(store: ObjectStore, backup_id: str) -> None:
    """Early, before hours of copying; the conditional write at the end decides."""
    key = layout.manifest_key(backup_id)
    if any(info.key == key for info in await store.list(key)):
        raise BackupError(f"backup {backup_id} exists already in {store.location()}")


class _Backup:
    """One run: ranges, ledgers and objects of all partitions."""

    def __init__(
        self,
        settings: BackupSettings,
        store: ObjectStore,
        client: ClusterClient,
        facts: list[TopicFacts],
        progress: Report,
    ) -> None:
        self._settings = settings
        self._client = client
        self._facts = facts
        self._progress = progress
        self._location = f"{store.location()}#{settings.backup_id}"
        self._sink = BackupSink(
            store,
            settings.backup_id,
            settings.format,
            object_bytes=settings.object_bytes,
            part_bytes=settings.part_bytes,
            avro_codec=settings.avro_codec,
        )
        self._runs: dict[TopicPartition, PartitionRun] = {}
        self._results: dict[TopicPartition, SinkResult] = {}
        self._held_up: dict[TopicPartition, HeldUp] = {}
        self._done = 0
        self._total = 0

    async def copy(self) -> None:
        tps = [TopicPartition(topic.name, index) for topic in self._facts for index in topic.partitions]
        found, refused = await known_ranges(self._client, tps)
        self._held_up = await held_up(self._client, found)
        for topic in self._facts:
            for index in topic.partitions:
                tp = TopicPartition(topic.name, index)
                run = self._runs[tp] = self._run(topic, tp, found.get(tp, Range(0, 0, 0)))
                if tp in refused:
                    run.problem = f"{topic.name}-{index}: nothing of it is in this backup: {refused[tp]}"
        self._total = sum(run.end - run.start for run in self._runs.values())
        self._moved(0)
        source = KafkaSource(self._client)
        gate = asyncio.Semaphore(self._settings.partitions_at_once)
        try:
            async with (
                PartitionRuns(
                    source,
                    self._sink,
                    stall_s=self._settings.stall_s,
                    moved=self._moved,
                    sink_answers=True,  # the object store's own time limits end what it does not take
                ) as runs,
                asyncio.TaskGroup() as tasks,
            ):
                for run in self._runs.values():
                    tasks.create_task(self._partition(source, runs, run, gate))
        except ExceptionGroup as group:
            raise group.exceptions[0] from group
        finally:
            await source.aclose()
            await self._sink.aclose()

    async def _partition(
        self, source: KafkaSource, runs: PartitionRuns, run: PartitionRun, gate: asyncio.Semaphore
    ) -> None:
        async with gate:
            self._sink.begin(run.source, run.end)
            if run.ledger.source.topic_id:
                source.expect(run.source, uuid_from_text(run.ledger.source.topic_id))
            await runs.run(run)
            result = self._results[run.source] = await self._sink.finish(run.source)
            run.ledger.gaps.extend(result.damaged)
            run.ledger.gaps.sort()

    def _run(self, topic: TopicFacts, tp: TopicPartition, found: Range) -> PartitionRun:
        ledger = PartitionLedger(
            source=Lineage(self._client.cluster_id or "", topic.topic_id, tp.topic, tp.partition),
            target=Lineage(self._location, "", tp.topic, tp.partition),
            runs=OffsetMap(found.start, found.start),
        )
        return PartitionRun(tp, tp, found.start, found.end, ledger)

    def _moved(self, offsets: int) -> None:
        self._done += offsets
        self._progress(Progress("backup", self._done, self._total))

    def topics(self) -> tuple[TopicBackup, ...]:
        return tuple(
            TopicBackup(
                name=topic.name,
                topic_id=topic.topic_id,
                replication_factor=topic.replication_factor,
                configs=topic.configs,
                effective=topic.effective,
                partitions=tuple(
                    _partition(self._runs[tp], self._results[tp], self._held_up.get(tp))
                    for tp in (TopicPartition(topic.name, index) for index in topic.partitions)
                ),
            )
            for topic in self._facts
        )

    def problems(self) -> list[str]:
        stopped = [run.problem for run in self._runs.values() if run.problem]
        holes = [
            f"{tp.topic}-{tp.partition}: offsets {gap.start} to {gap.end - 1} are missing: {gap.reason}"
            for tp, run in self._runs.items()
            for gap in run.ledger.gaps
        ]
        hanging = [
            f"{held.text(tp, self._runs[tp].end)} for more than {LONG_MS // 60_000} minutes"
            for tp, held in self._held_up.items()
            if is_long(held)
        ]
        return stopped + holes + hanging


def _partition(run: PartitionRun, result: SinkResult, held: HeldUp | None) -> PartitionBackup:
    return PartitionBackup(
        partition=run.source.partition,
        start_offset=run.start,
        end_offset=run.end,
        records=sum(entry.records for entry in result.entries),
        objects=result.entries,
        ledger=run.ledger.to_json(),
        held_up=held,
    )
