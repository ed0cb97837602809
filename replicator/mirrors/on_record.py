"""What a link's mirrors lack, on record for ever: gaps, and stretches that were cut off; and which mirrors
were deleted and made again.

Owns writing and reading them, in the link's progress topic: they outlive restarts, a link that rests, and
mirrors that are promoted or deleted, until somebody acknowledges them (I7). Earlier versions kept the last
20 gaps of a partition with `standing`; those are read, and taken over.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

from protocol.client import ClusterClient
from protocol.types import TopicPartition, uuid_to_text
from replicator.acknowledgements import Acknowledged, Difference, Kind, open_among
from replicator.difference_rows import key_of, topic_id_of
from replicator.discovery import Wanted
from replicator.mirror_rows import Mirror, in_place
from replicator.mirrors.lineage import MirrorSource
from replicator.mirrors.partition import MirrorPartition
from replicator.mirrors.standing import gaps_of_before
from replicator.progress import Progress, ProgressStore
from replicator.settings import LinkSettings, progress_topic
from transfer.ledger import Gap, Lineage, Note, PartitionLedger
from transfer.offset_map import OffsetMap


class OnRecord:
    """Of one link, as last read. `has_read`: whether anything is known at all."""

    def __init__(self, target: ClusterClient, settings: LinkSettings) -> None:
        self.store = ProgressStore(target, settings.progress_topic, settings.internal_replication_factor)
        self.has_read = False
        self._taken = settings.topic_filter()
        self._stops = settings.on_gap == "stop"

    async def read(self) -> None:
        """What is new, acknowledgements too. Raises ProtocolError."""
        await self.store.refresh()
        self.has_read = True

    async def note(self, part: MirrorPartition, kind: Kind, start: int, end: int, reason: str) -> bool:
        """Returns once it is on record, and whether the mirror may go on behind it. Of a gap that is there
        already in part only the rest is new. Raises ProtocolError."""
        await self.store.load()
        if kind is Kind.GAP:
            start = max([start, *(gap.end for gap in self._gaps_from(part, start))])
        if start < end:
            found = Difference(part.tp, kind, start, end, reason, time.time_ns() // 1_000_000)
            await self.store.save_differences([(found, part.topic_id)])
        return kind is not Kind.GAP or self.lets_pass(part)

    def lets_pass(self, part: MirrorPartition) -> bool:
        """Whether the mirror may go on behind the gap at its end (`on_gap`), as last read. Who acknowledges
        its beginning knows what is dropped: what has gone at the source since then is only on record."""
        gaps = self._gaps_from(part, part.end)
        return not self._stops or (bool(gaps) and gaps[0] in self.store.acknowledged)

    def _gaps_from(self, part: MirrorPartition, start: int) -> list[Difference]:
        """Those on record that begin there, and where one of them ends."""
        rows = self.store.progress.of_mirror(part.tp).items()
        by_start: dict[int, Difference] = {}
        for key, gap in sorted(rows, key=lambda row: row[1].end):
            if gap.kind is Kind.GAP and key == key_of(gap, part.topic_id):
                by_start[gap.start] = gap  # the longest
        found: list[Difference] = []
        while (gap_here := by_start.get(start)) is not None:
            found.append(gap_here)
            start = gap_here.end
        return found

    async def take_over(
        self, gaps: Mapping[TopicPartition, list[Difference]], texts: Mapping[TopicPartition, str]
    ) -> None:
        """Puts gaps that an earlier version kept elsewhere on record; `texts` say whose mirrors they are of.
        Raises ProtocolError."""
        if not any(gaps.values()):
            return
        await self.store.load()
        await self.store.save_differences(
            (gap, topic_id)
            for tp, of in gaps.items()
            if (source := MirrorSource.read(texts[tp])) is not None
            for topic_id in [source.topic_id]
            for gap in of
            if key_of(gap, topic_id) not in self.store.progress.of_mirror(tp)
        )

    async def note_mirrors(self, topics: Mapping[str, Wanted]) -> list[str]:
        """Puts on record which topics are the mirrors, and says which have taken the place of one that
        somebody deleted. Raises ProtocolError."""
        known, now_ms = self.store.progress.mirrors, time.time_ns() // 1_000_000
        rows = {
            name: row
            for name, one in topics.items()
            if one.target is not None
            for ids in [(uuid_to_text(one.source.topic_id), uuid_to_text(one.target.topic_id))]
            if (row := in_place(known.get(name), name, *ids, now_ms)) is not None
        }
        again = [name for name in rows if name in known]
        if rows:
            await self.store.load()
            await self.store.save_mirrors(rows)
            await self.store.refresh()
        return again

    def of(self, tp: TopicPartition) -> list[Difference]:
        """All of one partition, acknowledged or not."""
        return list(self.store.progress.of_mirror(tp).values())

    def open(self) -> list[Difference]:
        """What nobody has acknowledged, of topics that the link is told to copy, mirrors or not by now."""
        found = open_among(self.store.progress.of_mirrors(), self.store.acknowledged)
        return [each for each in found if self._taken.accepts(each.tp.topic)]


async def open_now(
    target: ClusterClient, settings: LinkSettings, topics: Collection[str] = ()
) -> list[Difference]:
    """As `OnRecord.open`, whether the link runs or not; of `topics` alone if any are named. Raises
    ProtocolError."""
    found = open_among(*await _all(target, settings.name))
    taken = settings.topic_filter()
    return sorted(
        each for each in found if (each.tp.topic in topics if topics else taken.accepts(each.tp.topic))
    )


async def former_mirrors(target: ClusterClient, settings: LinkSettings) -> dict[str, Mirror]:
    """By topic, of mirrors that were deleted and made again. Raises ProtocolError."""
    mirrors = (await ProgressStore(target, settings.progress_topic).refresh()).mirrors
    return {name: one for name, one in mirrors.items() if one.former}


async def open_ever(target: ClusterClient, settings: LinkSettings) -> list[Difference]:
    """Also of topics that the link is not told to copy any more. Raises ProtocolError."""
    return sorted(open_among(*await _all(target, settings.name)))


async def read_lacks(target: ClusterClient, link: str) -> dict[TopicPartition, PartitionLedger]:
    """What mirrors lack, as ledgers tell it, of partitions that lack something; what was cut off is a note.
    They are of the source's topic that is on record last, and gaps of others with its name are former ones.
    Raises ProtocolError."""
    progress, before = await _read(target, link)
    ids = {
        difference: topic_id_of(key)
        for tp in {each.tp for each in progress.of_mirrors()}
        for key, difference in progress.of_mirror(tp).items()
    }
    return lacks_of(dict.fromkeys(before, "") | ids)


def lacks_of(ids: Mapping[Difference, str]) -> dict[TopicPartition, PartitionLedger]:
    """As `read_lacks`; what is on record, and the id of the source's topic (empty: not known)."""
    found: dict[TopicPartition, PartitionLedger] = {}
    last = {each.tp: topic_id for each, topic_id in sorted(ids.items(), key=lambda row: row[0].at_ms)}
    for each, topic_id in ids.items():
        tp, kind, start, end, reason, at_ms = each
        here = Lineage("", last[tp], *tp)
        ledger = found.setdefault(tp, PartitionLedger(here, here, OffsetMap(0, 0)))
        if kind is Kind.GAP:
            gaps = ledger.gaps if topic_id == last[tp] else ledger.former_gaps
            gaps.append(Gap(start, end, reason, at_ms))
        else:
            ledger.notes.append(Note(f"offsets {start} to {end}: {reason}", at_ms))
    return found


async def _all(target: ClusterClient, link: str) -> tuple[list[Difference], Acknowledged]:
    """What is on record, also by earlier versions, and what of it is acknowledged."""
    progress, before = await _read(target, link)
    return list(dict.fromkeys([*progress.of_mirrors(), *before])), progress.acknowledged


async def _read(target: ClusterClient, link: str) -> tuple[Progress, list[Difference]]:
    """The rows, and gaps that an earlier version kept elsewhere."""
    source, _, alias = link.partition("->")
    progress = await ProgressStore(target, progress_topic(source, alias)).refresh()
    return progress, [gap for gaps in (await gaps_of_before(target, link)).values() for gap in gaps]
