"""Produce, fetch and offsets: what follows a leader, what is sent again, what is told of failures."""

import asyncio
import time

import pytest

from protocol.api import ApiKey
from protocol.client import (
    LATEST,
    NO_RETRIES,
    ConnectionLostError,
)
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.delete_records_response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from protocol.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from protocol.messages.list_offsets_response import (
    ListOffsetsResponse,
)
from protocol.messages.produce_response import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from protocol.records import Record, build_batch
from protocol.types import TopicPartition
from tests.support.fake_cluster import listed

TP = TopicPartition("t", 0)
BATCH = build_batch([Record(0, 5, b"k", b"v")])
IDEMPOTENT = build_batch([Record(0, 5, b"k", b"v")], producer_id=9, producer_epoch=0, base_sequence=0)


def appended(request, code=0, offset=7):
    topic = request.topic_data[0]
    row = PartitionProduceResponse(index=topic.partition_data[0].index, error_code=code, base_offset=offset)
    if code:
        row.error_message = "refused"
        row.record_errors = [BatchIndexAndErrorMessage(batch_index=0, batch_index_error_message="bad record")]
    return ProduceResponse(
        responses=[TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[row])]
    )


# Leaders


async def test_metadata(cluster, client):
    cluster.topic("t", [2, -1], epoch=4, topic_id=b"0123456789abcdef")
    found = await client.metadata(["t", "nope"])
    assert found.topics["nope"].error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topic = found.topics["t"]
    assert topic.topic_id == b"0123456789abcdef"
    assert (topic.partitions[0].leader, topic.partitions[0].leader_epoch) == (2, 4)
    assert topic.partitions[1].error == ErrorCode.LEADER_NOT_AVAILABLE
    assert not cluster.requests(ApiKey.METADATA)[-1].body.allow_auto_topic_creation
    assert list((await client.metadata(None)).topics) == ["t"]
    assert (await client.metadata(())).topics == {}


async def test_one_request_for_all_who_look_for_leaders(cluster, client):
    for number in range(50):
        cluster.topic(f"t{number}", [1 + number % 3])
    before = len(cluster.requests(ApiKey.METADATA))
    leaders = await asyncio.gather(*(client.leader(TopicPartition(f"t{n}", 0)) for n in range(50)))
    assert [leader.node for leader in leaders] == [1 + number % 3 for number in range(50)]
    assert len(cluster.requests(ApiKey.METADATA)) - before <= 2


async def test_produce_follows_the_leader(cluster, client):
    cluster.topic("t", [1], epoch=1)
    assert (await client.leader(TP)).node == 1

    def produce(node, request):
        if node == 2:
            return appended(request)
        cluster.topic("t", [2], epoch=2)
        return appended(request, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    cluster.on(ApiKey.PRODUCE, produce)
    assert await client.produce(TP, BATCH) == 7
    assert [seen.node for seen in cluster.requests(ApiKey.PRODUCE)] == [1, 2]


async def test_an_older_answer_does_not_bring_an_old_leader_back(cluster, client):
    cluster.topic("t", [2], epoch=5)
    assert (await client.leader(TP)).node == 2
    cluster.topic("t", [1], epoch=4)
    await client.metadata(["t"])
    assert (await client.leader(TP)).node == 2
    cluster.topic("t", [3], epoch=6)
    await client.metadata(["t"])
    assert (await client.leader(TP)).node == 3
    cluster.topic("t", [1], epoch=0, topic_id=b"re-created topic")
    await client.metadata(["t"])
    assert (await client.leader(TP)).node == 1


async def test_a_partition_without_leader_is_waited_for(cluster, client):
    cluster.topic("t", [-1])
    cluster.on(ApiKey.PRODUCE, lambda node, request: appended(request))
    with pytest.raises(KafkaError, match="t-0: LEADER_NOT_AVAILABLE"):
        await client.produce(TP, BATCH, retry=NO_RETRIES)
    producing = asyncio.create_task(client.produce(TP, BATCH))
    await asyncio.sleep(0.05)
    cluster.topic("t", [3])
    assert await producing == 7


async def test_a_topic_that_nobody_knows_fails_soon(client):
    began = time.monotonic()
    with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION") as refused:
        await client.list_offsets({TP: LATEST})
    assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert time.monotonic() - began < 3


async def test_only_idempotent_batches_are_sent_again_when_it_is_not_known_whether_they_arrived(
    cluster, client
):
    cluster.topic("t", [1])
    answers = iter([None, "ok", None])
    cluster.on(ApiKey.PRODUCE, lambda node, request: next(answers) and appended(request))
    assert await client.produce(TP, [IDEMPOTENT[:61], IDEMPOTENT[61:]]) == 7
    assert len(cluster.requests(ApiKey.PRODUCE)) == 2
    with pytest.raises(ConnectionLostError, match="no answer to Produce"):
        await client.produce(TP, BATCH)
    assert len(cluster.requests(ApiKey.PRODUCE)) == 3


async def test_what_a_broker_refuses_is_told_with_its_words(cluster, client):
    cluster.topic("t", [1])
    cluster.on(ApiKey.PRODUCE, lambda node, request: appended(request, ErrorCode.INVALID_RECORD))
    with pytest.raises(KafkaError, match="t-0: refused; bad record: INVALID_RECORD") as refused:
        await client.produce(TP, BATCH)
    assert refused.value.code == ErrorCode.INVALID_RECORD
    assert len(cluster.requests(ApiKey.PRODUCE)) == 1


@pytest.mark.parametrize(("topic_id", "version"), [(bytes(16), 12), (b"0123456789abcdef", 13)])
async def test_topics_without_an_id_are_named(cluster, client, topic_id, version):
    cluster.topic("t", [1], topic_id=topic_id)
    cluster.on(ApiKey.PRODUCE, lambda node, request: appended(request))
    assert await client.produce(TP, BATCH) == 7
    assert cluster.requests(ApiKey.PRODUCE)[0].version == version


async def test_acks_0_does_not_wait(cluster, client):
    cluster.topic("t", [1])
    arrived = asyncio.Event()

    async def produce(node, request):
        arrived.set()
        await asyncio.Event().wait()

    cluster.on(ApiKey.PRODUCE, produce)
    assert await client.produce(TP, BATCH, acks=0) == -1
    await asyncio.wait_for(arrived.wait(), 5)
    assert cluster.requests(ApiKey.PRODUCE)[0].body.acks == 0


async def test_offsets_of_many_partitions_take_one_request_per_broker(cluster, client):
    cluster.topic("t", [1 + index % 3 for index in range(300)])
    cluster.on(ApiKey.LIST_OFFSETS, lambda node, request: listed(request))
    wanted = {TopicPartition("t", index): LATEST for index in range(300)}
    found = await client.list_offsets(wanted)
    assert {tp.partition: offset.offset for tp, offset in found.items()} == {n: 100 + n for n in range(300)}
    assert sorted(seen.node for seen in cluster.requests(ApiKey.LIST_OFFSETS)) == [1, 2, 3]


async def test_only_what_failed_is_asked_again(cluster, client):
    cluster.topic("t", [1, 1, 1])
    moved = iter([True])

    def code_of(topic, partition):
        if partition != 1 or not next(moved, False):
            return 0
        cluster.topic("t", [1, 3, 1], epoch=1)
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    cluster.on(ApiKey.LIST_OFFSETS, lambda node, request: listed(request, code_of))
    found = await client.list_offsets({TopicPartition("t", index): LATEST for index in range(3)})
    assert len(found) == 3
    rounds = [
        (seen.node, [row.partition_index for row in seen.body.topics[0].partitions])
        for seen in cluster.requests(ApiKey.LIST_OFFSETS)
    ]
    assert rounds == [(1, [0, 1, 2]), (3, [1])]


async def test_a_hopeless_item_is_named_after_the_others_were_tried(cluster, client):
    cluster.topic("t", [1, 2, 3])
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    cluster.on(ApiKey.LIST_OFFSETS, lambda node, request: listed(request, lambda _, p: code if p == 1 else 0))
    with pytest.raises(KafkaError, match="t-1: TOPIC_AUTHORIZATION_FAILED"):
        await client.list_offsets({TopicPartition("t", index): LATEST for index in range(3)})
    assert len(cluster.requests(ApiKey.LIST_OFFSETS)) == 3


async def test_a_partition_that_an_answer_leaves_out_is_an_error(cluster, client):
    cluster.topic("t", [1])
    cluster.on(ApiKey.LIST_OFFSETS, lambda node, request: ListOffsetsResponse())
    with pytest.raises(KafkaError, match="t-0: left out of the answer"):
        await client.list_offsets({TP: LATEST})


# Fetch


def fetched(request, rows):
    return FetchResponse(
        responses=[
            FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=rows)
            for topic in request.topics
        ]
    )


async def test_a_fetch_that_waits_for_data_does_not_hold_up_others(cluster, client):
    cluster.topic("t", [1])
    data = asyncio.Event()

    async def fetch(node, request):
        await data.wait()
        return fetched(request, [PartitionData(records=BATCH, high_watermark=1)])

    cluster.on(ApiKey.FETCH, fetch)
    cluster.on(ApiKey.LIST_OFFSETS, lambda node, request: listed(request))
    fetching = asyncio.create_task(client.fetch(TP, 0))
    while not cluster.requests(ApiKey.FETCH):
        await asyncio.sleep(0.005)
    await asyncio.wait_for(client.list_offsets({TP: LATEST}), 5)
    assert not fetching.done()
    data.set()
    found = await fetching
    assert bytes(found.records) == BATCH
    assert found.high_watermark == 1


async def test_several_partitions_from_one_broker_each_with_its_own_fate(cluster, client):
    cluster.topic("t", [2, 2, 2], topic_id=b"0123456789abcdef")
    rows = [
        PartitionData(partition_index=0, records=BATCH),
        PartitionData(partition_index=1, error_code=ErrorCode.OFFSET_OUT_OF_RANGE),
        PartitionData(partition_index=2, records=None, high_watermark=3),
    ]
    cluster.on(ApiKey.FETCH, lambda node, request: fetched(request, rows))
    found = await client.fetch_from(2, {TopicPartition("t", index): 40 for index in range(3)})
    assert found[TP].records == BATCH
    error = found[TopicPartition("t", 1)]
    assert isinstance(error, KafkaError)
    assert str(error).startswith("t-1 at offset 40: OFFSET_OUT_OF_RANGE")
    assert found[TopicPartition("t", 2)].records == b""


async def test_fetch_fails_on_an_offset_that_is_gone(cluster, client):
    cluster.topic("t", [2])
    rows = [PartitionData(partition_index=0, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)]
    cluster.on(ApiKey.FETCH, lambda node, request: fetched(request, rows))
    with pytest.raises(KafkaError, match="t-0 at offset 5: OFFSET_OUT_OF_RANGE"):
        await client.fetch(TP, 5)


async def test_deleting_records(cluster, client):
    cluster.topic("t", [1, 2])

    def delete(node, request):
        return DeleteRecordsResponse(
            topics=[
                DeleteRecordsTopicResult(
                    name=topic.name,
                    partitions=[
                        DeleteRecordsPartitionResult(
                            partition_index=row.partition_index, low_watermark=row.offset
                        )
                        for row in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    cluster.on(ApiKey.DELETE_RECORDS, delete)
    wanted = {TP: 5, TopicPartition("t", 1): 7}
    assert await client.delete_records(wanted) == wanted
