"""Probes that look at links: what the target holds, and whether anything is left to copy.

Both read the link's ledger at the target and compare it with the logs, so a link that is dead or lying does
not pass: `copy_settled` needs no source (it is gone), `links_drained` needs both ends.
"""

from __future__ import annotations

import asyncio

from dr_runbooks.engine import Context
from dr_runbooks.probes import probe_client
from dr_runbooks.registry import NotYet, Result, probe
from protocol.client import LATEST, ClusterClient
from protocol.errors import KafkaError, ProtocolError
from protocol.types import TopicPartition
from replicator.drain import wait_drained
from replicator.filters import TopicFilter
from replicator.progress import read_ledgers
from topology.settings import link_settings
from transfer.ledger import LedgerError, PartitionLedger

SETTLE_S = 0.4

Ledgers = dict[TopicPartition, PartitionLedger]


@probe
async def copy_settled(context: Context, link: str, topics: list[str]) -> Result:
    """The target holds what its ledger says, and no more arrives: the point to fail over from."""
    target = context.topology.link_ends(link)[1]
    try:
        async with probe_client(context, target) as client:
            before = await _ends(client, await _ledgers(client, link, topics))
            await asyncio.sleep(SETTLE_S)
            ledgers = await _ledgers(client, link, topics)
            after = await _ends(client, ledgers)
    except ProtocolError as error:
        raise NotYet(str(error)) from None
    if before != after:
        raise NotYet("records still arrive")
    behind = [
        f"{tp.topic}-{tp.partition}" for tp, ledger in ledgers.items() if ledger.runs.target_end < after[tp]
    ]
    if behind:
        raise NotYet(f"the ledger is behind the log: {', '.join(behind)}")
    return {
        "next_offsets": {
            topic: {
                str(tp.partition): ledger.next_source_offset
                for tp, ledger in ledgers.items()
                if tp.topic == topic
            }
            for topic in topics
        },
        "records": sum(ledger.records for ledger in ledgers.values()),
        "gaps": sum(len(ledger.gaps) for ledger in ledgers.values()),
    }


@probe
async def links_drained(context: Context, links: list[str]) -> Result:
    """Every partition that the links copy has been copied to the source's present end."""
    copied: Result = {}
    for link in links:
        copied[link] = await _drained(context, link)
    return copied


async def _drained(context: Context, link: str) -> int:
    source, target = context.topology.link_ends(link)
    settings = link_settings(context.topology, context.runtime, link)
    # Heartbeats never end, so they say nothing about being drained.
    wanted = TopicFilter(settings.names(), settings.topics, settings.topics_exclude, heartbeats=False)
    try:
        async with probe_client(context, source) as at_source, probe_client(context, target) as at_target:
            metadata = await at_source.metadata(None)
            topics = [name for name in metadata.topics if wanted.refuses(name) is None]
            found = await wait_drained(at_source, at_target, link, topics, timeout_s=0)
    except (ProtocolError, LedgerError) as error:
        raise NotYet(f"{link}: {error}") from None
    if not found.done:
        raise NotYet(f"{link}: {sum(found.left.values())} records to copy in {len(found.left)} partitions")
    return sum(found.ends.values())


async def _ledgers(client: ClusterClient, link: str, topics: list[str]) -> Ledgers:
    try:
        found = await read_ledgers(client, link)
    except LedgerError as error:
        raise NotYet(f"{link}: {error}") from None
    ledgers = {tp: ledger for tp, ledger in found.items() if tp.topic in topics}
    missing = set(topics) - {tp.topic for tp in ledgers}
    if missing:
        raise NotYet(f"{link} has no progress for {', '.join(sorted(missing))}")
    return ledgers


async def _ends(client: ClusterClient, ledgers: Ledgers) -> dict[TopicPartition, int]:
    """End offsets at the target, by source partition."""
    at_target = {tp: TopicPartition(ledger.target.topic, tp.partition) for tp, ledger in ledgers.items()}
    try:
        listed = await client.list_offsets(dict.fromkeys(at_target.values(), LATEST))
    except KafkaError as error:
        raise NotYet(str(error)) from None
    return {tp: listed[there].offset for tp, there in at_target.items()}
