"""Registration with a real ZooKeeper: ghosts are waited out, the living respected, lost sessions mended."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from kazoo.protocol.states import KazooState

from broker.clock import SystemClock
from broker.config import Endpoint, load
from broker.control import paths
from broker.control.embedded_zookeeper import EmbeddedZooKeeper
from broker.control.identity import cluster_id, next_broker_id, prepare_tree
from broker.control.nodes import BrokerNode
from broker.control.producer_id_blocks import claim_block
from broker.control.registration import AlreadyRegistered, Registration
from broker.control.session_file import Session, SessionFile
from broker.control.zookeeper import ZooKeeper
from tests.support.proxy import LossyProxy

pytestmark = pytest.mark.cluster
TIMEOUT_MS = 2000


@asynccontextmanager
async def session(address: str) -> AsyncIterator[ZooKeeper]:
    client = await ZooKeeper.connect(address, session_timeout_ms=TIMEOUT_MS, wait_ms=10_000)
    try:
        await prepare_tree(client)
        yield client
    finally:
        await client.close()


def registration(client: ZooKeeper, *, port: int = 9092, wait_ms: int = TIMEOUT_MS) -> Registration:
    node = BrokerNode((Endpoint("PLAINTEXT", "127.0.0.1", port, "PLAINTEXT"),), "east")
    return Registration(client, 1, node, SystemClock(), wait_ms)


async def test_registering_gives_an_epoch_and_deregistering_takes_the_node(zookeeper: str) -> None:
    async with session(zookeeper) as client:
        mine = registration(client)
        epochs: list[int] = []
        mine.on_epoch(epochs.append)
        await mine.register()
        node = await client.get(paths.broker(1))
        assert node is not None
        assert BrokerNode.decode(node.data).rack == "east"
        assert mine.epoch == node.created
        await mine.deregister()
        assert not await client.exists(paths.broker(1))
        assert epochs == [node.created, -1]


async def test_deregistering_waits_a_little_for_a_connection_that_moves(zookeeper: str) -> None:
    async with session(zookeeper) as client, session(zookeeper) as other:
        mine = registration(client)
        await mine.register()
        client._session_state(KazooState.SUSPENDED)
        assert not client.connected
        asyncio.get_running_loop().call_later(0.2, client._session_state, KazooState.CONNECTED)
        await mine.deregister()
        assert not await other.exists(paths.broker(1))


async def test_the_ghost_of_an_earlier_run_is_waited_out(zookeeper: str) -> None:
    async with session(zookeeper) as client, AsyncExitStack() as stack:
        ghost = await stack.enter_async_context(session(zookeeper))
        await registration(ghost).register()
        mine = registration(client)
        waiting = asyncio.create_task(mine.register())
        await asyncio.sleep(0.5)
        assert not waiting.done()
        await stack.aclose()
        async with asyncio.timeout(10):
            await waiting
        node = await client.get(paths.broker(1))
        assert node is not None
        assert node.owner == client.session_id
        await mine.deregister()


async def test_a_living_broker_is_respected_and_named(zookeeper: str) -> None:
    async with session(zookeeper) as client, session(zookeeper) as other:
        living = registration(other, port=19092)
        await living.register()
        mine = registration(client, wait_ms=-4_500)  # half a second of patience
        with pytest.raises(
            AlreadyRegistered, match=r"broker id 1 belongs to a living broker at 127\.0\.0\.1:19092"
        ):
            await mine.register()
        node = await client.get(paths.broker(1))
        assert node is not None
        assert node.owner == other.session_id
        await living.deregister()


async def test_after_its_session_was_lost_a_broker_registers_again(zookeeper: str) -> None:
    async with session(zookeeper) as client:
        mine = registration(client)
        epochs: asyncio.Queue[int] = asyncio.Queue()
        mine.on_epoch(epochs.put_nowait)
        await mine.register()
        first = await epochs.get()
        await ZooKeeper.end_session(zookeeper, client.session_id, client.session_password)
        async with asyncio.timeout(20):
            assert await epochs.get() == -1
            assert await epochs.get() > first
        await mine.deregister()


async def test_a_number_taken_while_the_session_was_lost_is_the_end(zookeeper: str) -> None:
    async with session(zookeeper) as client, session(zookeeper) as other:
        mine = registration(client, wait_ms=-4_500)
        await mine.register()
        lost: asyncio.Queue[AlreadyRegistered] = asyncio.Queue()
        mine.on_lost(lost.put_nowait)
        thief = registration(other)
        stealing = asyncio.create_task(thief.register())
        # The old session goes; whoever is first gets the number, and here the other one waits on the node.
        await client.delete(paths.broker(1))
        await stealing
        await ZooKeeper.end_session(zookeeper, client.session_id, client.session_password)
        async with asyncio.timeout(20):
            assert "living broker" in str(await lost.get())
        await thief.deregister()


async def test_a_lost_answer_to_the_registration_is_looked_at_again(
    zookeeper: str, zookeeper_server: EmbeddedZooKeeper
) -> None:
    # Case C14 (b): the node is made, the answer never comes, the connection is reset.
    async with LossyProxy(zookeeper_server.host, zookeeper_server.port) as proxy:
        chroot = zookeeper.partition("/")[2]
        async with session(f"127.0.0.1:{proxy.port}/{chroot}") as client:
            number = client.session_id
            mine = registration(client)
            proxy.lose_answer_to(f"/{chroot}/brokers/ids/1".encode())
            async with asyncio.timeout(20):
                await mine.register()
            assert proxy.lost == 1
            node = await client.get(paths.broker(1))
            assert node is not None
            assert node.owner == client.session_id == number
            assert mine.epoch == node.created
            await mine.deregister()


async def test_lost_answers_to_writes_are_looked_at_again(
    zookeeper: str, zookeeper_server: EmbeddedZooKeeper
) -> None:
    async with LossyProxy(zookeeper_server.host, zookeeper_server.port) as proxy:
        chroot = zookeeper.partition("/")[2]
        async with session(f"127.0.0.1:{proxy.port}/{chroot}") as client:
            await client.create("/written", b"1")
            proxy.lose_answer_to(b"/written")
            assert await client.set("/written", b"2", 0) == 1
            proxy.lose_answer_to(b"/written")
            await client.delete("/written", 1)
            assert proxy.lost == 2
            assert not await client.exists("/written")


async def test_identities_are_drawn_once(zookeeper: str) -> None:
    async with session(zookeeper) as client, session(zookeeper) as other:
        first, second = await asyncio.gather(cluster_id(client), cluster_id(other))
        assert first == second
        assert len(first) == 22
        config = load({})
        numbers = await asyncio.gather(*(next_broker_id(item, config) for item in (client, other, client)))
        assert sorted(numbers) == [1001, 1002, 1003]


async def test_producer_id_blocks_never_overlap(zookeeper: str) -> None:
    async with session(zookeeper) as client, session(zookeeper) as other:
        blocks = await asyncio.gather(*(claim_block(item, 1) for item in (client, other, client, other)))
        assert sorted((block.first, block.last) for block in blocks) == [
            (0, 999),
            (1000, 1999),
            (2000, 2999),
            (3000, 3999),
        ]


def test_a_session_file_is_only_good_where_it_was_written(tmp_path) -> None:
    file = SessionFile(tmp_path)
    assert file.read() is None
    file.write(Session(-5, b"secret"))
    file.write(Session(-7, b"\x00\xff"))
    assert file.read() == Session(-7, b"\x00\xff")
    path = tmp_path / ".isthmus-session"
    assert path.stat().st_mode & 0o077 == 0
    content = path.read_bytes()
    copied = tmp_path / "copy"
    copied.mkdir()
    (copied / path.name).write_bytes(content)
    assert SessionFile(copied).read() is None
    path.write_bytes(b"{")
    assert file.read() is None
    file.remove()
    file.remove()
