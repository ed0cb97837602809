"""Running an audit: look, plan, compare, look again at what does not agree, and say what was found.

Owns the order of things and the judgement that follows from counts: what may have expired, what compaction
explains, what is still on its way. Incomplete reading ends as incomplete, whatever else was found.
"""

from __future__ import annotations

import asyncio
import pickle
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any

from audit.classify import Classified, classify
from audit.compare import LaneTally, load, read_notes, suspects, tally
from audit.errors import AuditError
from audit.lanes import Lane
from audit.planning import Ledgers, Plan, make_plan
from audit.result import AuditResult, Counts, Difference, DifferenceClass, PartitionResult
from audit.session import spark_session
from audit.settings import AuditSettings, ClusterSide, LinkLedger, RestoreLedger
from audit.sides import BackupView, ClusterView, SideView
from audit.source import Job
from connectors import catalogue
from connectors.errors import ConnectorError
from connectors.object_store import open_store
from connectors.restore_report import read_report
from protocol.client import NO_RETRIES
from protocol.errors import ProtocolError
from replicator.mirrors.on_record import read_lacks
from replicator.progress import read_ledgers

_TASKS_PER_CORE = 3
_TASK_OFFSETS = 2_000_000
_AT_BOTH = (DifferenceClass.REORDERED, DifferenceClass.MISALIGNED, DifferenceClass.CORRUPT)


def run_audit(settings: AuditSettings, spark: Any = None) -> AuditResult:
    """Blocks until the audit is done. `spark` is a session of `audit.session`, by default a new one.

    Raises AuditError when a side or the ledger cannot be looked at at all, or Spark does not start or fails.
    """
    phases: dict[str, float] = {}
    with _phase(phases, "plan"):
        plan = asyncio.run(_plan(settings))
    job = Job(
        pickle.dumps((settings.source, settings.target)),
        tuple(plan.splits),
        plan.topic_ids,
        settings.ignore_headers,
        settings.stall_s,
        tasks=0,
    )
    tallies: dict[int, LaneTally] = {}
    classified = Classified()
    if plan.splits:
        with _phase(phases, "start spark"):
            opened = nullcontext(spark) if spark is not None else spark_session(settings.spark)
            session = opened.__enter__()
        try:
            job = replace(job, tasks=_tasks(plan, session.sparkContext.defaultParallelism))
            with _phase(phases, "compare"):
                recorded = _only(job, [lane for lane in plan.lanes if lane.runs is not None])
                tallies = tally(session, _compared(recorded))
            again = suspects(plan.lanes, tallies)
            if again:
                with _phase(phases, "classify"):
                    twice = _only(job, again)
                    classified = classify(session, load(session, twice), again, settings.examples)
                second = read_notes(classified.notes, twice.splits)
                for lane in again:
                    _settle(lane, tallies, second.get(lane.number, LaneTally()), classified)
        except Exception as error:
            if (said := _of_spark(error)) is None:
                raise
            raise AuditError(f"Spark failed, nothing is known of what it had begun: {said}") from error
        finally:
            with _phase(phases, "stop spark"):
                opened.__exit__(None, None, None)
    return _result(settings, plan, tallies, classified, phases)


def _of_spark(error: Exception) -> str | None:
    """What an error of the engine says in its first line; None for one that is not its own."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    if not isinstance(error, Py4JError | PySparkException):
        return None
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _tasks(plan: Plan, parallelism: int) -> int:
    """Enough to keep every core busy to the end, and as many as large ranges need."""
    offsets = sum(split.end - split.start for split in plan.splits)
    return max(_TASKS_PER_CORE * parallelism, -(-offsets // _TASK_OFFSETS))


def _only(job: Job, lanes: list[Lane]) -> Job:
    numbers = {lane.number for lane in lanes}
    return replace(job, splits=tuple(split for split in job.splits if split.lane in numbers))


def _compared(job: Job) -> Job:
    """Without what lies behind the cuts, which only the second pass asks about."""
    return replace(job, splits=tuple(split for split in job.splits if not split.behind))


def _settle(lane: Lane, tallies: dict[int, LaneTally], second: LaneTally, classified: Classified) -> None:
    """What is known of a lane after the second pass, which must have judged each record that the first has
    not matched: they were read twice, and a log may change in between."""
    if lane.runs is None:
        tallies[lane.number] = second
    found = tallies[lane.number]
    judged = Counter[DifferenceClass]()
    for (number, kind, *_), count in classified.counts.items():
        if number == lane.number:
            judged[kind] += count
    found.problems += second.problems if found is not second else []
    both = sum(judged[kind] for kind in _AT_BOTH)
    sources = found.matched + both + judged[DifferenceClass.LOST]
    targets = found.matched + both + judged[DifferenceClass.DUPLICATE] + judged[DifferenceClass.FOREIGN]
    if not found.problems and (sources, targets) != (found.sources, found.targets):
        found.problems.append(
            f"{lane.source} or {lane.target} has changed while it was read: {found.sources} and"
            f" {found.targets} records the first time, {sources} and {targets} the second; audit it again"
        )


async def _plan(settings: AuditSettings) -> Plan:
    try:
        async with AsyncExitStack() as stack:
            source = await stack.enter_async_context(_view(settings.source, settings.settle_s))
            target = await stack.enter_async_context(_view(settings.target, settings.settle_s))
            return await make_plan(settings, source, target, await _ledgers(settings))
    except (ProtocolError, ConnectorError) as error:
        raise AuditError(f"the audit cannot begin: {error}") from error


@asynccontextmanager
async def _view(side: Any, settle_s: float) -> AsyncIterator[SideView]:
    if isinstance(side, ClusterSide):
        async with side.access.client("isthmus-audit", first_contact=NO_RETRIES) as client:
            yield ClusterView(client, settle_s)
    else:
        async with open_store(side.store) as store:
            yield BackupView(await catalogue.read_manifest(store, side.backup_id))


async def _ledgers(settings: AuditSettings) -> Ledgers | None:
    alignment = settings.alignment
    if isinstance(alignment, LinkLedger):
        async with alignment.access.client("isthmus-audit", first_contact=NO_RETRIES) as client:
            read = read_lacks if alignment.identical else read_ledgers
            return await read(client, f"{alignment.source_alias}->{alignment.target_alias}")
    if isinstance(alignment, RestoreLedger):
        async with open_store(alignment.store) as store:
            report = await read_report(store, alignment.backup_id, alignment.restore_id)
            return report.ledgers()
    return None


@contextmanager
def _phase(phases: dict[str, float], name: str) -> Iterator[None]:
    began = time.monotonic()
    try:
        yield
    finally:
        phases[name] = round(phases.get(name, 0.0) + time.monotonic() - began, 3)


def _result(
    settings: AuditSettings,
    plan: Plan,
    tallies: dict[int, LaneTally],
    classified: Classified,
    phases: dict[str, float],
) -> AuditResult:
    partitions = tuple(
        _partition(settings, lane, tallies.get(lane.number, LaneTally()), classified) for lane in plan.lanes
    )
    whole = {lane.number for lane, made in zip(plan.lanes, partitions, strict=True) if made.complete}
    totals = Counts()
    for partition in partitions:
        totals += partition.counts
    return AuditResult(
        source=str(settings.source),
        target=str(settings.target),
        alignment=settings.alignment.kind,
        totals=totals,
        partitions=partitions,
        differences=tuple(
            Difference(
                kind=example.kind,
                source_topic=plan.lanes[example.lane].source.topic,
                target_topic=plan.lanes[example.lane].target.topic,
                partition=plan.lanes[example.lane].source.partition,
                source_offset=example.source_offset,
                target_offset=example.target_offset,
                timestamp=example.timestamp,
            )
            for example in classified.examples
            if example.lane in whole
        ),
        incomplete=(*plan.incomplete, *(made.problem for made in partitions if not made.complete)),
        missing_topics=tuple(plan.missing_topics),
        tolerated=settings.tolerate,
        notes=(*plan.notes, *(note for lane in plan.lanes for note in lane.notes)),
        phases=phases,
    )


def _partition(
    settings: AuditSettings, lane: Lane, found: LaneTally, classified: Classified
) -> PartitionResult:
    complete = not found.problems
    return PartitionResult(
        source_topic=lane.source.topic,
        target_topic=lane.target.topic,
        partition=lane.source.partition,
        source_range=(lane.source_range.start, lane.source_range.end),
        target_range=(lane.target_range.start, lane.target_range.end),
        counts=_counts(settings, lane, found, classified) if complete else Counts(),
        complete=complete,
        problem="; ".join(dict.fromkeys(found.problems)),
        notes=lane.notes,
    )


def _counts(settings: AuditSettings, lane: Lane, found: LaneTally, classified: Classified) -> Counts:
    numbers: Counter[str] = Counter()
    for (number, kind, at_head, at_tail, removable), count in classified.counts.items():
        if number == lane.number:
            numbers["compacted" if removable else _judge(settings, lane, kind, at_head, at_tail)] += count
    pending = numbers.pop("pending", 0)
    matched = found.matched
    if lane.runs is None:  # without a ledger a record found in order is simply found
        matched = numbers.pop(DifferenceClass.MISALIGNED.value, 0)
    return Counts(
        compared=found.sources,
        matched=matched,
        divergent=lane.divergent + found.superseded,
        expired_source=lane.expired_source + numbers.pop("expired_source", 0),
        expired_target=lane.expired_target + numbers.pop("expired_target", 0),
        gap_records=found.gap_records,
        left_out=found.left_out,
        gap_offsets=lane.gap_offsets,
        gap_expired=lane.gap_expired,
        gaps_unknown=lane.gaps_unknown,
        pending_source=lane.pending_source + pending,
        pending_target=lane.pending_target,
        **numbers,
    )


def _judge(settings: AuditSettings, lane: Lane, kind: DifferenceClass, at_head: bool, at_tail: bool) -> str:
    """The count that a difference goes into, once what else explains it is taken into account."""
    if lane.runs is not None:
        return kind.value
    if at_head and kind is DifferenceClass.LOST and lane.target_trimmed:
        return "expired_target"
    if at_head and kind in (DifferenceClass.FOREIGN, DifferenceClass.DUPLICATE) and lane.source_trimmed:
        return "expired_source"
    if at_tail and kind is DifferenceClass.LOST and settings.tail_in_flight:
        return "pending"
    return kind.value
