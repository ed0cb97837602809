"""What came and went leaves no object behind: topics, connections, producers of deleted topics, sessions."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from broker.server.fetch_job import ClientFetch
from protocol.client.connection import Connection
from tests.support.served import Served, batch, served

BOUND_S = 30.0
ROUNDS = 25
# Objects that some cache may hold at the end of either count, whatever the number of rounds.
SPARE = 5
# asyncio drops cancelled timers by the hundred; the handler of UpdateMetadata forgets the counts of topics,
# and the stand-in for a controller goes around it.
NOT_COUNTED = {"asyncio.events.TimerHandle", "broker.server.metrics.TopicCounts"}


async def everything_once(node: Served, number: int) -> None:
    """A topic with a new idempotent producer and a reader with a session, on connections of their own."""
    name = f"passing-{number}"
    node.topics.create(name, partitions=3)
    for sequence in range(3):
        records = batch(b"a", b"b", producer_id=number, producer_epoch=0, base_sequence=sequence * 2)
        assert (await node.produce(name, records)).error_code == 0
    async with node.another() as reader:
        opened = await reader.send(node.fetch_request(name, 0, (0, 1, 2), session_epoch=0), 17)
        assert opened.session_id
        again = node.fetch_request(name, 0, (0, 1, 2), session_id=opened.session_id, session_epoch=-1)
        await reader.send(again, 17)
    assert (await node.fetch("nowhere", 0)).error_code
    node.topics.delete(name)


async def settled(node: Served) -> Counter[str]:
    """How many objects of our own types there are once connections are gone and files deleted."""
    (listener,) = node.broker.listeners.values()
    async with asyncio.timeout(BOUND_S):
        while len(listener.connections) > 1 or listener._tasks:
            await asyncio.sleep(0.01)
    node.broker.logs.sweep_tick(node.broker.clock.now_ms() + 10**9)
    gc.collect()
    kinds = (type(each) for each in gc.get_objects())
    return Counter(
        f"{kind.__module__}.{kind.__qualname__}"
        for kind in kinds
        if str(kind.__module__).startswith(("broker.", "protocol.", "uvloop", "asyncio"))
    )


async def test_topics_connections_and_sessions_that_are_gone_leave_no_object(tmp_path: Path) -> None:
    async with served(tmp_path / "data") as node:
        assert isinstance(node.connection, Connection)
        for number in range(3):
            await everything_once(node, number)
        before = await settled(node)
        for number in range(3, 3 + ROUNDS):
            await everything_once(node, number)
        after = await settled(node)
        grown = {
            kind: count - before[kind]
            for kind, count in after.items()
            if count > before[kind] + SPARE and kind not in NOT_COUNTED
        }
        assert grown == {}


def fetches() -> int:
    return sum(isinstance(each, ClientFetch) for each in gc.get_objects())


async def test_what_a_long_poll_has_read_is_free_without_the_garbage_collector(tmp_path: Path) -> None:
    """It may be megabytes from the disk: in a cycle of references they would stay for many more polls."""
    async with served(tmp_path / "data") as node:
        node.topics.create("t")
        partition = node.broker.replicas.leader("t", 0, -1)
        gc.collect()
        gc.disable()
        try:
            async with node.another() as reader:
                for offset in range(3):
                    request = node.fetch_request("t", offset, max_wait_ms=60_000)
                    polling = asyncio.create_task(reader.send(request, 17))
                    await until(lambda: bool(partition._watchers))
                    await node.produce("t", batch(b"news"))
                    assert (await polling).responses
                await node.fetch("t", 3, max_wait_ms=10)
                polling = asyncio.create_task(reader.send(node.fetch_request("t", 3, max_wait_ms=60_000), 17))
                await until(lambda: bool(partition._watchers))
            await asyncio.gather(polling, return_exceptions=True)
            await until(lambda: not partition._watchers)
            await until(lambda: not fetches())
        finally:
            gc.enable()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(BOUND_S):
        while not condition():
            await asyncio.sleep(0.01)
