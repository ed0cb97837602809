"""C07: readers get to the end of a partition, whatever their level and whatever is open.

Apache Kafka 4.3.1 gives the same positions.
"""

import asyncio
from collections.abc import Iterator

import pytest

from protocol.client.cluster import ClusterClient
from protocol.client.topic_calls import NewTopic
from tests.support.sides import SIDES, Side, StartSide
from tests.support.transactions import LEVELS, producer, raw_fetch, read_to_end, write

pytestmark = pytest.mark.cluster


@pytest.fixture(params=SIDES, scope="module")
def side(request: pytest.FixtureRequest, start_side: StartSide) -> Iterator[Side]:
    with start_side(request.param, "txn-c07", {}) as side:
        yield side


async def ends(side: Side, topic: str, *expected: int) -> None:
    """The end event comes at `expected`, uncommitted and committed; once markers are there, which may take a
    moment.
    """
    connection = await side.connect()
    try:
        async with asyncio.timeout(20):
            for level, position in zip(LEVELS, expected, strict=True):
                end = -1
                while end < position:
                    end = (await asyncio.to_thread(read_to_end, side.bootstrap, topic, level))[1]
                assert end == position
                raw = await raw_fetch(connection, topic, 11, level)
                assert raw.last_stable_offset == expected[1]
                assert raw.high_watermark == expected[0]
    finally:
        await connection.close()


async def test_every_reader_gets_to_the_end(side: Side) -> None:
    async with ClusterClient(side.bootstrap) as client:
        await client.create_topics([NewTopic("t", 1, 1), NewTopic("aborted", 1, 1)])
    await ends(side, "t", 0, 0)
    made = await asyncio.to_thread(producer, side.bootstrap, "c07")
    made.begin_transaction()
    await asyncio.to_thread(write, made, "t", "1", "2", "3")
    await asyncio.to_thread(made.commit_transaction, 30)
    await ends(side, "t", 4, 4)
    made.begin_transaction()
    await asyncio.to_thread(write, made, "t", "4", "5")
    await ends(side, "t", 6, 4)
    await asyncio.to_thread(made.commit_transaction, 30)
    await ends(side, "t", 7, 7)
    made.begin_transaction()
    await asyncio.to_thread(write, made, "aborted", "x")
    await asyncio.to_thread(made.abort_transaction, 30)
    await ends(side, "aborted", 2, 2)
