"""C13: a topic deleted under an open transaction drops out of it; the rest ends, the id is of use at once.

Compared with Apache Kafka 4.3 (ISTHMUS_ORACLE=1), but for what a topic made anew holds and for the kill.
"""

import asyncio
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from protocol.client.cluster import ClusterClient
from protocol.client.topic_calls import NewTopic
from tests.support.sides import SIDES, Side, StartSide
from tests.support.transactions import LEVELS, producer, raw_fetch, read_until, write

pytestmark = pytest.mark.cluster


@pytest.fixture(params=SIDES, scope="module")
def side(request: pytest.FixtureRequest, start_side: StartSide) -> Iterator[Side]:
    with start_side(request.param, "txn-c13", {"auto.create.topics.enable": "false"}) as side:
        yield side


async def begun(side: Side, gone: str, kept: str) -> Producer:
    async with ClusterClient(side.bootstrap) as client:
        await client.create_topics([NewTopic(gone, 1, 1), NewTopic(kept, 1, 1)])
    made = await asyncio.to_thread(producer, side.bootstrap, f"id-{kept}")
    made.begin_transaction()
    await asyncio.to_thread(write, made, gone, "gone")
    await asyncio.to_thread(write, made, kept, "kept")
    return made


async def is_of_use(side: Side, made: Producer, kept: str, *before: str) -> None:
    made.begin_transaction()
    await asyncio.to_thread(write, made, kept, "next")
    await asyncio.to_thread(made.commit_transaction, 30)
    expected = [*before, "next"]
    values = await asyncio.to_thread(
        read_until, side.bootstrap, kept, "read_committed", lambda values: values == expected
    )
    assert values == expected


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
async def test_deleted_before_the_end(side: Side, commit: bool) -> None:
    kept = f"kept-{commit}"
    made = await begun(side, f"gone-{commit}", kept)
    async with ClusterClient(side.bootstrap) as client:
        await client.delete_topics([f"gone-{commit}"])
    async with asyncio.timeout(20):
        await asyncio.to_thread(made.commit_transaction if commit else made.abort_transaction, 15)
    await is_of_use(side, made, kept, *["kept"] * commit)


@pytest.mark.parametrize("delay_ms", [0, 5, 20])
async def test_deleted_during_the_end(side: Side, delay_ms: int) -> None:
    kept = f"kept-{delay_ms}"
    made = await begun(side, f"gone-{delay_ms}", kept)
    async with ClusterClient(side.bootstrap) as client:
        ending = asyncio.create_task(asyncio.to_thread(made.commit_transaction, 15))
        await asyncio.sleep(delay_ms / 1000)  # what is tested is the moment
        await client.delete_topics([f"gone-{delay_ms}"])
        await ending
    await is_of_use(side, made, kept, "kept")


@pytest.mark.parametrize("kill", [False, True], ids=["", "coordinator killed"])
async def test_made_anew_before_the_end(side: Side, kill: bool) -> None:
    if side.broker is None and kill:
        pytest.skip("Apache Kafka is not killed here")
    gone, kept = f"gone-anew-{kill}", f"kept-anew-{kill}"
    made = await begun(side, gone, kept)
    async with ClusterClient(side.bootstrap) as client:
        await client.delete_topics([gone])
        if side.broker is not None:
            await client.create_topics([NewTopic(gone, 1, 1)])
    if kill:
        assert side.broker is not None
        await asyncio.to_thread(side.broker.kill)
        side.broker.start()  # not in a thread: the broker ends with the thread that started it
    await asyncio.to_thread(made.commit_transaction, 30)
    await is_of_use(side, made, kept, "kept")
    if side.broker is None:
        return
    connection = await side.connect()
    try:
        for level in LEVELS:
            found = await raw_fetch(connection, gone, 12, level)
            assert found.high_watermark == found.last_stable_offset == 0
    finally:
        await connection.close()
    assert "have no marker" not in side.broker.output
