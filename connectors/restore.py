"""A restore: object store to cluster; what ends with exit code 0 was re-read and counted.

Owns the order of things: refuse or begin, make topics with held settings, copy through `transfer`, read
everything back, give the topics their own settings, then translate, commit and read back group offsets. An
interrupted restore goes on with the same command; nothing is written twice.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import Literal

from connectors import catalogue
from connectors.backup_source import BackupSource
from connectors.errors import ConnectorError, RestoreError
from connectors.group_offsets import RestoredGroup, TranslationTable, restore_group
from connectors.held_settings import expiring
from connectors.manifest import Manifest
from connectors.object_store import ObjectStore, open_store
from connectors.partition_runs import PartitionRun, PartitionRuns
from connectors.preflight import TopicPlan, preflight
from connectors.read_back import count_back
from connectors.restore_report import (
    RestoredPartition,
    RestoredTopic,
    RestoreReport,
    RestoreState,
    TargetState,
    default_restore_id,
    read_state,
    write_state,
)
from connectors.restored_topics import RestoredSettings
from connectors.resume import ResumingSink
from connectors.settings import Progress, Report, RestoreSettings, matches, quiet
from connectors.topic_facts import ranges
from protocol.client import ClusterClient
from protocol.errors import ProtocolError
from protocol.types import TopicPartition, uuid_from_text
from transfer.kafka.sink import KafkaSink
from transfer.ledger import Lineage, PartitionLedger, ProducerState
from transfer.offset_map import OffsetMap

_log = logging.getLogger("isthmus.connectors")
_GROUPS_AT_ONCE = 16
_LAST_SEQUENCE = 2**31 - 1


async def restore(settings: RestoreSettings, progress: Report = quiet) -> RestoreReport:
    """Restores and verifies. Raises RestoreRefused before anything is written, RestoreError afterwards."""
    async with (
        open_store(settings.store) as store,
        settings.access.client("isthmus-restore") as client,
    ):
        manifest = await catalogue.read_manifest(store, settings.backup_id)
        names = {name: settings.target_topic(name) for name in settings.topics or _all(manifest)}
        restore_id = settings.restore_id or default_restore_id(client.cluster_id or "", names)
        state = await read_state(store, settings.backup_id, restore_id)
        checked = await preflight(client, manifest, settings, state)
        begun = state if state is not None and state.state == "running" else None
        producer = begun.producer if begun is not None else await client.init_producer_id()
        run = _Restore(settings, store, client, manifest, restore_id, (producer[0], producer[1]), progress)
        run.warnings += checked.warnings
        try:
            await run.make_topics(checked.plans, begun.report if begun is not None else None)
            if not run.is_counted:
                await run.copy()
                await run.read_back()
            await run.give_settings()
            return await run.finish(await run.restore_groups())
        except (ConnectorError, ProtocolError) as error:
            raise await run.broke_off(error) from error


def _all(manifest: Manifest) -> tuple[str, ...]:
    return tuple(topic.name for topic in manifest.topics)


@dataclass(slots=True, eq=False)
class _Topic:
    plan: TopicPlan
    state: TargetState
    settings: RestoredSettings


class _Restore:
    def __init__(
        self,
        settings: RestoreSettings,
        store: ObjectStore,
        client: ClusterClient,
        manifest: Manifest,
        restore_id: str,
        producer: tuple[int, int],
        progress: Report,
    ) -> None:
        self._settings = settings
        self._store = store
        self._client = client
        self._manifest = manifest
        self._restore_id = restore_id
        self._producer = producer
        self._progress = progress
        self._started_ms = int(time.time() * 1000)
        self._topics: list[_Topic] = []
        self._runs: dict[TopicPartition, PartitionRun] = {}
        """By the backup's topic and partition."""
        self._found: dict[TopicPartition, int] = {}
        """Records that the target held when this run began, by the target's partition."""
        self._counts: dict[TopicPartition, int] = {}
        self._counted: RestoreReport | None = None
        """Kept once everything was read back: then topics get their settings, and readers and writers."""
        self._done = 0
        self.warnings: list[str] = [held.text(tp, end) for tp, end, held in manifest.held_up()]
        self.problems: list[str] = list(manifest.problems)
        self.resumed = False

    @property
    def is_counted(self) -> bool:
        """Whether an earlier run has read everything back."""
        return self._counted is not None

    async def make_topics(self, plans: tuple[TopicPlan, ...], counted: RestoreReport | None) -> None:
        """State first, so that a topic that appears is known as ours even if we end here. `counted`: of the
        run before, if it came so far; it holds while all of its topics are there."""
        states = {plan.topic.name: plan.existing or _not_made(plan) for plan in plans}
        self.resumed = any(plan.begun for plan in plans)
        self._counted = counted if all(plan.begun for plan in plans) else None
        await self._store_state("running", states)
        for plan in plans:
            state = states[plan.topic.name]
            settings = RestoredSettings(self._client, plan)
            if plan.existing is None:
                topic_id = await settings.create()
                state = states[plan.topic.name] = state.model_copy(update={"topic_id": topic_id})
                await self._store_state("running", states)
            elif self._counted is None:
                await settings.hold()
            self._topics.append(_Topic(plan, state, settings))
        if self._counted is not None:
            self._take_over(self._counted)

    def _take_over(self, counted: RestoreReport) -> None:
        targets = {topic.plan.topic.name: topic.plan.target for topic in self._topics}
        for topic in counted.topics:
            for part in topic.partitions:
                tp = TopicPartition(topic.source, part.partition)
                there = TopicPartition(targets[topic.source], part.partition)
                backed = self._manifest.partition(tp)
                self._runs[tp] = PartitionRun(
                    tp, there, backed.start_offset, backed.end_offset, part.read_ledger()
                )
                self._counts[tp] = part.read_back

    async def _store_state(
        self,
        state: Literal["running", "done"],
        topics: dict[str, TargetState],
        report: RestoreReport | None = None,
        problem: str = "",
    ) -> None:
        held = RestoreState(
            state=state,
            started_ms=self._started_ms,
            target_cluster_id=self._client.cluster_id or "",
            producer=self._producer,
            topics=topics,
            report=report or self._counted,
            problem=problem,
        )
        await write_state(self._store, self._settings.backup_id, self._restore_id, held)

    def _states(self) -> dict[str, TargetState]:
        return {topic.plan.topic.name: topic.state for topic in self._topics}

    async def broke_off(self, error: Exception) -> RestoreError:
        """What to raise: it says what the target is left with, and what to do. Kept in the state as well."""
        text = f"restore of {self._manifest.backup_id} broke off: {error}. {self._left()}"
        if self._topics:
            try:
                await self._store_state("running", self._states(), problem=text)
            except ConnectorError as unstored:
                _log.warning("that the restore broke off is not noted in the store: %s", unstored)
        return RestoreError(text)

    def _left(self) -> str:
        if not self._topics:
            return "The target has no topic of it; the same command begins again"
        if self._counted is not None:
            return (
                f"All {self._counted.records} records are there and were read back; settings of topics and"
                " offsets of groups come when the same command goes on"
            )
        parts = []
        for topic in self._topics:
            plan = topic.plan
            runs = [run for tp, run in self._runs.items() if tp.topic == plan.topic.name]
            held = sum(max(run.ledger.records, self._found.get(run.target, 0)) for run in runs)
            short = [f"{run.target.partition}" for run in runs if run.problem or not run.whole]
            cut = f" (not whole: partition {', '.join(short)})" if short else ""
            parts.append(f"{plan.target} {held} of {plan.topic.records}{cut}")
        return (
            f"Left at the target, where readers see it, records of each topic: {'; '.join(parts)}. They keep "
            "everything (no retention, no compaction), and groups get their offsets, when the same command "
            "has gone on to the end; or delete the topics"
        )

    async def copy(self) -> None:
        """Moves what is not there yet."""
        tps = {
            TopicPartition(topic.plan.topic.name, p.partition): TopicPartition(topic.plan.target, p.partition)
            for topic in self._topics
            for p in topic.plan.topic.partitions
        }
        held = await ranges(self._client, list(tps.values()))
        inner = KafkaSink(self._client)
        sink = ResumingSink(inner, self._client)
        source = BackupSource(
            self._store,
            self._manifest,
            open_partitions=self._settings.partitions_at_once,
            avro_codec=self._settings.compression,
        )
        for topic in self._topics:
            for backed in topic.plan.topic.partitions:
                tp = TopicPartition(topic.plan.topic.name, backed.partition)
                base = topic.state.bases[backed.partition]
                sink.present(tps[tp], base, held[tps[tp]].end)
                self._found[tps[tp]] = held[tps[tp]].end - base
                self._runs[tp] = self._run(topic, tp, tps[tp], base)
        gate = asyncio.Semaphore(self._settings.partitions_at_once)

        async def partition(runs: PartitionRuns, run: PartitionRun) -> None:
            async with gate:
                topic_id = uuid_from_text(run.ledger.target.topic_id)
                there = held[run.target].end - run.ledger.runs.target_start
                await inner.open(run.target, ProducerState(*self._producer, there & _LAST_SEQUENCE), topic_id)
                await runs.run(run)

        self._moved("restore", 0)
        try:
            async with (
                PartitionRuns(
                    source, sink, stall_s=self._settings.stall_s, moved=lambda n: self._moved("restore", n)
                ) as runs,
                asyncio.TaskGroup() as tasks,
            ):
                for run in self._runs.values():
                    tasks.create_task(partition(runs, run))
        except ExceptionGroup as group:
            raise group.exceptions[0] from group
        finally:
            await source.aclose()
            await sink.aclose()
        if broken := [run.problem for run in self._runs.values() if run.problem]:
            raise RestoreError("; ".join(broken))

    def _run(self, topic: _Topic, tp: TopicPartition, target: TopicPartition, base: int) -> PartitionRun:
        backed = self._manifest.partition(tp)
        ledger = PartitionLedger(
            source=backed.read_ledger().source,
            target=Lineage(self._client.cluster_id or "", topic.state.topic_id, *target),
            runs=OffsetMap(backed.start_offset, base),
        )
        return PartitionRun(tp, target, backed.start_offset, backed.end_offset, ledger)

    async def read_back(self) -> None:
        """Counts every partition on the target. Raises RestoreError naming each that differs (I8)."""
        self._done = 0
        wanted = {
            run.target: (run.ledger.runs.target_start, run.ledger.runs.target_end)
            for run in self._runs.values()
        }
        counts = await count_back(
            self._client, wanted, stall_s=self._settings.stall_s, moved=lambda n: self._moved("read back", n)
        )
        self._counts = {tp: counts[run.target] for tp, run in self._runs.items()}
        wrong = [
            f"{run.target.topic}-{run.target.partition} has {self._counts[tp]} records, "
            f"the backup has {self._manifest.partition(tp).records}"
            for tp, run in self._runs.items()
            if self._counts[tp] != self._manifest.partition(tp).records
        ]
        ends = await ranges(self._client, list(wanted))
        wrong += [
            f"{tp.topic}-{tp.partition} ends at {ends[tp].end}, the restored data at {end}: others write it"
            for tp, (_, end) in wanted.items()
            if ends[tp].end != end
        ]
        if wrong:
            raise RestoreError("the restored data does not match: " + "; ".join(wrong))
        self._counted = self._report([])
        await self._store_state("running", self._states())

    async def give_settings(self) -> None:
        for topic in self._topics:
            self.problems += await topic.settings.release()
            self._warn_of_retention(topic)

    def _warn_of_retention(self, topic: _Topic) -> None:
        retention_ms = topic.settings.retention_ms
        if gone := expiring(topic.plan.topic, retention_ms, int(time.time() * 1000)):
            self.warnings.append(
                f"{topic.plan.target}: {gone} records are older than retention.ms={retention_ms} and will be"
                " deleted by the target now that the restore is finished"
            )

    async def restore_groups(self) -> list[RestoredGroup]:
        table = TranslationTable(
            {topic.plan.topic.name: topic.plan.target for topic in self._topics},
            {tp: run.ledger for tp, run in self._runs.items()},
        )
        gate = asyncio.Semaphore(_GROUPS_AT_ONCE)
        wanted = [g for g in self._manifest.groups if matches(g.group, self._settings.groups)]

        async def one(index: int) -> RestoredGroup | None:
            group = wanted[index]
            async with gate:
                target = self._settings.target_group(group.group)
                return await restore_group(self._client, group, target, table)

        restored = await asyncio.gather(*map(one, range(len(wanted))))
        return [group for group in restored if group is not None]

    async def finish(self, groups: list[RestoredGroup]) -> RestoreReport:
        report = self._report(groups)
        await self._store_state("done", self._states(), report)
        _log.info("restore %s of %s: %d records", self._restore_id, report.backup_id, report.records)
        return report

    def _report(self, groups: list[RestoredGroup]) -> RestoreReport:
        return RestoreReport(
            restore_id=self._restore_id,
            backup_id=self._manifest.backup_id,
            target_cluster_id=self._client.cluster_id or "",
            started_ms=self._started_ms,
            finished_ms=int(time.time() * 1000),
            resumed=self.resumed,
            topics=tuple(map(self._restored, self._topics)),
            groups=tuple(groups),
            problems=(*self.problems, *(group.problem for group in groups if group.problem)),
            warnings=tuple(self.warnings),
        )

    def _restored(self, topic: _Topic) -> RestoredTopic:
        tps = [TopicPartition(topic.plan.topic.name, p.partition) for p in topic.plan.topic.partitions]
        return RestoredTopic(
            source=topic.plan.topic.name,
            target=topic.plan.target,
            topic_id=topic.state.topic_id,
            created=topic.state.created,
            replication_factor=topic.plan.replication_factor,
            refused=tuple(topic.settings.refused),
            partitions=tuple(self._restored_partition(tp) for tp in tps),
        )

    def _restored_partition(self, tp: TopicPartition) -> RestoredPartition:
        ledger = self._runs[tp].ledger
        return RestoredPartition(
            partition=tp.partition,
            records=ledger.records,
            bytes=ledger.bytes,
            read_back=self._counts[tp],
            start_offset=ledger.runs.target_start,
            end_offset=ledger.runs.target_end,
            ledger=ledger.to_json(),
        )

    def _moved(self, phase: str, amount: int) -> None:
        self._done += amount
        total = sum(run.end - run.start for run in self._runs.values())
        self._progress(Progress(phase, self._done, total))


def _not_made(plan: TopicPlan) -> TargetState:
    bases = tuple(0 for _ in plan.topic.partitions)
    return TargetState(target=plan.target, topic_id="", created=True, bases=bases)
