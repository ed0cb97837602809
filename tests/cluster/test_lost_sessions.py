"""A ZooKeeper session or answer that is lost while clients ask for topics and settings.

No connection is closed, nothing is done twice, and what cannot be known is an error that may be tried again.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from broker.control.embedded_zookeeper import EmbeddedZooKeeper
from protocol.client import NO_RETRIES, ClusterClient, NewTopic
from protocol.errors import ErrorCode, KafkaError
from tests.cluster.links import fresh
from tests.support.broker import BrokerProcess
from tests.support.proxy import LossyProxy
from tests.support.zookeeper import fresh_chroot

pytestmark = pytest.mark.cluster


@pytest.fixture
async def proxy(zookeeper_server: EmbeddedZooKeeper) -> AsyncIterator[LossyProxy]:
    async with LossyProxy(zookeeper_server.host, zookeeper_server.port) as made:
        yield made


@pytest.fixture
async def behind(
    proxy: LossyProxy, zookeeper_server: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[BrokerProcess]:
    """A broker that reaches ZooKeeper through the proxy."""
    chroot = fresh_chroot(zookeeper_server).partition("/")[2]
    broker = BrokerProcess(tmp_path_factory.mktemp("broker"), f"127.0.0.1:{proxy.port}/{chroot}", 1)
    await asyncio.to_thread(broker.start)
    yield broker
    broker.kill()


@pytest.fixture
async def client(behind: BrokerProcess) -> AsyncIterator[ClusterClient]:
    """Tries nothing again by itself."""
    async with ClusterClient(behind.bootstrap, retry=NO_RETRIES) as made:
        yield made


async def settings(client: ClusterClient, topic: str) -> dict[str, str | None]:
    entries = (await client.describe_configs([topic]))[topic]
    return {name: entry.value for name, entry in entries.items() if entry.source.name == "TOPIC"}


async def test_a_write_whose_answer_is_lost_is_recognised(client: ClusterClient, proxy: LossyProxy) -> None:
    name = fresh("lost-answer")
    node = f"/topics/{name}".encode()
    proxy.lose_answer_to(node)
    await client.create_topics([NewTopic(name, 2, 1)])
    assert proxy.lost == 1
    proxy.lose_answer_to(b'"2":[1]')  # the node with three partitions
    await client.create_partitions({name: 3})
    assert proxy.lost == 2
    proxy.lose_answer_to(b'"retention.ms":"77"')
    await client.alter_configs({name: {"retention.ms": "77"}})
    assert proxy.lost == 3
    assert await settings(client, name) == {"retention.ms": "77"}
    assert sorted((await client.metadata([name])).topics[name].partitions) == [0, 1, 2]
    proxy.lose_answer_to(f"/admin/delete_topics/{name}".encode())
    await client.delete_topics([name])
    assert proxy.lost == 4
    assert (await client.metadata([name])).topics[name].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_requests_of_a_time_without_zookeeper_are_done_with_the_next_session(
    client: ClusterClient, proxy: LossyProxy
) -> None:
    old, new = fresh("before"), fresh("meanwhile")
    await client.create_topics([NewTopic(name, 1, 1) for name in (old, f"{old}-gone")])
    proxy.cut()
    asked = [
        asyncio.create_task(work)
        for work in (
            client.create_topics([NewTopic(new, 1, 1)]),
            client.create_partitions({old: 2}),
            client.alter_configs({old: {"retention.ms": "88"}}),
            client.delete_topics([f"{old}-gone"]),
        )
    ]
    done, _ = await asyncio.wait(asked, timeout=4)  # twice the session's timeout
    assert not done, done
    proxy.mend()
    await asyncio.gather(*asked)

    async def all_there() -> bool:
        topics = (await client.metadata(None)).topics
        return len(topics[old].partitions) == 2 and new in topics and f"{old}-gone" not in topics

    async with asyncio.timeout(30):
        while not await all_there():
            await asyncio.sleep(0.1)
    assert await settings(client, old) == {"retention.ms": "88"}


async def test_without_zookeeper_for_long_the_answer_is_that_time_is_up(
    client: ClusterClient, behind: BrokerProcess, proxy: LossyProxy
) -> None:
    name = fresh("never")
    await client.create_topics([NewTopic(name, 1, 1)])
    requests: list[Callable[[ClusterClient], Awaitable[object]]] = [
        lambda mine: mine.create_topics([NewTopic(f"{name}-more", 1, 1)]),
        lambda mine: mine.create_partitions({name: 2}),
        lambda mine: mine.alter_configs({name: {"retention.ms": "88"}}),
        lambda mine: mine.delete_topics([name]),
        lambda mine: mine.describe_configs([name]),
    ]

    async def ask(request: Callable[[ClusterClient], Awaitable[object]]) -> tuple[object, bool]:
        """What came of it, and whether the connection lives; each has its own: requests wait in line."""
        async with ClusterClient(behind.bootstrap, retry=NO_RETRIES) as mine:
            connection = await mine.any_connection()
            connected.release()
            await cut.wait()
            try:
                return await request(mine), not connection.closed
            except KafkaError as error:
                return error.code, not connection.closed

    connected, cut = asyncio.Semaphore(0), asyncio.Event()
    asked = [asyncio.create_task(ask(request)) for request in requests]
    for _ in requests:
        await connected.acquire()
    proxy.cut()
    cut.set()
    assert await asyncio.gather(*asked) == [(ErrorCode.REQUEST_TIMED_OUT, True)] * len(requests)
    assert re.search(rf"DescribeConfigs from .*'{name}': broker 1 had no answer", behind.output)
    assert "Traceback" not in behind.output
