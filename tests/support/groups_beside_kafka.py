"""A group played twice: the same requests to Apache Kafka and to us, every answer must be the same.

`Place` is a broker as the members of one group see it; a scenario is a function of a `Place` that returns
answers in a comparable form. Apache Kafka gets a long append linger on purpose: it answers look-ups from what
its log has committed, so a scenario that looks too early differs always and not now and then.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin import NewTopic as AdminTopic

from protocol.client.connection import Connection
from tests.support.apache_kafka import apache_kafka
from tests.support.broker import BrokerProcess
from tests.support.group_client import GroupClient

SETTINGS = {"group.min.session.timeout.ms": "1000", "group.initial.rebalance.delay.ms": "0"}
APPEND_LINGER = "group.coordinator.append.linger.ms=50"
BOUND_S = 30.0
_numbers = itertools.count()
Answers = list[Any]
Scenario = Callable[["Place"], Awaitable[Answers]]


class Place:
    """A broker that is asked, with as many connections as there are members."""

    def __init__(self, bootstrap: str, stack: AsyncExitStack) -> None:
        self.bootstrap = bootstrap
        self._stack = stack
        self.group = f"g-{next(_numbers)}"
        self.names: dict[str, str] = {}

    async def connect(self) -> Connection:
        host, _, port = self.bootstrap.partition(":")
        connection = await Connection.open(host, int(port))
        self._stack.push_async_callback(connection.close)
        return connection

    async def client(self, **fields: Any) -> GroupClient:
        """A member to be; fields are attributes of `GroupClient`."""
        client = GroupClient(await self.connect(), self.group, instance=fields.pop("instance", None))
        client.session_ms = 30_000  # nobody falls out because the machine is slow
        for name, value in fields.items():
            setattr(client, name, value)
        return client

    async def ready(self) -> None:
        """Until the group has a coordinator that serves it."""
        await GroupClient(await self.connect(), self.group).until_coordinated()

    def plain(self, text: str) -> str:
        """A member id as its number in the order of appearance: ids are random."""
        return self.names.setdefault(text, f"member {len(self.names)}") if text else ""

    def joined(self, answer: Any) -> tuple[Any, ...]:
        return (
            answer.error_code, answer.generation_id, answer.protocol_type, answer.protocol_name,
            self.plain(answer.leader), answer.skip_assignment, self.plain(answer.member_id),
            sorted((self.plain(m.member_id), m.group_instance_id, m.metadata) for m in answer.members),
        )  # fmt: skip

    async def two(self, **fields: Any) -> tuple[GroupClient, GroupClient]:
        """A leader and a follower that have joined one round; nobody has synced."""
        leader, follower = await self.client(**fields), await self.client(**fields)
        await leader.enter()
        joining = asyncio.create_task(follower.enter())
        await until_rebalance(leader)
        assert (await leader.join()).error_code == 0
        assert (await joining).error_code == 0
        return leader, follower


async def until_rebalance(member: GroupClient) -> None:
    """Until the member's heartbeat says that a round has begun."""
    async with asyncio.timeout(BOUND_S):
        while await member.heartbeat() != 27:
            await asyncio.sleep(0.02)


def synced(answer: Any) -> tuple[Any, ...]:
    return (answer.error_code, answer.protocol_type, answer.protocol_name, answer.assignment)


@contextmanager
def both_brokers(directory: Path, zookeeper: str, settings: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """(Apache Kafka, isthmus) with the same settings and a topic `t`."""
    given = [f"{name}={value}" for name, value in settings.items()]
    with apache_kafka("groups", APPEND_LINGER, *given) as theirs:
        ours = BrokerProcess(directory, zookeeper, 1, settings=settings).start()
        try:
            for bootstrap in (theirs, ours.bootstrap):
                admin = AdminClient({"bootstrap.servers": bootstrap})
                admin.create_topics([AdminTopic("t", 3, 1)])["t"].result(30)
            yield theirs, ours.bootstrap
        finally:
            ours.kill()


@asynccontextmanager
async def place(bootstrap: str) -> AsyncIterator[Place]:
    async with AsyncExitStack() as stack:
        made = Place(bootstrap, stack)
        await made.ready()
        yield made


async def play_both(both: tuple[str, str], scenario: Scenario) -> None:
    """Assert that both brokers give the same answers."""

    async def play(bootstrap: str) -> Answers:
        async with place(bootstrap) as at:
            return await scenario(at)

    theirs, ours = await asyncio.gather(*(play(bootstrap) for bootstrap in both))
    for number, (their, our) in enumerate(zip(theirs, ours, strict=True)):
        assert our == their, f"answer {number} of {scenario}: {our!r} here, {their!r} from Apache Kafka"
