"""C08: both levels are sent the same batches; only read_committed gets the list of what to drop.

Apache Kafka 4.3.1 answers the same.
"""

import asyncio
from collections.abc import Iterator

import pytest

from protocol.client.cluster import ClusterClient
from protocol.client.topic_calls import NewTopic
from protocol.records import Record, build_batch, iter_headers
from protocol.types import TopicPartition
from tests.support.sides import SIDES, Side, StartSide
from tests.support.transactions import LEVELS, producer, raw_fetch, read_until, write

pytestmark = pytest.mark.cluster


@pytest.fixture(params=SIDES, scope="module")
def side(request: pytest.FixtureRequest, start_side: StartSide) -> Iterator[Side]:
    with start_side(request.param, "txn-c08", {}) as side:
        yield side


async def test_aborted_data(side: Side) -> None:
    plain = [Record(n, 1_700_000_000_000, None, b"plain", []) for n in range(2)]
    async with ClusterClient(side.bootstrap) as client:
        await client.create_topics([NewTopic("t", 1, 1)])
        made = await asyncio.to_thread(producer, side.bootstrap, "c08")
        made.begin_transaction()
        await asyncio.to_thread(write, made, "t", *["aborted"] * 3)
        await asyncio.to_thread(made.abort_transaction, 30)
        await client.produce(TopicPartition("t", 0), build_batch(plain))
        made.begin_transaction()
        await asyncio.to_thread(write, made, "t", *["committed"] * 2)
        await asyncio.to_thread(made.commit_transaction, 30)
    committed = await asyncio.to_thread(
        read_until, side.bootstrap, "t", "read_committed", lambda values: len(values) >= 4
    )
    assert committed == ["plain"] * 2 + ["committed"] * 2
    every = await asyncio.to_thread(read_until, side.bootstrap, "t", "read_uncommitted", lambda _: True)
    assert sorted(every) == ["aborted"] * 3 + ["committed"] * 2 + ["plain"] * 2
    connection = await side.connect()
    try:
        for version in (4, 11, 12):
            whole, dropped = [await raw_fetch(connection, "t", version, level) for level in LEVELS]
            assert whole.records is not None
            assert dropped.records is not None
            assert bytes(whole.records) == bytes(dropped.records)
            assert not whole.aborted_transactions
            first = next(header for _, header in iter_headers(memoryview(bytes(whole.records))))
            assert dropped.aborted_transactions is not None
            listed = [(each.producer_id, each.first_offset) for each in dropped.aborted_transactions]
            assert listed == [(first.producer_id, 0)]
            if version > 4:
                assert whole.aborted_transactions is None
    finally:
        await connection.close()
