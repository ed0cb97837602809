"""A link that has run before begins again: has MirrorMaker 2 copied meanwhile?

Owns finding that out, and moving the link's own progress behind it, so that nothing is copied twice or left
out. MirrorMaker 2 has been at work where its stored progress is another than the link last saw, or where the
link was handed back to it. Which of its copies follow those of the link is found by its offset syncs and by
comparing records, as at a first start; what it has stored counts besides, in the same topic alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace

from protocol.client import EARLIEST, LATEST, ClientError, ClusterClient
from protocol.counted import counted
from protocol.types import TopicPartition
from replicator.discovery import Wanted
from replicator.entry_rows import Entry
from replicator.mirrormaker.connect_offsets import NotToldError, read_offsets
from replicator.mirrormaker.history import Pair, history
from replicator.mirrormaker.takeover import Taken, Taker, must_be_idle, read_known
from replicator.opening import Ranges, begin
from replicator.progress import Progress, ProgressStore
from replicator.settings import LinkSettings, TakeOver
from replicator.troubles import now_ms
from transfer.ledger import Note, PartitionLedger, same_topic
from transfer.offset_map import OffsetMap, Run

_log = logging.getLogger("isthmus.replicator")

_AT_A_TIME = 4
"""Partitions whose records are compared."""


async def go_on_behind(
    source: ClusterClient,
    target: ClusterClient,
    settings: LinkSettings,
    store: ProgressStore,
    find: Callable[[], Awaitable[Mapping[str, Wanted]]],
    *,
    leading: bool,
) -> Taken | None:
    """Entries that stand behind what MirrorMaker 2 has copied since the link ended; None: all is as the link
    has noted it. `find` tells what is to be copied now. Other workers than the leader wait for that one, once
    it is on record that there is something to look at.

    Raises StillRunningError, NotToldError, ProtocolError.
    """
    told, seen = settings.take_over, store.progress.mirrormaker
    if told is None:
        return None
    back = seen is not None and seen.handed_back_ms > 0
    try:
        offsets = await read_offsets(target, told, settings.source.alias)
    except NotToldError as denied:
        if back:
            raise
        _log.warning("%s goes on where it stopped: %s", settings.name, denied)
        return None
    now = offsets.positions if offsets is not None else {}
    wanted = await find() if back or seen is None or now != seen.positions else {}
    if not back and not news(store.progress, now, wanted):
        return None if seen is not None and seen.positions == now else Taken(positions=now)
    if leading:
        if seen is not None and not back:
            await store.save_seen(seen._replace(handed_back_ms=now_ms()))
        await must_be_idle(target, told)
        return await _looked(source, target, settings, told, store.progress, wanted)
    if not back:
        return None  # who leads copies, or will say so
    error = ClientError("the worker that leads this link has not gone on behind MirrorMaker 2 yet")
    error.to_do = "look at what that one waits for"
    raise error


async def _looked(
    source: ClusterClient,
    target: ClusterClient,
    settings: LinkSettings,
    told: TakeOver,
    progress: Progress,
    wanted: Mapping[str, Wanted],
) -> Taken:
    """MirrorMaker 2 has ended, or was killed before it could store what it had copied."""
    known = await read_known(source, target, settings, told)
    positions = known.offsets.positions
    moved = news(progress, positions, wanted)
    looking = asyncio.Semaphore(_AT_A_TIME)

    async def look(tp: TopicPartition) -> Entry | None:
        topic = wanted.get(tp.topic)
        if topic is None or topic.target is None or tp.partition not in topic.target.partitions:
            return None
        if tp not in moved and progress.mirrormaker is None:
            return None
        position = positions.get(tp) if tp in moved else None
        async with looking:
            return await _entry(source, target, progress, tp, topic, position, known.pairs.get(tp, []))

    found = await asyncio.gather(*map(look, known.partitions()))
    entries = [entry for entry in found if entry is not None]
    _log.info("%s goes on behind MirrorMaker 2 in %s", settings.name, counted(len(entries), "partition"))
    return Taken(entries, positions)


def news(
    progress: Progress, positions: Mapping[TopicPartition, int], wanted: Collection[str]
) -> set[TopicPartition]:
    """Partitions of the link where MirrorMaker 2 stands elsewhere than the link has seen it. A version that
    noted nothing may have left old positions: only one that is ahead of the link's is looked at then."""
    seen = progress.mirrormaker
    return {
        tp
        for tp, position in positions.items()
        if tp.topic in wanted
        and (position > _own_position(progress, tp) if seen is None else position != seen.positions.get(tp))
    }


def _own_position(progress: Progress, tp: TopicPartition) -> int:
    ledger = progress.ledger(tp)
    return ledger.next_source_offset if ledger is not None else -1


async def _entry(
    source: ClusterClient,
    target: ClusterClient,
    progress: Progress,
    tp: TopicPartition,
    topic: Wanted,
    position: int | None,
    pairs: list[Pair],
) -> Entry | None:
    """Of one partition; None: the link's own progress holds. `position` is MirrorMaker 2's, where that has
    moved; where the link has not noted it before, it may be an old one and says nothing by itself."""
    taker = Taker(source, target, tp, topic)
    mine, trusted = progress.into(tp, topic.target_name), progress.mirrormaker is not None
    if mine is None:
        if tp in progress.partitions():
            return None  # it is copied into another topic than MirrorMaker 2's
        return await taker.entry(position if trusted else None, pairs)
    ledger = mine.ledger
    if not _same(ledger, taker):
        return await _of_another_topic(source, target, taker, mine, pairs)
    before = ledger.next_source_offset
    end = (await target.offset(taker.to, LATEST)).offset
    last = (await source.offset(tp, LATEST)).offset
    pairs = [
        pair
        for pair in pairs
        if before <= pair.upstream < last and ledger.runs.target_end <= pair.downstream < end
    ]
    found = await _followed(taker, ledger.runs, pairs)
    text = f"{found} records from its last offset sync on, or behind the link's last copy, were recognised"
    if position is not None and ledger.next_source_offset < position and not (trusted and position <= last):
        _log.warning(
            "%s: MirrorMaker 2 has stored that it copied up to source offset %d, which nothing at the target"
            " shows behind %d: the link goes on there",
            *(tp, position, ledger.next_source_offset),
        )
    elif position is not None and ledger.next_source_offset < position:
        _estimate(ledger.runs, position, end)
        text = f"from {before} on positions are estimates on the early side, by its stored progress"
    if ledger.next_source_offset == before:
        if position is not None and position < before:
            _log.warning(
                "%s: MirrorMaker 2 has copied up to source offset %d again, which this link had copied up to"
                " %d before: isthmus links hand-back would have told it",
                *(tp, position, before),
            )
        return None
    ledger.records = max(ledger.records, ledger.runs.records)
    text = f"MirrorMaker 2 copied source offsets {before} to {ledger.next_source_offset}; {text}"
    ledger.notes.append(Note(text, now_ms()))
    _log.info("%s: %s", tp, text)
    return replace(mine, producer=None, epoch=-1, once=False)


def _same(ledger: PartitionLedger, taker: Taker) -> bool:
    return all(
        before.cluster_id == now.cluster_id and same_topic(before.topic_id, now.topic_id)
        for before, now in zip((ledger.source, ledger.target), taker.lineages, strict=True)
    )


async def _followed(taker: Taker, runs: OffsetMap, pairs: list[Pair]) -> int:
    """Adds what MirrorMaker 2 has copied behind what the link has; how many records were recognised."""
    own = []
    if len(runs):
        last = runs[len(runs) - 1]
        own = [Pair(last.source + last.length - 1, last.target + last.length - 1)]
    behind = Pair(runs.source_end, runs.target_end)
    for known, anchor in (([*own, *pairs], pairs[-1]), ([], behind)) if pairs else (([], behind),):
        matcher = await taker.match(anchor)
        if not matcher.matched:
            continue
        _append(runs, history(known))
        for run in matcher.runs:
            if run.source >= runs.source_end and run.target >= runs.target_end:
                _estimate(runs, run.source, run.target)
                runs.append(run)
        return matcher.matched
    return 0


def _append(runs: OffsetMap, later: OffsetMap) -> None:
    for run in later.between(runs.source_end, later.source_end):
        if run.target >= runs.target_end:
            runs.append(run)


def _estimate(runs: OffsetMap, position: int, end: int) -> None:
    """Up to before `position`, as if its record or the next one were copied to `end`, and none were missing
    before it: what has holes comes early, never late."""
    length = min(position - runs.source_end, end - runs.target_end)
    if length > 0:
        runs.append(Run(position - length, end - length, length))
    runs.cover_to(position)


async def _of_another_topic(
    source: ClusterClient, target: ClusterClient, taker: Taker, mine: Entry, pairs: list[Pair]
) -> Entry | None:
    """The source's topic was made again meanwhile: only copies of its records that are found count. Where the
    mirror was, the link fills it anew, as it does without MirrorMaker 2."""
    (here, there), ledger = taker.lineages, mine.ledger
    if not (
        ledger.target.cluster_id == there.cluster_id and same_topic(ledger.target.topic_id, there.topic_id)
    ):
        _log.warning(
            "%s: its mirror was made again since the link ended: it is filled anew, and what MirrorMaker 2"
            " has copied into it since comes twice",
            taker.tp,
        )
        return None
    found = await taker.entry(None, [pair for pair in pairs if pair.downstream >= ledger.runs.target_end])
    if found is None:
        _log.warning(
            "%s was made again at the source since the link ended, and none of its records was found at the"
            " target: all of it is copied",
            taker.tp,
        )
        return None
    ranges = Ranges(
        (await source.offset(taker.tp, EARLIEST)).offset,
        (await source.offset(taker.tp, LATEST)).offset,
        (await target.offset(taker.to, LATEST)).offset,
    )
    made = begin(mine, here, there, ranges, start_at=None).entry
    made.ledger.runs, made.ledger.records = found.ledger.runs, found.ledger.records
    made.ledger.notes += found.ledger.notes
    return made
