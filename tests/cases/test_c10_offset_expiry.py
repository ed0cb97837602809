"""C10: offsets expire under no living group, and those of dead groups do not stay for ever; in real time.

Takes more than two minutes, because Kafka counts `offsets.retention.minutes` in minutes: ISTHMUS_SLOW_CASES=1
runs it. `tests/unit/broker/coordinator/test_c10_expiry.py` has the same with a virtual clock.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from protocol.client.connection import Connection
from protocol.errors import KafkaError
from protocol.messages.list_groups_request import ListGroupsRequest
from tests.support.broker import BrokerProcess, Cluster
from tests.support.group_client import GroupClient

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(
        "ISTHMUS_SLOW_CASES" not in os.environ, reason="takes 140 s: ISTHMUS_SLOW_CASES=1 runs it"
    ),
]

SUBSCRIBED_TO_U = b"\x00\x00\x00\x00\x00\x01\x00\x01u\xff\xff\xff\xff"
SETTINGS = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "1000"}
KEPT = {"c10-1": {("t", 0)}, "c10-2": set(), "c10-3": set(), "c10-4": {("u", 0)}}


async def connect(broker: BrokerProcess, stack: AsyncExitStack) -> Connection:
    connection = await Connection.open("127.0.0.1", broker.port)
    stack.push_async_callback(connection.close)
    return connection


async def kept(connection: Connection) -> tuple[dict[str, set[tuple[str, int]]], set[str]]:
    """Positions of each group, and the groups that are listed."""
    found = {}
    for group in KEPT:
        code, positions = await GroupClient(connection, group).committed(None)
        assert code == 0
        found[group] = set(positions)
    listed = (await connection.send(ListGroupsRequest(), 4)).groups
    return found, {each.group_id for each in listed}


async def test_c10(cluster: Callable[[int], Cluster]) -> None:
    brokers = cluster(0)
    broker = brokers.add(1, settings=SETTINGS)
    broker.start()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.create_topics([NewTopic(name, 1, 1) for name in ("t", "u")]).values():
        await asyncio.to_thread(future.result, 30)
    alive: list[GroupClient] = []
    async with AsyncExitStack() as stack:
        for group in ("c10-1", "c10-2", "c10-4"):
            member = GroupClient(await connect(broker, stack), group)
            member.session_ms = 30_000
            if group == "c10-4":
                member.metadata = SUBSCRIBED_TO_U
            await member.until_coordinated()
            await member.be_alone()
            await member.commit({("t", 0): 1} | ({("u", 0): 1} if group == "c10-4" else {}))
            alive.append(member)
        started = time.monotonic()
        leaving = alive.pop(1)
        await leaving.leave()
        simple = GroupClient(await connect(broker, stack), "c10-3")
        await simple.until_coordinated()
        assert await simple.commit({("t", 0): 1}) == {("t", 0): 0}
        await beat_until(alive, started + 50)
        found, _ = await kept(alive[0].connection)
        assert all(found.values()), "nothing may go before its minute is over"
        await beat_until(alive, started + 80)
        assert await kept(alive[0].connection) == (KEPT, {"c10-1", "c10-4"})
        broker.stop()
        broker.start()
        for member in alive:
            member.connection = await connect(broker, stack)
        await beat_until(alive, started + 130)
        assert await kept(alive[0].connection) == (KEPT, {"c10-1", "c10-4"})


async def beat_until(alive: list[GroupClient], ends: float) -> None:
    while time.monotonic() < ends:
        for member in alive:
            with suppress(KafkaError):
                assert await member.heartbeat() == 0
        await asyncio.sleep(1)
