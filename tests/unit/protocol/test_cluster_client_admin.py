"""Topics, settings and groups: controllers and coordinators that move, answers per item."""

import pytest

from protocol.api import ApiKey
from protocol.client import (
    NO_RETRIES,
    ClusterClient,
    Committed,
    ConfigKind,
    ConfigSource,
    ConnectError,
    ConnectionLostError,
    NewTopic,
)
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.consumer_group_describe_response import ConsumerGroupDescribeResponse, Member
from protocol.messages.consumer_group_describe_response import DescribedGroup as ConsumerGroup
from protocol.messages.create_partitions_response import (
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from protocol.messages.create_topics_response import CreatableTopicResult, CreateTopicsResponse
from protocol.messages.delete_groups_response import DeletableGroupResult, DeleteGroupsResponse
from protocol.messages.delete_topics_response import DeletableTopicResult, DeleteTopicsResponse
from protocol.messages.describe_configs_response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from protocol.messages.describe_groups_response import DescribedGroup, DescribeGroupsResponse
from protocol.messages.incremental_alter_configs_response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from protocol.messages.init_producer_id_response import InitProducerIdResponse
from protocol.messages.list_groups_response import ListedGroup, ListGroupsResponse
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
from protocol.types import TopicPartition
from tests.support.fake_broker import FakeBroker, Peer
from tests.support.fake_cluster import FAST, FakeCluster

TP = TopicPartition("t", 0)


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


def no_consumer_groups(node, request):
    not_found = ErrorCode.GROUP_ID_NOT_FOUND
    return ConsumerGroupDescribeResponse(
        groups=[ConsumerGroup(group_id=name, error_code=not_found) for name in request.group_ids]
    )


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
    cluster.on(ApiKey.CONSUMER_GROUP_DESCRIBE, no_consumer_groups)
    found = await client.describe_groups(["g", "gone"])
    assert {name: group.state for name, group in found.items()} == {"g": "Stable", "gone": "Dead"}
    assert len(cluster.requests(ApiKey.DESCRIBE_GROUPS)) == 1


async def test_groups_of_the_consumer_protocol_are_described_as_what_they_are(cluster, client):
    """DescribeGroups knows classic groups only and calls all others dead (KIP-848)."""

    def classic(node, request):
        return DescribeGroupsResponse(
            groups=[
                DescribedGroup(group_id=name, error_code=ErrorCode.GROUP_ID_NOT_FOUND, group_state="Dead")
                for name in request.groups
            ]
        )

    def consumers(node, request):
        of_new = {"new": ("Stable", [Member(member_id="m1", client_id="c1")]), "left": ("Empty", [])}
        return ConsumerGroupDescribeResponse(
            groups=[
                ConsumerGroup(group_id=name, group_state=of_new[name][0], members=of_new[name][1])
                if name in of_new
                else ConsumerGroup(group_id=name, error_code=ErrorCode.GROUP_ID_NOT_FOUND)
                for name in request.group_ids
            ]
        )

    cluster.on(ApiKey.DESCRIBE_GROUPS, classic)
    cluster.on(ApiKey.CONSUMER_GROUP_DESCRIBE, consumers)
    found = await client.describe_groups(["new", "left", "gone"])
    assert {name: group.state for name, group in found.items()} == {
        "new": "Stable",
        "left": "Empty",
        "gone": "Dead",
    }
    assert [member.client_id for member in found["new"].members] == ["c1"]
    assert found["new"].protocol_type == "consumer"
    assert len(cluster.requests(ApiKey.CONSUMER_GROUP_DESCRIBE)) == 1


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
        with pytest.raises(ConnectError, match="it speaks HTTP"):
            async with ClusterClient(server.address, retry=NO_RETRIES):
                pass


# Settings, partitions, groups that go


async def test_settings_of_brokers_are_asked_of_each_broker(cluster, client):
    def describe(node, request):
        return DescribeConfigsResponse(
            results=[
                DescribeConfigsResult(
                    resource_type=row.resource_type,
                    resource_name=row.resource_name,
                    error_code=0 if row.resource_name in (str(node), "t") else 40,
                    error_message="not mine",
                    configs=[DescribeConfigsResourceResult(name="a", value=f"from {node}", config_source=99)],
                )
                for row in request.resources
            ]
        )

    cluster.on(ApiKey.DESCRIBE_CONFIGS, describe)
    found = await client.describe_configs(["1", "3"], ConfigKind.BROKER)
    assert {name: entries["a"].value for name, entries in found.items()} == {"1": "from 1", "3": "from 3"}
    assert found["1"]["a"].source is ConfigSource.UNKNOWN
    assert (await client.describe_configs(["t"], keys=["a"]))["t"]["a"].value
    assert cluster.requests(ApiKey.DESCRIBE_CONFIGS)[-1].body.resources[0].configuration_keys == ["a"]
    with pytest.raises(KafkaError, match="settings of topic u: not mine: INVALID_CONFIG"):
        await client.describe_configs(["t", "u"])


async def test_altering_settings(cluster, client):
    def alter(node, request):
        rows = [
            AlterConfigsResourceResponse(
                resource_type=row.resource_type,
                resource_name=row.resource_name,
                error_code=40 if row.resource_name == "u" else 0,
                error_message="no",
            )
            for row in request.resources
        ]
        return IncrementalAlterConfigsResponse(responses=rows)

    cluster.on(ApiKey.INCREMENTAL_ALTER_CONFIGS, alter)
    await client.alter_configs({"t": {"a": "1", "b": None}})
    sent = cluster.requests(ApiKey.INCREMENTAL_ALTER_CONFIGS)[0].body.resources[0].configs
    assert [(row.name, row.config_operation, row.value) for row in sent] == [("a", 0, "1"), ("b", 1, None)]
    with pytest.raises(KafkaError, match="settings of topic u: no: INVALID_CONFIG"):
        await client.alter_configs({"t": {"a": "1"}, "u": {"a": "2"}})


async def test_growing_topics(cluster, client):
    cluster.on(
        ApiKey.CREATE_PARTITIONS,
        lambda node, request: CreatePartitionsResponse(
            results=[CreatePartitionsTopicResult(name=row.name) for row in request.topics]
        ),
    )
    await client.create_partitions({"t": 3, "u": 2}, assignments={"t": [[1, 2], [2, 3]]})
    sent = cluster.requests(ApiKey.CREATE_PARTITIONS)[0].body.topics
    assert [row.assignments and [each.broker_ids for each in row.assignments] for row in sent] == [
        [[1, 2], [2, 3]],
        None,
    ]


async def test_deleting_groups(cluster, client):
    def delete(node, request):
        name = request.groups_names[0]
        if node == 1:
            cluster.coordinator = 2
            return DeleteGroupsResponse(results=[DeletableGroupResult(group_id=name, error_code=16)])
        return DeleteGroupsResponse(
            results=[DeletableGroupResult(group_id=name, error_code=68 if name == "busy" else 0)]
        )

    cluster.on(ApiKey.DELETE_GROUPS, delete)
    with pytest.raises(KafkaError, match="group busy: NON_EMPTY_GROUP"):
        await client.delete_groups(["g", "busy", "h"])
    asked = [(seen.node, seen.body.groups_names[0]) for seen in cluster.requests(ApiKey.DELETE_GROUPS)]
    assert asked == [(1, "g"), (2, "busy"), (2, "h"), (2, "g")]
