"""C02: look-ups by time are exact to the record, whatever the codec and whoever stamps the records."""

import time
from collections.abc import Iterator

import pytest

from protocol.client.cluster import ClusterClient
from protocol.client.topic_calls import NewTopic
from protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.records import Codec, Record, build_batch, decode_batches
from protocol.types import TopicPartition
from tests.support.sides import SIDES, Side, StartSide

pytestmark = pytest.mark.cluster
LATEST_TIME = -3


@pytest.fixture(params=SIDES, scope="module")
def side(request: pytest.FixtureRequest, start_side: StartSide) -> Iterator[Side]:
    with start_side(request.param, "clean-c02", {}) as side:
        yield side


async def look_up(side: Side, topic: str, *times: int) -> list[tuple[int, int]]:
    """(offset, timestamp) for each."""
    connection = await side.connect()
    found = []
    try:
        for wanted in times:
            for version in (7, 8):
                partition = ListOffsetsPartition(partition_index=0, timestamp=wanted)
                request = ListOffsetsRequest(
                    replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[partition])]
                )
                answer = (await connection.send(request, version)).topics[0].partitions[0]
                assert answer.error_code == 0
            found.append((answer.offset, answer.timestamp))
    finally:
        await connection.close()
    return found


def dated(*times: int, codec: Codec = Codec.NONE) -> bytes:
    return build_batch([Record(n, at, b"k", b"v", []) for n, at in enumerate(times)], codec=codec)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.NONE, Codec.ZSTD])
async def test_create_time(side: Side, codec: Codec) -> None:
    topic = f"create-{codec.name.lower()}"
    t = int(time.time() * 1000) - 10_000
    async with ClusterClient(side.bootstrap) as client:
        await client.create_topics([NewTopic(topic, 1, 1)])
        await client.produce(TopicPartition(topic, 0), dated(t, t + 50, t + 20, codec=codec))
        await client.produce(TopicPartition(topic, 0), dated(t + 50, t + 10))
    times = (LATEST_TIME, t + 15, t + 51, t, t + 50, t - 1)
    expected = [(1, t + 50), (1, t + 50), (-1, -1), (0, t), (1, t + 50), (0, t)]
    assert await look_up(side, topic, *times) == expected
    if side.broker is not None:
        side.broker.kill()
        side.broker.start()
        assert await look_up(side, topic, *times) == expected


async def test_append_time(side: Side) -> None:
    topic = "append"
    tp = TopicPartition(topic, 0)
    old = int(time.time() * 1000) - 3_000_000
    async with ClusterClient(side.bootstrap) as client:
        await client.create_topics(
            [NewTopic(topic, 1, 1, configs={"message.timestamp.type": "LogAppendTime"})]
        )
        await client.produce(tp, dated(old, old + 1, old + 2, old + 3, old + 4))
        fetched = await client.fetch(tp, 0)
    records = list(decode_batches(fetched.records))
    stamps = {record.timestamp for record in records}
    assert len(records) == 5
    assert len(stamps) == 1
    a = stamps.pop()
    assert a > old + 4
    assert await look_up(side, topic, a, a + 1, LATEST_TIME) == [(0, a), (-1, -1), (0, a)]
