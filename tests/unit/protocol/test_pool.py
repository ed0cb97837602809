"""The connections of one client: which are kept."""

import asyncio
import gc
import time
import weakref

import pytest

from protocol.client.connection import Connection
from protocol.client.pool import ConnectionPool
from protocol.client.security import PLAINTEXT
from tests.support.fake_broker import FakeBroker
from tests.support.talking import echo, names, question


async def test_connections_that_ended_are_not_kept_for_lanes_that_nobody_uses_any_more():
    """Readers have lanes of their own, brokers come back elsewhere: each would leave its buffers behind."""
    async with FakeBroker(echo) as broker:
        pool = ConnectionPool("tests", PLAINTEXT, 10, 10)
        address = ("127.0.0.1", broker.port)
        ended = await pool.get(address, "fetch-1")
        stays = await pool.get(address, "")
        gone = weakref.ref(ended)
        await ended.close()
        del ended
        another = await pool.get(address, "fetch-2")
        gc.collect()
        assert gone() is None
        assert await pool.get(address, "") is stays
        assert names(await another.send(question("a"))) == ["a"]
        await pool.close()


async def test_who_gives_up_while_an_old_session_is_closed_leaves_no_connection_open(monkeypatch):
    opened = []
    really = Connection.open

    async def noted(*address, **options):
        opened.append(await really(*address, **options))
        return opened[-1]

    monkeypatch.setattr(Connection, "open", noted)
    closing = asyncio.Event()

    async def slowly():
        closing.set()
        await asyncio.Event().wait()

    async with FakeBroker(echo) as broker:
        pool = ConnectionPool("tests", PLAINTEXT, 10, 10)
        address = ("127.0.0.1", broker.port)
        for lane in ("a", "b"):
            (await pool.get(address, lane))._retire_at = time.monotonic()
        monkeypatch.setattr(opened[0], "close", slowly)
        asking = asyncio.create_task(pool.get(address, "a"))
        await closing.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        monkeypatch.undo()
        assert await pool.get(address, "a") is opened[2]
        await pool.close()
        assert [connection.closed for connection in opened] == [True] * 3


async def test_who_gives_up_closing_a_client_leaves_no_connection_open():
    async with FakeBroker(echo) as broker:
        pool = ConnectionPool("tests", PLAINTEXT, 10, 10)
        opened = [await pool.get(("127.0.0.1", broker.port), lane) for lane in "abc"]
        closing = asyncio.create_task(pool.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert [connection.closed for connection in opened] == [True] * 3
