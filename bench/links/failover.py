"""Where groups go on after a failover: how many records of a partition each reads again at the target.

A topic of one partition is copied from its first record, so that each record has the same offset on both
sides: a group reads again what lies between its position at the target and its position at the source. A
group without a position at the target begins at its start, as consumers do with `auto.offset.reset=earliest`.
"""

from __future__ import annotations

import asyncio
import time

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Place

from bench.links.catch_up import ends
from bench.links.data import Data
from bench.links.sides import Ground, copying
from protocol.client import ClusterClient

RECORDS = 416_000
GROUPS = {
    "tip": RECORDS,
    "1,000 behind": RECORDS - 1000,
    "10,000 behind": RECORDS - 10_000,
    "100,000 behind": RECORDS - 100_000,
    "middle": RECORDS // 2,
}
DATA = Data(count=RECORDS, size=100, partitions=1)
_SYNCED_WITHIN_S = 45.0


async def read_again(contender: str, between: Ground, topic: str) -> dict[str, float | None]:
    """Records read again, by where the group stands; negative if it would skip any."""
    async with (
        ClusterClient(between.target.bootstrap) as client,
        copying(contender, between, topic) as copier,
    ):
        at_target = copier.at_target(topic)
        while await ends(client, at_target, 1) < RECORDS:
            copier.cpu_s()
            await asyncio.sleep(0.1)
        groups = {f"{copier.alias}-{number}": offset for number, offset in enumerate(GROUPS.values())}
        await asyncio.to_thread(_commit, between.source.bootstrap, topic, groups)
        until = time.monotonic() + _SYNCED_WITHIN_S
        while True:
            found = await asyncio.to_thread(_positions, between.target.bootstrap, at_target, list(groups))
            if all(found[group] == offset for group, offset in groups.items()) or time.monotonic() > until:
                break
            await asyncio.sleep(0.5)
    return {
        name: float(offset - max(found[group], 0))
        for (name, offset), group in zip(GROUPS.items(), groups, strict=True)
    }


def _commit(bootstrap: str, topic: str, groups: dict[str, int]) -> None:
    for group, offset in groups.items():
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
        consumer.commit(offsets=[Place(topic, 0, offset)], asynchronous=False)
        consumer.close()


def _positions(bootstrap: str, topic: str, groups: list[str]) -> dict[str, int]:
    found = {}
    for group in groups:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
        found[group] = consumer.committed([Place(topic, 0)], timeout=20)[0].offset
        consumer.close()
    return found
