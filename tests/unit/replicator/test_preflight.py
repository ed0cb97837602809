"""The rules of `isthmus links check`, each with facts that break it and facts that do not."""

import dataclasses

import pytest

from protocol.client import (
    AclOperation,
    Broker,
    ConfigEntry,
    ConfigSource,
    PartitionMetadata,
    TopicMetadata,
)
from protocol.errors import ErrorCode, KafkaError
from protocol.types import uuid_to_text
from replicator.discovery import Found, discover
from replicator.filters import TopicFilter
from replicator.mirrormaker.connect_offsets import NotToldError
from replicator.mirrormaker.takeover import StillRunningError
from replicator.naming import Naming
from replicator.preflight.check import creation
from replicator.preflight.facts import Facts, LogDir, Rights, Side
from replicator.preflight.findings import Level
from replicator.preflight.limits import replicas, room, sizes, times, tombstones
from replicator.preflight.names import circles, mirrormaker, names, selection
from replicator.preflight.own_topics import own_topics, own_topics_rule
from replicator.preflight.rights import rights
from replicator.preflight.transactions import transactions
from replicator.settings import LinkSettings, TakeOver


def topic(name, partitions=1, copies=1, number=1):
    rows = {n: PartitionMetadata(1, 0, tuple(range(copies)), (0,)) for n in range(partitions)}
    return TopicMetadata(name, bytes([number]) * 16, ErrorCode.NONE, False, rows)


def entry(value, source=ConfigSource.TOPIC):
    return ConfigEntry(value, source, False, False)


def facts(source=("orders",), target=(), *, groups=("readers",), copies=1, **settings):
    on = LinkSettings.model_validate(
        {
            "source": {"alias": "east", "bootstrap": "a:1"},
            "target": {"alias": "west", "bootstrap": "b:1"},
            **settings,
        }
    )
    naming = Naming("east", "west", ".", on.naming == "identity")
    here = {name: topic(name) for name in source}
    there = {name: topic(name, copies=copies, number=2) for name in target}
    made = Facts(on, Side("east", topics=here), Side("west", topics=there), groups=list(groups))
    made.target.brokers = {1: Broker("b", 1)}
    made.found = discover(here, there, TopicFilter(naming, on.topics, on.topics_exclude), naming)
    return made


def said(rule, given):
    """(level, subjects) of each finding; all of them say what to do."""
    found = list(rule(given))
    assert all(one.to_do for one in found)
    return [(one.level, one.subjects) for one in found]


ERROR, WARNING = Level.ERROR, Level.WARNING


def test_what_mirrormaker_has_filled_is_to_be_gone_on_with_and_not_deleted():
    progress = "mm2-offsets.east.internal"
    given = facts(
        target=["east.orders", progress], take_over={"offsets_topic": progress, "group": "east-mm2"}
    )
    (finding,) = names(given)
    assert (finding.level, finding.subjects) == (Level.OK, ("east.orders",))
    assert "delete" not in finding.to_do
    del given.target.topics[progress]
    (finding,) = names(given)
    assert finding.level is WARNING
    assert f"west.offset.storage.topic; {progress} is not there" in finding.to_do
    given.own_mirrors = {"east.payments": ""}  # it has begun: MirrorMaker 2 is asked no more
    (finding,) = names(given)
    assert "MirrorMaker" not in finding.to_do


def test_mirrormaker_beside_the_link():
    given = facts()
    assert said(mirrormaker, given) == []
    given.mirrormaker = NotToldError("east-mm2", ErrorCode.GROUP_AUTHORIZATION_FAILED)
    (finding,) = mirrormaker(given)
    assert (finding.level, finding.to_do) == (ERROR, "grant the link's user DESCRIBE on group east-mm2")
    given.mirrormaker = StillRunningError(TakeOver.of("east"), 1)
    (finding,) = mirrormaker(given)
    assert (finding.level, finding.what) == (
        WARNING,
        "MirrorMaker 2 still copies (group east-mm2 has 1 member at the target)",
    )
    given.own_mirrors = {"east.orders": ""}  # a link that has begun does not wait for it
    (finding,) = mirrormaker(given)
    assert finding.level is ERROR
    assert "writes again what this link has copied" in finding.to_do
    given.handed_back = True  # it waits, as at its first start
    (finding,) = mirrormaker(given)
    assert (finding.level, "goes on where it stopped" in finding.to_do) == (WARNING, True)
    given.handed_back = False
    given.mirrormaker = NotToldError("east-mm2", ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert said(mirrormaker, given) == [(WARNING, ())]


def test_a_mirror_of_this_link_is_fine_and_a_foreign_one_is_not():
    given = facts(target=["east.orders"])
    assert said(names, given) == [(WARNING, ("east.orders",))]
    given.own_mirrors = {"east.orders": uuid_to_text(bytes([2]) * 16)}
    assert said(names, given) == []
    given.own_mirrors = {"east.orders": uuid_to_text(bytes([3]) * 16)}  # deleted and made by somebody else
    assert said(names, given) == [(WARNING, ("east.orders",))]
    given.other_links = {"east.orders": "north->west"}
    assert said(names, given) == [(ERROR, ("east.orders",))]


def test_topics_of_several_sources_that_are_declared_to_become_one_are_no_error():
    given = facts(source=["orders", "prices"], target=["orders", "prices"], naming="identity")
    given.other_links = {"orders": "north->west", "prices": "north->west"}
    both = ("orders", "prices")
    assert said(names, given) == [(ERROR, both)], "a link of another file may as well be a mistake"
    given.gathering = frozenset({"north->west"})
    assert said(names, given) == [(Level.OK, both)]
    given.source.configs = {"prices": {"cleanup.policy": entry("compact,delete")}}
    assert said(names, given) == [(WARNING, ("prices",)), (Level.OK, ("orders",))]


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        (["a.b", "a_b"], [], [("east.a.b", "east.a_b")]),
        (["a.b"], ["east_a.b"], [("east.a.b", "east_a.b")]),
        (["a.b"], ["x_y", "x.y"], []),
        (["x" * 245], [], [("x" * 245,)]),
        (["x" * 244], [], []),
    ],
)
def test_names_that_the_target_refuses(source, target, expected):
    assert said(names, facts(source, target)) == [(ERROR, subjects) for subjects in expected]


def test_a_name_that_is_too_long_is_one_finding_and_no_missing_right():
    """The target's own answer to it was another one: to grant CREATE and ALTER."""
    given = facts(["x" * 245])
    given.cannot_create = {f"east.{'x' * 245}": "the topic's name is not allowed", "east.y": "no rights"}
    assert said(creation, given) == [(ERROR, ("east.y",))]


def test_sizes_count_as_the_mirror_will_have_them():
    given = facts(target=["east.orders"])
    given.own_mirrors = {"east.orders": ""}
    given.source.configs = {"orders": {"max.message.bytes": entry("2000", ConfigSource.STATIC_BROKER)}}
    given.target.configs = {"east.orders": {"max.message.bytes": entry("1000", ConfigSource.DEFAULT)}}
    assert said(sizes, given) == [(WARNING, ("orders",))]
    given.source.configs = {"orders": {"max.message.bytes": entry("2000")}}  # the link copies it
    assert said(sizes, given) == []
    given.settings = given.settings.model_copy(update={"sync_topic_configs": False})
    assert said(sizes, given) == [(WARNING, ("orders",))]
    assert "on the mirrors" in next(iter(sizes(given))).to_do
    given.settings = facts(config_properties_exclude=["max.message.bytes"]).settings
    assert "on the mirrors" in next(iter(sizes(given))).to_do  # it is told to leave that alone
    missing = facts()
    missing.source.configs = {"orders": {"max.message.bytes": entry("2000", ConfigSource.DEFAULT)}}
    missing.target.defaults = {"message.max.bytes": "1000"}
    assert said(sizes, missing) == [(WARNING, ("orders",))]


def test_times_that_are_refused_or_replaced():
    given = facts()
    given.target.defaults = {"log.message.timestamp.type": "LogAppendTime"}
    given.too_old = {"orders-0": 5}
    given.too_new = {"orders-1": 5}
    assert said(times, given) == [(WARNING, ("orders",)), (ERROR, ("orders-0",)), (ERROR, ("orders-1",))]


@pytest.mark.parametrize(
    ("copies", "need", "expected"), [(1, "1", []), (3, "2", []), (1, "2", [ERROR]), (2, "2", [WARNING])]
)
def test_replicas_that_can_never_be_in_sync(copies, need, expected):
    given = facts(target=["east.orders"], copies=copies)
    given.target.configs = {"east.orders": {"min.insync.replicas": entry(need, ConfigSource.DEFAULT)}}
    assert [level for level, _ in said(replicas, given)] == expected
    missing = facts(replication_factor=copies)
    missing.target.brokers = {n: Broker("b", n) for n in range(3)}
    missing.target.defaults = {"min.insync.replicas": need}
    assert [level for level, _ in said(replicas, missing)] == expected
    for one, cure in ((given, "kafka-reassign-partitions"), (missing, "give the link replication_factor")):
        assert all(cure in finding.to_do for finding in replicas(one))


@pytest.mark.parametrize(("copies", "need", "expected"), [(1, "2", []), (2, "3", [WARNING]), (3, "2", [])])
def test_kafka_takes_as_many_in_sync_as_there_are(copies, need, expected):
    """Since KIP-966 (tried with 4.3): one replica is enough then, whatever min.insync.replicas says."""
    given = facts(target=["east.orders"], copies=copies, internal_replication_factor=1)
    given.target.caps_in_sync = True
    given.target.configs = {"east.orders": {"min.insync.replicas": entry(need, ConfigSource.DEFAULT)}}
    given.target.defaults = {"min.insync.replicas": need}
    assert [level for level, _ in said(replicas, given)] == expected
    assert said(own_topics_rule, given) == []


def test_more_replicas_than_brokers():
    assert [level for level, _ in said(replicas, facts(replication_factor=2))] == [ERROR]


@pytest.mark.parametrize(
    ("usable", "expected"), [(5000, []), (1050, [WARNING]), (900, [ERROR]), (-1, [WARNING])]
)
def test_room_on_disk(usable, expected):
    given = facts(replication_factor=1)
    given.source.sizes = {"orders": 1000}
    given.target.dirs = [LogDir(1, "/d", 10_000, usable)]
    assert [level for level, _ in said(room, given)] == expected
    latest = dataclasses.replace(given, settings=given.settings.model_copy(update={"start": "latest"}))
    assert said(room, latest) == []


def test_room_counts_on_each_broker():
    """One full broker among two roomy ones: the sum was enough."""
    given = facts(replication_factor=3)
    given.target.brokers = {n: Broker("b", n) for n in range(3)}
    given.source.sizes = {"orders": 1000}
    given.target.dirs = [LogDir(n, "/d", 10_000, usable) for n, usable in enumerate((5000, 500, 400))]
    given.target.dirs.append(LogDir(1, "/e", 10_000, 700))
    assert said(room, given) == [(WARNING, ())]
    assert "broker 2 has 400 B left" in next(iter(room(given))).what
    given.target.dirs[2] = LogDir(2, "/d", 10_000, 2000)
    assert said(room, given) == []


def test_mirrors_with_identical_offsets_take_any_size_and_time():
    """Their brokers look at neither, as followers do: such links were called in error and copied all."""
    given = facts(offsets="identical", naming="identity")
    given.source.configs = {"orders": {"max.message.bytes": entry("2000", ConfigSource.STATIC_BROKER)}}
    given.target.defaults = {"message.max.bytes": "1000", "log.message.timestamp.type": "LogAppendTime"}
    given.too_old = {"orders-0": 5}
    assert said(sizes, given) == said(times, given) == []


def bits(*operations):
    return Rights(sum(1 << one for one in operations))


def test_missing_rights_are_named_by_side():
    given = facts(target=["east.orders"])
    assert said(rights, given) == []  # a cluster that does not tell is taken at its word elsewhere
    everything = Rights(0x1FFF8)
    given.source.topic_rights = {"orders": bits(AclOperation.DESCRIBE)}
    given.target.topic_rights = {"east.orders": everything}
    given.source.cluster_rights = given.target.cluster_rights = everything
    given.source.group_rights = {"readers": bits(AclOperation.DESCRIBE)}
    given.target.group_rights = {"readers": bits(AclOperation.DESCRIBE)}
    found = [(one.where, one.level, one.what.partition(" needs ")[2]) for one in rights(given)]
    assert found == [
        ("east", ERROR, "READ on these topics"),
        ("east", ERROR, "DESCRIBE_CONFIGS on these topics"),
        ("west", ERROR, "READ on these groups"),
    ]
    told = " ".join(one.to_do for one in rights(given))
    assert "--operation DescribeConfigs --topic <each>" in told
    assert "--operation Read --group <each>" in told
    assert "…" not in told


def test_a_mirror_that_is_still_to_be_made_needs_the_same_rights():
    given = facts()
    given.target.topic_rights = {"east.orders": bits(AclOperation.CREATE, AclOperation.DESCRIBE)}
    found = [one.what.partition(" needs ")[2] for one in rights(given)]
    assert found == [
        "WRITE, READ on these topics",
        "DESCRIBE_CONFIGS, ALTER_CONFIGS, ALTER on these topics",
    ]


def test_the_links_own_topics_need_rights_too():
    given = facts(take_over={"offsets_topic": "mm2-offsets.east.internal", "group": "east-mm2"})
    assert said(own_topics_rule, given) == []
    none, denied = Rights(0), KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    own = own_topics(given.settings)
    given.source.topic_rights = {one.name: none for one in own if one.at_source}
    given.target.topic_rights = {one.name: none for one in own if not one.at_source}
    given.target.topic_rights |= {"mm2-offsets.east.internal": none}
    given.target.cannot_make = {"isthmus-link.east-to-west.internal": denied}
    assert all(one.to_do for one in own_topics_rule(given))
    assert [(one.where, one.level, one.subjects) for one in own_topics_rule(given)] == [
        ("west", ERROR, ("isthmus-link.east-to-west.internal",)),
        ("east", WARNING, ("heartbeats",)),
        ("west", WARNING, ("heartbeats",)),
        ("east", WARNING, ("mm2-offset-syncs.west.internal",)),
        ("west", WARNING, ("east.checkpoints.internal",)),
        ("west", ERROR, ("mm2-offsets.east.internal",)),
    ]
    progress = next(own_topics_rule(given))
    assert "CREATE, WRITE, DESCRIBE, READ" in progress.what
    assert "--operation Create" in progress.to_do
    given.own_mirrors = {"east.orders": ""}  # it has begun: MirrorMaker 2 may be started again all the same
    (found,) = (one for one in own_topics_rule(given) if "mm2-offsets" in one.subjects[0])
    assert (found.level, found.what.endswith("is copied twice")) == (WARNING, True)
    given.handed_back = True
    (found,) = (one for one in own_topics_rule(given) if "mm2-offsets" in one.subjects[0])
    assert found.level is ERROR


def test_a_topic_of_the_link_with_more_replicas_than_brokers_names_its_setting():
    given = facts()
    few = KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "3 > 1 brokers")
    given.source.cannot_make = {"mm2-offset-syncs.west.internal": few}
    (found,) = own_topics_rule(given)
    assert "set offset_syncs_topic_replication_factor (offset-syncs.topic.replication.factor)" in found.to_do


def test_a_topic_of_the_link_that_nobody_could_write_is_named_with_its_setting():
    """Its mirrors have three replicas: without progress nothing of them is copied."""
    given = facts(replication_factor=3, internal_replication_factor=1, heartbeats_topic_replication_factor=2)
    given.target.brokers = {n: Broker("b", n) for n in range(3)}
    given.target.defaults = {"min.insync.replicas": "2"}
    assert said(own_topics_rule, given) == [
        (ERROR, ("isthmus-link.east-to-west.internal",)),
        (WARNING, ("east.checkpoints.internal",)),
    ]
    progress, checkpoints = own_topics_rule(given)
    assert "set internal_replication_factor (offset.storage.replication.factor) to 2" in progress.to_do
    assert "set checkpoints_topic_replication_factor" in checkpoints.to_do
    given.target.topics["isthmus-link.east-to-west.internal"] = topic("there", copies=3)
    assert said(own_topics_rule, given) == [(WARNING, ("east.checkpoints.internal",))]
    given = facts()  # what the cluster has by default
    given.target.defaults = {"min.insync.replicas": "2", "default.replication.factor": "1"}
    assert said(own_topics_rule, given)[0] == (ERROR, ("isthmus-link.east-to-west.internal",))


def test_what_is_switched_off_needs_no_rights():
    on = {"emit_heartbeats": False, "emit_checkpoints": False, "emit_offset_syncs": False}
    assert [one.name for one in own_topics(facts(**on).settings)] == ["isthmus-link.east-to-west.internal"]
    at_target = own_topics(facts(offset_syncs_topic_location="target", on_refused="dead_letter").settings)
    assert [one.name for one in at_target if one.at_source] == ["heartbeats"]
    assert [one.name for one in at_target][-1] == "isthmus-dead-letters.east-to-west.internal"


def test_rights_on_the_workers_group_and_for_an_idempotent_producer():
    given = facts()
    given.target.group_rights = {given.settings.workers_group: bits(AclOperation.DESCRIBE)}
    given.no_idempotence = "CLUSTER_AUTHORIZATION_FAILED"
    found = list(rights(given))
    assert [(one.level, one.subjects) for one in found] == [
        (WARNING, ("isthmus-link.east-to-west",)),
        (ERROR, ()),
    ]
    assert "needs READ on the group" in found[0].what
    assert "IDEMPOTENT_WRITE" in found[1].to_do
    given.settings = given.settings.model_copy(update={"shared": False})
    assert said(rights, given) == [(ERROR, ())]


def test_deleting_groups_needs_its_right():
    given = facts(groups_on_delete="delete")
    given.target.group_rights = {"readers": bits(AclOperation.DESCRIBE, AclOperation.READ)}
    assert [one.what.partition(" needs ")[2] for one in rights(given)] == ["DELETE on these groups"]


@pytest.mark.parametrize(
    "source", [[], ["heartbeats"], ["__internal", "mm2-offsets.west.internal"], ["west.orders", "__internal"]]
)
def test_a_source_that_has_nothing_to_copy_is_no_error(source):
    """As the way back of a pair, where all that it has is what was copied there."""
    found = next(iter(selection(facts(source))))
    assert (found.level, found.check) == (WARNING, "topics")
    assert "DESCRIBE" in found.to_do, "what may not be seen looks the same"
    assert "none of its 0" not in found.what


@pytest.mark.parametrize(
    ("source", "settings"),
    [
        (["orders", "__internal"], {"topics": ["prices"]}),
        (["orders"], {"topics_exclude": ["o.*"]}),
        (["refused"], {}),
    ],
)
def test_patterns_that_leave_out_all_that_could_be_copied_are_an_error(source, settings):
    given = facts(source, **settings)
    if "refused" in source:
        given.found = Found(refused={"refused": "the source says TOPIC_AUTHORIZATION_FAILED"})
    assert next(iter(selection(given))).level is ERROR


def test_patterns_that_find_nothing_and_circles():
    assert [level for level, _ in said(selection, facts(topics=["prices"], groups=()))] == [ERROR, WARNING]
    assert said(selection, facts()) == []
    assert [level for level, _ in said(selection, facts(sync_group_offsets=False))] == [WARNING]
    given = facts()
    given.circles = ["east -> west -> east: round for ever; use prefix naming"]
    assert [level for level, _ in said(circles, given)] == [ERROR]
    given.found = Found()


@pytest.mark.parametrize(
    ("policy", "kept", "warned"),
    [
        ("compact", "60000", True),
        ("compact,delete", "60000", True),
        ("compact", "86400000", False),
        ("delete", "60000", False),
    ],
)
def test_tombstones_that_go_before_they_are_copied(policy, kept, warned):
    given = facts()
    given.source.configs = {"orders": {"cleanup.policy": entry(policy), "delete.retention.ms": entry(kept)}}
    assert said(tombstones, given) == ([(Level.WARNING, ("orders",))] if warned else [])


def test_exactly_once_needs_transactions_that_survive_a_broker():
    assert said(transactions, facts()) == []
    given = facts(exactly_once=True)
    assert said(transactions, given) == [(Level.OK, ())]  # what consumers have to do
    given.no_transactions = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
    given.target.defaults = {"transaction.max.timeout.ms": "10000", "transaction.state.log.min.isr": "2"}
    given.target.topics["__transaction_state"] = topic("__transaction_state", 50)
    assert said(transactions, given)[:3] == [(ERROR, ())] * 3
    given = facts(exactly_once=True)
    given.target.brokers = {n: Broker("b", n) for n in range(3)}
    given.target.defaults = {"transaction.state.log.replication.factor": "5"}
    assert said(transactions, given)[0] == (ERROR, ())
    given.target.topics["__transaction_state"] = topic("__transaction_state", 50)
    assert said(transactions, given)[0] == (WARNING, ())
