"""Going on where MirrorMaker 2 stopped: its progress, its offset syncs, and what it wrote after them.

Owns reading them and making ledger entries before the link's first start (`returning`: before later ones).
MirrorMaker 2 stores its progress once a minute, so a killed one has copied more than it knows; its records
behind the last offset sync are compared with the source's, and copying goes on behind the last one that is
there. What it had copied before is in the ledger by its syncs, so groups can be translated at once. Changes
nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from protocol.client import EARLIEST, LATEST, ClusterClient
from protocol.counted import counted
from protocol.errors import ErrorCode, KafkaError, ProtocolError
from protocol.types import TopicPartition, uuid_to_text
from replicator.discovery import Wanted
from replicator.entry_rows import Entry
from replicator.layouts import LayoutError, OffsetSync
from replicator.mirrormaker.connect_offsets import (
    ConnectOffsets,
    NotToldError,
    left_progress,
    read_offsets,
)
from replicator.mirrormaker.connect_status import not_at_rest
from replicator.mirrormaker.history import Copy, CopyMatcher, Pair, chain, history
from replicator.mirrormaker.reading import committed
from replicator.settings import LinkSettings, TakeOver
from transfer.ledger import Lineage, Note, PartitionLedger
from transfer.offset_map import OffsetMap, Run

_log = logging.getLogger("isthmus.replicator")


class StillRunningError(ProtocolError):
    """MirrorMaker 2's workers are members of their group: two copiers would write everything twice."""

    to_do = "stop it: this link goes on where it stopped (a killed worker counts as one for ten seconds)"

    def __init__(self, told: TakeOver, members: int, why: str = "") -> None:
        count = counted(members, "member")
        what = f"group {told.group} has {count} at the target"
        if why:
            what += f"; {why}"
            self.to_do = (
                f"stop or delete {told.connector}, or its workers: this link goes on where it stopped"
            )
        super().__init__(f"MirrorMaker 2 still copies ({what})")


class NoProgressError(ProtocolError):
    """MirrorMaker 2 has copied, and where it keeps its progress nothing is: all would be copied twice."""

    def __init__(self, told: TakeOver, syncs: str, tp: TopicPartition) -> None:
        super().__init__(
            f"MirrorMaker 2 has copied {tp.topic} (by {syncs}), and {told.offsets_topic}, where its progress"
            " should be, is not at the target"
        )
        self.to_do = (
            "name the right topic in the file; where Connect keeps it at another cluster, stop the connectors"
            f" and make an empty topic {told.offsets_topic} here: the link goes on by the offset syncs then."
            f" To copy everything again, delete {syncs}"
        )


@dataclass(slots=True)
class Known:
    """What MirrorMaker 2 left behind."""

    offsets: ConnectOffsets
    pairs: dict[TopicPartition, list[Pair]] = field(default_factory=dict)
    """The offset syncs of each partition."""

    def partitions(self) -> list[TopicPartition]:
        """All that it has copied, without those whose progress somebody took back."""
        return sorted((self.offsets.positions.keys() | self.pairs.keys()) - self.offsets.forgotten)


@dataclass(slots=True)
class Taken:
    """Entries to store, and the next source offsets of MirrorMaker 2's progress that led to them."""

    entries: list[Entry] = field(default_factory=list)
    positions: dict[TopicPartition, int] = field(default_factory=dict)


async def take_over(
    source: ClusterClient, target: ClusterClient, settings: LinkSettings, wanted: Mapping[str, Wanted]
) -> Taken:
    """Of the partitions that MirrorMaker 2 has copied; nothing if it never ran.

    Raises StillRunningError, NotToldError, NoProgressError, and ProtocolError when a cluster cannot be asked
    now.
    """
    told = settings.take_over
    if told is None:
        return Taken()
    if await left_progress(target, told.offsets_topic) is None:
        await must_not_have_copied(source, target, settings, told, wanted)
        return Taken()
    await must_be_idle(target, told)
    known = await read_known(source, target, settings, told)
    taken = Taken(positions=known.offsets.positions)
    for tp in known.partitions():
        topic = wanted.get(tp.topic)
        if topic is not None and topic.target is not None and tp.partition in topic.target.partitions:
            taker = Taker(source, target, tp, topic)
            entry = await taker.entry(known.offsets.positions.get(tp), known.pairs.get(tp, []))
            taken.entries += [entry] if entry is not None else []
    _log.info("%s: %s taken over from MirrorMaker 2", settings.name, counted(len(taken.entries), "partition"))
    return taken


async def must_not_have_copied(
    source: ClusterClient,
    target: ClusterClient,
    settings: LinkSettings,
    told: TakeOver,
    wanted: Mapping[str, Wanted],
) -> None:
    """For a link that has not begun, without MirrorMaker 2's progress: raises NoProgressError where offset
    syncs tell of copies in topics that are there."""
    mirrored = {name for name, topic in wanted.items() if topic.target is not None}
    if not mirrored:
        return
    known = Known(ConnectOffsets(told.partitions))
    try:
        syncs = await _read_syncs(source, target, settings, known)
    except KafkaError as error:
        if error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return  # who never ran MirrorMaker 2 may have no right to a topic that is not there
        raise
    for tp in known.partitions():
        if tp.topic in mirrored:
            raise NoProgressError(told, syncs, tp)


async def must_be_idle(target: ClusterClient, told: TakeOver) -> None:
    """Raises StillRunningError, and NotToldError where the group may not be seen."""
    try:
        group = (await target.describe_groups([told.group])).get(told.group)
    except KafkaError as error:
        if error.code is ErrorCode.GROUP_AUTHORIZATION_FAILED:
            raise NotToldError(told.group, error.code) from None
        raise
    members = len(group.members) if group is not None else 0
    if not members:
        return
    why = await not_at_rest(target, told)
    if why is not None:
        raise StillRunningError(told, members, why)


async def read_known(
    source: ClusterClient, target: ClusterClient, settings: LinkSettings, told: TakeOver
) -> Known:
    """Reads Connect's offsets topic and the offset syncs. A topic that is not there has none."""
    known = Known(await read_offsets(target, told, settings.source.alias) or ConnectOffsets(told.partitions))
    await _read_syncs(source, target, settings, known)
    return known


async def _read_syncs(
    source: ClusterClient, target: ClusterClient, settings: LinkSettings, known: Known
) -> str:
    """Into `known`; the topic's name. One that is not there has none."""
    at_source = settings.offset_syncs_topic_location == "source"
    name = settings.names().offset_syncs(at_source=at_source)
    async for _, rows in committed(source if at_source else target, TopicPartition(name, 0), 0):
        for row in rows:
            _take_sync(known, row)
    known.pairs = {tp: chain(pairs) for tp, pairs in known.pairs.items()}
    return name


def _take_sync(known: Known, row: Copy) -> None:
    if row.key is None or row.value is None:
        return
    try:
        sync = OffsetSync.read(row.key, row.value)
    except LayoutError as error:
        _log.warning("an offset sync cannot be read: %s", error)
        return
    tp = TopicPartition(sync.topic, sync.partition)
    known.pairs.setdefault(tp, []).append(Pair(sync.upstream, sync.downstream))


class Taker:
    """Makes the entry of one partition."""

    def __init__(
        self, source: ClusterClient, target: ClusterClient, tp: TopicPartition, topic: Wanted
    ) -> None:
        assert topic.target is not None
        self._source = source
        self._target = target
        self.tp = tp
        self.to = TopicPartition(topic.target_name, tp.partition)
        ids = uuid_to_text(topic.source.topic_id), uuid_to_text(topic.target.topic_id)
        self.lineages = (
            Lineage(source.cluster_id or "", ids[0], *tp),
            Lineage(target.cluster_id or "", ids[1], *self.to),
        )

    async def entry(self, position: int | None, pairs: list[Pair]) -> Entry | None:
        """`position`: what MirrorMaker 2 stored, the least that counts as copied; None: it had no time to.
        None when neither that nor an offset sync that holds is there."""
        end = (await self._target.list_offsets({self.to: LATEST}))[self.to].offset
        last = (await self._source.list_offsets({self.tp: LATEST}))[self.tp].offset
        pairs = [pair for pair in pairs if pair.downstream < end and pair.upstream < last]
        runs, matched = await self._runs(pairs, end)
        text = f"{matched} records from its last offset sync on were recognised at the target"
        if position is None and not matched:
            return None
        if position is not None and (runs.source_end < position or not matched):
            runs = await self._estimated(position, end)
            text = (
                "no offset sync could be verified, so positions before that are estimates on the early side"
            )
        text = (
            f"taken over from MirrorMaker 2 at source offset {runs.source_end}"
            f" (it had stored {'nothing' if position is None else position}); {text}"
        )
        note = Note(text, time.time_ns() // 1_000_000)
        ledger = PartitionLedger(*self.lineages, runs=runs, notes=[note], records=runs.records)
        _log.info("%s: %s", self.tp, text)
        return Entry(ledger)

    async def _runs(self, pairs: list[Pair], end: int) -> tuple[OffsetMap, int]:
        """History and what follows the last sync, and how many records of that were recognised."""
        if not pairs:
            return OffsetMap(), 0
        anchor = pairs[-1]
        matcher = await self.match(anchor)
        if not matcher.matched:
            return OffsetMap(), 0
        runs = history(pairs)
        for run in matcher.runs:
            if run.source >= runs.source_end and run.target >= runs.target_end:
                runs.append(run)
        return runs, matcher.matched

    async def _estimated(self, position: int, end: int) -> OffsetMap:
        """As if the target's last record were that before `position`, and none were missing before: where the
        source has holes, that is too early, never too late."""
        first = (await self._source.list_offsets({self.tp: EARLIEST}))[self.tp].offset
        there = (await self._target.list_offsets({self.to: EARLIEST}))[self.to].offset
        length = max(min(position - first, end - there), 0)
        runs = OffsetMap(position - length, end - length)
        if length:
            runs.append(Run(position - length, end - length, length))
        return runs

    async def match(self, anchor: Pair) -> CopyMatcher:
        """The source's records from that of the pair on, as far as their copies follow it at the target."""
        matcher = CopyMatcher()
        own_time = await self._own_time()
        there = committed(self._target, self.to, anchor.downstream)
        more = True
        async for _, rows in committed(self._source, self.tp, anchor.upstream):
            for row in rows:
                while more and len(matcher.waiting) <= matcher.lookahead:
                    part = await anext(there, None)
                    more = part is not None
                    if part is not None:
                        matcher.there(copy._replace(time=0) if own_time else copy for copy in part[1])
                if not matcher.here(row._replace(time=0) if own_time else row):
                    return matcher
        return matcher

    async def _own_time(self) -> bool:
        """Whether the target stamps records with its own time."""
        configs = (await self._target.describe_configs([self.to.topic]))[self.to.topic]
        kind = configs.get("message.timestamp.type")
        return kind is not None and kind.value == "LogAppendTime"
