"""C01: a timestamp from the future is refused; one that was let in is said aloud, and can be removed."""

import time
from collections.abc import Iterator

import pytest

from protocol.client.cluster import ClusterClient
from protocol.client.topic_calls import NewTopic
from protocol.errors import ErrorCode
from protocol.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records import Record, build_batch
from protocol.types import TopicPartition
from tests.support.sides import SIDES, Side, StartSide
from tests.support.waiting import eventually, wait_until

pytestmark = pytest.mark.cluster
HOUR_MS = 3_600_000
YEAR_MS = 365 * 24 * HOUR_MS
EARLIEST, LATEST = -2, -1
QUICK = {
    "log.retention.check.interval.ms": "300",
    "log.segment.delete.delay.ms": "100",
}


@pytest.fixture(params=SIDES, scope="module")
def side(request: pytest.FixtureRequest, start_side: StartSide) -> Iterator[Side]:
    with start_side(request.param, "clean-c01", QUICK) as side:
        yield side


def dated(*times: int, size: int = 10) -> bytes:
    return build_batch([Record(n, at, b"k", bytes(size), []) for n, at in enumerate(times)])


def now_ms() -> int:
    return int(time.time() * 1000)


async def test_refused_at_the_door(side: Side) -> None:
    tp = TopicPartition("door", 0)
    async with ClusterClient(side.bootstrap) as client:
        limit = {"message.timestamp.after.max.ms": str(HOUR_MS)}
        await client.create_topics([NewTopic("door", 1, 1, configs=limit)])
        await client.produce(tp, dated(now_ms() + HOUR_MS // 2))
        wrong = PartitionProduceData(index=0, records=dated(now_ms(), now_ms() + 2 * HOUR_MS, now_ms()))
        request = ProduceRequest(
            acks=-1, timeout_ms=5000, topic_data=[TopicProduceData(name="door", partition_data=[wrong])]
        )
        connection = await side.connect()
        answer = (await connection.send(request, 8)).responses[0].partition_responses[0]
        await connection.close()
        assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_TIMESTAMP, -1)
        assert [error.batch_index for error in answer.record_errors] == [1]
        assert (await client.list_offsets({tp: LATEST}))[tp].offset == 1


async def test_one_that_was_let_in_holds_retention_until_it_is_deleted(side: Side) -> None:
    tp = TopicPartition("let-in", 0)
    configs = {
        "message.timestamp.after.max.ms": str(2**63 - 1), "retention.ms": "1000", "segment.bytes": "1048576",
    }  # fmt: skip
    async with ClusterClient(side.bootstrap) as client:
        await client.create_topics([NewTopic("let-in", 1, 1, configs=configs)])

        async def start() -> int:
            return (await client.list_offsets({tp: EARLIEST}))[tp].offset

        await client.produce(tp, dated(now_ms() + YEAR_MS, size=1_000_000))
        for _ in range(20):
            await client.produce(tp, dated(now_ms() - 5000, size=200_000))
        if side.broker is not None:
            broker = side.broker
            line = "let-in-0: segment 00000000000000000000 holds a record dated"
            wait_until(lambda: line in broker.output, "a log line that says so")
        assert await start() == 0
        connection = await side.connect()
        wanted = DeleteRecordsPartition(partition_index=0, offset=1)
        answer = await connection.send(
            DeleteRecordsRequest(
                topics=[DeleteRecordsTopic(name="let-in", partitions=[wanted])], timeout_ms=5000
            )
        )
        await connection.close()
        assert answer.topics[0].partitions[0].error_code == 0
        assert await eventually(start, lambda offset: offset > 10) <= 21
        assert (await client.list_offsets({tp: LATEST}))[tp].offset == 21
