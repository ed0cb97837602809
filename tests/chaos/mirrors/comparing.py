"""Whether both sides hold the same in the end, byte for byte and from the same offset on; of compacted topics
what both cleaners have left.

A source whose rules let go of records goes on doing so: both sides are looked at until they agree.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from protocol.client import EARLIEST, ClusterClient
from protocol.errors import ProtocolError
from protocol.records import decode_batches
from protocol.types import TopicPartition
from tests.chaos.links.load import read_all
from tests.chaos.mirrors.history import Place
from tests.chaos.mirrors.topics import keeps
from tests.cluster.mirrors import ends, log_bytes

_BOUND_S = 60.0


async def differing(here: str, there: str, topics: Mapping[str, int]) -> list[str]:
    """Of a source and its mirrors, by their bootstraps: what is not the same within a minute."""
    async with ClusterClient(here) as source, ClusterClient(there) as mirror:
        sides = Sides(Side(here, source), Side(there, mirror))
        tps = [TopicPartition(topic, index) for topic, count in topics.items() for index in range(count)]
        return [f"{tp}: {text}"[:500] for tp in tps if (text := await _until_same(sides, tp))]


class Side(NamedTuple):
    bootstrap: str
    client: ClusterClient


class Sides(NamedTuple):
    source: Side
    mirror: Side


async def _until_same(sides: Sides, tp: TopicPartition) -> str:
    deadline = asyncio.get_running_loop().time() + _BOUND_S
    while True:
        try:
            text = await _difference(sides, tp)
        except (ProtocolError, TimeoutError) as error:  # a log may begin later by now than it did when asked
            text = repr(error)
        if not text or asyncio.get_running_loop().time() > deadline:
            return text
        await asyncio.sleep(0.5)


async def _difference(sides: Sides, tp: TopicPartition) -> str:
    clients = [side.client for side in sides]
    if tp.topic not in (await sides.mirror.client.metadata(None)).topics:
        return "there is no mirror"
    last = [(await ends(each, tp.topic, tp.partition + 1))[tp.partition] for each in clients]
    first = [(await each.list_offsets({tp: EARLIEST}))[tp].offset for each in clients]
    if last[0] != last[1] or first[0] != first[1]:
        return f"offsets {first[0]} to {last[0]} at the source, {first[1]} to {last[1]} at the mirror"
    logs = [await log_bytes(each, *tp) for each in clients]
    if not keeps(tp.topic).keys:
        return "" if logs[0] == logs[1] else f"other bytes between {first[0]} and {last[0]}"
    found = [await _cleaned(side, log, tp) for side, log in zip(sides, logs, strict=True)]
    return _difference_of_cleaned(*found)


class Cleaned(NamedTuple):
    records: dict[int, tuple[object, ...]]
    """By offset."""
    newest: dict[bytes | None, int]
    """Offsets of those that readers see last, by key."""


async def _cleaned(side: Side, log: bytes, tp: TopicPartition) -> Cleaned:
    rows = await asyncio.to_thread(read_all, side.bootstrap, *tp)
    readable = {offset for offset, _ in rows}
    records = list(decode_batches(log))
    return Cleaned(
        {each.offset: (each.key, each.value, each.timestamp, tuple(each.headers)) for each in records},
        {each.key: each.offset for each in records if each.offset in readable},
    )


def _difference_of_cleaned(source: Cleaned, mirror: Cleaned) -> str:
    """What both have is the same, and each has the last record of each key."""
    here, there = source.records, mirror.records
    if other := [offset for offset in here.keys() & there.keys() if here[offset] != there[offset]]:
        return f"other records at {sorted(other)[:5]}"
    keys = source.newest.keys() | mirror.newest.keys()
    apart = [key for key in keys if source.newest.get(key) != mirror.newest.get(key)]
    return f"the last record of these keys is not the same: {sorted(map(str, apart))[:5]}" if apart else ""


async def sizes(bootstrap: str, topics: Mapping[str, int]) -> dict[Place, int]:
    """Bytes of the logs of topics that are bounded by size."""
    async with ClusterClient(bootstrap) as client:
        return {
            (topic, index): len(await log_bytes(client, topic, index))
            for topic, count in topics.items()
            if keeps(topic).retention_bytes
            for index in range(count)
        }
