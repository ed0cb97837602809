"""Routing and retries against scripted brokers: leaders that move, brokers that die, answers that lie."""

import asyncio
import time

import pytest

from protocol.api import ApiKey
from protocol.client import (
    LATEST,
    NO_RETRIES,
    ClusterClient,
    Committed,
    ConnectError,
    ConnectionLostError,
    NewTopic,
    RetryPolicy,
    WrongClusterError,
    parse_bootstrap,
)
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.create_topics_response import CreatableTopicResult, CreateTopicsResponse
from protocol.messages.delete_topics_response import DeletableTopicResult, DeleteTopicsResponse
from protocol.messages.describe_groups_response import DescribedGroup, DescribeGroupsResponse
from protocol.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from protocol.messages.init_producer_id_response import InitProducerIdResponse
from protocol.messages.list_groups_response import ListedGroup, ListGroupsResponse
from protocol.messages.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from protocol.messages.offset_commit_response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from protocol.messages.offset_fetch_response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from protocol.messages.produce_response import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from protocol.records import Record, build_batch
from protocol.types import TopicPartition
from tests.support.fake_broker import FakeBroker, Peer
from tests.support.fake_cluster import FakeCluster

FAST = RetryPolicy(total_s=10, unknown_topic_s=0.3, first_wait_s=0.005, longest_wait_s=0.05)
TP = TopicPartition("t", 0)
BATCH = build_batch([Record(0, 5, b"k", b"v")])
IDEMPOTENT = build_batch([Record(0, 5, b"k", b"v")], producer_id=9, producer_epoch=0, base_sequence=0)


@pytest.fixture
async def cluster():
    async with FakeCluster() as cluster:
        yield cluster


@pytest.fixture
async def client(cluster):
    async with ClusterClient(cluster.bootstrap, retry=FAST) as client:
        yield client


def appended(request, code=0, offset=7):
    topic = request.topic_data[0]
    row = PartitionProduceResponse(index=topic.partition_data[0].index, error_code=code, base_offset=offset)
    if code:
        row.error_message = "refused"
        row.record_errors = [BatchIndexAndErrorMessage(batch_index=0, batch_index_error_message="bad record")]
    return ProduceResponse(
        responses=[TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[row])]
    )


def listed(request, code_of=lambda topic, partition: 0):
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=row.partition_index,
                        error_code=code_of(topic.name, row.partition_index),
                        offset=100 + row.partition_index,
                    )
                    for row in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


# Bootstrap and connections


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a:1", [("a", 1)]),
        (" a:1 , b:65535,", [("a", 1), ("b", 65535)]),
        ("[::1]:9092", [("::1", 9092)]),
    ],
)
def test_bootstrap_addresses(text, expected):
    assert parse_bootstrap(text) == expected


@pytest.mark.parametrize("text", ["", ",", "a", "a:", ":1", "a:x", "a:0", "a:65536", "a:1,b"])
def test_bad_bootstrap_addresses(text):
    with pytest.raises(ValueError, match="bootstrap"):
        parse_bootstrap(text)


async def test_any_address_that_answers_will_do(cluster):
    async with FakeBroker(lambda peer: peer.reader.read()) as gone:
        dead = gone.address
    async with ClusterClient(f"{dead},{cluster.brokers[2].address}", retry=NO_RETRIES) as client:
        assert client.cluster_id == "fake"
        assert sorted(client.brokers) == [1, 2, 3]
        assert client.controller_id == 1
    with pytest.raises(ConnectError, match=f"no broker can be reached: {dead}"):
        async with ClusterClient(dead, retry=NO_RETRIES):
            pass


async def test_a_cluster_that_is_still_starting_is_waited_for(cluster):
    await cluster.brokers[1].stop()
    address = cluster.brokers[1].address

    async def later():
        await asyncio.sleep(0.1)
        await cluster.brokers[1].start()

    starting = asyncio.create_task(later())
    async with ClusterClient(address, retry=FAST) as client:
        assert client.cluster_id == "fake"
    await starting


async def test_a_broker_that_comes_back_is_connected_to_again(cluster, client):
    cluster.topic("t", [2])
    cluster.on(ApiKey.LIST_OFFSETS, lambda node, request: listed(request))
    assert (await client.list_offsets({TP: LATEST}))[TP].offset == 100
    await cluster.brokers[2].stop()
    with pytest.raises((ConnectionLostError, ConnectError)):
        await client.list_offsets({TP: LATEST}, retry=NO_RETRIES)
    asking = asyncio.create_task(client.list_offsets({TP: LATEST}))
    await asyncio.sleep(0.05)
    assert not asking.done()
    await cluster.brokers[2].start()
    assert (await asking)[TP].offset == 100


async def test_another_cluster_at_the_same_address_is_noticed(cluster, client):
    cluster.cluster_id = "other"
    with pytest.raises(WrongClusterError, match="was cluster fake and now is other"):
        await client.metadata(None)


async def test_closing_ends_what_is_waiting(cluster, client):
    cluster.topic("t", [1])
    never = asyncio.Event()
    cluster.on(ApiKey.LIST_OFFSETS, lambda node, request: never.wait())
    asking = asyncio.create_task(client.list_offsets({TP: LATEST}, retry=NO_RETRIES))
    while not cluster.requests(ApiKey.LIST_OFFSETS):
        await asyncio.sleep(0.005)
    await client.close()
    with pytest.raises(ConnectionLostError, match="this side closed"):
        await asking
    with pytest.raises(ConnectError, match="this client is closed"):
        await client.metadata(None)


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


# Controller


def created(request, code=0):
    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(name=topic.name, topic_id=b"0123456789abcdef", error_code=code)
            for topic in request.topics
        ]
    )


async def test_the_controller_is_looked_up_again_when_it_moved(cluster, client):
    def create(node, request):
        if node == 3:
            return created(request)
        cluster.controller = 3
        return created(request, ErrorCode.NOT_CONTROLLER)

    cluster.on(ApiKey.CREATE_TOPICS, create)
    assert await client.create_topics([NewTopic("t", 2, 1)]) == {"t": b"0123456789abcdef"}
    assert [seen.node for seen in cluster.requests(ApiKey.CREATE_TOPICS)] == [1, 3]


async def test_a_topic_that_an_attempt_in_doubt_created_counts(cluster, client):
    answers = iter([None, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.TOPIC_ALREADY_EXISTS])

    def create(node, request):
        code = next(answers)
        return code and created(request, code)

    cluster.on(ApiKey.CREATE_TOPICS, create)
    assert await client.create_topics([NewTopic("t", 2, 1)]) == {"t": bytes(16)}
    with pytest.raises(KafkaError, match="topic t: TOPIC_ALREADY_EXISTS"):
        await client.create_topics([NewTopic("t", 2, 1)])


async def test_deleting_what_is_not_there(cluster, client):
    def delete(node, request):
        rows = [
            DeletableTopicResult(name=topic.name, error_code=0 if topic.name == "a" else 3)
            for topic in request.topics
        ]
        return DeleteTopicsResponse(responses=rows)

    cluster.on(ApiKey.DELETE_TOPICS, delete)
    await client.delete_topics(["a"])
    with pytest.raises(KafkaError, match="topic b: UNKNOWN_TOPIC"):
        await client.delete_topics(["a", "b"])


async def test_no_controller_at_the_moment(cluster, client):
    cluster.controller = -1
    cluster.on(ApiKey.CREATE_TOPICS, lambda node, request: created(request))
    await client.metadata(())
    with pytest.raises(KafkaError, match="no controller"):
        await client.create_topics([NewTopic("t")], retry=NO_RETRIES)


# Groups


def offsets_answer(request, code=0, row_code=0):
    if request.groups:
        rows = [OffsetFetchResponsePartitions(partition_index=0, committed_offset=5, error_code=row_code)]
        topics = [OffsetFetchResponseTopics(name="t", partitions=rows)]
        return OffsetFetchResponse(
            groups=[OffsetFetchResponseGroup(group_id="g", topics=topics, error_code=code)]
        )
    old = [
        OffsetFetchResponsePartition(partition_index=0, committed_offset=5, error_code=row_code),
        OffsetFetchResponsePartition(partition_index=1, committed_offset=-1),
    ]
    return OffsetFetchResponse(topics=[OffsetFetchResponseTopic(name="t", partitions=old)], error_code=code)


@pytest.mark.parametrize(("find", "fetch"), [(6, 9), (4, 8), (3, 7), (0, 5)])
async def test_committed_offsets_follow_the_coordinator(find, fetch):
    cluster = FakeCluster()
    cluster.highest = {ApiKey.FIND_COORDINATOR: find, ApiKey.OFFSET_FETCH: fetch}

    def answer(node, request):
        if node == 2:
            return offsets_answer(request)
        cluster.coordinator = 2
        return offsets_answer(request, ErrorCode.NOT_COORDINATOR)

    cluster.on(ApiKey.OFFSET_FETCH, answer)
    async with cluster, ClusterClient(cluster.bootstrap, retry=FAST) as client:
        found = await client.committed("g", [TP, TopicPartition("t", 1)])
        assert {tp: committed.offset for tp, committed in found.items()} == {TP: 5}
        assert [seen.node for seen in cluster.requests(ApiKey.OFFSET_FETCH)] == [1, 2]
        assert {seen.version for seen in cluster.requests(ApiKey.OFFSET_FETCH)} == {fetch}


async def test_an_offset_that_cannot_be_read_is_no_missing_offset(cluster, client):
    cluster.on(
        ApiKey.OFFSET_FETCH,
        lambda node, request: offsets_answer(request, row_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    )
    with pytest.raises(KafkaError, match="group g, t-0: TOPIC_AUTHORIZATION_FAILED"):
        await client.committed("g")


async def test_commits(cluster, client):
    codes = {1: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}

    def commit(node, request):
        return OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetCommitResponsePartition(
                            partition_index=row.partition_index, error_code=codes.pop(row.partition_index, 0)
                        )
                        for row in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    cluster.on(ApiKey.OFFSET_COMMIT, commit)
    await client.commit("g", {TopicPartition("t", n): Committed(n, 3, "m") for n in range(3)})
    sent = [
        [row.partition_index for row in seen.body.topics[0].partitions]
        for seen in cluster.requests(ApiKey.OFFSET_COMMIT)
    ]
    assert sent == [[0, 1, 2], [1]]
    first = cluster.requests(ApiKey.OFFSET_COMMIT)[0].body
    assert first.generation_id_or_member_epoch == -1
    row = first.topics[0].partitions[2]
    assert (row.committed_offset, row.committed_leader_epoch, row.committed_metadata) == (2, 3, "m")
    codes[0] = ErrorCode.UNKNOWN_MEMBER_ID
    with pytest.raises(KafkaError, match="group g, commit of t-0: UNKNOWN_MEMBER_ID"):
        await client.commit("g", {TP: Committed(1)})


async def test_groups_of_all_brokers_are_listed(cluster, client):
    loading = {2: True}

    def groups(node, request):
        if loading.pop(node, False):
            return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return ListGroupsResponse(groups=[ListedGroup(group_id=f"g{4 - node}", protocol_type="consumer")])

    cluster.on(ApiKey.LIST_GROUPS, groups)
    found = await client.list_groups()
    assert [(group.group_id, group.coordinator) for group in found] == [("g1", 3), ("g2", 2), ("g3", 1)]
    await cluster.brokers[3].stop()
    with pytest.raises((ConnectError, ConnectionLostError)):
        await client.list_groups(retry=NO_RETRIES)


async def test_groups_are_described_by_their_coordinators(cluster, client):
    def describe(node, request):
        states = {"g": (0, "Stable"), "gone": (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")}
        return DescribeGroupsResponse(
            groups=[
                DescribedGroup(group_id=name, error_code=states[name][0], group_state=states[name][1])
                for name in request.groups
            ]
        )

    cluster.on(ApiKey.DESCRIBE_GROUPS, describe)
    found = await client.describe_groups(["g", "gone"])
    assert {name: group.state for name, group in found.items()} == {"g": "Stable", "gone": "Dead"}
    assert len(cluster.requests(ApiKey.DESCRIBE_GROUPS)) == 1


async def test_producer_ids(cluster, client):
    answers = iter(
        [InitProducerIdResponse(error_code=15), InitProducerIdResponse(producer_id=4, producer_epoch=1)]
    )
    cluster.on(ApiKey.INIT_PRODUCER_ID, lambda node, request: next(answers))
    assert await client.init_producer_id() == (4, 1)


async def test_a_peer_that_is_no_broker():
    async def script(peer: Peer) -> None:
        await peer.reader.read(10)
        await peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await peer.reader.read()

    async with FakeBroker(script) as server:
        with pytest.raises(ConnectionLostError, match="sent a frame of"):
            async with ClusterClient(server.address, retry=NO_RETRIES):
                pass
