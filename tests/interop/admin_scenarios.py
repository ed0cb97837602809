"""What admin clients ask: lists of (request, version) for `test_admin_apis`, each to be sent in its order."""

from __future__ import annotations

from typing import Any

from protocol.messages.alter_configs_request import AlterableConfig as Replaced
from protocol.messages.alter_configs_request import AlterConfigsRequest
from protocol.messages.alter_configs_request import AlterConfigsResource as ReplacedResource
from protocol.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from protocol.messages.create_acls_request import AclCreation, CreateAclsRequest
from protocol.messages.create_partitions_request import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from protocol.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from protocol.messages.delete_acls_request import DeleteAclsFilter, DeleteAclsRequest
from protocol.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.describe_acls_request import DescribeAclsRequest
from protocol.messages.describe_cluster_request import DescribeClusterRequest
from protocol.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.describe_topic_partitions_request import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from protocol.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.list_partition_reassignments_request import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from protocol.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

Ask = tuple[Any, int]
_TOPIC, _BROKER, _ODD = 2, 4, 99
SET, DELETE, APPEND, SUBTRACT = range(4)


def elect(kind: int, topics: list[TopicPartitions] | None, version: int = 2) -> Ask:
    return ElectLeadersRequest(election_type=kind, topic_partitions=topics, timeout_ms=5000), version


def reassign(topic: str, partition: int, replicas: list[int] | None) -> Ask:
    wanted = ReassignablePartition(partition_index=partition, replicas=replicas)
    topics = [ReassignableTopic(name=topic, partitions=[wanted])]
    return AlterPartitionReassignmentsRequest(timeout_ms=5000, topics=topics), 0


def grow(
    topic: str,
    count: int,
    *assignments: list[int],
    version: int = 3,
    twice: bool = False,
    try_only: bool = True,
) -> Ask:
    wanted = CreatePartitionsTopic(
        name=topic,
        count=count,
        assignments=[CreatePartitionsAssignment(broker_ids=ids) for ids in assignments] or None,
    )
    topics = [wanted, wanted] if twice else [wanted]
    return CreatePartitionsRequest(topics=topics, timeout_ms=10_000, validate_only=version > 0), version


def create(name: str, partitions: int = 1, replicas: int = 1, **more: Any) -> Ask:
    try_only = more.pop("try_only", True)
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, **more)
    return CreateTopicsRequest(topics=[topic], timeout_ms=10_000, validate_only=try_only), 7


def assigned(*replicas: list[int]) -> list[CreatableReplicaAssignment]:
    return [CreatableReplicaAssignment(partition_index=i, broker_ids=ids) for i, ids in enumerate(replicas)]


def change(kind: int, name: str, *changes: tuple[str, int, str | None], try_only: bool = False) -> Ask:
    configs = [AlterableConfig(name=key, config_operation=what, value=text) for key, what, text in changes]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    return IncrementalAlterConfigsRequest(resources=[resource], validate_only=try_only), 1


def replace(kind: int, name: str, *pairs: tuple[str, str | None], version: int = 2) -> Ask:
    configs = [Replaced(name=key, value=text) for key, text in pairs]
    resource = ReplacedResource(resource_type=kind, resource_name=name, configs=configs)
    return AlterConfigsRequest(resources=[resource], validate_only=False), version


def describe(kind: int, name: str, *keys: str, version: int = 4, synonyms: bool = True) -> Ask:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
    )
    return DescribeConfigsRequest(resources=[resource], include_synonyms=synonyms), version


def delete_records(topic: str, *offsets: tuple[int, int]) -> Ask:
    partitions = [DeleteRecordsPartition(partition_index=i, offset=offset) for i, offset in offsets]
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=partitions)], timeout_ms=5000
    )
    return request, 2


def offsets(topic: str, partition: int, timestamp: int, version: int, isolation: int = 0) -> Ask:
    wanted = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
    topics = [ListOffsetsTopic(name=topic, partitions=[wanted])]
    request = ListOffsetsRequest(replica_id=-1, topics=topics)
    if version >= 2:
        request.isolation_level = isolation
    return request, version


def elections() -> list[Ask]:
    here = [TopicPartitions(topic="t", partitions=[0, 2])]
    gone = [TopicPartitions(topic="t", partitions=[3, 0]), TopicPartitions(topic="nope", partitions=[0])]
    asks = [elect(kind, topics) for kind in (0, 1) for topics in (here, gone, [], None)]
    return [*asks, elect(7, here), elect(0, here, version=1), elect(0, gone, version=0)]


def reassignments() -> list[Ask]:
    asks = [reassign("t", 0, ids) for ids in (None, [], [1], [7], [1, 1], [1, 7], [-1])]
    asks += [reassign("t", 9, [1]), reassign("nope", 0, [1]), reassign("nope", 0, None)]
    for topics in (None, [], [ListPartitionReassignmentsTopics(name="t", partition_indexes=[0, 9])]):
        asks.append((ListPartitionReassignmentsRequest(timeout_ms=5000, topics=topics), 0))
    return asks


def acls() -> list[Ask]:
    wanted = AclCreation(
        resource_type=2, resource_name="t", principal="User:ada", host="*", operation=3, permission_type=3
    )
    anything = DeleteAclsFilter(
        resource_type_filter=1, resource_name_filter=None, pattern_type_filter=1,
        principal_filter=None, host_filter=None, operation=1, permission_type=1,
    )  # fmt: skip
    look = DescribeAclsRequest(
        resource_type_filter=1, resource_name_filter=None, pattern_type_filter=1,
        principal_filter=None, host_filter=None, operation=1, permission_type=1,
    )  # fmt: skip
    return [
        ask
        for version in (1, 2, 3)
        for ask in (
            (look, version),
            (CreateAclsRequest(creations=[wanted, wanted]), version),
            (DeleteAclsRequest(filters=[anything]), version),
        )
    ]


def partitions() -> list[Ask]:
    asks = [grow("t", count) for count in (4, 3, 2, 1, 0, -1)]
    asks += [grow("nope", 4), grow("t", 4, twice=True), grow("", 4), grow("bad name", 4)]
    asks += [grow("t", 4, [1]), grow("t", 5, [1], [1]), grow("t", 4, [1], [1]), grow("t", 5, [1])]
    asks += [grow("t", 4, [7]), grow("t", 4, [1, 1]), grow("t", 4, []), grow("t", 4, [1, 7])]
    asks += [grow("t", 4, version=version) for version in (0, 1, 2)]
    return asks


def topics() -> list[Ask]:
    asks = [create(name) for name in ("", ".", "..", "a b", "a/b", "x" * 249, "x" * 250, "t", "ok")]
    asks += [create("ok", *sizes) for sizes in ((0, 1), (-1, 1), (-2, 1), (1, 0), (1, -1), (1, -2), (1, 2))]
    choices: list[list[list[int]]] = [[[1]], [[1], [1]], [[7]], [[1, 1]], [[]], [[1, 7]]]
    asks += [create("ok", -1, -1, assignments=assigned(*ids)) for ids in choices]
    asks += [create("ok", 1, -1, assignments=assigned([1])), create("ok", -1, 1, assignments=assigned([1]))]
    for key, text in (
        ("retention.ms", "x"), ("retention.ms", "-2"), ("nope", "1"), ("cleanup.policy", "both"),
        ("cleanup.policy", "compact,delete"), ("compression.type", "zip"), ("max.message.bytes", "-1"),
        ("segment.bytes", "1"), ("retention.ms", None),
    ):  # fmt: skip
        asks.append(create("ok", configs=[CreatableTopicConfig(name=key, value=text)]))
    twice = CreatableTopic(name="twice", num_partitions=1, replication_factor=1)
    asks.append((CreateTopicsRequest(topics=[twice, twice], timeout_ms=10_000, validate_only=True), 7))
    asks += [(DeleteTopicsRequest(topics=[DeleteTopicState(name="nope")], timeout_ms=5000), 6)]
    asks += [
        (DeleteTopicsRequest(topic_names=["nope", "nope"], timeout_ms=5000), version) for version in (1, 5)
    ]
    unknown_id = DeleteTopicState(name=None, topic_id=b"\x01" * 16)
    return [*asks, (DeleteTopicsRequest(topics=[unknown_id], timeout_ms=5000), 6)]


def changes() -> list[Ask]:
    keys = ("delete.retention.ms", "retention.ms", "cleanup.policy")
    look = describe(_TOPIC, "t", *keys)
    return [
        look,
        change(_TOPIC, "t", ("retention.ms", SET, "5000"), ("cleanup.policy", SET, "compact")),
        look,
        change(_TOPIC, "t", ("cleanup.policy", APPEND, "delete")),
        change(_TOPIC, "t", ("cleanup.policy", APPEND, "delete")),
        look,
        change(_TOPIC, "t", ("cleanup.policy", SUBTRACT, "compact")),
        look,
        change(_TOPIC, "t", ("cleanup.policy", SUBTRACT, "delete")),
        look,
        change(_TOPIC, "t", ("retention.ms", APPEND, "1")),
        change(_TOPIC, "t", ("retention.ms", SET, "x")),
        change(_TOPIC, "t", ("retention.ms", SET, None)),
        change(_TOPIC, "t", ("retention.ms", SET, "1"), ("retention.ms", SET, "2")),
        change(_TOPIC, "t", ("nope", SET, "1")),
        change(_TOPIC, "t", ("nope", DELETE, None)),
        change(_TOPIC, "t", ("retention.ms", SET, "77"), try_only=True),
        look,
        change(_TOPIC, "nope", ("retention.ms", SET, "1")),
        change(_TOPIC, "bad name", ("retention.ms", SET, "1")),
        change(_TOPIC, "", ("retention.ms", SET, "1")),
        change(_ODD, "t", ("retention.ms", SET, "1")),
        change(_BROKER, "7", ("log.retention.ms", SET, "1")),
        change(_BROKER, "x", ("log.retention.ms", SET, "1")),
        change(_TOPIC, "t", ("retention.ms", DELETE, None), ("cleanup.policy", DELETE, None)),
        look,
        replace(_TOPIC, "t", ("retention.ms", "6000"), ("cleanup.policy", "compact")),
        look,
        replace(_TOPIC, "t", ("retention.ms", "7000"), version=1),
        look,
        replace(_TOPIC, "t", ("nope", "1")),
        replace(_TOPIC, "t", ("retention.ms", "x")),
        replace(_TOPIC, "t", ("retention.ms", None)),
        replace(_TOPIC, "nope", ("retention.ms", "1")),
        replace(_TOPIC, "t"),
        look,
    ]


def descriptions() -> list[Ask]:
    asks = [
        describe(kind, name, *keys, version=version)
        for version in (1, 4)
        for kind, name, keys in (
            (_TOPIC, "t", ("retention.ms",)), (_TOPIC, "nope", ()), (_TOPIC, "t", ("nope",)),
            (_TOPIC, "bad name", ()), (_TOPIC, "", ()),
            (_BROKER, "1", ("num.partitions",)), (_BROKER, "7", ()), (_BROKER, "x", ()),
            (_BROKER, "", ("num.partitions",)), (_ODD, "t", ()),
        )
    ]  # fmt: skip
    asks += [(DescribeClusterRequest(endpoint_type=endpoint), 1) for endpoint in (1, 2, 3)]
    asks.append((DescribeClusterRequest(include_cluster_authorized_operations=True), 0))
    return asks


def records() -> list[Ask]:
    asks = [delete_records("t", (0, offset)) for offset in (0, -1, 1, -2, 99)]
    asks += [delete_records("t", (9, 0)), delete_records("t", (1, -1)), delete_records("nope", (0, 0))]
    asks += [
        offsets("t", 0, timestamp, version)
        for version in (1, 4, 7, 8)
        for timestamp in (-1, -2, 0, *([-3] if version >= 7 else []), *([-4] if version >= 8 else []))
    ]
    return [*asks, offsets("t", 9, -1, 5), offsets("nope", 0, -1, 5), offsets("t", 0, -9, 7)]


def _times(version: int) -> list[int]:
    special = [-1, -2, *([-3] if version >= 7 else []), *([-4] if version >= 8 else [])]
    return [*special, 0, 10_000, 10_001, 20_000, 30_000, 90_000, 90_001, 95_000, 95_001]


def written() -> list[Ask]:
    """Look-ups by time, by kind and by epoch, before and after records are deleted."""
    look = [offsets("page-a", 0, time_ms, version) for version in (1, 4, 7, 8) for time_ms in _times(version)]
    look += [epoch_end("page-a", 0, epoch, current) for epoch in (-1, 0, 1, 9) for current in (-1, 0, 5)]
    asks = [*look]
    for offset in (3, 2, 3, 11, -2, 7):
        asks += [delete_records("page-a", (0, offset)), offsets("page-a", 0, -2, 5)]
    asks += [*look, delete_records("page-a", (0, -1)), delete_records("page-a", (0, 0))]
    # Kafka looks for the largest timestamp among deleted records too; ours answers with what is still there.
    asks = [*asks, *look, epoch_end("page-a", 9, 0, -1), epoch_end("nope", 0, 0, -1)]
    return [ask for number, ask in enumerate(asks) if number < len(look) or not _asks_for_latest(ask)]


def _asks_for_latest(ask: Ask) -> bool:
    return isinstance(ask[0], ListOffsetsRequest) and ask[0].topics[0].partitions[0].timestamp == -3


def metadata() -> list[Ask]:
    """Everything but the creation of topics, for which Kafka's answer does not wait and ours does."""
    asks: list[Ask] = []
    for version in range(13):
        for names in (["page-a"], ["page-b", "page-a", "page-b"], [], ["nope"], ["a/b"], [""], ["x" * 250]):
            request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
            if version >= 4:
                request.allow_auto_topic_creation = False
            elif names not in (["page-a"], []):
                continue
            if version == 0 and not names:
                continue  # all topics, among them those of other scenarios
            if version >= 8:
                request.include_topic_authorized_operations = True
            asks.append((request, version))
    for name, topic_id in ((None, b"\x01" * 16), ("page-a", b"\x01" * 16)):
        by_id = [MetadataRequestTopic(name=name, topic_id=topic_id)]
        asks.append((MetadataRequest(topics=by_id, allow_auto_topic_creation=False), 12))
    return asks


def epoch_end(topic: str, partition: int, epoch: int, current: int) -> Ask:
    wanted = OffsetForLeaderPartition(partition=partition, leader_epoch=epoch, current_leader_epoch=current)
    topics = [OffsetForLeaderTopic(topic=topic, partitions=[wanted])]
    return OffsetForLeaderEpochRequest(replica_id=-2, topics=topics), 3


def pages() -> list[Ask]:
    asks: list[Ask] = []

    def look(limit: int, names: str, cursor: tuple[str, int] | None = None) -> None:
        start = None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1])
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in names.split()],
            response_partition_limit=limit,
            cursor=start,
        )
        asks.append((request, 0))

    for limit in (2000, 5000, 6, 4, 3, 2, 1, 0, -1):
        look(limit, "page-b page-a")
    look(2000, "page-b page-a nope page-a a/b")
    look(3, "page-b page-a aaa zzz")
    for cursor in (
        ("page-a", 0),
        ("page-a", 1),
        ("page-a", 3),
        ("page-a", 9),
        ("page-aa", 1),
        ("zzz", 0),
        ("", 0),
    ):
        look(3, "page-b page-a", cursor)
        look(1, "page-b page-a", cursor)
    return asks


SCENARIOS = (
    elections,
    reassignments,
    acls,
    partitions,
    topics,
    changes,
    descriptions,
    records,
    pages,
    written,
    metadata,
)
