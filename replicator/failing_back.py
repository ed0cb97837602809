"""Failback of groups: what they have read at the target counts as read at the source; they go on there.

Owns the positions at the source (by the link's ledgers, by what a killed link left behind them, and by those
of the link back, where there is one with the same names), what may be set, and setting it. Nothing goes back,
no position lies behind the data, and a group that anybody reads with is left alone (DESIGN §4, I4 and I5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from prometheus_client import CollectorRegistry

from protocol.client import ClusterClient, Committed, Isolation
from protocol.errors import ErrorCode, KafkaError, ProtocolError
from protocol.types import ZERO_UUID, TopicPartition, uuid_to_text
from replicator.by_time import nothing_between
from replicator.ends import log_starts, readable_ends
from replicator.entry_rows import Entry
from replicator.filters import NameFilter
from replicator.group_rules import is_idle, is_synced, refuses_group, why_not_synced
from replicator.metrics import LinkMetrics
from replicator.opening import Opener
from replicator.origin import Origin
from replicator.progress import ProgressStore, read_ledgers
from replicator.settings import LinkSettings
from replicator.transactional_progress import Decisions
from replicator.translate import Direction, by_target, translate_group
from transfer.ledger import PartitionLedger, same_topic
from transfer.offset_map import OffsetMap

_SOME_AGAIN = "some records behind it were read at the target, and are read again"


@dataclass(slots=True)
class FailedBack:
    """One partition of one group; `topic`, `old` and `new` are the source's, `committed` is the target's.
    `why_not`: why nothing is set; empty where `new` is, or stands there already."""

    group: str
    topic: str
    partition: int
    at_target: str
    committed: int
    metadata: str
    old: int | None = None
    new: int | None = None
    exact: bool = False
    why_not: str = ""
    note: str = ""

    @property
    def tp(self) -> TopicPartition:
        """At the source."""
        return TopicPartition(self.topic, self.partition)

    @property
    def changes(self) -> bool:
        """Whether there is something to set, or was."""
        return not self.why_not and self.new != self.old

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "set": self.changes}


Place = tuple[int | None, bool, str]
"""Position at the source, whether it is exact, and why there is none, or what is to be said of it."""


def unread_at(own: int, back: OffsetMap, read_to: int) -> tuple[int, list[tuple[int, int]]]:
    """Where a group goes on in a topic of the source into which a link back writes too: nothing that the
    group has not read lies before it. `own`: the first of the source's own records that it has not read.
    `back` is the map of the link back, `read_to` the position that the group has at the other side.

    Also the stretches before that position that no link has written: it holds as far as they hold no record.
    """
    stretches: list[tuple[int, int]] = []
    position = own
    for there, here, length in back:
        read = min(max(read_to - there, 0), length)
        if read < length and here + read < position:
            return here + read, []
        if here + read <= position:
            continue
        if read:
            if here > position:
                stretches.append((position, here))
            position = here + read
        if read < length:
            break
    return position, stretches


class FailBack:
    """Of the groups of one link. `rows` first, then `write`."""

    def __init__(self, source: ClusterClient, target: ClusterClient, settings: LinkSettings) -> None:
        self._source = source
        self._target = target
        self._settings = settings
        self._store = ProgressStore(target, settings.progress_topic)
        origin = None
        if settings.origin_headers:
            origin = Origin(
                source.cluster_id or "",
                target.cluster_id or "",
                settings.names().at_target,
                settings.origin_headers_ignored,
            )
        metrics = LinkMetrics(settings.name, CollectorRegistry())
        self._opener = Opener(source, target, metrics, origin)
        self._ids_here: dict[str, str] = {}
        self._ids_there: dict[str, str] = {}
        self._back: Mapping[TopicPartition, PartitionLedger] = {}
        self._unknown: dict[TopicPartition, str] = {}
        self.nothing_read: list[str] = []
        """Groups of either side that have no position in the link's topics at the target: they stay."""

    async def rows(self, groups: NameFilter) -> tuple[list[FailedBack], dict[str, str]]:
        """Of what groups have committed in the link's topics at the target; and of groups as a whole why
        nothing is known of them. Nothing is changed. Raises ProtocolError."""
        listed = [one for one in await self._target.list_groups() if groups.accepts(one.group_id)]
        refused = {
            one.group_id: why for one in listed if (why := why_not_synced(one.protocol_type)) is not None
        }
        committed: dict[str, dict[TopicPartition, Committed]] = {}
        for name in sorted(one.group_id for one in listed if is_synced(one.protocol_type)):
            try:
                committed[name] = await self._target.committed(name, require_stable=True)
            except KafkaError as error:
                refused[name] = f"it cannot be read at {self._settings.target.alias}: {error}"
        ledgers = await self._ledgers(committed)
        found: list[FailedBack] = []
        for name, at in committed.items():
            ours = {tp: one for tp, one in at.items() if tp in ledgers}
            if ours:
                found += await self._of_group(name, ours, ledgers)
        here = [one for one in await self._source.list_groups() if groups.accepts(one.group_id)]
        names = {one.group_id for one in here if is_synced(one.protocol_type)} | committed.keys()
        self.nothing_read = sorted(names - refused.keys() - {row.group for row in found})
        return found, refused

    async def write(self, rows: Sequence[FailedBack]) -> None:
        """Sets what changes, a group at a time; what is refused is in its row. Raises ProtocolError when a
        cluster is away: what was set until then stays."""
        for name in dict.fromkeys(row.group for row in rows if row.changes):
            wanted = {row.tp: row for row in rows if row.group == name and row.changes}
            try:
                await self._set(name, wanted)
            except KafkaError as error:
                why = str(error)
                if error.code is ErrorCode.UNKNOWN_MEMBER_ID:
                    why = f"the group is active at {self._settings.source.alias} by now"
                there = {} if refuses_group(error) else await self._source.committed(name, list(wanted))
                for tp, row in wanted.items():  # others of it may have been taken
                    if tp not in there or there[tp].offset != row.new:
                        row.why_not = why

    async def _set(self, group: str, wanted: dict[TopicPartition, FailedBack]) -> None:
        at_target = [TopicPartition(row.at_target, row.partition) for row in wanted.values()]
        now = await self._target.committed(group, at_target)
        for row, tp in zip([*wanted.values()], at_target, strict=True):
            if tp not in now or now[tp].offset != row.committed:
                row.why_not = f"it has moved at {self._settings.target.alias} meanwhile: run this again"
                del wanted[row.tp]
        positions = {
            tp: Committed(row.new or 0, -1, row.metadata if row.exact else "") for tp, row in wanted.items()
        }
        try:
            await self._source.commit(group, positions)
        except KafkaError as error:
            if error.code is not ErrorCode.OFFSET_METADATA_TOO_LARGE:
                raise
            await self._source.commit(group, {tp: at._replace(metadata="") for tp, at in positions.items()})

    async def _ledgers(
        self, committed: Mapping[str, Mapping[TopicPartition, Committed]]
    ) -> dict[TopicPartition, PartitionLedger]:
        """By partition of the target, of those in which groups stand, with all that is the link's there."""
        progress = await self._store.refresh()
        heads = by_target({tp: one.ledger for tp, one in progress.entries().items()})
        furthest: dict[TopicPartition, int] = {}
        for at in committed.values():
            for tp, one in at.items():
                if tp in heads:
                    furthest[tp] = max(one.offset, furthest.get(tp, 0))
        sources = {heads[tp].source.topic for tp in furthest}
        self._ids_here = await _ids(self._source, sources)
        self._ids_there = await _ids(self._target, {tp.topic for tp in furthest})
        back = f"{self._settings.target.alias}->{self._settings.source.alias}"
        self._back = await read_ledgers(self._source, back)
        whole: dict[TopicPartition, PartitionLedger] = {}
        decisions = Decisions(self._store)
        for tp, offset in furthest.items():
            at_source = TopicPartition(heads[tp].source.topic, heads[tp].source.partition)
            try:
                await decisions.wait(at_source)
                entry = self._store.progress.entry(at_source)
                whole[tp] = heads[tp] if entry is None else await self._whole(entry, tp, offset)
            except ProtocolError as error:
                whole[tp], self._unknown[tp] = heads[tp], f"what the link has there is not known now: {error}"
        return whole

    async def _whole(self, entry: Entry, tp: TopicPartition, offset: int) -> PartitionLedger:
        """The ledger with what a killed link left behind it, where a group has read that far."""
        ledger = entry.ledger
        here = same_topic(self._ids_here.get(ledger.source.topic, ""), ledger.source.topic_id)
        there = same_topic(self._ids_there.get(ledger.target.topic, ""), ledger.target.topic_id)
        if entry.once or offset <= ledger.runs.target_end or not here or not there:
            return ledger
        opened = await self._opener.open(entry, ledger.source, ledger.target, start_at=None)
        return opened.entry.ledger

    async def _of_group(
        self,
        name: str,
        committed: Mapping[TopicPartition, Committed],
        ledgers: Mapping[TopicPartition, PartitionLedger],
    ) -> list[FailedBack]:
        rows = {
            tp: FailedBack(name, here.topic, here.partition, tp.topic, one.offset, one.metadata or "")
            for tp, one in committed.items()
            for here in [ledgers[tp].source]
        }
        at_source = {row.tp for row in rows.values()}
        try:
            busy = await self._busy(name)
            there = await self._source.committed(name, list(at_source))
            ends, silent = await readable_ends(self._source, at_source, Isolation.READ_UNCOMMITTED)
            firsts, _ = await log_starts(self._source, ends.keys())
        except KafkaError as error:
            for row in rows.values():
                row.why_not = str(error)
            return list(rows.values())
        by_source = {TopicPartition(one.source.topic, one.source.partition): one for one in ledgers.values()}
        found = translate_group(
            {tp: one.offset for tp, one in committed.items()},
            by_source,
            Direction.TO_SOURCE,
            {topic: topic_id for topic, topic_id in self._ids_there.items() if topic_id},
            there_ids=self._ids_here,
        )
        for tp, row in rows.items():
            known = there.get(row.tp)
            row.old = known.offset if known is not None else None
            position = found.positions.get(row.tp)
            if position is None:
                row.why_not = found.skipped[tp]
                continue
            if tp in self._unknown:
                row.why_not = self._unknown[tp]
                continue
            row.new, row.exact, said = await self._beside_the_way_back(row, ledgers[tp], position.offset)
            if row.new is None:
                row.why_not = said
            else:
                row.note = said
            begins = ledgers[tp].runs.source_start
            if row.old is not None and max(row.old, firsts.get(row.tp, 0)) < begins:
                row.why_not = (
                    f"the link began at {begins}: what the group has not read before was never copied"
                )
            if not row.why_not:
                _check(row, busy, firsts.get(row.tp, 0), ends.get(row.tp), silent.get(row.tp))
        return list(rows.values())

    async def _busy(self, group: str) -> str:
        """Where somebody reads with it; empty: nowhere."""
        for client, end in ((self._target, self._settings.target), (self._source, self._settings.source)):
            state = (await client.describe_groups([group]))[group].state
            if not is_idle(state):
                return f"the group is active at {end.alias} ({state}): stop its consumers first"
        return ""

    async def _beside_the_way_back(self, row: FailedBack, ledger: PartitionLedger, own: int) -> Place:
        """`own`: behind what of the link's own records was read. What the group has read besides was written
        at the target: where a link back has brought that here, it counts."""
        at_target = TopicPartition(ledger.target.topic, ledger.target.partition)
        back = self._back.get(at_target)
        if back is None or (back.target.topic, back.target.partition) != row.tp:
            return own, True, ""
        if back.source.topic_id != ledger.target.topic_id or back.target.topic_id != ledger.source.topic_id:
            return None, False, "the link back is of another topic: one was created again"
        end, name = back.runs.source_end, f"{self._settings.target.alias}->{self._settings.source.alias}"
        if row.committed > end and not await nothing_between(self._target, at_target, end, row.committed):
            return None, False, f"{name} has not copied yet what was read: wait until it has (links status)"
        position, stretches = unread_at(own, back.runs, row.committed)
        if position < own:
            return position, False, _SOME_AGAIN
        for start, stop in stretches:
            if not await nothing_between(self._source, row.tp, start, stop):
                note = f"records at {start} to {stop} were never at the target; {_SOME_AGAIN}"
                return start, False, note
        return position, True, ""


def _check(row: FailedBack, busy: str, first: int, end: int | None, silent: KafkaError | None) -> None:
    """What may not be set is not."""
    assert row.new is not None
    if end is None:
        row.why_not = f"where the source ends is not known: {silent}"
    elif row.new > end:
        row.why_not = f"the source ends at {end}: it has lost what was read"
    elif row.new < first:
        row.note = f"what is before {first} is gone at the source; unread records were {row.new} to {first}"
        row.new, row.exact = first, False
    if row.why_not:
        return
    if row.old is not None and row.old > (row.new or 0):
        row.why_not = "it stands further at the source and is not taken back (isthmus groups reset does)"
    elif busy and row.changes:
        row.why_not = busy


async def _ids(client: ClusterClient, topics: set[str]) -> dict[str, str]:
    """Of all that exist; empty where the broker tells none."""
    known = (await client.metadata(topics)).topics if topics else {}
    return {
        name: "" if one.topic_id == ZERO_UUID else uuid_to_text(one.topic_id)
        for name, one in known.items()
        if one.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }
