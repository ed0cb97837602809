"""A broker that is stopped or dies and comes back on the same directory, its offsets topic with it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from broker.clock import Clock
from broker.coordinator.offsets_log import OFFSETS_TOPIC
from protocol.client.connection import Connection
from tests.support.lone_broker import BROKER_ID, LoneTopics, lone_broker
from tests.support.served import Served

PARTITIONS = 4
IDS = {OFFSETS_TOPIC: b"offsets-topic-id", "t": b"id of topic t...", "u": b"id of topic u..."}


def lead(topics: LoneTopics, name: str, epoch: int, *, leader: int = BROKER_ID, version: int = 0) -> None:
    """Make `leader` the leader of all partitions of one of the topics above."""
    partitions = range(PARTITIONS if name == OFFSETS_TOPIC else 3)
    topics.lead(name, IDS[name], partitions, leader, leader_epoch=epoch, version=version)


@asynccontextmanager
async def life(
    directory: Path, number: int, clock: Clock | None = None, *, leads: bool = True, **settings: str
) -> AsyncIterator[Served]:
    """The broker's life of this number; with `leads` it leads its topics from the beginning."""
    settings = {"group_initial_rebalance_delay_ms": "0", **settings}
    async with lone_broker(directory, clock, **settings) as (broker, topics, port):
        if leads:
            for name in IDS:
                lead(topics, name, number)
        connection = await Connection.open("127.0.0.1", port)
        try:
            yield Served(broker, topics, port, connection)
        finally:
            await connection.close()
