"""Handing a link back to MirrorMaker 2: it goes on where the link would, by the progress that Connect keeps.

Owns what is written there and what is left alone, and why. Where a partition goes on is found as a start of
the link finds it (`opening`): topics that were made again and copies that a killed link knows nothing of
count too. MirrorMaker 2 is never set back behind what it has copied after the link. The link notes what it
wrote, so that its next start goes on behind MirrorMaker 2 (`returning`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from prometheus_client import CollectorRegistry

from protocol.client import EARLIEST, LATEST, ClusterClient, Isolation, TopicMetadata
from protocol.errors import ErrorCode, KafkaError, ProtocolError
from protocol.types import TopicPartition, uuid_to_text
from replicator.acknowledgements import open_differences
from replicator.entry_rows import Entry
from replicator.link_rows import Seen
from replicator.metrics import LinkMetrics
from replicator.mirrormaker.connect_offsets import ConnectOffsets, create, read_offsets, write_offsets
from replicator.mirrormaker.takeover import must_be_idle
from replicator.opening import Opener, Ranges, begin
from replicator.origin import Origin
from replicator.progress import Progress, ProgressStore
from replicator.settings import LinkSettings, TakeOver
from replicator.transactional_progress import Decisions, fence
from replicator.troubles import now_ms
from replicator.workers.control import Desired
from replicator.workers.listening import listened
from replicator.workers.report import STALE_S
from transfer.ledger import Lineage, PartitionLedger

_AT_A_TIME: Final = 64
_GONE: Final = "-"
"""Topic id of a mirror that is not there."""


class NotHandedBackError(ProtocolError):
    """It cannot be done now; nothing was written."""

    def __init__(self, what: str, to_do: str) -> None:
        super().__init__(what)
        self.to_do = to_do


@dataclass(frozen=True, slots=True)
class Row:
    """One partition of the link. Positions are those of the next source offset to read."""

    tp: TopicPartition
    before: int | None = None
    """Where MirrorMaker 2 would have gone on; None: at the start of the log."""
    after: int | None = None
    """Where it goes on now."""
    left: str = ""
    """Why it stays as it is, and MirrorMaker 2 may copy twice or leave out; empty: it is exact."""
    remarks: tuple[str, ...] = ()

    @property
    def changes(self) -> bool:
        return self.before != self.after

    def to_json(self) -> dict[str, Any]:
        """For machines."""
        return {
            "topic": self.tp.topic,
            "partition": self.tp.partition,
            "before": self.before,
            "after": self.after,
            "changes": self.changes,
            "left": self.left,
            "remarks": list(self.remarks),
        }


@dataclass(slots=True)
class HandedBack:
    """All partitions of the link, and the topic of MirrorMaker 2's progress."""

    topic: str
    made: bool
    """It was not there: it is made (or would be)."""
    rows: list[Row] = field(default_factory=list)
    others: int = 0
    """Partitions of MirrorMaker 2's progress that the link has nothing of: they stay as they are."""

    def to_json(self) -> dict[str, Any]:
        """For machines."""
        return {
            "offsets_topic": self.topic,
            "offsets_topic_made": self.made,
            "partitions": [row.to_json() for row in self.rows],
            "others_left_alone": self.others,
        }


async def hand_back(
    source: ClusterClient, target: ClusterClient, settings: LinkSettings, *, dry_run: bool
) -> HandedBack:
    """Writes, and reads again what it wrote. With `dry_run` nothing is changed anywhere.

    Raises NotHandedBackError, StillRunningError, NotToldError, ProtocolError.
    """
    told = settings.take_over
    if told is None:
        raise NotHandedBackError(
            f"{settings.name} does not look at MirrorMaker 2's progress: started again, it would copy twice"
            " what MirrorMaker 2 copies from now on",
            "set take_over_mirrormaker: true for the link first",
        )
    store = ProgressStore(target, settings.progress_topic, settings.internal_replication_factor)
    progress = await store.refresh()
    if progress.initial is None and not progress.partitions():
        raise NotHandedBackError(
            f"{settings.progress_topic} holds no progress of {settings.name}",
            "nothing: MirrorMaker 2 goes on where it was",
        )
    await _must_not_run(target, store, settings)
    await must_be_idle(target, told)
    if not dry_run:
        await fence(target, store, list, int(settings.transaction_timeout_s * 1000))
    offsets = await read_offsets(target, told, settings.source.alias)
    looker = _Looker(source, target, settings, store, offsets or ConnectOffsets(told.partitions))
    found = HandedBack(told.offsets_topic, offsets is None)
    found.rows = await looker.rows()
    ahead = next((row for row in found.rows if row.left and row.before is not None), None)
    if ahead is not None and progress.mirrormaker is None:
        raise NotHandedBackError(
            f"{ahead.tp}: {ahead.left}",
            "start the link with this version and stop it first: none before noted where MirrorMaker 2 stood",
        )
    found.others = len(looker.offsets.positions.keys() - {row.tp for row in found.rows})
    if not dry_run:
        await _write(target, settings, told, store, looker.offsets, found)
        await _must_not_run(target, store, settings)
        await must_be_idle(target, told)
    return found


async def _must_not_run(target: ClusterClient, store: ProgressStore, settings: LinkSettings) -> None:
    """Raises NotHandedBackError while a process of the link is there."""
    living = [str(one.worker) for one in await listened(store, await store.refresh()) if not one.silent]
    if not living:
        try:
            group = (await target.describe_groups([settings.workers_group])).get(settings.workers_group)
            living = (
                [f"{member.client_id} ({member.client_host})" for member in group.members] if group else []
            )
        except KafkaError as error:
            if error.code is not ErrorCode.GROUP_AUTHORIZATION_FAILED:  # such a link copies alone
                raise
    if living:
        raise NotHandedBackError(
            f"{settings.name} runs: {', '.join(living)}",
            "stop all its workers first (a killed one counts as one for up to"
            f" {max(STALE_S, settings.worker_session_timeout_s):g} s)",
        )


async def _write(
    target: ClusterClient,
    settings: LinkSettings,
    told: TakeOver,
    store: ProgressStore,
    before: ConnectOffsets,
    found: HandedBack,
) -> None:
    """What the link knows is noted first and last: whoever is ended in between loses nothing."""
    alias = settings.source.alias
    new = {row.tp: row.after or 0 for row in found.rows if row.changes}
    if found.made:
        before = await create(target, told, alias, settings.internal_replication_factor)
    noted = store.progress.mirrormaker
    seen = dict(noted.positions if noted is not None else before.positions)
    await store.save_seen(Seen(seen, now_ms()))
    await write_offsets(target, told, alias, before, new)
    after = await read_offsets(target, told, alias)
    wrong = [tp for tp, position in new.items() if after is None or after.positions.get(tp, 0) != position]
    if after is None or wrong:
        raise NotHandedBackError(
            f"{told.offsets_topic} does not hold what was written for {', '.join(map(str, wrong[:5]))}",
            "see what else writes there, or holds a transaction open; then hand back again",
        )
    for row in found.rows:
        if row.left:
            continue  # where MirrorMaker 2 moved in it, that is still news to the link
        seen.pop(row.tp, None)
        if row.tp in after.positions:
            seen[row.tp] = after.positions[row.tp]
    await store.save_seen(Seen(seen, now_ms()))


class _Looker:
    """Where each partition of the link goes on."""

    def __init__(
        self,
        source: ClusterClient,
        target: ClusterClient,
        settings: LinkSettings,
        store: ProgressStore,
        offsets: ConnectOffsets,
    ) -> None:
        self.offsets = offsets
        self._source = source
        self._target = target
        self._settings = settings
        self._store = store
        self._progress: Progress = store.progress
        self._names = replace(settings.names(), rename=())
        self._desired = Desired.read(self._progress.notes)
        origin = None
        if settings.origin_headers:
            origin = Origin(
                source.cluster_id or "",
                target.cluster_id or "",
                self._names.at_target,
                settings.origin_headers_ignored,
            )
        metrics = LinkMetrics(settings.name, CollectorRegistry())
        self._opener = Opener(source, target, metrics, origin)
        self._decisions = Decisions(store)

    async def rows(self) -> list[Row]:
        """One for each partition that the link has begun, or would begin elsewhere than MirrorMaker 2."""
        begun = set(self._progress.partitions())
        begun |= (self._progress.initial or {}).keys() - self.offsets.positions.keys()
        here, there = (await self._source.metadata(None)).topics, (await self._target.metadata(None)).topics
        slots = asyncio.Semaphore(_AT_A_TIME)

        async def one(tp: TopicPartition) -> Row:
            async with slots:
                try:
                    return await self._row(tp, here.get(tp.topic), there)
                except ProtocolError as error:
                    return self._left(tp, f"not known now: {error}")

        return await asyncio.gather(*map(one, sorted(begun)))

    def _left(self, tp: TopicPartition, why: str, remarks: Iterable[str] = ()) -> Row:
        position = self.offsets.positions.get(tp)
        return Row(tp, position, position, why, tuple(remarks))

    async def _row(
        self, tp: TopicPartition, topic: TopicMetadata | None, there: Mapping[str, TopicMetadata]
    ) -> Row:
        if topic is None or topic.error or tp.partition not in topic.partitions:
            what = (
                f"the source says {topic.error.name}" if topic is not None and topic.error else "it is gone"
            )
            return self._left(tp, "" if topic is None else what, [f"nothing to copy: {what}"])
        await self._decisions.wait(tp)
        at_target = self._names.at_target(tp.topic)
        entry = self._progress.into(tp, at_target)
        if entry is None and tp in self._progress.partitions():
            ledger = self._progress.ledger(tp)
            into = ledger.target.topic if ledger is not None else "another topic"
            return self._left(tp, f"the link copies it into {into}, MirrorMaker 2 into {at_target}")
        mirror = there.get(at_target)
        ledger, position = await self._position(tp, topic, at_target, mirror, entry)
        return self._decided(tp, ledger, position, entry)

    async def _position(
        self,
        tp: TopicPartition,
        topic: TopicMetadata,
        at_target: str,
        mirror: TopicMetadata | None,
        entry: Entry | None,
    ) -> tuple[PartitionLedger, int]:
        """As a start of the link finds it, with the ledger as it would be then."""
        first = (self._progress.initial or {}).get(tp)
        exists = mirror is not None and not mirror.error and tp.partition in mirror.partitions
        target_id = uuid_to_text(mirror.topic_id) if mirror is not None and exists else _GONE
        source = Lineage(self._source.cluster_id or "", uuid_to_text(topic.topic_id), *tp)
        target = Lineage(self._target.cluster_id or "", target_id, at_target, tp.partition)
        if exists:
            beginning = await self._opener.open(entry, source, target, start_at=first)
        else:
            ends = Ranges(
                (await self._source.offset(tp, EARLIEST)).offset,
                (await self._source.offset(tp, LATEST, isolation=Isolation.READ_COMMITTED)).offset,
                0,
            )
            beginning = begin(entry, source, target, ends, start_at=first)
        ledger = beginning.entry.ledger
        return ledger, ledger.next_source_offset

    def _decided(
        self, tp: TopicPartition, ledger: PartitionLedger, position: int, entry: Entry | None
    ) -> Row:
        before, seen = self.offsets.positions.get(tp), self._progress.mirrormaker
        remarks = self._remarks(tp, ledger)
        if before is not None and before > position and (seen is None or seen.positions.get(tp) != before):
            return self._left(
                tp,
                f"MirrorMaker 2 has copied up to {before} and the link up to {position}: start the link (it"
                " goes on behind MirrorMaker 2), stop it, then hand it back",
                remarks,
            )
        left = ""
        if self._settings.start == "latest" and not position:
            left = "MirrorMaker 2 begins it at its end (auto.offset.reset = latest), not at its first record"
        if before is None and (not position or (entry is None and self._settings.start == "earliest")):
            return Row(tp, None, None, left, remarks)  # it begins at the start of the log, as the link would
        return Row(tp, before, position or None, left, remarks)

    def _remarks(self, tp: TopicPartition, ledger: PartitionLedger) -> tuple[str, ...]:
        """What MirrorMaker 2 makes of it otherwise than the link."""
        open_ones = open_differences({tp: ledger}, self._store.acknowledged)
        stops = "stop" in (self._settings.on_gap, self._settings.on_recreated)
        waits = ": the link waits until it is acknowledged, MirrorMaker 2 goes on behind it" if stops else ""
        said = [f"{found}{waits}" for found in open_ones]
        paused = self._desired.paused_because(tp)
        return (*said, f"{paused}: MirrorMaker 2 copies it all the same") if paused else tuple(said)
