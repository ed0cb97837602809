"""Probes that look at links: what the target holds, and whether anything is left to copy.

Both read what the link keeps at the target and compare it with the logs, so a link that is dead or lying does
not pass: `copy_settled` needs no source (it is gone), `links_drained` needs both ends. Mirrors with identical
offsets have no ledger: the end of a mirror's log says how far it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from dr_runbooks.engine import Context
from dr_runbooks.probes import probe_client
from dr_runbooks.registry import NotYet, Result, probe
from protocol.client import LATEST, ClusterClient
from protocol.counted import counted
from protocol.errors import ProtocolError
from protocol.types import ZERO_UUID, TopicPartition, uuid_to_text
from replicator.acknowledgements import Difference
from replicator.drain import wait_drained
from replicator.entry_rows import Entry
from replicator.filters import TopicFilter
from replicator.mirrors.assessing import find_mirrors, risks, stands
from replicator.mirrors.on_record import open_now
from replicator.progress import ProgressStore
from replicator.settings import LinkSettings
from topology.settings import link_settings
from transfer.ledger import LedgerError

SETTLE_S = 0.4
_NAMED = 5

Entries = dict[TopicPartition, Entry]
Ends = dict[TopicPartition, int]


@probe
async def copy_settled(context: Context, link: str, topics: list[str]) -> Result:
    """The target holds what its ledger says, and no more arrives: the point to fail over from."""
    settings = link_settings(context.topology, context.runtime, link)
    settled = _mirrors_settled if settings.offsets == "identical" else _copies_settled
    try:
        async with probe_client(context, context.topology.link_ends(link)[1]) as client:
            ends, records, gaps = await settled(client, settings, topics)
    except (ProtocolError, LedgerError) as error:
        raise NotYet(f"{link}: {error}") from None
    return {
        "next_offsets": {
            topic: {str(tp.partition): end for tp, end in ends.items() if tp.topic == topic}
            for topic in topics
        },
        "records": records,
        "gaps": gaps,
    }


async def _copies_settled(
    client: ClusterClient, settings: LinkSettings, topics: list[str]
) -> tuple[Ends, int, int]:
    """Next source offsets, records and gaps, by the ledgers."""
    before = await _ends(client, await _entries(client, settings, topics))
    await asyncio.sleep(SETTLE_S)
    entries = await _entries(client, settings, topics)
    after = await _ends(client, entries)
    if before != after:
        raise NotYet("records still arrive")
    wrong = []
    for tp, entry in entries.items():
        booked = entry.ledger.runs.target_end
        if booked > after[tp]:
            wrong.append(
                f"{tp.topic}-{tp.partition} has lost offsets {after[tp]} to {booked - 1} at the target"
            )
        elif booked < after[tp] and not entry.once:  # in one transaction they are never apart
            wrong.append(f"the ledger of {tp.topic}-{tp.partition} is behind the log")
    if wrong:
        raise NotYet(_some(wrong))
    ledgers = {tp: entry.ledger for tp, entry in entries.items()}
    return (
        {tp: ledger.next_source_offset for tp, ledger in ledgers.items()},
        sum(ledger.records for ledger in ledgers.values()),
        sum(len(ledger.gaps) for ledger in ledgers.values()),
    )


async def _mirrors_settled(
    client: ClusterClient, settings: LinkSettings, topics: list[str]
) -> tuple[Ends, int, int]:
    """The mirrors' ends, offsets in them, and what they lack."""
    mirrors = await find_mirrors(client, settings, tuple(topics))
    before = {tp: stand.end for tp, stand in (await stands(client, mirrors)).items()}
    await asyncio.sleep(SETTLE_S)
    after = {tp: stand.end for tp, stand in (await stands(client, mirrors)).items()}
    if before != after:
        raise NotYet("records still arrive")
    lacks = await open_now(client, settings, tuple(topics))
    return after, sum(after.values()), len(lacks)


@probe
async def links_drained(context: Context, links: list[str]) -> Result:
    """All that the links copy is copied to the source's present end, but for acknowledged gaps."""
    copied: Result = {}
    for link in links:
        copied[link] = await _drained(context, link)
    return copied


async def _drained(context: Context, link: str) -> int:
    source, target = context.topology.link_ends(link)
    settings = link_settings(context.topology, context.runtime, link)
    drained = _mirrors_drained if settings.offsets == "identical" else _copies_drained
    try:
        async with probe_client(context, source) as at_source, probe_client(context, target) as at_target:
            ends, left, lacks = await drained(at_source, at_target, settings)
    except (ProtocolError, LedgerError) as error:
        raise NotYet(f"{link}: {error}") from None
    if left:
        where = [f"{tp.topic}-{tp.partition}" for tp in left]
        raise NotYet(
            f"{link}: {counted(sum(left.values()), 'record')} to copy in {counted(len(left), 'partition')}:"
            f" {_some(where)}"
        )
    if lacks:
        raise NotYet(f"{link} lacks what nobody has acknowledged: {_some([str(lack) for lack in lacks])}")
    return sum(ends.values())


async def _copies_drained(
    source: ClusterClient, target: ClusterClient, settings: LinkSettings
) -> tuple[Ends, Ends, Collection[Difference]]:
    # Heartbeats never end, so they say nothing about being drained.
    wanted = TopicFilter(settings.names(), settings.topics, settings.topics_exclude, heartbeats=False)
    topics = [name for name in (await source.metadata(None)).topics if wanted.accepts(name)]
    found = await wait_drained(source, target, settings.name, topics, timeout_s=0)
    return found.ends, found.left, found.unacknowledged


async def _mirrors_drained(
    source: ClusterClient, target: ClusterClient, settings: LinkSettings
) -> tuple[Ends, Ends, Collection[Difference]]:
    mirrors = await find_mirrors(target, settings)
    wanted = settings.topic_filter()
    names = [name for name in (await source.metadata(None)).topics if wanted.accepts(name)]
    if without := sorted(set(names) - mirrors.keys()):
        raise NotYet(f"{settings.name}: no mirror yet of {_some(without)}")
    found = {
        TopicPartition(risk.topic, risk.partition): risk
        for risk in await risks(source, target, settings, mirrors, whole=True)
    }
    left = {tp: risk.records for tp, risk in found.items() if risk.records}
    return {tp: risk.source_end for tp, risk in found.items()}, left, await open_now(target, settings, ())


async def _entries(client: ClusterClient, settings: LinkSettings, topics: list[str]) -> Entries:
    progress = await ProgressStore(client, settings.progress_topic).refresh()
    entries = {tp: entry for tp, entry in progress.entries().items() if tp.topic in topics}
    missing = set(topics) - {tp.topic for tp in entries}
    if missing:
        raise NotYet(f"{settings.name} has no progress for {', '.join(sorted(missing))}")
    return entries


async def _ends(client: ClusterClient, entries: Entries) -> Ends:
    """End offsets at the target, by source partition, of the topics that were written."""
    there = {tp: entry.ledger.target for tp, entry in entries.items()}
    topics = (await client.metadata({lineage.topic for lineage in there.values()})).topics
    for at in there.values():
        topic = topics.get(at.topic)
        if topic is None or topic.error:
            raise NotYet(f"topic {at.topic} of the target: {topic.error.name if topic else 'there is none'}")
        if at.topic_id and topic.topic_id != ZERO_UUID and uuid_to_text(topic.topic_id) != at.topic_id:
            raise NotYet(f"{at.topic} at the target was made again since it was copied into")
    spots = {tp: TopicPartition(at.topic, at.partition) for tp, at in there.items()}
    listed = await client.list_offsets(dict.fromkeys(spots.values(), LATEST))
    return {tp: listed[spot].offset for tp, spot in spots.items()}


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
