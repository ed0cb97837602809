"""Ad-hoc copies: a link that nobody declared, known by its two clusters, that can end by itself.

Owns what such a link is told and where it is to arrive. How far it is says `copy_watch`; the copying is a
link's own (`worker`), so a second start goes on where the first one ended: progress is in the target cluster,
under the source's cluster id or under a name. One copy at a time runs under a name.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry

from protocol.client import NO_RETRIES, ClusterClient
from protocol.types import TopicPartition, uuid_to_text
from replicator.connected import LinkStatus
from replicator.copy_watch import CopyProgress, CopyResult, Watch
from replicator.discovery import Found, Wanted
from replicator.drift import found_now
from replicator.ends import log_starts, readable_ends
from replicator.newcomers import filled_from_there, name_clashes, records_of_others
from replicator.progress import Progress, ProgressStore
from replicator.renaming import Rename
from replicator.settings import TOPICS_EXCLUDE, ClusterEnd, LinkSettings
from replicator.worker import run_link

_LOOK_S = 0.2
_CONNECT_S = 5.0
_TRIES = 6
"""For ends of partitions, over three seconds."""


class CopyError(Exception):
    """The copy cannot be begun; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class CopyRequest:
    """What to copy. Addresses are `host:port,…`; properties are Kafka's client settings for security."""

    source: str
    target: str
    topics: tuple[str, ...]
    exclude: tuple[str, ...] = ()
    rename: tuple[Rename, ...] = ()
    start: str = "earliest"
    until_now: bool = False
    append: bool = False
    name: str = ""
    replication_factor: int = -1
    source_properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    target_properties: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class CopyTopic:
    """A topic to copy, and how many source offsets it holds now."""

    topic: str
    at_target: str
    partitions: int
    exists: bool
    offsets: int
    records_there: int = 0
    """Offsets that the topic at the target holds of which no copy under this name has progress."""


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """Settings of the link, its topics, and the readable (committed) ends at this moment."""

    settings: LinkSettings
    topics: tuple[CopyTopic, ...]
    ends: Mapping[TopicPartition, int]
    not_copied: Mapping[str, str]
    stored: Mapping[TopicPartition, tuple[int, int, int]]
    """What earlier copies had done: next source offset, records, bytes."""
    topic_ids: Mapping[str, str]
    """Of the source's topics."""
    back: Mapping[str, str]
    """Topics that are filled from where they are to be copied to (`filled_from_there`)."""
    silent: Mapping[TopicPartition, str]
    """Partitions of which nobody knows now where they end, and why: a copy until now cannot arrive there."""
    idle: tuple[str, ...] = ()
    """What of the request concerns no topic that is there now."""

    def to_json(self) -> dict[str, Any]:
        """For machines."""
        return {
            "progress_topic": self.settings.progress_topic,
            "topics": [
                {
                    "topic": one.topic,
                    "at_target": one.at_target,
                    "partitions": one.partitions,
                    "exists": one.exists,
                    "offsets": one.offsets,
                    "records_there": one.records_there,
                }
                for one in self.topics
            ],
            "topics_not_copied": dict(self.not_copied),
        }


async def plan_copy(request: CopyRequest) -> CopyPlan:
    """Asks both clusters. Raises CopyError, ProtocolError and (wrong settings) ValueError."""
    here = ClusterEnd(alias="source", bootstrap=request.source, properties=request.source_properties)
    there = ClusterEnd(alias="target", bootstrap=request.target, properties=request.target_properties)
    options = {"connect_timeout_s": _CONNECT_S, "retry": NO_RETRIES}
    async with (
        here.client("isthmus-copy", **options) as source,
        there.client("isthmus-copy", **options) as target,
    ):
        settings = _settings(request, source.cluster_id or "", target.cluster_id or "")
        found = await found_now(source, target, settings)
        idle = tuple(_idle(request, found))
        if not found.wanted:
            raise CopyError(f"no topic of {request.source} is to be copied: {'; '.join(idle)}")
        names = [(name, wanted.target_name) for name, wanted in found.wanted.items()]
        same = source.cluster_id == target.cluster_id
        for _, why in name_clashes(names, same_cluster=same, settings=settings):
            raise CopyError(why)
        if idle and request.until_now:  # a slip of the pen would leave topics out, or put them elsewhere
            some = ", ".join(sorted(found.wanted)[:5])
            raise CopyError(f"{'; '.join(idle)} (to be copied: {some}): correct it or leave it out")
        spots = [
            TopicPartition(name, number)
            for name, wanted in found.wanted.items()
            for number in wanted.source.partitions
        ]
        first, ends, silent = await _ranges(source, spots)
        progress = await ProgressStore(target, settings.progress_topic).refresh()
        _check_source(progress, found.wanted, request, source.cluster_id or "")
        stored = _stored(progress, found.wanted, spots)
        known = {tp.topic for tp in stored}
        strange = await records_of_others(
            target, {name: one for name, one in found.wanted.items() if name not in known}
        )
        back = await filled_from_there(source, target, found.wanted)
    offsets = Counter[str]()
    for tp in spots:
        offsets[tp.topic] += ends.get(tp, 0) - first.get(tp, ends.get(tp, 0))
    topics = tuple(
        CopyTopic(
            name,
            wanted.target_name,
            len(wanted.source.partitions),
            wanted.target is not None,
            offsets[name],
            strange.get(name, 0),
        )
        for name, wanted in sorted(found.wanted.items())
    )
    topic_ids = {name: uuid_to_text(one.source.topic_id) for name, one in found.wanted.items()}
    return CopyPlan(settings, topics, ends, found.refused, stored, topic_ids, back, silent, idle)


def refuse_strange(plan: CopyPlan) -> None:
    """A topic that holds records already would get all of the source's behind them, and one that the source's
    is filled from its own records again. Raises CopyError."""
    ends = not plan.settings.refresh_topics
    if plan.back and not (ends and plan.settings.appends):
        some = ", ".join(f"{topic} ({progress})" for topic, progress in sorted(plan.back.items()))
        raise CopyError(
            f"a link or copy fills topics from those that they would be copied into: {some}, in brackets its"
            " progress topic. Their records would come back to where they were produced, and go round for"
            " ever while both run; to bring them back once, say --append --until-now"
        )
    if plan.settings.appends:
        return
    strange = [f"{one.at_target} ({one.records_there:,})" for one in plan.topics if one.records_there]
    if strange:
        raise CopyError(
            f"the target holds records already in {', '.join(strange)}, and progress of no copy between these"
            " topics: to write behind what is there, say --append; to copy elsewhere, --rename; if a copy"
            " with --name wrote them, say that name"
        )


def _check_source(
    progress: Progress, wanted: Mapping[str, Wanted], request: CopyRequest, source_id: str
) -> None:
    others = {
        entry.ledger.source.cluster_id
        for tp, entry in progress.entries().items()
        if tp.topic in wanted and entry.ledger.source.cluster_id != source_id
    }
    if others:
        raise CopyError(
            f"--name {request.name} has copied these topics from another cluster"
            f" ({', '.join(sorted(others))}): give this copy another --name"
        )


def _stored(
    progress: Progress, wanted: Mapping[str, Wanted], spots: Sequence[TopicPartition]
) -> dict[TopicPartition, tuple[int, int, int]]:
    """Counts go on only between the same two topics: for another one, or a new one, they begin at nothing."""
    stored = {}
    for tp in spots:
        one = wanted[tp.topic]
        entry = progress.into(tp, one.target_name)
        if entry is None or one.target is None:
            continue
        ledger = entry.ledger
        ids = (uuid_to_text(one.source.topic_id), uuid_to_text(one.target.topic_id))
        if (ledger.source.topic_id, ledger.target.topic_id) == ids:
            stored[tp] = (ledger.next_source_offset, ledger.records, ledger.bytes)
    return stored


def _settings(request: CopyRequest, source_id: str, target_id: str) -> LinkSettings:
    return LinkSettings.model_validate(
        {
            "source": {
                "alias": f"copy-{_alias(request.name or source_id)}",
                "bootstrap": request.source,
                "properties": request.source_properties,
            },
            "target": {
                "alias": _alias(target_id) or "target",
                "bootstrap": request.target,
                "properties": request.target_properties,
            },
            "topics": request.topics,
            "topics_exclude": (*TOPICS_EXCLUDE, *request.exclude),
            "groups": (),
            "naming": "identity",
            "rename": request.rename,
            "start": request.start,
            "replication_factor": request.replication_factor,
            "refresh_topics": not request.until_now,
            "widens": True,
            "appends": request.append,
            "shared": False,
            "sync_topic_acls": False,
            "sync_group_offsets": False,
            "emit_checkpoints": False,
            "emit_offset_syncs": False,
            "emit_heartbeats": False,
            "heartbeats_replication": False,
        }
    )


def _alias(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "-", text)


def _idle(request: CopyRequest, found: Found) -> Iterator[str]:
    """What of the request concerns no topic, and why if something matches it all the same."""
    for pattern in request.topics:
        if not any(re.fullmatch(pattern, name) for name in found.wanted):
            refused = [name for name in sorted(found.refused) if re.fullmatch(pattern, name)]
            why = "; ".join(f"{name}: {found.refused[name]}" for name in refused[:5])
            yield f"--topics {pattern} matches no topic" + (f" that can be copied ({why})" if why else "")
    for rule in request.rename:
        if not any(map(rule.concerns, found.wanted)):
            yield f"--rename {rule} concerns no topic that is to be copied"


async def _ranges(
    source: ClusterClient, spots: Sequence[TopicPartition]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int], dict[TopicPartition, str]]:
    """First offsets, committed ends, and why some partitions tell none: those keep no others from being
    copied. An election is waited for."""
    for number in range(_TRIES):
        first, _ = await log_starts(source, spots)
        ends, refused = await readable_ends(source, spots)
        if not refused:
            break
        await asyncio.sleep(_LOOK_S * number)
    return first, ends, {tp: f"the source does not say where it ends: {e}" for tp, e in refused.items()}


async def run_copy(
    plan: CopyPlan,
    stop: asyncio.Event,
    *,
    until_now: bool,
    show: Callable[[CopyProgress], None],
    registry: CollectorRegistry | None = None,
) -> CopyResult:
    """Copies until `stop`, or with `until_now` until everything that `plan` saw is copied."""
    status = LinkStatus(plan.settings.name)
    ended = asyncio.Event()
    running = asyncio.create_task(run_link(plan.settings, ended, registry or CollectorRegistry(), status))
    watch = Watch(plan.ends, plan.stored, plan.topic_ids, status, plan.silent)
    stopping = asyncio.create_task(stop.wait())
    try:
        while not (running.done() or stopping.done() or (until_now and watch.done())):
            await asyncio.wait({running, stopping}, timeout=_LOOK_S, return_when=asyncio.FIRST_COMPLETED)
            show(watch.look())
    finally:
        ended.set()
        stopping.cancel()
        await asyncio.gather(stopping, return_exceptions=True)
        code = await running
    return watch.result(code, until_now=until_now)
