"""C06: every bad record of a batch is named at once, nothing of it is stored, other partitions are fine."""

import time
from collections.abc import Iterator

import pytest

from protocol.client import Connection
from protocol.client.cluster import ClusterClient
from protocol.client.topic_calls import NewTopic
from protocol.errors import ErrorCode
from protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.produce_response import PartitionProduceResponse
from protocol.records import Codec, Record, build_batch
from protocol.types import TopicPartition
from tests.support.sides import SIDES, Side, StartSide

pytestmark = pytest.mark.cluster


@pytest.fixture(params=SIDES, scope="module")
def side(request: pytest.FixtureRequest, start_side: StartSide) -> Iterator[Side]:
    with start_side(request.param, "clean-c06", {}) as side:
        yield side


def records(keys: list[bytes | None], late: dict[int, int] | None = None, codec: Codec = Codec.NONE) -> bytes:
    now = int(time.time() * 1000)
    made = [Record(n, now + (late or {}).get(n, 0), key, b"v", []) for n, key in enumerate(keys)]
    return build_batch(made, codec=codec)


async def produce(connection: Connection, topic: str, *batches: bytes) -> list[PartitionProduceResponse]:
    """One batch for each partition."""
    data = [PartitionProduceData(index=index, records=batch) for index, batch in enumerate(batches)]
    request = ProduceRequest(
        acks=-1, timeout_ms=5000, topic_data=[TopicProduceData(name=topic, partition_data=data)]
    )
    answers = (await connection.send(request, 8)).responses[0].partition_responses
    return sorted(answers, key=lambda answer: answer.index)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
async def test_all_offenders_are_named(side: Side, codec: Codec) -> None:
    topic = f"c06-{codec.name.lower()}"
    good = records([b"a", b"b"])
    async with ClusterClient(side.bootstrap) as client:
        await client.create_topics([NewTopic(topic, 2, 1, configs={"cleanup.policy": "compact"})])
        for index in range(2):  # with retries, until both have a leader
            await client.produce(TopicPartition(topic, index), good)
        connection = await side.connect()
        try:
            keyless, fine = await produce(
                connection, topic, records([b"a", None, b"c", None, b"e"], codec=codec), good
            )
            assert (keyless.error_code, keyless.base_offset) == (ErrorCode.INVALID_RECORD, -1)
            assert [error.batch_index for error in keyless.record_errors] == [1, 3]
            assert all(error.batch_index_error_message for error in keyless.record_errors)
            assert keyless.error_message
            assert (fine.error_code, fine.base_offset) == (ErrorCode.NONE, 2)

            mixed, fine = await produce(
                connection, topic, records([b"a", None, b"c", b"d"], {2: 10 * 3_600_000}, codec), good
            )
            assert (mixed.error_code, mixed.base_offset) == (ErrorCode.INVALID_TIMESTAMP, -1)
            assert [error.batch_index for error in mixed.record_errors] == [1, 2]
            assert fine.base_offset == 4
        finally:
            await connection.close()
        ends = await client.list_offsets({TopicPartition(topic, index): -1 for index in range(2)})
        assert [ends[TopicPartition(topic, index)].offset for index in range(2)] == [2, 6]
