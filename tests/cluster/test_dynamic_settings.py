"""Broker settings that change while brokers run: in force at once, over all brokers, kept over a restart."""

import json
from collections.abc import Callable
from functools import partial

import pytest
from kazoo.client import KazooClient

from protocol.client import Connection
from protocol.client.cluster import ClusterClient
from protocol.client.topic_calls import NewTopic
from protocol.errors import ErrorCode
from protocol.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.types import TopicPartition
from tests.support.batches import batch
from tests.support.broker import BrokerProcess, Cluster
from tests.support.waiting import eventually

pytestmark = pytest.mark.cluster
TOPIC, BROKER = 2, 4
SET, DELETE = 0, 1
Value = tuple[str | None, list[tuple[str, str | None, int]]]


async def change(
    broker: BrokerProcess, name: str, *changes: tuple[str, str | None], kind: int = BROKER
) -> int:
    """A value None takes the setting back. Returns the error code."""
    configs = [
        AlterableConfig(name=setting, config_operation=DELETE if text is None else SET, value=text)
        for setting, text in changes
    ]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    connection = await Connection.open("127.0.0.1", broker.port)
    try:
        answer = await connection.send(IncrementalAlterConfigsRequest(resources=[resource]))
    finally:
        await connection.close()
    return int(answer.responses[0].error_code)


async def described(broker: BrokerProcess, kind: int, name: str) -> dict[str, Value]:
    """Value, and (name, value, source) of everything that gives it one."""
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    connection = await Connection.open("127.0.0.1", broker.port)
    try:
        answer = await connection.send(DescribeConfigsRequest(resources=[resource], include_synonyms=True))
    finally:
        await connection.close()
    return {
        entry.name: (entry.value, [(item.name, item.value, item.source) for item in entry.synonyms])
        for entry in answer.results[0].configs
    }


async def test_topic_over_broker_over_default_over_start(
    cluster: Callable[[int], Cluster], zookeeper: str
) -> None:
    brokers = cluster(0)
    for number in (1, 2):
        brokers.add(number, settings={"log.retention.hours": "5", "log.segment.bytes": "3000000"})
    brokers.start()
    one, two = brokers.brokers[1], brokers.brokers[2]
    async with ClusterClient(brokers.bootstrap) as client:
        await client.create_topics([NewTopic("t", 2, 1)])

        start = [("log.retention.hours", "5", 4), ("log.retention.hours", "168", 5)]
        look = partial(described, one, TOPIC, "t")
        # In Kafka the list of synonyms begins where the setting's own unit does.
        assert (await eventually(look, bool))["retention.ms"] == ("18000000", [])

        assert await change(one, "", ("log.retention.ms", "70000")) == 0
        default = [("log.retention.ms", "70000", 3), *start]
        for broker in (one, two):
            look = partial(described, broker, TOPIC, "t")
            await eventually(look, lambda found: found["retention.ms"] == ("70000", default))
        assert await change(two, "2", ("log.retention.ms", "60000"), ("log.cleaner.threads", "2")) == 0
        found = await described(two, TOPIC, "t")
        assert found["retention.ms"] == ("60000", [("log.retention.ms", "60000", 2), *default])
        assert (await described(one, TOPIC, "t"))["retention.ms"][0] == "70000"
        assert await change(two, "t", ("retention.ms", "50000"), kind=TOPIC) == 0
        assert (await described(two, TOPIC, "t"))["retention.ms"][1][0] == ("retention.ms", "50000", 1)

        own = await described(two, BROKER, "2")
        assert own["log.retention.ms"][0] == "60000"
        assert own["log.cleaner.threads"] == (
            "2", [("log.cleaner.threads", "2", 2), ("log.cleaner.threads", "1", 5)]
        )  # fmt: skip
        assert await described(one, BROKER, "") == {
            "log.retention.ms": ("70000", [("log.retention.ms", "70000", 3)])
        }
    keeper = KazooClient(zookeeper)
    keeper.start()
    try:
        stored = json.loads(keeper.get("/config/brokers/2")[0])
        assert stored == {"version": 1, "config": {"log.retention.ms": "60000", "log.cleaner.threads": "2"}}
        assert json.loads(keeper.get("/config/brokers/<default>")[0])["config"] == {
            "log.retention.ms": "70000"
        }
    finally:
        keeper.stop()
        keeper.close()

    two.stop()
    two.start()
    assert (await described(two, BROKER, "2"))["log.retention.ms"][0] == "60000"
    assert await change(two, "2", ("log.retention.ms", None)) == 0
    assert (await described(two, BROKER, "2"))["log.retention.ms"][0] == "70000"


async def test_a_changed_default_decides_appends_at_once(broker: BrokerProcess) -> None:
    async with ClusterClient(broker.bootstrap) as client:
        await client.create_topics([NewTopic("limits", 1, 1)])
        tp = TopicPartition("limits", 0)
        large = bytes(batch([bytes(5000)]))
        await client.produce(tp, large)
        assert await change(broker, "1", ("message.max.bytes", "4000")) == 0
        with pytest.raises(Exception, match="MESSAGE_TOO_LARGE"):
            await client.produce(tp, large)
        assert await change(broker, "1", ("message.max.bytes", None)) == 0
        await client.produce(tp, large)


async def test_what_is_refused(broker: BrokerProcess) -> None:
    for setting, text in (
        ("log.dirs", "/tmp/elsewhere"),
        ("log.retention.hours", "5"),
        ("num.io.threads", "9"),
        ("log.retention.mz", "5"),
        ("log.retention.ms", "soon"),
        ("log.cleaner.threads", "-1"),
    ):
        for name in ("1", ""):
            changes = ((setting, text), ("log.roll.ms", "99999"))
            assert await change(broker, name, *changes) == ErrorCode.INVALID_REQUEST, setting
    assert (await described(broker, BROKER, "1"))["log.roll.ms"][0] is None, "all of a resource or nothing"
