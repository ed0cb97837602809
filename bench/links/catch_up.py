"""Copying what is there: throughput, CPU of the copying process and of the target's broker, start, memory.

Throughput and CPU count from the first record at the target to the last, so that start-up, which has a row
of its own, does not; memory is the peak of the whole run. MB are 10^6 bytes of record values.
"""

from __future__ import annotations

import asyncio
import time

from bench.brokers.limits import RowFailed
from bench.links.data import Data
from bench.links.sides import Ground, copying
from protocol.client import LATEST, ClusterClient
from protocol.errors import ProtocolError
from protocol.types import TopicPartition

Figures = dict[str, float | None]

_POLL_S = 0.02
_AT_REST_S = 2.0
"""Transactions write markers, so that the ends alone do not tell when all records are there."""


async def ends(client: ClusterClient, topic: str, partitions: int) -> int:
    """Records in a topic; 0 while there is none."""
    spots = {TopicPartition(topic, partition): LATEST for partition in range(partitions)}
    try:
        return sum(found.offset for found in (await client.list_offsets(spots)).values())
    except ProtocolError:
        return 0


async def catch_up(contender: str, between: Ground, topic: str, data: Data) -> Figures:
    """One run over a topic that nobody adds to."""
    async with (
        ClusterClient(between.target.bootstrap) as client,
        copying(contender, between, topic) as copier,
    ):
        name = copier.at_target(topic)
        while not (there := await ends(client, name, data.partitions)):
            copier.cpu_s()  # raises when it has ended
            await asyncio.sleep(_POLL_S)
        first = time.monotonic()
        own, theirs = copier.cpu_s(), between.target.cpu_s()
        done, seconds = there, 0.0
        at_last = own, theirs
        while done < data.count or (between.exactly_once and time.monotonic() - first < seconds + _AT_REST_S):
            now = await ends(client, name, data.partitions)
            used = copier.cpu_s(), between.target.cpu_s()
            if now != done:
                done, seconds, at_last = now, time.monotonic() - first, used
            await asyncio.sleep(_POLL_S)
        own, theirs = at_last[0] - own, at_last[1] - theirs
        megabytes = (data.count - there) * data.size / 1e6
        if not megabytes:
            raise RowFailed("all was there at the first look: more records are needed (--mb)")
        return {
            "mb_s": megabytes / seconds,
            "mb_cpu_s": megabytes / max(own, 0.01),
            "target_cpu_s_per_gb": theirs / megabytes * 1000,
            "first_record_s": first - copier.began,
            "resident_mb": copier.peak_mb(),
            "p50_ms": None,
            "p99_ms": None,
        }
