"""`links status` of mirrors: the same rows as of other links, from the mirrors' logs and the source's ends.

Owns those rows. There is no ledger: what a mirror has is what its log holds, and what it lacks is on record
(`on_record`). Whoever asks about links of both kinds asks `report_of`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from protocol.client import NO_RETRIES, ClusterClient, Isolation
from protocol.client.mirror_calls import MirrorStand
from protocol.errors import KafkaError
from protocol.types import TopicPartition
from replicator.acknowledgements import Acknowledged, Difference, Kind, open_among
from replicator.ends import SourceEnd, ends_now
from replicator.link_report import (
    CONNECT_S,
    LinkReport,
    at_worker,
    link_report,
    mirrors_json,
    not_begun,
    topic_latencies,
)
from replicator.link_standing import link_standing
from replicator.mirrors.assessing import SwitchRefused, find_mirrors
from replicator.mirrors.lineage import MirrorSource
from replicator.mirrors.partition import State
from replicator.mirrors.standing import gaps_of_before
from replicator.piecemeal import piecemeal
from replicator.progress import Progress, ProgressStore
from replicator.settings import LinkSettings
from replicator.workers.listening import listened
from replicator.workers.report import WorkerReport, owners

Stands = dict[TopicPartition, MirrorStand | KafkaError]


async def report_of(settings: LinkSettings) -> LinkReport:
    """Of a link of either kind. Raises ProtocolError when the target cannot be asked."""
    return await (mirror_report if settings.offsets == "identical" else link_report)(settings)


async def mirror_report(settings: LinkSettings) -> LinkReport:
    """Raises ProtocolError when the target cannot be asked."""
    async with settings.target.client("isthmus-cli", connect_timeout_s=CONNECT_S, retry=NO_RETRIES) as target:
        store = ProgressStore(target, settings.progress_topic)
        progress = await store.refresh()
        own = (await target.metadata([settings.progress_topic])).topics.get(settings.progress_topic)
        mirrors = await _mirrors(target, settings)
        stands = await _stands(target, mirrors)
        on_record = await _on_record(target, settings, progress)
        ids = {tp: mirrors[tp.topic].topic_id for tp in stands}
        (ends, problem), workers = await asyncio.gather(
            # Mirrors hold what no reader of committed records may see yet.
            ends_now(settings.source, ids, isolation=Isolation.READ_UNCOMMITTED),
            listened(store, progress),
        )
    owner = owners(workers)
    known = progress.acknowledged
    rows = [
        (
            mirror_row(tp, stands[tp], ends.get(tp), on_record.get(tp, ()), known)
            if tp in stands
            else not_begun(tp, tp.topic)
        )
        | _at_worker(tp, owner.get(tp), workers)
        | {"paused": ""}
        for tp in sorted(stands.keys() | owner.keys())
    ]
    return LinkReport(
        rows,
        len(_open(settings, on_record, known)),
        problem,
        [one.to_json() for one in workers],
        standing=link_standing(
            workers, settings.name, known=own is not None and not own.error, source_problem=problem
        ),
        mirrors=mirrors_json(progress.mirrors),
        latencies=topic_latencies(workers),
    )


def _at_worker(
    tp: TopicPartition, owner: WorkerReport | None, workers: Iterable[WorkerReport]
) -> dict[str, Any]:
    """Of a topic that is not mirrored now a process knows no partitions, and why."""
    row = at_worker(tp, owner)
    if owner is None:
        for one in workers:
            if not one.silent and tp.topic in one.problems:
                return row | {
                    "worker": one.worker,
                    "at_worker": State.STOPPED.value,
                    "reason": one.problems[tp.topic],
                }
    return row


async def _mirrors(target: ClusterClient, settings: LinkSettings) -> Mapping[str, MirrorSource]:
    try:
        return await find_mirrors(target, settings)
    except SwitchRefused:  # there is none, or none any more
        return {}


async def _stands(target: ClusterClient, mirrors: Mapping[str, MirrorSource]) -> Stands:
    """How each partition stands, or why its leader does not say so."""
    topics = (await target.metadata(list(mirrors))).topics if mirrors else {}
    tps = [TopicPartition(name, index) for name in mirrors for index in topics[name].partitions]

    async def ask(part: list[TopicPartition]) -> Mapping[TopicPartition, MirrorStand]:
        return await target.mirror_stands({tp: mirrors[tp.topic].text for tp in part}, retry=NO_RETRIES)

    found, refused = await piecemeal(ask, tps)
    return {**found, **refused}


async def _on_record(
    target: ClusterClient, settings: LinkSettings, progress: Progress
) -> dict[TopicPartition, list[Difference]]:
    """What mirrors lack, also of those that are gone."""
    before = await gaps_of_before(target, settings.name)
    found: dict[TopicPartition, list[Difference]] = {}
    for each in dict.fromkeys([*progress.of_mirrors(), *(gap for gaps in before.values() for gap in gaps)]):
        found.setdefault(each.tp, []).append(each)
    return found


def _open(
    settings: LinkSettings, on_record: Mapping[TopicPartition, list[Difference]], known: Acknowledged
) -> list[Difference]:
    taken = settings.topic_filter()
    found = open_among((each for of in on_record.values() for each in of), known)
    return [each for each in found if taken.accepts(each.tp.topic)]


def mirror_row(
    tp: TopicPartition,
    stand: MirrorStand | KafkaError,
    end: SourceEnd | None,
    lacks: Iterable[Difference],
    known: Acknowledged,
) -> dict[str, Any]:
    """One partition, as `link_report.row` tells of others: offsets are the same on both sides. What its
    in-sync replicas do not all have yet counts as lag."""
    row = not_begun(tp, tp.topic) | {"runs": 1, **_lacks(lacks, known)}
    if isinstance(stand, KafkaError):
        return row | {"state": f"the target says {stand.code.name}"}
    lag = lost = drops = None
    state = end.state if end is not None else "the source does not answer"
    if end is not None and end.offset is not None:
        lag = max(end.offset - stand.high_watermark, 0)
        state = "behind" if lag else "copied"
        if end.first is not None and end.first > stand.end > 0:  # a new mirror begins where its source does
            noted = _noted_to(stand.end, row["gaps"])
            lost = (noted, end.first) if noted < end.first else None
            drops = stand.end - stand.start
    return row | {
        "copied": stand.high_watermark - stand.start,
        "next_source_offset": stand.end,
        "lag": lag,
        "state": state,
        "lost": lost,
        "drops": drops,
    }


def _noted_to(start: int, gaps: Iterable[tuple[int, int, str]]) -> int:
    """Up to where gaps are on record that begin there: the mirror waits before them (`on_gap: stop`)."""
    for begin, end, _ in sorted(gaps):
        if begin <= start < end:
            start = end
    return start


def _lacks(lacks: Iterable[Difference], known: Acknowledged) -> dict[str, Any]:
    found = list(lacks)

    def stretches(kind: Kind) -> list[tuple[int, int, str]]:
        return [(each.start, each.end, each.reason) for each in found if each.kind is kind]

    return {
        "gaps": stretches(Kind.GAP),
        "superseded": stretches(Kind.SUPERSEDED),
        "acknowledged": [
            {"kind": each.kind, "start": each.start, "end": each.end, **asdict(known[each])}
            for each in found
            if each in known
        ],
    }
