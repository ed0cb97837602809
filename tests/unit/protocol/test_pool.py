"""The connections of one client: which are kept."""

import gc
import weakref

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
