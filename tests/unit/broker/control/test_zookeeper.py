"""The ZooKeeper adapter against a real server, also one that goes away and comes back."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.control.embedded_zookeeper import EmbeddedZooKeeper, EmbeddedZooKeeperError
from broker.control.kazoo_calls import in_order, open_client
from broker.control.multi_read import MultiRead
from broker.control.zookeeper import ZooKeeper
from broker.control.zookeeper_types import (
    BadVersion,
    Check,
    Create,
    Delete,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionEvent,
    Set,
    ZooKeeperUnavailable,
)
from tests.support.zookeeper import start_zookeeper

pytestmark = pytest.mark.cluster


@pytest.fixture
async def client(zookeeper: str) -> AsyncIterator[ZooKeeper]:
    client = await ZooKeeper.connect(zookeeper, session_timeout_ms=6000, wait_ms=10_000)
    yield client
    await client.close()


def test_a_server_that_swallows_connections_takes_its_share_of_the_session_only(zookeeper: str) -> None:
    """A full accept queue drops SYNs, as a firewall or a site that is cut off does."""
    with socket.socket() as hole, socket.socket() as first, socket.socket() as second:
        hole.bind(("127.0.0.1", 0))
        hole.listen(0)
        for filling in (first, second):
            filling.setblocking(False)
            filling.connect_ex(hole.getsockname())
        dead = "{}:{}".format(*hole.getsockname())
        living = zookeeper.partition("/")[0]
        client = open_client(f"{dead},{living},{living},{living}", 12_000, preferred=(dead,))
        begun = time.monotonic()
        try:
            client.start(timeout=60)
            took = time.monotonic() - begun
        finally:
            client.stop()
            client.close()
    assert 2.5 < took < 11, "a quarter of the session for one of four; all of it loses the session"


async def fires(event: asyncio.Event) -> None:
    async with asyncio.timeout(40):
        await event.wait()
    event.clear()


async def test_nodes(client: ZooKeeper) -> None:
    assert await client.get("/a") is None
    assert await client.children("/a") == []
    await client.create("/a", b"1")
    with pytest.raises(NodeExists, match="/a"):
        await client.create("/a", b"2")
    with pytest.raises(NoNode):
        await client.create("/b/c")
    node = await client.get("/a")
    assert node is not None
    assert (node.data, node.version, node.owner) == (b"1", 0, 0)
    assert await client.set("/a", b"2", 0) == 1
    with pytest.raises(BadVersion):
        await client.set("/a", b"3", 0)
    await client.put("/a/b/c", b"x")
    await client.put("/a/b/c", b"y")
    with pytest.raises(NotEmpty):
        await client.delete("/a")
    assert await client.children("/a") == ["b"]
    await client.delete_tree("/a")
    assert not await client.exists("/a")
    await client.delete_tree("/a")


async def test_many_nodes_at_once(zookeeper: str) -> None:
    client = await ZooKeeper.connect(f"{zookeeper}/deep/root", session_timeout_ms=6000, wait_ms=10_000)
    await client.create("/many")
    names = [f"/many/{number}" for number in range(450)]
    await asyncio.gather(*(client.create(name, name.encode() * 3) for name in names[::2]))
    await client.create("/many/empty")
    await client.set("/many/0", b"changed")
    wanted = [*names, "/many/empty", "/none/at/all"]
    assert await client.get_many(wanted) == [await client.get(name) for name in wanted]
    assert await client.get_many([]) == []
    await client.close()


async def test_many_nodes_from_a_server_that_reads_them_one_by_one(
    client: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MultiRead, "type", 99)  # as 22 is to ZooKeeper 3.5: an operation it does not know
    await client.create("/one", b"1")
    for _ in range(2):
        one, none = await client.get_many(["/one", "/two"])
        assert one is not None
        assert (one.data, none) == (b"1", None)
    await client.delete("/one")


async def test_ephemeral_nodes_belong_to_the_session(client: ZooKeeper, zookeeper: str) -> None:
    other = await ZooKeeper.connect(zookeeper, session_timeout_ms=6000, wait_ms=10_000)
    await other.create("/e", ephemeral=True)
    node = await client.get("/e")
    assert node is not None
    assert node.owner == other.session_id
    await other.close()
    assert not await client.exists("/e")


async def test_a_transaction_is_all_or_nothing(client: ZooKeeper) -> None:
    await client.create("/a", b"1")
    await client.transaction([Check("/a", 0), Create("/b"), Set("/a", b"2", 0)])
    with pytest.raises(BadVersion) as caught:
        await client.transaction([Check("/a", 0), Create("/c"), Delete("/b")])
    assert caught.value.path == "/a"
    with pytest.raises(NodeExists) as exists:
        await client.transaction([Check("/a", 1), Create("/c"), Create("/b")])
    assert exists.value.path == "/b"
    assert sorted(await client.children("/")) == ["a", "b"]


async def test_watches_fire_once_and_do_not_pile_up(client: ZooKeeper) -> None:
    await client.create("/a")
    fired = asyncio.Event()
    calls = []

    def watch() -> None:
        calls.append(1)
        fired.set()

    for _ in range(5):
        await client.get("/a", watch)
    await client.set("/a", b"1")
    await fires(fired)
    await client.set("/a", b"2")
    await client.exists("/nothing", watch)
    await client.create("/nothing")
    await fires(fired)
    await client.children("/a", watch)
    await client.create("/a/b")
    await fires(fired)
    assert len(calls) == 3


async def test_sequential_nodes_count_up(client: ZooKeeper) -> None:
    await client.create("/s")
    paths = [await client.create_sequential("/s/n_", b"") for _ in range(3)]
    assert paths == sorted(paths)
    assert paths[0].startswith("/s/n_")


async def test_a_server_that_restarts_costs_nothing_but_time(tmp_path) -> None:
    server = start_zookeeper(tmp_path / "zk")
    client = await ZooKeeper.connect(server.connect, session_timeout_ms=30_000, wait_ms=10_000)
    try:
        events: list[SessionEvent] = []
        lost, watched = asyncio.Event(), asyncio.Event()
        client.on_session(lambda event: (events.append(event), lost.set()))
        await client.create("/mine", b"1", ephemeral=True)
        await client.get("/mine", watched.set)
        session = client.session_id
        server.kill()
        await fires(lost)
        await fires(watched)  # whoever watches reads again
        write = asyncio.create_task(client.set("/mine", b"2", 0))
        restarted = start_zookeeper(tmp_path / "zk", port=server.port)
        try:
            async with asyncio.timeout(40):
                assert await write == 1
            assert client.session_id == session
            assert events == [SessionEvent.SUSPENDED, SessionEvent.RESUMED]
        finally:
            await client.close()
            restarted.stop()
    finally:
        server.stop()


async def test_an_expired_session_is_renewed_without_its_nodes(client: ZooKeeper, zookeeper: str) -> None:
    victim = await ZooKeeper.connect(zookeeper, session_timeout_ms=6000, wait_ms=10_000)
    try:
        renewed = asyncio.Event()
        victim.on_session(lambda event: renewed.set() if event is SessionEvent.RENEWED else None)
        await victim.create("/e", ephemeral=True)
        session = victim.session_id
        await ZooKeeper.end_session(zookeeper, session, victim.session_password)
        await fires(renewed)
        assert victim.session_id != session
        assert not await victim.exists("/e")
        await victim.create("/e", ephemeral=True)
    finally:
        await victim.close()


async def test_nobody_there_names_the_address() -> None:
    with pytest.raises(ZooKeeperUnavailable, match=r"no ZooKeeper reachable at 127\.0\.0\.1:1 within 300 ms"):
        await ZooKeeper.connect("127.0.0.1:1/x", session_timeout_ms=1000, wait_ms=300)


def test_two_servers_never_share_a_data_directory(zookeeper_server: EmbeddedZooKeeper) -> None:
    with pytest.raises(EmbeddedZooKeeperError, match="in use by another process"):
        EmbeddedZooKeeper(zookeeper_server.data_dir, lock_wait_s=0.2).start()


def test_a_taken_port_is_said(zookeeper_server: EmbeddedZooKeeper, tmp_path) -> None:
    with pytest.raises(EmbeddedZooKeeperError, match="Address already in use"):
        EmbeddedZooKeeper(tmp_path / "zk", port=zookeeper_server.port).start()


async def test_a_preferred_server_is_tried_first_and_another_one_when_it_is_gone(tmp_path: Path) -> None:
    """Two servers that know nothing of each other: what is written tells which one was asked."""
    servers = [start_zookeeper(tmp_path / name) for name in "ab"]
    address = ",".join(server.connect for server in servers)
    near = servers[1]
    try:

        async def asked(number: int) -> list[str]:
            """Servers that were written to."""
            client = await ZooKeeper.connect(
                address, session_timeout_ms=4000, wait_ms=30_000, preferred=(near.connect,)
            )
            await client.create(f"/{number}", b"")
            await client.close()
            found = []
            for server in filter(EmbeddedZooKeeper.running, servers):
                looking = await ZooKeeper.connect(server.connect, session_timeout_ms=4000, wait_ms=30_000)
                if await looking.get(f"/{number}") is not None:
                    found.append(server.connect)
                await looking.close()
            return found

        for number in range(5):  # by chance once in 32 times
            assert await asked(number) == [near.connect]
        near.stop()
        [other] = await asked(5)
        assert other != near.connect
    finally:
        for server in servers:
            server.stop()


def test_servers_are_in_random_order_and_the_preferred_ones_in_front() -> None:
    hosts = "a:1, b:1,c:1,d:1"
    orders = {tuple(in_order(hosts, ("c:1", "d:1"))) for _ in range(200)}
    assert orders == {
        (*front, *rest)
        for front in (("c:1", "d:1"), ("d:1", "c:1"))
        for rest in (("a:1", "b:1"), ("b:1", "a:1"))
    }
