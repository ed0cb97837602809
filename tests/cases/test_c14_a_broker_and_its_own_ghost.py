"""C14: a registration collides with its own ghost: it waits, serves, and never pushes out a living one."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from broker.control.embedded_zookeeper import EmbeddedZooKeeper
from tests.support.broker import BrokerProcess, Cluster
from tests.support.proxy import LossyProxy
from tests.support.three_brokers import QUICK, create, in_sync
from tests.support.waiting import wait_until
from tests.support.zookeeper import fresh_chroot

pytestmark = pytest.mark.cluster
SESSION_S = 3
SETTINGS = {**QUICK, "zookeeper.session.timeout.ms": str(SESSION_S * 1000)}


@pytest.fixture
async def proxy(zookeeper_server: EmbeddedZooKeeper) -> AsyncIterator[LossyProxy]:
    async with LossyProxy(zookeeper_server.host, zookeeper_server.port) as made:
        yield made


def owner(zookeeper: str, number: int) -> int:
    """Session of the broker's node, 0 without one."""
    client = KazooClient(zookeeper)
    client.start(30)
    try:
        found = client.exists(f"/brokers/ids/{number}")
        return 0 if found is None else int(found.ephemeralOwner)
    finally:
        client.stop()
        client.close()


async def test_ghosts_are_waited_out_and_living_brokers_stay(
    proxy: LossyProxy, zookeeper_server: EmbeddedZooKeeper, tmp_path: Path
) -> None:
    path = fresh_chroot(zookeeper_server)
    cluster = Cluster(tmp_path, f"127.0.0.1:{proxy.port}/{path.partition('/')[2]}")
    cluster.add(1, settings=SETTINGS)
    cluster.zookeeper = path
    for number in (2, 3):
        cluster.add(number, settings=SETTINGS)
    first = cluster.brokers[1]

    async def back(what: str, before: int) -> None:
        """Registered in another session than `before`, and in sync."""
        await asyncio.to_thread(wait_until, lambda: owner(path, 1) not in (0, before), f"{what}: registered")
        await asyncio.to_thread(wait_until, lambda: in_sync(cluster, "t") == [1, 2, 3], f"{what}: in sync")

    try:
        # (b) The answer to its registration is lost: it recognises the node as its own.
        proxy.lose_answer_to(b"/brokers/ids/1")
        await asyncio.to_thread(cluster.start)
        assert proxy.lost == 1
        await asyncio.to_thread(create, cluster, "t", (1, 2, 3))

        # (a) Killed and started at once, while its session lives on.
        session = await asyncio.to_thread(owner, path, 1)
        first.kill()
        started = time.monotonic()
        await asyncio.to_thread(first.start)
        await back("a fast restart", session)
        assert time.monotonic() - started < 60

        # (c) Stopped for two session timeouts: another registration, the same process.
        pid, session = first.pid, await asyncio.to_thread(owner, path, 1)
        first.pause()
        try:
            await asyncio.to_thread(wait_until, lambda: owner(path, 1) == 0, "the session is over")
        finally:
            first.resume()
        await back("a pause", session)
        assert first.pid == pid

        # (b) again, with the registration of a session that was renewed.
        session = await asyncio.to_thread(owner, path, 1)
        proxy.cut()
        await asyncio.to_thread(wait_until, lambda: owner(path, 1) == 0, "the session is over")
        proxy.lose_answer_to(b"/brokers/ids/1")
        proxy.mend()
        await back("a lost answer", session)
        assert proxy.lost == 2
        assert first.pid == pid

        # (d) Another process with the same number and another directory.
        session = await asyncio.to_thread(owner, path, 1)
        second = BrokerProcess(tmp_path / "second", path, 1, settings=SETTINGS)
        second.launch()
        try:
            assert await asyncio.to_thread(second.wait, 60) == 1
        finally:
            second.kill()
        assert f"belongs to a living broker at 127.0.0.1:{first.port}" in second.output
        assert await asyncio.to_thread(owner, path, 1) == session
        assert in_sync(cluster, "t") == [1, 2, 3]
    finally:
        cluster.close()
