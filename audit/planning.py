"""The plan of an audit: every partition pair as a lane, every lane as splits, everything unknown named.

Owns putting the two sides and the ledgers together. A topic that was created again is another lineage, and
records of different lineages are never compared.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from audit.lanes import Ends, Lane, Split, even_cuts, split_lane, with_ledger, without_ledger
from audit.settings import AuditSettings, LinkLedger, RestoreLedger
from audit.sides import SideView, TopicView
from protocol.types import TopicPartition
from replicator.origin import Place
from transfer.ledger import Lineage, PartitionLedger
from transfer.offset_map import OffsetMap, Run

Ledgers = Mapping[TopicPartition, PartitionLedger]


@dataclass(slots=True)
class Plan:
    """What will be compared, and what cannot be."""

    lanes: list[Lane] = field(default_factory=list)
    splits: list[Split] = field(default_factory=list)
    topic_ids: dict[tuple[int, str], str] = field(default_factory=dict)
    """By side and topic: reading stops when another topic takes the name."""
    incomplete: list[str] = field(default_factory=list)
    missing_topics: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


async def make_plan(
    settings: AuditSettings, source: SideView, target: SideView, ledgers: Ledgers | None
) -> Plan:
    """`ledgers` by source partition; None when content decides. Where offsets are the same they only say what
    is missing."""
    plan = Plan()
    sources, targets = await asyncio.gather(
        source.topics({pair.source for pair in settings.topics}),
        target.topics({pair.target for pair in settings.topics}),
    )
    for pair in settings.topics:
        missing = [
            f"{name} does not exist in {side}"
            for side, name, found in (
                (settings.source, pair.source, sources),
                (settings.target, pair.target, targets),
            )
            if name not in found
        ]
        plan.missing_topics += missing
        here, there = sources.get(pair.source), targets.get(pair.target)
        plan.incomplete += [
            f"{name} of {side}: not readable: {found}"
            for side, name, found in (
                (settings.source, pair.source, here),
                (settings.target, pair.target, there),
            )
            if isinstance(found, str)
        ]
        if isinstance(here, TopicView) and isinstance(there, TopicView):
            await _Pair(plan, settings, source, target, here, there, ledgers).plan_lanes()
    return plan


@dataclass(slots=True)
class _Pair:
    """One pair of topics that exist."""

    plan: Plan
    settings: AuditSettings
    source_side: SideView
    target_side: SideView
    source: TopicView
    target: TopicView
    ledgers: Ledgers | None

    async def plan_lanes(self) -> None:
        plan, source, target = self.plan, self.source, self.target
        plan.topic_ids[0, source.name] = source.topic_id
        plan.topic_ids[1, target.name] = target.topic_id
        append_time = source.append_time or target.append_time
        compacted = "compact" in source.cleanup_policy or "compact" in target.cleanup_policy
        if append_time:
            plan.notes.append(f"{target.name}: a side stamps append time, timestamps are not compared")
        if compacted:
            plan.notes.append(f"{target.name}: compacted, records missing on one side are counted apart")
        common = [index for index in source.partitions if index in target.partitions]
        recorded = {tp.partition for tp in self.ledgers or () if tp.topic == source.name}
        if len(common) < len(source.partitions) or await self._surplus(common):
            plan.incomplete.append(
                f"{source.name} has {len(source.partitions)} partitions, "
                f"{target.name} has {len(target.partitions)}: only common ones are compared"
            )
        elif gone := recorded.difference(common):
            plan.incomplete.append(f"{source.name}: partitions {sorted(gone)} are on record and not there")
        for made in await asyncio.gather(*map(self._lane, common)):
            if isinstance(made, str):
                plan.incomplete.append(made)
            else:
                number, times = len(plan.lanes), not append_time
                places = self._places()
                self._add(
                    replace(made, number=number, with_timestamp=times, compacted=compacted, places=places)
                )

    def _add(self, lane: Lane) -> None:
        index, at_most = lane.source.partition, self.settings.split_records
        self.plan.lanes.append(lane)
        self.plan.splits += split_lane(
            lane,
            len(self.plan.splits),
            self.source.cuts.get(index) or even_cuts(lane.source_range, at_most),
            self.target.cuts.get(index) or even_cuts(lane.target_range, at_most),
        )

    async def _surplus(self, common: Collection[int]) -> bool:
        """Whether a partition that only the target has holds anything, or cannot be asked."""
        for index in self.target.partitions:
            if index not in common:
                ends = await self.target_side.ends(TopicPartition(self.target.name, index))
                if isinstance(ends, str) or ends.end:
                    return True
        return False

    async def _lane(self, index: int) -> Lane | str:
        """The lane of one partition, or why it cannot be compared."""
        tp, to = TopicPartition(self.source.name, index), TopicPartition(self.target.name, index)
        same = self.settings.same_offsets
        recorded = self.ledgers.get(tp) if self.ledgers is not None else None
        ledger = None if same else recorded
        if self.ledgers is not None and ledger is None and not same:
            return f"{tp}: there is no ledger of it"
        if ledger is not None and (problem := self._other_lineage(ledger)):
            return f"{tp}: {problem}"
        # The target first: what a link that runs has copied by then, the source has.
        target_ends = await self.target_side.ends(to, ledger.runs.target_end if ledger is not None else 0)
        if isinstance(target_ends, str):
            return f"{to} of {self.settings.target}: not readable: {target_ends}"
        copied = target_ends.end if same else ledger.runs.source_end if ledger is not None else 0
        source_ends = await self.source_side.ends(tp, copied)
        if isinstance(source_ends, str):
            return f"{tp} of {self.settings.source}: not readable: {source_ends}"
        if same:
            ledger = _same(tp, to, source_ends, target_ends, written=self._written)
            if recorded is not None:
                former = bool(_changed(recorded.source, self.source))
                ledger.gaps = [] if former else recorded.gaps
                ledger.former_gaps = [*recorded.former_gaps, *(recorded.gaps if former else ())]
                ledger.notes = recorded.notes
        if ledger is None:
            return without_ledger(0, tp, to, source_ends, target_ends)
        return with_ledger(0, to, ledger, source_ends, target_ends, written=self._written)

    @property
    def _written(self) -> bool:
        """Whether the target may have records of its own behind the copy: what was restored is there to be
        written, and so is a mirror that is none any more."""
        of = self.settings.alignment
        if isinstance(of, LinkLedger):
            return of.identical and not self.target.is_mirror
        return isinstance(of, RestoreLedger)

    def _places(self) -> tuple[str, str]:
        """See `Lane.places`."""
        of = self.settings.alignment
        if not isinstance(of, LinkLedger) or of.origins == "none":
            return "", ""
        there = str(Place(self.target_side.cluster_id, self.target.name)) if of.origins == "others" else ""
        return there, str(Place(self.source_side.cluster_id, self.source.name))

    def _other_lineage(self, ledger: PartitionLedger) -> str:
        return _changed(ledger.source, self.source) or _changed(ledger.target, self.target)


def _changed(recorded: Lineage, topic: TopicView) -> str:
    if not recorded.topic_id or not topic.topic_id or recorded.topic_id == topic.topic_id:
        return ""
    return (
        f"{topic.name} was created again: its id is {topic.topic_id}, the ledger is about {recorded.topic_id}"
    )


def _same(
    source: TopicPartition, target: TopicPartition, source_ends: Ends, target_ends: Ends, *, written: bool
) -> PartitionLedger:
    """The ledger of two sides that number records alike: one run, up to the target's end, or the end that
    both have if the target is `written` by others too."""
    start = min(source_ends.start, target_ends.start)
    end = min(source_ends.end, target_ends.end) if written else target_ends.end
    runs = OffsetMap(start, start)
    if end > start:
        runs.append(Run(start, start, end - start))
    return PartitionLedger(Lineage("", "", *source), Lineage("", "", *target), runs)
