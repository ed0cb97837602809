"""Ad-hoc copies: a link that nobody declared, known by its two clusters, that can end by itself.

Owns what such a link is told, where it is to arrive, and how far it is. The copying is a link's own
(`worker`), so a second start goes on where the first one ended: progress is in the target cluster, under the
source's cluster id or under a name. One copy at a time runs under a name.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry

from protocol.client import EARLIEST, LATEST, NO_RETRIES, ClusterClient, Isolation
from protocol.types import TopicPartition, uuid_to_text
from replicator.book import Account, State
from replicator.discovery import Wanted
from replicator.drift import found_now
from replicator.progress import Progress, ProgressStore
from replicator.renaming import Rename, wrong_name
from replicator.settings import TOPICS_EXCLUDE, ClusterEnd, LinkSettings
from replicator.worker import EXIT_DIFFERENCES, EXIT_FAILED, Link, LinkStatus, run_link

_LOOK_S = 0.2
_CONNECT_S = 5.0
_GIVE_UP_TOPIC_S = 15.0
"""A topic that cannot be made at the target keeps a copy that is to end waiting no longer than this."""


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
    idle_rules: tuple[str, ...] = ()
    """Of --rename, those that concern no topic that is there now; one that is copied once has none."""

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


@dataclass(frozen=True, slots=True)
class CopyProgress:
    """How far a copy is. `total` counts source offsets up to where it is to arrive (or to today's end)."""

    records: int
    bytes: int
    offsets: int
    total: int
    seconds: float
    bytes_per_second: float

    @property
    def seconds_left(self) -> float | None:
        """None while nothing can be said."""
        if self.offsets <= 0 or self.total <= 0 or self.seconds <= 0:
            return None
        return max(self.total - self.offsets, 0) * self.seconds / self.offsets


@dataclass(slots=True)
class CopyResult:
    """`left` names what was not copied, and why; `code` is the exit code."""

    code: int
    progress: CopyProgress
    left: dict[str, str] = field(default_factory=dict)
    gaps: dict[str, list[str]] = field(default_factory=dict)
    arrived: bool = True


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
        if not found.wanted:
            raise CopyError(f"no topic of {request.source} is to be copied: {_why(request, found.refused)}")
        names = {name: wanted.target_name for name, wanted in found.wanted.items()}
        _check_names(names, same_cluster=source.cluster_id == target.cluster_id, settings=settings)
        idle = tuple(str(rule) for rule in request.rename if not any(map(rule.concerns, names)))
        if idle and request.until_now:  # a slip of the pen would put a topic where nobody wants it
            some = ", ".join(sorted(names)[:5])
            raise CopyError(
                f"--rename {' '.join(idle)} concerns no topic that is to be copied ({some}):"
                " correct it or leave it out"
            )
        spots = [
            TopicPartition(name, number)
            for name, wanted in found.wanted.items()
            for number in wanted.source.partitions
        ]
        first, ends = await _ranges(source, spots)
        progress = await ProgressStore(target, settings.progress_topic).refresh()
        stored = _stored(progress, found.wanted, spots)
        strange = await _strange(target, found.wanted, {tp.topic for tp in stored})
    topics = tuple(
        CopyTopic(
            name,
            wanted.target_name,
            len(wanted.source.partitions),
            wanted.target is not None,
            sum(ends[tp] - first[tp] for tp in spots if tp.topic == name),
            strange.get(name, 0),
        )
        for name, wanted in sorted(found.wanted.items())
    )
    return CopyPlan(settings, topics, ends, found.refused, stored, idle)


def refuse_strange(plan: CopyPlan) -> None:
    """A topic that holds records already would get all of the source's behind them. Raises CopyError."""
    strange = [f"{one.at_target} ({one.records_there:,})" for one in plan.topics if one.records_there]
    if strange:
        raise CopyError(
            f"the target holds records already in {', '.join(strange)}, and progress of no copy between these"
            " topics: to write behind what is there, say --append; to copy elsewhere, --rename; if a copy"
            " with --name wrote them, say that name"
        )


async def _strange(
    target: ClusterClient, wanted: Mapping[str, Wanted], known: Collection[str]
) -> dict[str, int]:
    there = {
        TopicPartition(one.target.name, number): name
        for name, one in wanted.items()
        if one.target is not None and name not in known
        for number in one.target.partitions
    }
    first, last = await _ranges(target, list(there)) if there else ({}, {})
    found: Counter[str] = Counter()
    for tp, name in there.items():
        found[name] += last[tp] - first[tp]
    return found


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


def _why(request: CopyRequest, refused: Mapping[str, str]) -> str:
    reasons = [f"{topic}: {reason}" for topic, reason in sorted(refused.items())][:5]
    return f"--topics {','.join(request.topics)}" + (
        f" ({'; '.join(reasons)})" if reasons else ", it has none"
    )


def _check_names(names: Mapping[str, str], *, same_cluster: bool, settings: LinkSettings) -> None:
    by_target: dict[str, str] = {}
    for topic, there in names.items():
        if wrong := wrong_name(there):
            raise CopyError(f"{topic} cannot be copied with this --rename: {wrong}")
        if there in by_target:
            raise CopyError(f"{by_target[there]} and {topic} would both be called {there}: change --rename")
        by_target[there] = topic
    if same_cluster:
        taken = settings.topic_filter()
        for topic, there in names.items():
            if there == topic:
                raise CopyError(f"--from and --to are one cluster: {topic} needs another name, say --rename")
            if taken.refuses(there) is None:
                raise CopyError(
                    f"{there}, the copy of {topic} in the same cluster, is among --topics itself and would be"
                    f" copied again and again: choose a name that they do not match, or --exclude '{there}'"
                )


async def _ranges(
    source: ClusterClient, spots: Sequence[TopicPartition]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    first = await source.list_offsets(dict.fromkeys(spots, EARLIEST))
    last = await source.list_offsets(dict.fromkeys(spots, LATEST), isolation=Isolation.READ_COMMITTED)
    return (
        {tp: found.offset for tp, found in first.items()},
        {tp: found.offset for tp, found in last.items()},
    )


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
    watch = _Watch(plan, status)
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
    return _result(watch, code, until_now=until_now)


def _result(watch: _Watch, code: int, *, until_now: bool) -> CopyResult:
    left = watch.left() if until_now else {}
    arrived = not until_now or watch.done()
    if until_now and code != EXIT_FAILED:
        code = EXIT_FAILED if not arrived else EXIT_DIFFERENCES if left else code
    return CopyResult(code, watch.look(), left, watch.gaps(), arrived)


class _Watch:
    """Reads a running copy's accounts."""

    def __init__(self, plan: CopyPlan, status: LinkStatus) -> None:
        self._ends = plan.ends
        self._status = status
        self._begun = dict(plan.stored)
        self._started = time.monotonic()
        self._last = (self._started, 0)
        self._speed = 0.0
        self._stuck_since: dict[str, float] = {}

    @property
    def _link(self) -> Link | None:
        return self._status.link

    def _accounts(self) -> Mapping[TopicPartition, Account]:
        return self._link.accounts if self._link is not None else {}

    def look(self) -> CopyProgress:
        """How far it is now."""
        records = size = offsets = total = 0
        for tp, account in self._accounts().items():
            if account.entry is None:
                continue
            ledger = account.entry.ledger
            begun = self._begun.setdefault(tp, (ledger.runs.source_start, 0, 0))
            records += max(ledger.records - begun[1], 0)
            size += max(ledger.bytes - begun[2], 0)
            end = max(self._ends.get(tp, 0), begun[0])
            offsets += max(min(ledger.next_source_offset, end) - begun[0], 0)
            total += end - begun[0]
        now = time.monotonic()
        before, bytes_before = self._last
        if now - before >= 1.0:
            self._speed = (size - bytes_before) / (now - before)
            self._last = (now, size)
        passed = now - self._started
        return CopyProgress(records, size, offsets, total, passed, self._speed or size / max(passed, 0.001))

    def done(self) -> bool:
        """Whether everything is copied that can be."""
        stuck = self.left()
        return all(self._arrived(tp) or str(tp) in stuck for tp in self._ends)

    def _arrived(self, tp: TopicPartition) -> bool:
        account = self._accounts().get(tp)
        return (
            account is not None
            and account.entry is not None
            and account.entry.ledger.next_source_offset >= self._ends[tp]
        )

    def left(self) -> dict[str, str]:
        """Partitions that stand still for a reason that waiting does not cure, and the reason."""
        found: dict[str, str] = {}
        problems = self._link.topic_problems if self._link is not None else {}
        now = time.monotonic()
        for topic in problems.keys() - self._stuck_since.keys():
            self._stuck_since[topic] = now
        for topic in self._stuck_since.keys() - problems.keys():
            del self._stuck_since[topic]
        for tp in self._ends:
            account = self._accounts().get(tp)
            if account is not None and account.state in (State.REFUSED, State.GONE):
                found[str(tp)] = account.reason or account.state.value
            elif account is None or account.entry is None:
                stuck = now - self._stuck_since.get(tp.topic, now) > _GIVE_UP_TOPIC_S
                found |= {str(tp): problems[tp.topic]} if stuck else {}
        return found

    def gaps(self) -> dict[str, list[str]]:
        """By partition."""
        return {
            str(tp): [str(gap) for gap in account.entry.ledger.gaps]
            for tp, account in self._accounts().items()
            if account.entry is not None and account.entry.ledger.gaps
        }
