"""C11: a coordinator that comes back, or takes over, never says "no offset" where there is one.

50,000 commits of 200 groups lie in one offsets partition; the broker is killed, or stopped, and asked without
a pause from that instant until it has answered well for a while.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from protocol.client.cluster import ClusterClient
from protocol.client.connection import Connection
from protocol.client.errors import ClientError
from protocol.errors import ErrorCode
from protocol.messages.describe_groups_request import DescribeGroupsRequest
from protocol.messages.list_groups_request import ListGroupsRequest
from tests.support.broker import BrokerProcess, Cluster
from tests.support.group_client import GroupClient
from tests.support.slow import slow
from tests.support.three_brokers import StartThree, in_sync
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

E = ErrorCode
GROUPS = [f"c11-{number}" for number in range(200)]
PARTITIONS = 50
ROUNDS = 5
MAY_WAIT = {E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR}
STEADY_S = 1.5
BOUND_S = 60.0


async def commit_history(broker: BrokerProcess) -> None:
    connection = await Connection.open("127.0.0.1", broker.port)
    await GroupClient(connection, GROUPS[0]).until_coordinated()
    for round_ in range(1, ROUNDS + 1):
        offsets = {("t", partition): round_ for partition in range(PARTITIONS)}
        answers = await asyncio.gather(*(GroupClient(connection, each).commit(offsets) for each in GROUPS))
        assert all(set(answer.values()) == {E.NONE} for answer in answers)
    await connection.close()


class Questions:
    """Asks all that might wrongly say that there is nothing; `seen` counts the errors that came."""

    def __init__(self) -> None:
        self.seen: dict[int, int] = {}
        self._next = 0

    def note(self, code: int) -> None:
        self.seen[code] = self.seen.get(code, 0) + 1

    async def ask(self, connection: Connection) -> bool:
        """One round; whether the coordinator has answered all of it."""
        before = sum(self.seen.get(code, 0) for code in MAY_WAIT)
        self._next = (self._next + 1) % len(GROUPS)
        client = GroupClient(connection, GROUPS[self._next])
        for version in (1, 7, 8):
            await self._positions(client, version)
        described = (await connection.send(DescribeGroupsRequest(groups=[client.group]), 5)).groups[0]
        assert (described.error_code, described.group_state) == (
            0,
            "Empty",
        ) or described.error_code in MAY_WAIT
        self.note(described.error_code)
        listed = await connection.send(ListGroupsRequest(), 4)
        # Whoever does not lead the partition yet lists nothing, as Kafka does: that is asked of every broker.
        assert listed.error_code in MAY_WAIT or len(listed.groups) in (0, len(GROUPS))
        self.note(listed.error_code)
        client.member_id = "a member from before"
        assert await client.heartbeat() in {E.UNKNOWN_MEMBER_ID, E.NONE, *MAY_WAIT}
        assert (await client.join()).error_code in {E.UNKNOWN_MEMBER_ID, *MAY_WAIT}
        return before == sum(self.seen.get(code, 0) for code in MAY_WAIT) and len(listed.groups) > 0

    async def _positions(self, client: GroupClient, version: int) -> None:
        code, found = await client.committed({"t": list(range(PARTITIONS))}, version)
        for offset, error in found.values():
            assert (offset, error) == (ROUNDS, E.NONE) or error in MAY_WAIT, f"v{version}: {offset}, {error}"
            assert not code or error == code, f"v{version}: group says {code}, partition {error}"
            self.note(error)
        if not found:
            assert version == 8
            assert code in MAY_WAIT
            self.note(code)


async def ask_until_steady(broker: BrokerProcess, questions: Questions) -> None:
    steady_since = None
    async with asyncio.timeout(BOUND_S):
        while True:
            with suppress(ClientError, OSError):
                connection = await Connection.open("127.0.0.1", broker.port, timeout_s=10)
                try:
                    while True:
                        if not await questions.ask(connection):
                            steady_since = None
                        elif steady_since is None:
                            steady_since = time.monotonic()
                        elif time.monotonic() - steady_since > STEADY_S:
                            return
                        await asyncio.sleep(0.001)
                finally:
                    await connection.close()
            steady_since = None
            await asyncio.sleep(0.001)


async def test_c11(cluster: Callable[[int], Cluster]) -> None:
    brokers = cluster(0)
    broker = brokers.add(1, settings={"offsets.topic.num.partitions": "1"})
    await asyncio.to_thread(broker.start)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    await asyncio.to_thread(admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result, 30)
    await commit_history(broker)
    for end in (broker.kill, broker.stop):
        questions = Questions()
        asking = asyncio.create_task(ask_until_steady(broker, questions))
        await asyncio.to_thread(end)
        await asyncio.to_thread(broker.start)
        await asking
        assert questions.seen.get(E.NONE, 0) > 100
        assert set(questions.seen) <= {E.NONE, *MAY_WAIT}


async def ask_until_one_is_steady(asked: Iterable[tuple[BrokerProcess, Questions]]) -> None:
    """All of them are asked; the coordinator is the one that comes to answer well."""
    tasks = [asyncio.create_task(ask_until_steady(broker, questions)) for broker, questions in asked]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@slow("three brokers and 50,000 commits")
@pytest.mark.timeout(400)
async def test_c11_another_broker_takes_over(start_three: StartThree) -> None:
    settings = {"offsets.topic.num.partitions": "1", "offsets.topic.replication.factor": "3"}
    brokers = start_three(settings)  # not in a thread: brokers end with the thread that started them
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
    await asyncio.to_thread(admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result, 30)

    async def coordinator() -> int:
        async with ClusterClient(brokers.bootstrap) as client:
            return await client.coordinator(GROUPS[0])

    whole = lambda: in_sync(brokers, "__consumer_offsets") == [1, 2, 3]  # noqa: E731
    first = await coordinator()
    await asyncio.to_thread(wait_until, whole, "the offsets topic in sync")
    await commit_history(brokers.brokers[first])
    for end in ("kill", "stop"):
        gone = brokers.brokers[await coordinator()]
        asked = [(each, Questions()) for each in brokers.brokers.values() if each is not gone]
        asking = asyncio.create_task(ask_until_one_is_steady(asked))
        await asyncio.to_thread(getattr(gone, end))
        await asking
        heard = [questions.seen for _, questions in asked]
        assert max(seen.get(E.NONE, 0) for seen in heard) > 100
        assert all(set(seen) <= {E.NONE, *MAY_WAIT} for seen in heard)
        gone.start()  # not in a thread: the broker ends with the thread that started it
        await asyncio.to_thread(wait_until, whole, "the offsets topic in sync")
