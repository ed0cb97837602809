"""The first committed record of partitions at or after a time, at any Kafka cluster.

Owns what ListOffsets leaves open: it finds markers of transactions too, which carry the time of their commit
(in a copy that is made exactly once: of the copying), and records of aborted ones. So what it finds is read
until there is a record. A partition that cannot be asked hides no other. Knows nothing of links.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import NamedTuple

from protocol.client import NO_RETRIES, ClusterClient, Isolation
from protocol.errors import ProtocolError
from protocol.records.header import iter_headers
from protocol.records.reading import read_records
from protocol.types import TopicPartition
from replicator.ends import readable_ends
from replicator.piecemeal import piecemeal
from replicator.whole_batches import committed_chunk
from transfer.endpoint import Chunk
from transfer.rewrite import AbortedFilter

NONE_YET = "no record that late yet: the end"
READ_AT_MOST = 256 << 20
"""Bytes of one partition, behind the place that the broker names."""
_FIRST_BYTES = 64 << 10
_BYTES = 4 << 20
_AT_ONCE = 8
_ANY_TIME = -(1 << 63)


class Place(NamedTuple):
    """Where to read on so that no record of that time or later is missed.

    `timestamp` (ms) is that of the record there; None: `note` says what is there instead. `exact`: earlier
    records before it are all that is left out.
    """

    offset: int
    timestamp: int | None
    note: str | None = None
    exact: bool = True


async def first_since(
    client: ClusterClient, tps: Collection[TopicPartition], time_ms: int, *, read_at_most: int = READ_AT_MOST
) -> tuple[dict[TopicPartition, Place], dict[TopicPartition, str]]:
    """The places, and why some partitions have none. Raises ProtocolError for a cluster that is away."""
    ends, refused = await readable_ends(client, tps)  # before: what comes meanwhile lies behind them

    async def ask(part: list[TopicPartition]) -> dict[TopicPartition, int]:
        listed = await client.list_offsets(
            dict.fromkeys(part, time_ms), isolation=Isolation.READ_COMMITTED, retry=NO_RETRIES
        )
        return {tp: at.offset for tp, at in listed.items()}

    begins, refused_too = await piecemeal(ask, ends.keys())
    places: dict[TopicPartition, Place] = {}
    why = {tp: str(error) for tp, error in {**refused, **refused_too}.items()}
    gate = asyncio.Semaphore(_AT_ONCE)

    async def look(tp: TopicPartition, begin: int) -> None:
        async with gate:
            try:
                places[tp] = await _record_from(client, tp, begin, ends[tp], time_ms, read_at_most)
            except ProtocolError as error:
                why[tp] = str(error)

    async with asyncio.TaskGroup() as group:
        for tp, begin in begins.items():
            if begin < 0 or begin >= ends[tp]:
                places[tp] = Place(ends[tp], None, NONE_YET)
            else:
                group.create_task(look(tp, begin))
    return places, why


async def _record_from(
    client: ClusterClient, tp: TopicPartition, begin: int, end: int, time_ms: int, read_at_most: int
) -> Place:
    position, seen = begin, 0
    while position < end:
        chunk = await committed_chunk(client, tp, position, max_bytes=_BYTES if seen else _FIRST_BYTES)
        found = first_record(chunk, time_ms)
        if found is not None:
            return found if found.offset < end else Place(end, None, NONE_YET)
        position, seen = chunk.next_offset, seen + chunk.size
        if seen >= read_at_most and position < end:
            note = (
                f"no record that late in the {seen >> 20} MiB from here on; those behind were not looked at"
            )
            return Place(begin, None, note, exact=False)
    return Place(end, None, NONE_YET)


async def nothing_between(client: ClusterClient, tp: TopicPartition, begin: int, end: int) -> bool:
    """Whether readers of committed records find none at `begin ≤ offset < end`, and the log goes that far:
    there are markers of transactions, or what was aborted. False also where too much would have to be read.
    Raises ProtocolError."""
    ends, _ = await readable_ends(client, [tp])
    if ends.get(tp, -1) < end:
        return False
    position, seen = begin, 0
    while position < end and seen < READ_AT_MOST:
        chunk = await committed_chunk(client, tp, position, max_bytes=_FIRST_BYTES)
        found = first_record(chunk, _ANY_TIME)
        if found is not None:
            return found.offset >= end
        position, seen = chunk.next_offset, seen + chunk.size
    return position >= end


def first_record(chunk: Chunk, time_ms: int) -> Place | None:
    """The first committed record of the time or later; only a batch that reaches it is decoded."""
    aborted = AbortedFilter(chunk)
    for pos, header in iter_headers(chunk.batches):
        if aborted.skips(pos, header) or header.next_offset <= chunk.first_offset:
            continue
        if header.max_timestamp < time_ms:
            continue
        for record in read_records(chunk.batches, pos, header):
            if record.offset >= chunk.first_offset and record.timestamp >= time_ms:
                return Place(record.offset, record.timestamp)
    return None
