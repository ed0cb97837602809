"""What a switch would cost, per partition: how far the mirror is, and how many records and seconds are at
risk.

Owns the numbers that `--dry-run` shows and that a failover reports. With the source at hand they are counted
now; without it they are what the link knew last, and the time since then is at risk too. Of a source that is
half dead what it answers counts as heard now, and nothing else of it. Changes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from protocol.client import EARLIEST, LATEST, NO_RETRIES, ClusterClient
from protocol.client.mirror_calls import MIRROR_SOURCE, MirrorStand
from protocol.errors import ErrorCode, KafkaError, NotThere, ProtocolError
from protocol.types import TopicPartition
from replicator.mirrors.broken_off import copied_ends
from replicator.mirrors.lineage import MirrorSource
from replicator.mirrors.standing import LastSeen, last_seen
from replicator.mirrors.topics import mirror_text
from replicator.piecemeal import piecemeal
from replicator.settings import LinkSettings

ASK_S = 5.0
_NOW = "now"


class SwitchRefused(ProtocolError):
    """A change of roles that was not begun, or not finished: why, and what to do."""


class NoSuchTopic(SwitchRefused, NotThere):
    """The target does not have a topic that was named."""


@dataclass(slots=True)
class Risk:
    """One partition. `source_end` -1: nothing is known. `seconds` None: the mirror was never level."""

    topic: str
    partition: int
    mirror_end: int
    source_end: int
    records: int | None
    seconds: float | None
    open_transactions: int
    counted: str
    """`now`, or how long ago the source was heard last: what it has taken in since is not in `records`."""

    @property
    def is_exact(self) -> bool:
        return self.counted == _NOW

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


async def find_mirrors(
    target: ClusterClient, settings: LinkSettings, topics: tuple[str, ...] = ()
) -> dict[str, MirrorSource]:
    """This link's mirrors at the target, those of `topics` if any are named. Raises SwitchRefused."""
    there = {name for name, topic in (await target.metadata(None)).topics.items() if not topic.error}
    unknown = sorted(set(topics) - there)
    if unknown:
        raise NoSuchTopic(f"there is no topic {', '.join(unknown)} in {settings.target.alias}")
    taken = settings.topic_filter()
    candidates = [name for name in (topics or sorted(there)) if topics or taken.accepts(name)]
    found: dict[str, MirrorSource] = {}
    writable: list[str] = []
    for name, configs in (await target.describe_configs(candidates) if candidates else {}).items():
        text = mirror_text(configs)
        source = None if text is None else MirrorSource.read(text)
        if source is not None and source.link == settings.name:
            found[name] = source
        elif topics:
            is_it = f"is a mirror of {text}" if text else "is no mirror (it is writable)"
            raise SwitchRefused(f"{name} in {settings.target.alias} {is_it}, not one of link {settings.name}")
        elif text is None:
            writable.append(name)
    if not found:
        text = f"link {settings.name} has no mirror in {settings.target.alias}: no {MIRROR_SOURCE} says so"
        if writable:
            more = f" and {len(writable) - 3} more" if len(writable) > 3 else ""
            text += f". {', '.join(writable[:3])}{more} there are writable: promoted, or failed over, before?"
        raise SwitchRefused(text)
    return found


async def stands(
    target: ClusterClient, mirrors: Mapping[str, MirrorSource]
) -> dict[TopicPartition, MirrorStand]:
    """How each partition of the mirrors stands. Raises ProtocolError."""
    metadata = await target.metadata(list(mirrors))
    tps = [TopicPartition(name, index) for name in mirrors for index in metadata.topics[name].partitions]
    found = await target.mirror_stands({tp: mirrors[tp.topic].text for tp in tps}, retry=target.retry)
    return {tp: found[tp] for tp in tps}


async def source_ends(
    source: ClusterClient, tps: list[TopicPartition], fenced: Mapping[str, str] | None = None
) -> dict[TopicPartition, int]:
    """What readers may read at the source now, of all of them. With `fenced`, what its topics say while they
    refuse writers: up to where its leaders' logs go, which readers may read once followers have it; and they
    do refuse writers. Raises SwitchRefused, ProtocolError."""
    try:
        async with asyncio.timeout(ASK_S * 3):
            return await (_fenced_ends(source, tps, fenced) if fenced else _ends(source, tps))
    except TimeoutError:
        raise SwitchRefused(
            f"the source has not said within {ASK_S * 3:g} s where its partitions end: are all of its brokers"
            " up? isthmus mirrors failover does not need it"
        ) from None


async def _fenced_ends(
    source: ClusterClient, tps: list[TopicPartition], fenced: Mapping[str, str]
) -> dict[TopicPartition, int]:
    try:
        found = await source.mirror_stands({tp: fenced[tp.topic] for tp in tps}, retry=source.retry)
    except KafkaError as error:
        if error.code is not ErrorCode.INVALID_TOPIC_EXCEPTION:
            raise
        raise SwitchRefused(
            f"the source takes writes again, though it was fenced for this ({error}): is somebody else"
            " promoting, or giving a promotion up?"
        ) from None
    return {tp: found[tp].end for tp in tps}


async def source_epochs(
    source: ClusterClient, mirrors: Mapping[str, MirrorSource]
) -> dict[TopicPartition, int]:
    """All partitions that the source has of the topics that were mirrored, with their leaders' epochs. Raises
    ProtocolError."""
    topics = (await source.metadata(list(mirrors))).topics
    return {
        TopicPartition(name, index): at.leader_epoch
        for name, of in mirrors.items()
        if (topic := topics.get(name)) is not None and not topic.error
        if MirrorSource.of(of.link, source.cluster_id, topic.topic_id) == of
        for index, at in topic.partitions.items()
    }


async def broken_off(
    source: ClusterClient, target: ClusterClient, mirrors: Mapping[str, MirrorSource]
) -> tuple[dict[TopicPartition, MirrorStand], dict[TopicPartition, int]]:
    """How mirrors stand, and of those that a switch has written to, up to where they are a copy. Raises
    ProtocolError."""
    standing = await stands(target, mirrors) if mirrors else {}
    return standing, await copied_ends(target, standing, await source_epochs(source, mirrors))


async def same_lineage(source: ClusterClient, mirrors: Mapping[str, MirrorSource]) -> None:
    """Raises SwitchRefused unless the source has the topics that were mirrored."""
    known = (await source.metadata(list(mirrors))).topics
    for name, mirror in mirrors.items():
        topic = known.get(name)
        if topic is None or topic.error:
            raise SwitchRefused(f"{name} is not at the source: isthmus mirrors failover keeps what is here")
        if MirrorSource.of(mirror.link, source.cluster_id, topic.topic_id) != mirror:
            raise SwitchRefused(
                f"{name} at the source is another topic than the one that was mirrored ({mirror.text}):"
                " isthmus mirrors failover keeps what is here"
            )


async def ends_that_answer(
    source: ClusterClient, mirrors: Mapping[str, MirrorSource], tps: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """As `source_ends`, of those partitions alone that answer soon. No broker waits for another, and a topic
    that was created again is not the source."""
    found: dict[TopicPartition, int] = {}

    async def ask(part: list[TopicPartition]) -> None:
        with contextlib.suppress(ProtocolError, TimeoutError):
            async with asyncio.timeout(ASK_S):
                found.update((await piecemeal(partial(_ends, source), part))[0])

    try:
        async with asyncio.timeout(ASK_S):
            topics = (await source.metadata(list(mirrors), retry=NO_RETRIES)).topics
    except (ProtocolError, TimeoutError):
        return found
    led: dict[int, list[TopicPartition]] = {}
    for tp in tps:
        topic = topics.get(tp.topic)
        of = mirrors[tp.topic]
        if topic is None or MirrorSource.of(of.link, source.cluster_id, topic.topic_id) != of:
            continue
        at = topic.partitions.get(tp.partition)
        if at is not None and at.leader >= 0:
            led.setdefault(at.leader, []).append(tp)
    await asyncio.gather(*map(ask, led.values()))
    return found


async def _ends(source: ClusterClient, tps: list[TopicPartition]) -> dict[TopicPartition, int]:
    first = await source.list_offsets(dict.fromkeys(tps, EARLIEST), retry=NO_RETRIES)
    last = await source.list_offsets(dict.fromkeys(tps, LATEST), retry=NO_RETRIES)
    return {tp: max(last[tp].offset, first[tp].offset) for tp in tps}


async def risks(
    source: ClusterClient | None,
    target: ClusterClient,
    settings: LinkSettings,
    mirrors: Mapping[str, MirrorSource],
    *,
    whole: bool = False,
    fenced: Mapping[str, str] | None = None,
) -> list[Risk]:
    """`source` None: it cannot be asked; `whole`: all of its partitions have to answer, and to be those
    that were mirrored; `fenced` as for `source_ends`. Partitions that only the source has are at risk as a
    whole. Raises ProtocolError, but not for what the source does not answer unless `whole`."""
    standing = await stands(target, mirrors)
    live: Mapping[TopicPartition, int] = {}
    epochs: Mapping[TopicPartition, int] = {}
    if source is not None and whole:
        await same_lineage(source, mirrors)
        epochs = await source_epochs(source, mirrors)
        live = await source_ends(source, sorted({*standing, *epochs}), fenced)
    elif source is not None:
        with contextlib.suppress(ProtocolError, TimeoutError):
            async with asyncio.timeout(ASK_S):
                epochs = await source_epochs(source, mirrors)
        live = await ends_that_answer(source, mirrors, {*standing, *epochs})
    tps = sorted({*standing, *epochs})
    known = await last_seen(target, settings.name, tps)
    here = {tp: stand.high_watermark for tp, stand in standing.items()}
    here |= await copied_ends(target, standing, epochs)
    now_ms = time.time_ns() // 1_000_000
    return [_risk(tp, here.get(tp, 0), standing.get(tp), live.get(tp), known.get(tp), now_ms) for tp in tps]


def _risk(
    tp: TopicPartition,
    end: int,
    stand: MirrorStand | None,
    live: int | None,
    seen: LastSeen | None,
    now_ms: int,
) -> Risk:
    opened = stand.open_transactions if stand is not None else 0
    level_ms = seen.level_ms if seen is not None else 0
    since = round((now_ms - level_ms) / 1000, 3) if level_ms else None
    if live is not None:
        records = max(live - end, 0)
        return Risk(*tp, end, live, records, since if records else 0.0, opened, _NOW)
    if seen is None:
        return Risk(*tp, end, -1, None, None, opened, "never")
    ago = f"{(now_ms - seen.seen_ms) / 1000:.1f} s ago"
    return Risk(*tp, end, seen.source_end, max(seen.source_end - end, 0), since, opened, ago)
