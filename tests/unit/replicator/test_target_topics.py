"""Topics at the target: made with their settings, tried again, and the report about their shape."""

import pytest

from protocol.client import ConfigEntry, ConfigSource, PartitionMetadata, TopicMetadata
from protocol.client.errors import ConnectionLostError
from protocol.errors import ErrorCode, KafkaError
from replicator.discovery import Wanted, discover
from replicator.drift import PARTITIONS, REPLICATION_FACTOR, shape
from replicator.filters import TopicFilter
from replicator.naming import Naming
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
        self.unreadable = {}
        self.wrong = {}
        """What it refuses to be set, by setting."""

    async def describe_configs(self, names, *, retry=None):
        for name in names:
            if name in self.unreadable:
                raise KafkaError(self.unreadable[name], name)
        found = {name: self.configs[name] for name in names if name in self.configs}
        if len(found) < len(names):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no such topic")
        return found

    async def alter_configs(self, changes, *, retry=None):
        for change in changes.values():
            for key in change:
                if key in self.wrong:
                    raise KafkaError(self.wrong[key], key)
        for name, change in changes.items():
            for key, value in change.items():
                self.configs[name][key] = own(value) if value is not None else default("0")

    async def create_topics(self, topics, *, retry=None):
        if self.refusal is not None:
            raise self.refusal
        self.made += topics


def own(value):
    return ConfigEntry(value, ConfigSource.TOPIC, False, False)


def default(value):
    return ConfigEntry(value, ConfigSource.DEFAULT, False, False)


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


def test_a_topic_that_the_target_does_not_tell_about_now_is_none_to_copy_into():
    naming, away = Naming("east", "west"), ErrorCode.LEADER_NOT_AVAILABLE
    listed = TopicMetadata("east.orders", bytes(16), away, False, {})
    for there, expected in ((listed, None), (topic("east.orders"), topic("east.orders"))):
        taken = TopicFilter(naming, [".*"], [])
        found = discover({"orders": topic("orders")}, {"east.orders": there}, taken, naming)
        assert found.wanted["orders"] == Wanted(topic("orders"), "east.orders", expected)


async def test_a_topic_that_could_not_be_made_is_tried_again(clusters, topics):
    wanted = [Wanted(topic("orders"), "east.orders", None)]
    clusters[1].refusal = KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "3 > 1 brokers")
    assert not await topics.ensure(wanted)
    assert "3 > 1 brokers" in topics.problems["orders"]
    clusters[1].refusal = None
    assert await topics.ensure(wanted)
    assert topics.problems == {}


async def test_a_problem_goes_with_its_topic_and_with_the_lead(clusters, topics):
    clusters[1].refusal = KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "3 > 1 brokers")
    await topics.ensure([Wanted(topic("orders"), "east.orders", None)])
    await topics.ensure([])  # it was deleted at the source
    assert topics.problems == {}
    await topics.ensure([Wanted(topic("orders"), "east.orders", None)])
    topics.forget_problems()
    assert topics.problems == {}


async def test_a_topic_that_is_there_and_not_shown_is_a_problem_until_it_is_shown(clusters, topics):
    hidden = [Wanted(topic("orders"), "east.orders", None)]
    clusters[1].refusal = KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, "east.orders")
    assert await topics.ensure(hidden)  # somebody else made it just now: look again
    assert topics.problems == {}
    assert not await topics.ensure(hidden)
    assert "DESCRIBE" in topics.problems["orders"]
    assert not await topics.ensure([Wanted(topic("orders"), "east.orders", topic("east.orders"))])
    assert topics.problems == {}


async def test_a_target_that_does_not_answer_is_not_asked_for_each_topic(clusters, topics):
    clusters[0].configs["payments"] = {}
    clusters[1].refusal = ConnectionLostError("gone")
    wanted = [Wanted(topic(name), f"east.{name}", None) for name in ("orders", "payments")]
    assert not await topics.ensure(wanted)
    assert topics.problems.keys() == {"orders"}


PAIR = [Wanted(topic("orders"), "east.orders", topic("east.orders"))]


@pytest.fixture
def pair(clusters):
    source, target = clusters
    source.configs["orders"] = {"retention.ms": own("7"), "remote.storage.enable": own("true"), "a": own("1")}
    target.configs["east.orders"] = {key: default("0") for key in source.configs["orders"]}
    return clusters


async def test_a_setting_that_the_target_refuses_keeps_it_from_none_of_the_others(pair, topics):
    source, target = pair
    target.wrong = {"remote.storage.enable": ErrorCode.INVALID_CONFIG}
    assert await topics.sync_settings(PAIR) == {"east.orders": {"retention.ms": "7", "a": "1"}}
    assert topics.ours["orders"] == {"retention.ms": "7", "a": "1"}
    assert list(topics.settings_problems) == ["orders"]
    assert "remote.storage.enable: " in topics.told()["settings of orders"]
    del source.configs["orders"]["a"]
    target.wrong["a"] = ErrorCode.POLICY_VIOLATION  # to be taken back
    assert await topics.sync_settings(PAIR) == {}
    assert topics.ours["orders"] == {"retention.ms": "7", "a": "1"}
    target.wrong = {}
    assert await topics.sync_settings(PAIR) == {"east.orders": {"remote.storage.enable": "true", "a": None}}
    assert topics.settings_problems == {}


async def test_what_the_targets_owner_had_set_to_the_same_value_stays_when_the_source_unsets_it(pair, topics):
    source, target = pair
    target.configs["east.orders"]["retention.ms"] = own("7")
    await topics.sync_settings(PAIR)
    assert topics.ours["orders"] == {"remote.storage.enable": "true", "a": "1"}
    for key in ("retention.ms", "a"):
        source.configs["orders"][key] = default("0")
    assert await topics.sync_settings(PAIR) == {"east.orders": {"a": None}}
    assert target.configs["east.orders"]["retention.ms"] == own("7")


@pytest.mark.parametrize(("side", "name"), [(0, "orders"), (1, "east.orders")])
async def test_settings_that_cannot_be_read_are_said_not_to_be_in_step(pair, topics, side, name):
    pair[side].unreadable[name] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert await topics.sync_settings(PAIR) == {}
    assert "TOPIC_AUTHORIZATION_FAILED" in topics.settings_problems["orders"]
    pair[side].unreadable[name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # deleted just now
    assert await topics.sync_settings(PAIR) == {}
    assert topics.settings_problems == {}


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
