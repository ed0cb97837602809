"""Partitions whose backup ends before an open transaction: how much is behind it, since when, whose it is.

Owns asking. Readers of committed data get nothing behind the first record of an open transaction, also not
what others had committed there; so a backup ends before it. A transaction that outlives every time limit (a
hanging one, KIP-664) would keep all later data out of each backup: that is a problem, any other is only said.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from connectors.manifest import HeldUp
from connectors.topic_facts import Range
from protocol.client import ClusterClient
from protocol.errors import ProtocolError
from protocol.records.header import read_header
from protocol.types import TopicPartition
from replicator.whole_batches import whole_batches

LONG_MS = 900_000
"""Kafka's default of `transaction.max.timeout.ms`: who is open for longer hangs, or was allowed to."""
_FIRST_BYTES = 4 << 10
_AT_ONCE = 8


async def held_up(
    client: ClusterClient, ranges: Mapping[TopicPartition, Range]
) -> dict[TopicPartition, HeldUp]:
    """Of those partitions where more was written than could be read."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def look(tp: TopicPartition, found: Range) -> HeldUp:
        async with gate:
            return await _first_of(client, tp, found)

    behind = {tp: found for tp, found in ranges.items() if found.written > found.end}
    looks = await asyncio.gather(*(look(tp, found) for tp, found in behind.items()))
    return dict(zip(behind, looks, strict=True))


def is_long(held: HeldUp) -> bool:
    """Whether it is no transaction that is just at work (by the clocks of its writer and of this machine)."""
    return held.since_ms is not None and time.time() * 1000 - held.since_ms > LONG_MS


async def _first_of(client: ClusterClient, tp: TopicPartition, found: Range) -> HeldUp:
    """The stable end is where the oldest open transaction begins: its batch says the rest."""
    offsets = found.written - found.end
    try:
        read = await whole_batches(client, tp, found.end, max_bytes=_FIRST_BYTES)
        header = read_header(read.batches)
    except ProtocolError:  # the numbers are known all the same
        return HeldUp(offsets=offsets)
    if not header.is_transactional or header.base_offset != found.end:
        return HeldUp(offsets=offsets)  # it has ended meanwhile, and was taken away
    appended = header.timestamp_type == 1
    since_ms = header.max_timestamp if appended else header.base_timestamp
    return HeldUp(
        offsets=offsets,
        since_ms=since_ms if since_ms >= 0 else None,
        producer_id=header.producer_id,
    )
