"""C02 and C12 over a change of leader: look-ups by time, and producers whose records were deleted, go on."""

import asyncio
import time

import pytest

from protocol.client import ClusterClient, Connection, NewTopic
from protocol.errors import ErrorCode
from protocol.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from protocol.messages.init_producer_id_request import InitProducerIdRequest
from protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records import Codec, Record, build_batch
from protocol.types import TopicPartition
from tests.support.broker import Cluster
from tests.support.slow import slow
from tests.support.three_brokers import StartThree, create, leader
from tests.support.transactions import producer, read_until, write
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300), slow("three brokers start and leaders change")]
REPLICATED = {
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "1",
    "min.insync.replicas": "2",
}
LATEST_TIME = -3


async def connect(cluster: Cluster, topic: str) -> Connection:
    """To the leader of its partition 0."""
    port = cluster.brokers[leader(cluster, topic)].port
    return await Connection.open("127.0.0.1", port)


async def another_leader(cluster: Cluster, topic: str) -> None:
    before = leader(cluster, topic)
    cluster.brokers[before].kill()
    await asyncio.to_thread(
        wait_until, lambda: leader(cluster, topic) not in (-1, before), f"another leader of {topic}"
    )


async def look_up(cluster: Cluster, topic: str, *times: int) -> list[tuple[int, int]]:
    connection = await connect(cluster, topic)
    found = []
    try:
        for wanted in times:
            partition = ListOffsetsPartition(partition_index=0, timestamp=wanted)
            request = ListOffsetsRequest(
                replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[partition])]
            )
            answer = (await connection.send(request, 8)).topics[0].partitions[0]
            assert answer.error_code == 0
            found.append((answer.offset, answer.timestamp))
    finally:
        await connection.close()
    return found


async def test_c02_look_ups_by_time_are_the_same_on_a_follower_made_leader(start_three: StartThree) -> None:
    made = start_three(REPLICATED)
    t = int(time.time() * 1000) - 10_000
    async with ClusterClient(made.bootstrap) as client:
        await client.create_topics(
            [
                NewTopic("create", assignment={0: [1, 2, 3]}),
                NewTopic(
                    "append", assignment={0: [1, 2, 3]}, configs={"message.timestamp.type": "LogAppendTime"}
                ),
            ]
        )
        records = [Record(n, at, b"k", b"v") for n, at in enumerate((t, t + 50, t + 20))]
        for topic in ("create", "append"):
            await client.produce(TopicPartition(topic, 0), build_batch(records, codec=Codec.GZIP))
        plain = [Record(n, at, b"k", b"v") for n, at in enumerate((t + 50, t + 10))]
        await client.produce(TopicPartition("create", 0), build_batch(plain))
    [(first, a)] = await look_up(made, "append", LATEST_TIME)
    assert first == 0
    create_times, append_times = (LATEST_TIME, t + 15, t + 51), (a, a + 1, LATEST_TIME)
    expected = [(1, t + 50), (1, t + 50), (-1, -1)], [(0, a), (-1, -1), (0, a)]
    for _ in range(2):
        assert await look_up(made, "create", *create_times) == expected[0]
        assert await look_up(made, "append", *append_times) == expected[1]
        if leader(made, "create") == 1:
            await another_leader(made, "create")
            await asyncio.to_thread(wait_until, lambda: leader(made, "append") not in (-1, 1), "append too")


async def purge(cluster: Cluster, topic: str) -> None:
    connection = await connect(cluster, topic)
    try:
        partition = DeleteRecordsPartition(partition_index=0, offset=-1)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=topic, partitions=[partition])], timeout_ms=30_000
        )
        assert (await connection.send(request, 2)).topics[0].partitions[0].error_code == 0
    finally:
        await connection.close()


async def test_c12_a_producer_without_records_is_known_to_the_next_leader(start_three: StartThree) -> None:
    made = start_three(REPLICATED)
    create(made, "plain", (1, 2, 3))
    create(made, "txn", (1, 2, 3))
    connection = await connect(made, "plain")
    producer_id = (await connection.send(InitProducerIdRequest(transactional_id=None), 4)).producer_id
    await connection.close()

    async def send(sequence: int) -> tuple[int, int]:
        """To whoever leads now; again while that one is not known or has too few in sync yet."""
        batch = build_batch(
            [Record(0, time.time_ns() // 1_000_000, None, b"v")],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
        )
        data = PartitionProduceData(index=0, records=batch)
        request = ProduceRequest(
            acks=-1, timeout_ms=20_000, topic_data=[TopicProduceData(name="plain", partition_data=[data])]
        )
        connection = await connect(made, "plain")
        try:
            answer = (await connection.send(request, 9)).responses[0].partition_responses[0]
        finally:
            await connection.close()
        return answer.error_code, answer.base_offset

    for number in range(10):
        assert await send(number) == (ErrorCode.NONE, number)
    await purge(made, "plain")
    await another_leader(made, "plain")
    assert await send(9) == (ErrorCode.NONE, 9), "a retry is answered as what it is"
    assert await send(10) == (ErrorCode.NONE, 10)
    made.brokers[1].start()

    transactional = await asyncio.to_thread(producer, made.bootstrap, "c12")
    transactional.begin_transaction()
    await asyncio.to_thread(write, transactional, "txn", *"12345")
    await purge(made, "txn")
    await another_leader(made, "txn")
    await asyncio.to_thread(transactional.commit_transaction, 60)
    transactional.begin_transaction()
    await asyncio.to_thread(write, transactional, "txn", "6")
    await asyncio.to_thread(transactional.commit_transaction, 60)
    values = await asyncio.to_thread(
        read_until, made.bootstrap, "txn", "read_committed", lambda found: found[-1:] == ["6"]
    )
    assert values in (["6"], list("123456"))
