"""Topics at the target: made with their settings, tried again, and the report about their shape."""

import pytest

from protocol.client import ConfigEntry, ConfigSource, PartitionMetadata, TopicMetadata
from protocol.errors import ErrorCode, KafkaError
from replicator.discovery import Wanted
from replicator.drift import PARTITIONS, REPLICATION_FACTOR, shape
from replicator.settings import CONFIG_PROPERTIES_EXCLUDE
from replicator.target_topics import TargetTopics


def topic(name, partitions=1, copies=1):
    rows = {n: PartitionMetadata(1, 0, tuple(range(copies)), (0,)) for n in range(partitions)}
    return TopicMetadata(name, bytes(16), ErrorCode.NONE, False, rows)


class Cluster:
    """What `TargetTopics` asks of a client."""

    def __init__(self, configs):
        self.configs = configs
        self.refusal = None
        self.made = []

    async def describe_configs(self, names, *, retry=None):
        found = {name: self.configs[name] for name in names if name in self.configs}
        if len(found) < len(names):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no such topic")
        return found

    async def create_topics(self, topics):
        if self.refusal is not None:
            raise self.refusal
        self.made += topics


def own(value):
    return ConfigEntry(value, ConfigSource.TOPIC, False, False)


@pytest.fixture
def clusters():
    settings = {"cleanup.policy": own("compact"), "min.insync.replicas": own("2"), "new.one": own("x")}
    return Cluster({"orders": settings}), Cluster({"progress": {"cleanup.policy": own("compact")}})


@pytest.fixture
def topics(clusters):
    return TargetTopics(
        *clusters, exclude=CONFIG_PROPERTIES_EXCLUDE, replication_factor=3, example="progress"
    )


async def test_a_topic_is_made_with_its_settings_but_not_the_excluded_and_unknown_ones(clusters, topics):
    assert await topics.ensure([Wanted(topic("orders", 4), "east.orders", None)])
    (made,) = clusters[1].made
    assert (made.name, made.partitions, made.replication_factor) == ("east.orders", 4, 3)
    assert made.configs == {"cleanup.policy": "compact"}
    assert topics.ours == {"orders": {"cleanup.policy": "compact"}}


async def test_a_topic_that_could_not_be_made_is_tried_again(clusters, topics):
    wanted = [Wanted(topic("orders"), "east.orders", None)]
    clusters[1].refusal = KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "3 > 1 brokers")
    assert not await topics.ensure(wanted)
    assert "3 > 1 brokers" in topics.problems["orders"]
    clusters[1].refusal = None
    assert await topics.ensure(wanted)
    assert topics.problems == {}


@pytest.mark.parametrize(
    ("here", "there", "expected"),
    [
        (topic("t"), None, {PARTITIONS: ("link", "create")}),
        (topic("t", 3), topic("e.t", 2), {PARTITIONS: ("link", "grow")}),
        (topic("t", 2), topic("e.t", 3), {PARTITIONS: ("target", "leave")}),
        (topic("t", copies=3), topic("e.t", copies=1), {REPLICATION_FACTOR: ("target", "leave")}),
        (topic("t"), topic("e.t"), {}),
    ],
)
def test_partitions_and_replicas_that_differ_are_reported(here, there, expected):
    rows = list(shape(Wanted(here, "e.t", there), -1))
    assert {row.key: (row.owner, row.action) for row in rows} == expected
