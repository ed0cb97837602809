"""Where a partition's copying begins: from its stored progress, or anew.

Owns the check that progress still belongs to the data on both sides (cluster ids, topic ids, log ranges),
and what to do when it does not: never a silent hole, never copying again what is there already. `begin` is
pure; `Opener` asks the clusters and has the target's tail matched (`target_tails`).
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from dataclasses import dataclass, field, replace

from protocol.client import EARLIEST, LATEST, ClientError, ClusterClient, Isolation
from protocol.client.metadata import Leader
from protocol.errors import ProtocolError
from protocol.types import TopicPartition
from replicator.entry_rows import Entry
from replicator.link_rows import First
from replicator.metrics import LinkMetrics
from replicator.origin import Origin
from replicator.own_transactions import OwnTransactions
from replicator.target_history import TargetHistory
from replicator.target_tails import TargetTails
from transfer.ledger import (
    ALL_COPIED,
    NOT_TOLD,
    NOTHING_MISSING,
    TARGET_LOST,
    Gap,
    Lineage,
    Note,
    PartitionLedger,
    gaps_before,
    same_topic,
)
from transfer.offset_map import OffsetMap

_log = logging.getLogger("isthmus.replicator")

SOURCE_RECREATED, TARGET_RECREATED = "source topic re-created", "target topic re-created"
"""How the reasons of gaps about this begin."""


@dataclass(frozen=True, slots=True)
class Ranges:
    """Log ranges now: the source's readable (committed) one, and the target's end."""

    source_first: int
    source_end: int
    target_end: int
    kept: int = sys.maxsize
    """Up to where the target's log is the one that was written."""


@dataclass(slots=True)
class Beginning:
    """An entry to go on with, and the gaps that were found (they are in its ledger)."""

    entry: Entry
    gaps: list[Gap] = field(default_factory=list)
    source_end: int = -1
    """The readable end of the source at this moment."""


def begin(
    entry: Entry | None,
    source: Lineage,
    target: Lineage,
    ranges: Ranges,
    *,
    start_at: First | None,
    seen_end: int = -1,
    told: bool = False,
) -> Beginning:
    """Decides from stored progress (`entry`) and today's lineages and ranges.

    `start_at` is where a partition without progress begins that was there at the link's first start. None: it
    was born later, and all of it is wanted from offset 0 on. `seen_end` is the end
    of the source as it was last read in this run of the link; -1: it was not. `told`: a topic that was
    created again is a gap even when nothing is missing, so that somebody has to acknowledge it.

    Raises ClientError while `start_at` is not known yet.
    """
    now_ms = time.time_ns() // 1_000_000
    if entry is None:
        return _first_begun(source, target, ranges, start_at, now_ms)
    source, target = _with_ids(entry, source, target)
    old = entry.ledger
    if old.source != source:
        return _created_again(old, source, target, ranges, seen_end, now_ms, told=told)
    if old.target != target:
        return _filled_again(old, source, target, ranges, now_ms, told=told)
    kept = min(ranges.kept, ranges.target_end)
    if kept < old.runs.target_end:
        # The target lost acknowledged records; the source still has them, unless retention passed.
        _log.warning(
            "%s does not have what it acknowledged from offset %d up to %d: it is copied again",
            *(_tp(target), kept, old.runs.target_end),
        )
        old.target_ends(kept, TARGET_LOST, now_ms)
        entry.goes_back()
        return Beginning(replace(entry, producer=None))
    return Beginning(entry)


def _first_begun(
    source: Lineage, target: Lineage, ranges: Ranges, first: First | None, now_ms: int
) -> Beginning:
    """A partition of which nothing was copied yet: what it held when the link took it in is wanted too."""
    _check_known(source, first)
    former: list[Gap] = []
    wanted = 0 if first is None else first.offset
    if first is not None and not same_topic(first.topic_id, source.topic_id):
        reason = f"{SOURCE_RECREATED} (was {first.topic_id}) before it was copied; what it held is not known"
        former.append(Gap(max(wanted, 0), max(wanted, 0), reason, now_ms))
        wanted = 0
    start = max(ranges.source_first, wanted)
    made = PartitionLedger(source, target, OffsetMap(start, ranges.target_end), former_gaps=former)
    if start > wanted >= 0:
        made.gaps.append(Gap(wanted, start, "retention passed before the first read", now_ms))
    return Beginning(Entry(made), [*former, *made.gaps])


def _check_known(source: Lineage, first: First | None) -> None:
    if first is not None and first.waits(source.topic_id):
        error = ClientError(
            f"{_tp(source)} had no leader that answered when the link began at the latest records: it waits"
            " for one that tells where it ended then"
        )
        error.to_do = "bring back a broker of the source that has this partition"
        raise error


def _with_ids(entry: Entry, source: Lineage, target: Lineage) -> tuple[Lineage, Lineage]:
    """Lineages of today as far as they are known: a broker that tells no topic ids (while a cluster is being
    upgraded) takes back none, and one that is told for the first time is noted."""
    old = entry.ledger
    if _told_first(old.source, source) or _told_first(old.target, target):
        entry.sealed = 0  # slices have the ids in their keys
    old.source, source = _same_ids(old.source, source)
    old.target, target = _same_ids(old.target, target)
    return source, target


def _same(before: Lineage, now: Lineage) -> bool:
    """Whether both may be one, as far as ids are told."""
    return before._replace(topic_id="") == now._replace(topic_id="") and same_topic(
        before.topic_id, now.topic_id
    )


def _told_first(before: Lineage, now: Lineage) -> bool:
    return before.topic_id == NOT_TOLD and before != now == before._replace(topic_id=now.topic_id)


def _same_ids(before: Lineage, now: Lineage) -> tuple[Lineage, Lineage]:
    if _told_first(before, now):
        return now, now
    return (before, before) if _told_first(now, before) else (before, now)


def _filled_again(
    old: PartitionLedger, source: Lineage, target: Lineage, ranges: Ranges, now_ms: int, *, told: bool
) -> Beginning:
    """A new target topic gets everything that the source still has, and so does one of another name."""
    why = TARGET_RECREATED
    if old.target.topic != target.topic:
        why = f"the target topic was {old.target.topic} before"
    first = old.runs.source_start
    start = max(ranges.source_first, first)
    made = PartitionLedger(source, target, OffsetMap(start, ranges.target_end), notes=list(old.notes))
    made.former_gaps = list(old.former_gaps)
    made.gaps, again = gaps_before(old.gaps, start)
    made.notes += [Note(f"{gap} was read again: {why}", now_ms) for gap in again]
    if start == first:
        if told and why == TARGET_RECREATED:
            return _with_gap(Entry(made), Gap(start, start, f"{why}; {NOTHING_MISSING}", now_ms))
        return Beginning(Entry(made))
    made.gaps = [gap for gap in made.gaps if gap.start < first]  # those behind are in the new one
    made.gaps.append(Gap(first, start, f"{why}; gone at the source", now_ms))
    return Beginning(Entry(made), made.gaps[-1:])


def _created_again(
    old: PartitionLedger,
    source: Lineage,
    target: Lineage,
    ranges: Ranges,
    seen_end: int,
    now_ms: int,
    *,
    told: bool,
) -> Beginning:
    """Another lineage: all of it is copied. A link that had read the old one to its end has missed nothing of
    it; one that was down meanwhile cannot tell, so its gap is open at the end."""
    made = PartitionLedger(source, target, OffsetMap(ranges.source_first, ranges.target_end))
    made.former_gaps = [*old.former_gaps, *old.gaps]
    made.superseded = list(old.superseded) if old.target == target else []
    made.notes = list(old.notes)
    position = old.next_source_offset
    reason = f"{SOURCE_RECREATED} (was {old.source.topic_id} in cluster {old.source.cluster_id})"
    if 0 <= seen_end <= position:
        made.notes.append(Note(f"{reason}; {ALL_COPIED}, up to {position}", now_ms))
        if not told:
            return Beginning(Entry(made))
        reason += f"; {ALL_COPIED}"
    if seen_end < 0:
        reason += "; what it held behind the start of the gap is not known"
    gap = Gap(position, max(position, seen_end), reason, now_ms)
    made.former_gaps.append(gap)
    return Beginning(Entry(made), [gap])


def _with_gap(entry: Entry, gap: Gap) -> Beginning:
    entry.ledger.gaps.append(gap)
    return Beginning(entry, [gap])


class Opener:
    """Asks both clusters, then decides with `begin`, then matches the tail."""

    def __init__(
        self,
        source: ClusterClient,
        target: ClusterClient,
        metrics: LinkMetrics,
        origin: Origin | None = None,
        *,
        told: bool = False,
        own: OwnTransactions | None = None,
    ) -> None:
        """`told`: see `begin`; `own`: see `TargetHistory`."""
        self._told = told
        self._history = TargetHistory(source, target, origin, own)
        self._tails = TargetTails(source, target, metrics, origin)
        self._source = source
        self._target = target

    async def open(
        self,
        entry: Entry | None,
        source: Lineage,
        target: Lineage,
        *,
        start_at: First | None,
        seen_end: int = -1,
    ) -> Beginning:
        """The entry to go on with. Raises ProtocolError when a cluster cannot be asked now, or when the
        target's leader changes meanwhile: what was read of two logs says nothing of either."""
        if entry is None:
            _check_known(source, start_at)
        leader = await self._target.leader(_tp(target))  # before anything is read there
        ranges = await self._ranges(_tp(source), _tp(target))
        readable = ranges.source_first, ranges.source_end
        if entry is not None and _same(entry.ledger.source, source) and _same(entry.ledger.target, target):
            kept = await self._history.kept(entry, leader, ranges.target_end, readable)
            if not await self._leads_still(leader, _tp(target)):
                raise ClientError(f"{_tp(target)}: another broker leads it at the target since it was asked")
            ranges = replace(ranges, kept=kept.end)
            if kept.doubted >= 0:
                entry.in_doubt(kept.doubted, leader.epoch)
        beginning = begin(
            entry, source, target, ranges, start_at=start_at, seen_end=seen_end, told=self._told
        )
        beginning.source_end = ranges.source_end
        if entry is not None and entry.ledger.target.topic != target.topic:
            _say_renamed(entry.ledger.target.topic, target, ranges)
        beginning.gaps += await self._tails.match(beginning.entry, ranges.target_end, readable)
        if await self._leads_still(leader, _tp(target)):  # else the next one is asked before it is written to
            beginning.entry.led_by(leader.epoch)
        return beginning

    async def _leads_still(self, leader: Leader, tp: TopicPartition) -> bool:
        """As far as is known: whoever is asked and does not lead says so."""
        try:
            return await self._target.leader(tp) == leader
        except ProtocolError:
            return False

    async def _ranges(self, source: TopicPartition, target: TopicPartition) -> Ranges:
        async def of_source() -> tuple[int, int]:
            """The start first: it may move up to what is the end now."""
            first = await self._source.offset(source, EARLIEST)
            last = await self._source.offset(source, LATEST, isolation=Isolation.READ_COMMITTED)
            return first.offset, last.offset

        (first, last), end = await asyncio.gather(of_source(), self._target.offset(target, LATEST))
        return Ranges(first, last, end.offset)


def _say_renamed(before: str, target: Lineage, ranges: Ranges) -> None:
    """A link that has no progress in the new topic copies all of it, behind whatever stands there."""
    if ranges.target_end:
        _log.warning(
            "%s-%d holds records up to offset %d that this link has no progress of (its copy was called %s"
            " before): all of the source is copied behind them; delete the topic first if they are the same",
            *(target.topic, target.partition, ranges.target_end, before),
        )
    else:
        _log.info("%s-%d is filled anew, it was called %s before", target.topic, target.partition, before)


def _tp(lineage: Lineage) -> TopicPartition:
    return TopicPartition(lineage.topic, lineage.partition)
