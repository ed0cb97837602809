"""Turning an old source into the mirror of what took over from it.

Owns the order: the old side refuses writers; where the two logs parted is found by epochs, and checked on the
batch before it; what only the old side has is saved to files, and only then cut off. The link back, which
may run meanwhile, takes a topic for its mirror only after that, and copies the rest. Nothing is cut that is
not on disk elsewhere (I9).
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final

from protocol.client import EARLIEST, LATEST, ClusterClient, NotSupportedError
from protocol.client.mirror_calls import Change
from protocol.client.retry import RetryPolicy, retrying
from protocol.counted import counted
from protocol.errors import ErrorCode, KafkaError
from protocol.records import BatchHeader, iter_headers
from protocol.records.header import DELETE_HORIZON
from protocol.types import TopicPartition
from replicator.mirrors.aligning import epoch_end
from replicator.mirrors.assessing import SwitchRefused
from replicator.mirrors.broken_off import copied_ends
from replicator.mirrors.fencing import Say, changed, heard
from replicator.mirrors.groups import take_back
from replicator.mirrors.lineage import ERA, FENCED, HEADROOM, TURNED, MirrorSource
from replicator.mirrors.parting import common_end
from replicator.mirrors.terms import portions, raised, settled
from replicator.mirrors.topics import compacted, mirror_text
from replicator.settings import LinkSettings
from replicator.whole_batches import whole_batches

_batches = partial(whole_batches, max_bytes=4 << 20)
_PARTINGS_AT_ONCE: Final = 16
_AGAIN: Final = RetryPolicy(total_s=5.0)
_LOOK_BACK: Final = 10_000
"""Offsets before the parting in which batches are compared where the last one is compacted away."""


@dataclass(slots=True)
class Parting:
    """Where the old source and what took over from it parted, in one partition."""

    topic: str
    partition: int
    common_end: int
    old_end: int
    new_end: int
    records: int
    """Only at the old side: what is cut off."""
    seconds: float | None
    """Between the first and the last of them by their own times; None without any."""
    saved_to: str | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


async def reversible(
    old: ClusterClient,
    new: ClusterClient,
    settings: LinkSettings,
    back: str,
    topics: tuple[str, ...] = (),
    *,
    home: set[str] | None = None,
) -> dict[str, str | None]:
    """Topics that may be turned round, with what the old side says of each now. `settings` are those of the
    link from old to new, `back` is the name of the one from new to old. Raises SwitchRefused.

    With `home` a promotion of `back` that was interrupted counts as well: the new side is fenced for it.
    Topics of which the old side takes writes again already are put in there instead, the new side's mirrors
    among them.
    """
    here = {name: each for name, each in (await old.metadata(None)).topics.items() if not each.error}
    there = {name: each for name, each in (await new.metadata(None)).topics.items() if not each.error}
    taken = settings.topic_filter()
    names = topics or tuple(sorted(name for name in here.keys() & there.keys() if taken.accepts(name)))
    missing = sorted(set(names) - (here.keys() & there.keys()))
    if missing or not names:
        raise SwitchRefused(f"not on both sides: {', '.join(missing) or 'any topic of the link'}")
    for name in names:
        counts = [len(side[name].partitions) for side in (here, there)]
        if counts[0] > counts[1]:
            raise SwitchRefused(
                f"{name} has {counts[0]} partitions in {settings.source.alias} and {counts[1]} in"
                f" {settings.target.alias}, and a mirror has no more than its source: give it as many there"
                " first. Nothing was changed"
            )
    configs_new = await new.describe_configs(list(names))
    configs_old = await old.describe_configs(list(names))
    found: dict[str, str | None] = {}
    for name in names:
        text = mirror_text(configs_new[name])
        mine = mirror_text(configs_old[name])
        begun = MirrorSource.of(f"{FENCED} for {back}", old.cluster_id, here[name].topic_id).text
        again = MirrorSource.of(settings.name, old.cluster_id, here[name].topic_id).text
        if home is not None and text in (begun, again) and mine is None:
            home.add(name)
            continue
        if text is not None and (home is None or text != begun):
            raise SwitchRefused(
                f"{name} in {settings.target.alias} is a mirror of {text}: promote it, or fail over, first"
            )
        known = None if mine is None else MirrorSource.read(mine)
        wanted = MirrorSource.of(back, new.cluster_id, there[name].topic_id)
        begun_here = known is not None and known.link.startswith((FENCED, TURNED)) and known[1:] == wanted[1:]
        if mine is not None and known != wanted and not begun_here:
            raise SwitchRefused(f"{name} in {settings.source.alias} is a mirror of {mine}")
        found[name] = mine
    return found


async def partings(old: ClusterClient, new: ClusterClient, names: Mapping[str, str | None]) -> list[Parting]:
    """Where both sides parted; changes nothing. `names` as from `reversible`. Raises SwitchRefused,
    ProtocolError."""
    topics = (await old.metadata(list(names))).topics
    tps = [TopicPartition(name, index) for name in names for index in sorted(topics[name].partitions)]
    copied = await _ended_copies(old, new, names, tps)
    own = await _made_since(new, tps)
    found: list[Parting] = []
    for some in portions(tps, _PARTINGS_AT_ONCE):
        found += await asyncio.gather(*(_parting_of(old, new, tp, copied.get(tp), tp in own) for tp in some))
    return found


async def _parting_of(
    old: ClusterClient, new: ClusterClient, tp: TopicPartition, copied: int | None, made_since: bool
) -> Parting:
    """As `_parting`; what retention took while it was looked at is no reason to end."""
    return await retrying(
        partial(_parting, old, new, tp, copied, made_since), _AGAIN, curable=_is_out_of_range
    )


def _is_out_of_range(error: BaseException) -> bool:
    return isinstance(error, KafkaError) and error.code is ErrorCode.OFFSET_OUT_OF_RANGE


async def _made_since(new: ClusterClient, tps: list[TopicPartition]) -> set[TopicPartition]:
    """Partitions that the new side has made itself since it took over: no mirror became them, so that nothing
    was written there in an era of a switch."""
    topics = (await new.metadata(sorted({tp.topic for tp in tps}))).topics
    took_over = {
        name
        for name, topic in topics.items()
        if any(at.leader_epoch >= ERA for at in topic.partitions.values())
    }
    # An epoch above all that a log has is not known there; below others it ended where the next one begins.
    before = await new.epoch_ends({tp: ERA - 1 for tp in tps if tp.topic in took_over})
    return {tp for tp, found in before.items() if found.end < 0}


async def _ended_copies(
    old: ClusterClient, new: ClusterClient, names: Mapping[str, str | None], tps: list[TopicPartition]
) -> dict[TopicPartition, int]:
    """Of those that are the new side's mirrors already, and were about to be promoted: up to where they are
    a copy. What is behind that is the promotion's own."""
    mirrors = {tp: text for tp in tps if (text := names[tp.topic]) is not None}
    if not mirrors:
        return {}
    known = (await new.metadata(sorted({tp.topic for tp in mirrors}))).topics
    epochs = {tp: known[tp.topic].partitions[tp.partition].leader_epoch for tp in mirrors}
    return await copied_ends(old, await old.mirror_stands(mirrors, retry=old.retry), epochs)


async def _parting(
    old: ClusterClient, new: ClusterClient, tp: TopicPartition, copied: int | None, made_since: bool
) -> Parting:
    """`copied`: from there on the old side has only what a promotion wrote that was broken off. `made_since`:
    by the new side for itself, so it need not be a copy of anything."""
    start = (await old.list_offsets({tp: EARLIEST}))[tp].offset
    end = (await old.list_offsets({tp: LATEST}))[tp].offset if copied is None else copied
    new_end = (await new.list_offsets({tp: LATEST}))[tp].offset
    if end > start:
        epoch = await _last_epoch(old, tp, end)
        common = await common_end(epoch, end, partial(epoch_end, new, tp), partial(epoch_end, old, tp))
    else:  # nothing is left that says where they parted: all that the new side has is copied
        epoch, common = -1, min((await new.list_offsets({tp: EARLIEST}))[tp].offset, end)
    if common is None:
        wrong: str | None = (
            f"{tp}: the new side knows nothing of leader epoch {epoch}, in which the old one ends: they are"
            " not copies of each other. Delete the old topic to mirror it anew"
        )
    else:
        wrong = await _difference(old, new, tp, common, start)
    if wrong is not None and not made_since:
        raise SwitchRefused(wrong)
    if wrong is not None or common is None:
        common = 0  # both sides have made it, as a topic grew at the old one that had no mirror yet
    records, seconds, only_old = 0, None, max(common, start)
    if only_old < end:
        records = end - only_old
        seconds = await _seconds(old, tp, only_old, end)
    return Parting(*tp, common, end, new_end, records, seconds)


async def _last_epoch(client: ClusterClient, tp: TopicPartition, end: int) -> int:
    return (await _heads(client, tp, end - 1, end))[0].leader_epoch


async def _difference(
    old: ClusterClient, new: ClusterClient, tp: TopicPartition, common: int, old_start: int
) -> str | None:
    """None: the last batch before the parting is the same on both sides, as far as both still have it; where
    compaction has taken it on either side, those before it that both have. Raises ProtocolError."""
    start = max(old_start, (await new.list_offsets({tp: EARLIEST}))[tp].offset)
    if common <= start:
        return None
    ours, theirs = [await _heads(client, tp, common - 1, common) for client in (old, new)]
    if ours and theirs:
        pairs = [(ours[0], theirs[0])]
    else:
        look_back = max(start, common - _LOOK_BACK)
        ours, theirs = [await _heads(client, tp, look_back, common) for client in (old, new)]
        known = {header.base_offset: header for header in theirs}
        pairs = [(header, known[header.base_offset]) for header in ours if header.base_offset in known]
    for one, other in pairs:
        if not _same(one, other):
            texts = [f"{h.base_offset} to {h.last_offset}, {h.max_timestamp} ms" for h in (one, other)]
            return (
                f"{tp}: by leader epochs both sides are the same up to offset {common}, but batches before it"
                f" differ ({'; '.join(texts)}): nothing was changed. Compare both (isthmus audit)"
            )
    return None


async def _heads(client: ClusterClient, tp: TopicPartition, start: int, end: int) -> list[BatchHeader]:
    """Of the batches from the one that holds `start` on, in one answer, that begin before `end`."""
    found = await _batches(client, tp, start)
    return [header for _, header in iter_headers(found.batches) if header.base_offset < end]


def _same(one: BatchHeader, other: BatchHeader) -> bool:
    """Compaction leaves a batch its place and its producer, and takes records with their times; on both sides
    perhaps as many, and others."""
    places = [(each.base_offset, each.last_offset, each.producer_id) for each in (one, other)]
    whole = all(each.record_count == each.last_offset - each.base_offset + 1 for each in (one, other))
    return places[0] == places[1] and (not whole or one.max_timestamp == other.max_timestamp)


async def _seconds(client: ClusterClient, tp: TopicPartition, start: int, end: int) -> float:
    first, last = [await _batches(client, tp, offset) for offset in (start, end - 1)]
    _, head = next(iter_headers(first.batches))
    *_, (_, tail) = iter_headers(last.batches)
    # Compaction keeps a date to come in the place of the first one.
    first_ms = head.max_timestamp if head.attributes & DELETE_HORIZON else head.base_timestamp
    return max(tail.max_timestamp - first_ms, 0) / 1000


async def reverse(
    old: ClusterClient,
    new: ClusterClient,
    names: Mapping[str, str | None],
    back: str,
    folder: Path,
    say: Say,
) -> list[Parting]:
    """The old side's topics are mirrors of the new side's, cut to where both parted. Raises ProtocolError;
    SwitchRefused for a side that can hold no mirrors, once what only it has is saved.
    """
    there = (await new.metadata(list(names))).topics
    ids = {name: there[name].topic_id for name in names}
    texts = {name: MirrorSource.of(back, new.cluster_id, ids[name]).text for name in names}
    marks = {name: MirrorSource.of(f"{TURNED} {back}", new.cluster_id, ids[name]).text for name in names}
    try:
        await changed(old, {name: Change(marks[name], mine) for name, mine in names.items()})
    except NotSupportedError:
        await _save_all(old, await partings(old, new, names), folder, say)
        raise SwitchRefused(
            "the old source is no cluster of isthmus, so it cannot be a mirror. What only it has is saved to"
            f" {folder}, as far as it has been written by now; nothing was changed. The way back:"
            " delete its topics, copy them back with a link that translates offsets, and mirror them anew"
        ) from None
    await heard(old, marks)
    now = {name: None if mine is None else marks[name] for name, mine in names.items()}
    done = await partings(old, new, now)  # once more: nobody writes any more
    await _save_all(old, done, folder, say)
    ends = {TopicPartition(each.topic, each.partition): each.common_end for each in done}
    await _take_back(old, ends, say)
    cut_to = ends | await _filled_anew(old, new, done, say)
    for some in portions(cut_to):
        await _cut(old, new, {tp: marks[tp.topic] for tp in some}, {tp: cut_to[tp] for tp in some})
    await _take_back(old, ends, say)  # members may have joined again and read the same meanwhile
    await changed(old, {name: Change(texts[name], marks[name]) for name in names})
    await heard(old, texts)
    say(f"mirrors of {back}: {', '.join(sorted(names))}")
    return done


async def _filled_anew(
    old: ClusterClient, new: ClusterClient, done: list[Parting], say: Say
) -> dict[TopicPartition, int]:
    """Where those go on of which the old side perhaps lacks what both had: it was compacted by later records,
    which are cut off."""
    cut = [TopicPartition(each.topic, each.partition) for each in done if each.records]
    names = await compacted(old, {tp.topic for tp in cut})
    asked = {tp: EARLIEST for tp in cut if tp.topic in names}
    found = {tp: at.offset for tp, at in (await new.list_offsets(asked) if asked else {}).items()}
    for tp, offset in sorted(found.items()):
        say(f"{tp}: compacted by what is cut off, perhaps: it is copied anew from offset {offset}")
    return found


async def _take_back(old: ClusterClient, ends: Mapping[TopicPartition, int], say: Say) -> None:
    for name, text in sorted((await take_back(old, ends)).items()):
        say(f"group {name} {text}")


async def _cut(
    old: ClusterClient,
    new: ClusterClient,
    texts: Mapping[TopicPartition, str],
    ends: Mapping[TopicPartition, int],
) -> None:
    """Raises the terms above those of the new side, and cuts what is longer."""
    least = {tp: (await new.leader(tp)).epoch + HEADROOM for tp in ends}
    for tp, stand in (await old.mirror_stands(texts, retry=old.retry)).items():
        # Followers find out by epochs, in a term that nothing was written in.
        least[tp] = max(least[tp], stand.last_epoch + 1)
    stands = await raised(old, texts, least)
    longer = {tp: stand for tp, stand in stands.items() if stand.end > ends[tp]}
    if longer:
        await settled(old, texts, longer, ends)


async def _save_all(old: ClusterClient, done: list[Parting], folder: Path, say: Say) -> None:
    for parting in done:
        if parting.records:
            tp = TopicPartition(parting.topic, parting.partition)
            parting.saved_to = str(await save(old, tp, parting, folder))
            say(f"{tp}: saved {counted(parting.records, 'record')} of the old side to {parting.saved_to}")


async def save(client: ClusterClient, tp: TopicPartition, parting: Parting, folder: Path) -> Path:
    """The batches from the parting on as a segment file, for Kafka's dump-log tool too, and what it holds.
    What is there already stays. Raises SwitchRefused, ProtocolError."""
    try:
        return await _save(client, tp, parting, folder / f"{tp.topic}-{tp.partition}")
    except OSError as error:
        raise SwitchRefused(
            f"{tp}: what only the old side has cannot be saved to {folder}: {error.strerror}. Nothing of it"
            " was cut, and the topic takes no writes meanwhile: run it again with another --save-to"
        ) from None


async def _save(client: ClusterClient, tp: TopicPartition, parting: Parting, place: Path) -> Path:
    place.mkdir(parents=True, exist_ok=True)
    name = f"{parting.common_end:020d}"
    path = place / f"{name}.log"
    for number in count(2):
        if not path.exists():
            break
        path = place / f"{name}.{number}.log"
    position = max(parting.common_end, (await client.list_offsets({tp: EARLIEST}))[tp].offset)
    start, gone = position, []
    with path.open("xb") as file:
        while position < parting.old_end:
            try:
                found = await _batches(client, tp, position)
            except KafkaError as error:
                first = (await client.list_offsets({tp: EARLIEST}))[tp].offset
                if not _is_out_of_range(error) or first <= position:
                    raise
                gone.append([position, first])  # retention took it before it could be saved
                position = first
                continue
            file.write(found.batches)
            position = found.next_offset
        file.flush()
        os.fsync(file.fileno())
    about = {
        "cluster": client.cluster_id,
        "topic": tp.topic,
        "partition": tp.partition,
        "from_offset": start,
        "to_offset": position,
        "bytes": path.stat().st_size,
        "taken_by_retention": gone,
    }
    path.with_suffix(".json").write_text(json.dumps(about, indent=2) + "\n")
    return path
