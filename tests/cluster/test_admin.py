"""Topic administration as clients see it: all versions of all requests, Kafka's codes for what cannot be."""

import itertools
from collections.abc import AsyncIterator

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic

from protocol.client import Connection
from protocol.errors import ErrorCode
from protocol.messages.alter_configs_request import AlterableConfig as ReplacedConfig
from protocol.messages.alter_configs_request import AlterConfigsRequest
from protocol.messages.alter_configs_request import AlterConfigsResource as ReplacedResource
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
from protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.describe_cluster_request import DescribeClusterRequest
from protocol.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.types import ZERO_UUID, new_topic_id
from tests.support.broker import BrokerProcess

pytestmark = pytest.mark.cluster
TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
_numbers = itertools.count(1)


def fresh() -> str:
    return f"admin-{next(_numbers)}"


@pytest.fixture
async def connection(broker: BrokerProcess) -> AsyncIterator[Connection]:
    connection = await Connection.open("127.0.0.1", broker.port)
    yield connection
    await connection.close()


async def create(connection: Connection, *topics: CreatableTopic, version: int = 7, **options: object):
    request = CreateTopicsRequest(topics=list(topics), timeout_ms=10_000, **options)
    return (await connection.send(request, version)).topics


def plain(name: str, partitions: int = 1, **options: object) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, **options)


def configured(name: str, value: str | None) -> list[CreatableTopicConfig]:
    return [CreatableTopicConfig(name=name, value=value)]


def assigned(broker_id: int) -> list[CreatableReplicaAssignment]:
    return [CreatableReplicaAssignment(partition_index=0, broker_ids=[broker_id])]


async def settings(connection: Connection, name: str, kind: int = TOPIC, version: int = 4, **options: object):
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    request = DescribeConfigsRequest(resources=[resource], **options)
    return (await connection.send(request, version)).results[0]


async def change(connection: Connection, name: str, *changes: tuple[str, int, str | None], kind: int = TOPIC, **options: object):  # fmt: skip  # noqa: E501
    configs = [AlterableConfig(name=key, config_operation=how, value=value) for key, how, value in changes]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource], **options)
    return (await connection.send(request)).responses[0]


async def own_settings(connection: Connection, name: str) -> dict[str, str]:
    described = await settings(connection, name)
    return {entry.name: entry.value for entry in described.configs if entry.config_source == 1}


@pytest.mark.parametrize("version", range(2, 8))
async def test_create_topics_in_every_version(connection: Connection, version: int) -> None:
    name = fresh()
    topic = plain(name, 3, configs=configured("retention.ms", "5"))
    [good, bad] = await create(connection, topic, plain("a b"), version=version)
    assert (good.name, good.error_code, good.error_message) == (name, 0, None)
    assert (bad.name, bad.error_code) == ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION)
    assert "'a b'" in bad.error_message
    if version >= 5:
        assert (good.num_partitions, good.replication_factor) == (3, 1)
        retention = next(entry for entry in good.configs if entry.name == "retention.ms")
        assert (retention.value, retention.config_source) == ("5", 1)
    if version >= 7:
        assert good.topic_id != ZERO_UUID
    [again] = await create(connection, plain(name), version=version)
    assert again.error_code == ErrorCode.TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize("counts", [(2**31 - 1,), (4000, 4000, 2001)])
async def test_a_number_that_costs_four_bytes_does_not_cost_the_broker(
    connection: Connection, counts: tuple[int, ...]
) -> None:
    results = await create(connection, *(plain(fresh(), count) for count in counts))
    assert {result.error_code for result in results} == {ErrorCode.POLICY_VIOLATION}
    [good] = await create(connection, plain(fresh()))
    assert good.error_code == ErrorCode.NONE


async def test_what_cannot_be_created(connection: Connection) -> None:
    name = fresh()
    cases = [
        (CreatableTopic(name=name, num_partitions=0, replication_factor=1), ErrorCode.INVALID_PARTITIONS),
        (
            CreatableTopic(name=name, num_partitions=1, replication_factor=2),
            ErrorCode.INVALID_REPLICATION_FACTOR,
        ),
        (plain(name, configs=configured("segment.bytez", "1")), ErrorCode.INVALID_CONFIG),
        (plain(name, configs=configured("segment.bytes", None)), ErrorCode.INVALID_CONFIG),
        (plain(name, configs=configured("segment.bytes", "x")), ErrorCode.INVALID_CONFIG),
        (plain("__consumer_offsets"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (plain(name, assignments=assigned(1)), ErrorCode.INVALID_REQUEST),
        (
            CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=assigned(9)),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
    ]
    for topic, code in cases:
        [result] = await create(connection, topic)
        assert result.error_code == code, result
        assert result.error_message
    [twice] = await create(connection, plain(name), plain(name))
    assert twice.error_code == ErrorCode.INVALID_REQUEST
    [validated] = await create(connection, plain(name, 2), validate_only=True)
    assert (validated.error_code, validated.num_partitions) == (0, 2)
    [made] = await create(connection, plain(name.replace("-", ".")))
    [collides] = await create(connection, plain(name.replace("-", "_")))
    assert (made.error_code, collides.error_code) == (0, ErrorCode.INVALID_TOPIC_EXCEPTION)
    assert "collides" in collides.error_message


@pytest.mark.parametrize("version", range(1, 7))
async def test_delete_topics_in_every_version(connection: Connection, version: int) -> None:
    name = fresh()
    [made] = await create(connection, plain(name))
    names = [name, "nothing-here"]
    request = DeleteTopicsRequest(timeout_ms=10_000)
    if version >= 6:
        request.topics = [DeleteTopicState(name=item) for item in names]
    else:
        request.topic_names = names
    [good, bad] = (await connection.send(request, version)).responses
    assert (good.name, good.error_code) == (name, 0)
    assert bad.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if version >= 5:
        assert "'nothing-here' does not exist" in bad.error_message
    if version >= 6:
        assert good.topic_id == made.topic_id
    [created_again] = await create(connection, plain(name))
    assert created_again.error_code == 0
    assert created_again.topic_id != made.topic_id


async def test_delete_topics_by_id(connection: Connection) -> None:
    name = fresh()
    [made] = await create(connection, plain(name))
    states = [
        DeleteTopicState(name=None, topic_id=made.topic_id),
        DeleteTopicState(name=None, topic_id=new_topic_id()),
        DeleteTopicState(name=name, topic_id=made.topic_id),
        DeleteTopicState(name=None),
        DeleteTopicState(name="__consumer_offsets"),
    ]
    results = (await connection.send(DeleteTopicsRequest(topics=states, timeout_ms=10_000))).responses
    assert [result.error_code for result in results] == [
        0,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]
    assert results[0].name == name


@pytest.mark.parametrize("version", range(4))
async def test_create_partitions_in_every_version(connection: Connection, version: int) -> None:
    name = fresh()
    await create(connection, plain(name))

    async def grow(count: int, *brokers: list[int], topic: str = name):
        assignments = [CreatePartitionsAssignment(broker_ids=item) for item in brokers] or None
        wanted = CreatePartitionsTopic(name=topic, count=count, assignments=assignments)
        request = CreatePartitionsRequest(topics=[wanted], timeout_ms=10_000)
        [result] = (await connection.send(request, version)).results
        return result.error_code

    assert await grow(2) == 0
    assert await grow(3, [1]) == 0
    assert await grow(3) == ErrorCode.INVALID_PARTITIONS
    assert await grow(1) == ErrorCode.INVALID_PARTITIONS
    assert await grow(5, [1]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert await grow(2, topic="nothing-here") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", range(1, 5))
async def test_describe_configs_in_every_version(connection: Connection, version: int) -> None:
    name = fresh()
    await create(connection, plain(name, configs=configured("segment.bytes", "2000000")))
    documented = {"include_documentation": True} if version >= 3 else {}
    described = await settings(connection, name, version=version, include_synonyms=True, **documented)
    entries = {entry.name: entry for entry in described.configs}
    segment = entries["segment.bytes"]
    assert (segment.value, segment.config_source, segment.read_only) == ("2000000", 1, False)
    assert [(item.name, item.source) for item in segment.synonyms] == [
        ("segment.bytes", 1),
        ("log.segment.bytes", 5),
    ]
    if version >= 3:
        assert segment.config_type == 3
        assert segment.documentation
    own = await settings(connection, "1", kind=BROKER, version=version)
    values = {entry.name: entry.value for entry in own.configs}
    assert (values["broker.id"], values["offsets.topic.num.partitions"]) == ("1", "5")
    for kind, resource, code in (
        (TOPIC, "nothing-here", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "7", ErrorCode.INVALID_REQUEST),
        (BROKER, "x", ErrorCode.INVALID_REQUEST),
        (99, "x", ErrorCode.INVALID_REQUEST),
    ):
        assert (await settings(connection, resource, kind=kind, version=version)).error_code == code


async def test_incremental_changes(connection: Connection) -> None:
    name = fresh()
    await create(connection, plain(name))
    assert (await change(connection, name, ("retention.ms", SET, "5"), ("cleanup.policy", APPEND, "compact"))).error_code == 0  # fmt: skip  # noqa: E501
    assert await own_settings(connection, name) == {"retention.ms": "5", "cleanup.policy": "delete,compact"}
    assert (await change(connection, name, ("retention.ms", DELETE, None), ("cleanup.policy", SUBTRACT, "delete"))).error_code == 0  # fmt: skip  # noqa: E501
    assert await own_settings(connection, name) == {"cleanup.policy": "compact"}
    assert (await change(connection, name, ("retention.ms", SET, "7"), validate_only=True)).error_code == 0
    for wrong, code in (
        (("retention.mz", SET, "5"), ErrorCode.INVALID_CONFIG),
        (("retention.ms", SET, "x"), ErrorCode.INVALID_CONFIG),
        (("retention.ms", APPEND, "5"), ErrorCode.INVALID_CONFIG),
        (("retention.ms", SET, None), ErrorCode.INVALID_REQUEST),
        (("retention.ms", 9, "5"), ErrorCode.INVALID_REQUEST),
        (("cleanup.policy", APPEND, "compactt"), ErrorCode.INVALID_CONFIG),
    ):
        answer = await change(connection, name, wrong)
        assert answer.error_code == code, answer
        assert wrong[0] in answer.error_message
    assert (await change(connection, name, ("a", SET, "1"), ("a", SET, "2"))).error_code == ErrorCode.INVALID_REQUEST  # fmt: skip  # noqa: E501
    assert (await change(connection, "nothing-here")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    refused = await change(connection, "1", ("num.partitions", SET, "2"), kind=BROKER)
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert await own_settings(connection, name) == {"cleanup.policy": "compact"}


@pytest.mark.parametrize("version", range(3))
async def test_replacing_all_settings(connection: Connection, version: int) -> None:
    name = fresh()
    await create(connection, plain(name, configs=configured("retention.ms", "5")))
    resource = ReplacedResource(
        resource_type=TOPIC,
        resource_name=name,
        configs=[ReplacedConfig(name="segment.bytes", value="2000000")],
    )
    [answer] = (await connection.send(AlterConfigsRequest(resources=[resource]), version)).responses
    assert (answer.error_code, answer.error_message) == (0, None)
    assert await own_settings(connection, name) == {"segment.bytes": "2000000"}


@pytest.mark.parametrize("version", range(2))
async def test_describe_cluster(connection: Connection, broker: BrokerProcess, version: int) -> None:
    answer = await connection.send(DescribeClusterRequest(), version)
    assert (answer.error_code, answer.cluster_id, answer.controller_id) == (0, broker.cluster_id, 1)
    assert [(item.broker_id, item.host, item.port) for item in answer.brokers] == [
        (1, "127.0.0.1", broker.port)
    ]
    if version == 1:
        controllers = await connection.send(DescribeClusterRequest(endpoint_type=2), version)
        assert controllers.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE


def test_librdkafkas_admin_client(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    name = fresh()
    created = admin.create_topics([NewTopic(name, 2, 1, config={"cleanup.policy": "compact"})])
    assert created[name].result(10) is None
    admin.create_partitions([NewPartitions(name, 4)])[name].result(10)
    assert len(admin.list_topics(name, timeout=10).topics[name].partitions) == 4
    resource = ConfigResource(ConfigResource.Type.TOPIC, name)
    described = admin.describe_configs([resource])[resource].result(10)
    assert (described["cleanup.policy"].value, described["cleanup.policy"].is_default) == ("compact", False)
    with pytest.raises(KafkaException, match="already exists"):
        admin.create_topics([NewTopic(name, 2, 1)])[name].result(10)
    admin.delete_topics([name])[name].result(10)
    assert name not in admin.list_topics(timeout=10).topics
