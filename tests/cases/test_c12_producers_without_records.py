"""C12: a producer is known for as long as its own time lasts, though all its records were deleted.

Compared with Apache Kafka 4.3 (ISTHMUS_ORACLE=1). Records are of today: Kafka forgets producers by the age of
their records, ours by when they were appended.
"""

import asyncio
import time
from collections.abc import Iterator

import pytest

from protocol.client.cluster import ClusterClient
from protocol.client.topic_calls import NewTopic
from protocol.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from protocol.messages.init_producer_id_request import InitProducerIdRequest
from protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records import Record, build_batch
from tests.support.sides import SIDES, Side, StartSide
from tests.support.transactions import producer, read_until, write

pytestmark = pytest.mark.cluster


@pytest.fixture(params=SIDES, scope="module")
def side(request: pytest.FixtureRequest, start_side: StartSide) -> Iterator[Side]:
    with start_side(request.param, "txn-c12", {}) as side:
        yield side


async def purge(side: Side, topic: str) -> None:
    connection = await side.connect()
    try:
        partition = DeleteRecordsPartition(partition_index=0, offset=-1)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=topic, partitions=[partition])], timeout_ms=10_000
        )
        answer = await connection.send(request, 2)
        assert answer.topics[0].partitions[0].error_code == 0
    finally:
        await connection.close()


async def test_an_idempotent_producer(side: Side) -> None:
    async with ClusterClient(side.bootstrap) as client:
        await client.create_topics([NewTopic("plain", 1, 1)])
    connection = await side.connect()

    async def send(sequence: int) -> tuple[int, int]:
        batch = build_batch(
            [Record(0, time.time_ns() // 1_000_000, None, b"v", [])],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
        )
        data = PartitionProduceData(index=0, records=batch)
        request = ProduceRequest(
            acks=-1, timeout_ms=5000, topic_data=[TopicProduceData(name="plain", partition_data=[data])]
        )
        answer = (await connection.send(request, 9)).responses[0].partition_responses[0]
        return answer.error_code, answer.base_offset

    try:
        producer_id = (await connection.send(InitProducerIdRequest(transactional_id=None), 4)).producer_id
        for n in range(10):
            assert await send(n) == (0, n)
        await purge(side, "plain")
        assert await send(9) == (0, 9)
        assert await send(10) == (0, 10)
        if side.broker is not None:
            await purge(side, "plain")
            await connection.close()
            await asyncio.to_thread(side.broker.stop)
            side.broker.start()  # not in a thread: the broker ends with the thread that started it
            connection = await side.connect()
            assert await send(10) == (0, 10)
            assert await send(11) == (0, 11)
    finally:
        await connection.close()


async def test_a_transactional_producer(side: Side) -> None:
    async with ClusterClient(side.bootstrap) as client:
        await client.create_topics([NewTopic("txn", 1, 1)])
    made = await asyncio.to_thread(producer, side.bootstrap, "c12")
    made.begin_transaction()
    await asyncio.to_thread(write, made, "txn", *"12345")
    await purge(side, "txn")
    await asyncio.to_thread(made.commit_transaction, 30)
    made.begin_transaction()
    await asyncio.to_thread(write, made, "txn", "6")
    if side.broker is not None:
        await asyncio.to_thread(side.broker.kill)
        side.broker.start()  # not in a thread: the broker ends with the thread that started it
    await asyncio.to_thread(made.commit_transaction, 30)

    def done(values: list[str]) -> bool:
        return values[-1:] == [
            "6"
        ]  # after SIGKILL deleted ones may be back: the checkpoint is written in turns

    values = await asyncio.to_thread(read_until, side.bootstrap, "txn", "read_committed", done)
    assert values in (["6"], list("123456"))
