"""What a link has copied so far, and what is left: from its ledgers at the target and the source's ends.

Owns the rows that people and machines read, and how each partition stands. A source that is gone or a topic
that was deleted makes the lag of what it concerns unknown, which is not zero, and hides nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from protocol.client import NO_RETRIES
from protocol.types import TopicPartition
from replicator.acknowledgements import Acknowledged, differences_of, open_differences
from replicator.ends import SourceEnd, ends_now
from replicator.latency import added, quantiles
from replicator.latency_series import in_json
from replicator.link_standing import link_standing
from replicator.metric_table import PARTITION_QUANTILES
from replicator.mirror_rows import Mirror
from replicator.progress import ProgressStore
from replicator.settings import LinkSettings
from replicator.workers.control import Desired, changed
from replicator.workers.listening import listened
from replicator.workers.report import WorkerReport, owners
from transfer.ledger import PartitionLedger

CONNECT_S = 3.0
"""To one address of the target."""
_OF_STANDING = ("rate", "lane", "lane_reason", "starts", "reason", "latency", "lag_bytes", "lag_seconds")


@dataclass(frozen=True, slots=True)
class LinkReport:
    """`source_problem` says why not all of the source's ends are known; what is missing has no lag."""

    rows: list[dict[str, Any]]
    differences: int
    """On record and not acknowledged by anybody."""
    source_problem: str = ""
    workers: list[dict[str, Any]] = field(default_factory=list)
    """Processes that run the link, as each last said."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Changed by command, and not as in the link's file."""
    mirrors: dict[str, Any] = field(default_factory=dict)
    """By source topic, of those whose mirror is not their first: the current one and those before it."""
    standing: dict[str, Any] = field(default_factory=dict)
    """The link as a whole (`link_standing`)."""
    groups: dict[str, Any] = field(default_factory=dict)
    """How groups stand at the target, as the worker said that syncs them; empty: none does, or not yet."""
    latencies: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By topic, over all workers: `p50`, `p99`, `max` in seconds, and of how many records (last minutes)."""


async def link_report(settings: LinkSettings) -> LinkReport:
    """Raises ProtocolError when the target cannot be asked."""
    async with settings.target.client("isthmus-cli", connect_timeout_s=CONNECT_S, retry=NO_RETRIES) as client:
        store = ProgressStore(client, settings.progress_topic)
        progress = await store.refresh()
        own = (await client.metadata([settings.progress_topic])).topics.get(settings.progress_topic)
        has_topic = own is not None and not own.error
        ledgers = {tp: entry.ledger for tp, entry in progress.entries().items()}
        ids = {tp: ledger.source.topic_id for tp, ledger in ledgers.items()}
        (ends, problem), workers = await asyncio.gather(
            ends_now(settings.source, ids), listened(store, progress)
        )
    known = store.acknowledged
    owner = owners(workers)
    desired = Desired.read(progress.notes)
    names = settings.names()
    rows = [
        (
            row(tp, ledgers[tp], ends.get(tp), known)
            if tp in ledgers
            else not_begun(tp, names.at_target(tp.topic))
        )
        | at_worker(tp, owner.get(tp))
        | {"paused": desired.paused_because(tp)}
        for tp in sorted(ledgers.keys() | owner.keys())
    ]
    return LinkReport(
        left_out(rows, settings, desired.settings),
        len(open_differences(ledgers, known)),
        problem,
        [one.to_json() for one in workers],
        dict(desired.settings),
        mirrors_json(progress.mirrors),
        link_standing(
            workers,
            settings.name,
            known=has_topic,
            source_problem=problem,
            paused=desired.paused_as_a_whole,
            handed_back_ms=progress.mirrormaker.handed_back_ms if progress.mirrormaker is not None else 0,
        ),
        next((dict(one.groups) for one in workers if one.leads and not one.silent), {}),
        topic_latencies(workers),
    )


def left_out(
    rows: list[dict[str, Any]], settings: LinkSettings, live: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """The rows; those without a worker, of a topic that the filters leave out now, with that as their reason:
    what is behind there is nobody's to copy. `live` are the settings that were changed by command."""
    with contextlib.suppress(ValueError):  # what was changed once does not go with the file of now
        settings = changed(settings, live)
    taken = settings.topic_filter()
    return [
        row if row["worker"] is not None or row["reason"] else row | {"reason": taken.refuses(row["topic"])}
        for row in rows
    ]


def only(report: LinkReport, topic: str, partition: int | None = None) -> LinkReport:
    """What concerns one source topic, or one of its partitions. Differences are those of the rows that are
    left."""
    rows = [row for row in report.rows if row["topic"] == topic and partition in (None, row["partition"])]
    latencies = {name: found for name, found in report.latencies.items() if name == topic}
    open_ones = sum(len(row["gaps"]) + len(row["superseded"]) - len(row["acknowledged"]) for row in rows)
    mirrors = {name: found for name, found in report.mirrors.items() if name == topic}
    return replace(report, rows=rows, latencies=latencies, differences=open_ones, mirrors=mirrors, groups={})


def topic_latencies(workers: Collection[WorkerReport]) -> dict[str, dict[str, Any]]:
    """Percentiles of all records of a topic, whichever worker copied them."""
    parts: dict[str, list[Mapping[int, int]]] = {}
    for worker in workers:
        for topic, counts in worker.latencies.items() if not worker.silent else ():
            parts.setdefault(topic, []).append(counts)
    sums = {topic: added(of) for topic, of in sorted(parts.items())}
    found = {topic: quantiles(counts, PARTITION_QUANTILES) for topic, counts in sums.items()}
    return {
        topic: in_json(values) | {"records": sum(sums[topic].values())}
        for topic, values in found.items()
        if values is not None
    }


def mirrors_json(mirrors: Mapping[str, Mirror]) -> dict[str, Any]:
    """Topics that have had more than one mirror."""
    return {topic: one.to_json() for topic, one in sorted(mirrors.items()) if one.former}


def at_worker(tp: TopicPartition, report: WorkerReport | None) -> dict[str, Any]:
    """Who copies a partition, and how it stands there; None while nobody says so."""
    if report is None:
        return dict.fromkeys(("worker", "at_worker", "lag_at_worker", *_OF_STANDING))
    standing = report.partitions[tp]
    return {
        "worker": report.worker,
        "at_worker": standing.state,
        "lag_at_worker": standing.lag if standing.lag >= 0 else None,
        **{name: getattr(standing, name) for name in _OF_STANDING},
    }


def not_begun(tp: TopicPartition, at_target: str) -> dict[str, Any]:
    """A partition that a worker has, and of which nothing is on record yet."""
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "at_target": at_target,
        "copied": 0,
        "left_out": 0,
        "next_source_offset": None,
        "lag": None,
        "state": "not begun",
        "lost": None,
        "drops": None,
        "runs": 0,
        "gaps": [],
        "acknowledged": [],
        "superseded": [],
        "notes": [],
    }


def row(
    tp: TopicPartition, ledger: PartitionLedger, end: SourceEnd | None, known: Acknowledged | None = None
) -> dict[str, Any]:
    """One partition. `lag` is None while it is unknown; then `state` says why. `lost`: source offsets from,
    to (excluded) that are gone there and neither copied nor on record: a gap once the partition goes on.
    `drops`: records that a mirror with identical offsets lets go of when it goes on."""
    lag = lost = None
    state = end.state if end is not None else "the source does not answer"
    if end is not None and end.offset is not None:
        lag = max(end.offset - ledger.next_source_offset, 0)
        state = "behind" if lag else "copied"
        if end.first is not None and end.first > ledger.next_source_offset:
            lost = (ledger.next_source_offset, end.first)
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "at_target": ledger.target.topic,
        "copied": ledger.records,
        "left_out": ledger.left_out,
        "next_source_offset": ledger.next_source_offset,
        "lag": lag,
        "state": state,
        "lost": lost,
        "drops": None,
        "runs": len(ledger.runs),
        "gaps": [(gap.start, gap.end, gap.reason) for gap in (*ledger.former_gaps, *ledger.gaps)],
        "acknowledged": [
            {"kind": found.kind, "start": found.start, "end": found.end, **asdict(known[found])}
            for found in differences_of(tp, ledger)
            if known is not None and found in known
        ],
        "superseded": [(part.start, part.end, part.reason) for part in ledger.superseded],
        "notes": [note.text for note in ledger.notes],
    }
