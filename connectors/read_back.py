"""Reading restored partitions again: a restore counts as done only when the target gave everything back.

Owns counting: from the first restored offset to the end that the ledger claims, every batch with a checksum
that holds, no hole in between. It must not know how the data came there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from connectors.errors import RestoreError
from protocol.client import ClusterClient
from protocol.records.header import check_crc, iter_headers
from protocol.types import TopicPartition
from transfer.endpoint import Chunk, SourceFault
from transfer.kafka.source import KafkaSource


async def count_back(
    client: ClusterClient,
    ranges: Mapping[TopicPartition, tuple[int, int]],
    *,
    stall_s: float,
    moved: Callable[[int], None],
) -> dict[TopicPartition, int]:
    """Records found in each partition's (start, end). Raises RestoreError when one cannot be read."""
    counts = dict.fromkeys(ranges, 0)
    left = {tp: end for tp, (start, end) in ranges.items() if start < end}
    source = KafkaSource(client)
    try:
        for tp in left:
            await source.open(tp, ranges[tp][0])
        while left:
            try:
                async with asyncio.timeout(stall_s):
                    arrived = await source.read()
            except TimeoutError:
                names = ", ".join(f"{tp.topic}-{tp.partition}" for tp in left)
                raise RestoreError(f"reading back: nothing came for {stall_s:.0f} s from {names}") from None
            for item in arrived:
                if isinstance(item, SourceFault):
                    raise RestoreError(f"reading back {item.tp.topic}-{item.tp.partition}: {item.message}")
                if item.tp not in left:
                    continue
                found = _count(item, left[item.tp])
                counts[item.tp] += found
                moved(found)
                if item.next_offset >= left[item.tp]:
                    del left[item.tp]
                    await source.close(item.tp)
    finally:
        await source.aclose()
    return counts


def _count(chunk: Chunk, end: int) -> int:
    records = 0
    for pos, header in iter_headers(chunk.batches):
        if header.base_offset >= end or header.next_offset <= chunk.first_offset:
            continue
        if not check_crc(chunk.batches, pos, header):
            where = f"{chunk.tp.topic}-{chunk.tp.partition}"
            raise RestoreError(f"reading back {where}: the batch at {header.base_offset} is damaged")
        if not header.is_control:
            records += header.record_count
    return records
