"""What a link has copied so far, and what is left: from its ledgers at the target and the source's ends.

Owns the rows that people and machines read, and how each partition stands. A source that is gone or a topic
that was deleted makes the lag of what it concerns unknown, which is not zero, and hides nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from protocol.client import LATEST, NO_RETRIES, ClusterClient, Isolation
from protocol.errors import ErrorCode, KafkaError, ProtocolError
from protocol.types import ZERO_UUID, TopicPartition, uuid_to_text
from replicator.acknowledgements import Acknowledged, differences_of, open_differences
from replicator.mirror_rows import Mirror
from replicator.piecemeal import piecemeal
from replicator.progress import ProgressStore
from replicator.settings import LinkSettings
from replicator.workers.control import Desired
from replicator.workers.report import WorkerReport, owners, reports
from transfer.ledger import PartitionLedger

_CONNECT_S = 3.0
_SOURCE_S = 20.0


@dataclass(frozen=True, slots=True)
class SourceEnd:
    """Where a partition can be read up to (committed); None and the reason while that is not known."""

    offset: int | None
    state: str = ""


@dataclass(frozen=True, slots=True)
class LinkReport:
    """`source_problem` says why nothing is known of the source; then no row has a lag."""

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


async def link_report(settings: LinkSettings) -> LinkReport:
    """Raises ProtocolError when the target cannot be asked."""
    async with settings.target.client(
        "isthmus-cli", connect_timeout_s=_CONNECT_S, retry=NO_RETRIES
    ) as client:
        store = ProgressStore(client, settings.progress_topic)
        progress = await store.refresh()
        ledgers = {tp: entry.ledger for tp, entry in progress.entries().items()}
    problem = ""
    ends: Mapping[TopicPartition, SourceEnd] = {}
    try:
        async with (
            asyncio.timeout(_SOURCE_S),
            settings.source.client("isthmus-cli", connect_timeout_s=_CONNECT_S, retry=NO_RETRIES) as client,
        ):
            ends = await source_ends(client, ledgers)
    except (ProtocolError, TimeoutError) as error:
        problem = str(error) or "no answer in time"
    known = store.acknowledged
    workers = reports(progress.notes)
    owner = owners(workers)
    desired = Desired.read(progress.notes)
    rows = [
        row(tp, ledger, ends.get(tp), known)
        | at_worker(tp, owner.get(tp))
        | {"paused": desired.paused_because(tp)}
        for tp, ledger in sorted(ledgers.items())
    ]
    return LinkReport(
        rows,
        len(open_differences(ledgers, known)),
        problem,
        [one.to_json() for one in workers],
        dict(desired.settings),
        mirrors_json(progress.mirrors),
    )


def mirrors_json(mirrors: Mapping[str, Mirror]) -> dict[str, Any]:
    """Topics that have had more than one mirror."""
    return {topic: one.to_json() for topic, one in sorted(mirrors.items()) if one.former}


def at_worker(tp: TopicPartition, report: WorkerReport | None) -> dict[str, Any]:
    """Who copies a partition, and how it stands there; None while nobody says so."""
    if report is None:
        return dict.fromkeys(("worker", "at_worker", "rate", "lane", "starts", "reason"))
    standing = report.partitions[tp]
    return {
        "worker": report.worker,
        "at_worker": standing.state,
        "rate": standing.rate,
        "lane": standing.lane,
        "starts": standing.starts,
        "reason": standing.reason,
    }


async def source_ends(
    client: ClusterClient, ledgers: Mapping[TopicPartition, PartitionLedger]
) -> dict[TopicPartition, SourceEnd]:
    """The end of each partition that the ledgers tell of, and of no other topic with its name."""
    topics = (await client.metadata({tp.topic for tp in ledgers})).topics if ledgers else {}
    found: dict[TopicPartition, SourceEnd] = {}
    there: list[TopicPartition] = []
    for tp, ledger in ledgers.items():
        topic = topics.get(tp.topic)
        if topic is None or topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            found[tp] = SourceEnd(None, "deleted at the source")
        elif topic.error:
            found[tp] = SourceEnd(None, f"the source says {topic.error.name}")
        elif topic.topic_id != ZERO_UUID and uuid_to_text(topic.topic_id) != ledger.source.topic_id:
            found[tp] = SourceEnd(None, "created again at the source, not copied yet")
        else:
            there.append(tp)
    offsets, refused = await readable_ends(client, there)
    found |= {tp: SourceEnd(offset) for tp, offset in offsets.items()}
    return found | {tp: SourceEnd(None, f"the source says {e.code.name}") for tp, e in refused.items()}


async def readable_ends(
    client: ClusterClient, tps: Collection[TopicPartition]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, KafkaError]]:
    """Offsets behind the last committed record, and why some partitions have none now."""

    async def ask(part: list[TopicPartition]) -> dict[TopicPartition, int]:
        spots = dict.fromkeys(part, LATEST)
        listed = await client.list_offsets(spots, isolation=Isolation.READ_COMMITTED, retry=NO_RETRIES)
        return {tp: at.offset for tp, at in listed.items()}

    return await piecemeal(ask, tps)


def row(
    tp: TopicPartition, ledger: PartitionLedger, end: SourceEnd | None, known: Acknowledged | None = None
) -> dict[str, Any]:
    """One partition. `lag` is None while it is unknown; then `state` says why."""
    lag = None
    state = end.state if end is not None else "the source does not answer"
    if end is not None and end.offset is not None:
        lag = max(end.offset - ledger.next_source_offset, 0)
        state = "behind" if lag else "copied"
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "at_target": ledger.target.topic,
        "copied": ledger.records,
        "left_out": ledger.left_out,
        "next_source_offset": ledger.next_source_offset,
        "lag": lag,
        "state": state,
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
