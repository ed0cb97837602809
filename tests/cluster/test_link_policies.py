"""What a link does about gaps and refused batches, by policy, and how people take note of them.

The commands are run as people run them, against two clusters that a topology names by address.
"""

import asyncio
import json

import pytest
from typer.testing import CliRunner

from isthmus.commands.links import app
from protocol.client import Committed
from protocol.records import Record
from protocol.types import TopicPartition
from replicator.origin import hops
from tests.cluster.links import (
    content,
    copied_to,
    create,
    eventually,
    fresh,
    produce,
    records,
    running,
    some,
)

pytestmark = pytest.mark.cluster

T0 = 1_700_000_000_000


@pytest.fixture
def isthmus_links(tmp_path):
    """`isthmus links …` for a link: exit code and what it printed, as JSON."""

    async def run(link, command, *arguments, **declared):
        file = tmp_path / "topology.yaml"
        file.write_text(_topology(link, declared), encoding="utf-8")
        words = [command, link.name, *arguments, "--topology", str(file), "--json"]
        done = await asyncio.to_thread(CliRunner().invoke, app, words, catch_exceptions=False)
        return done.exit_code, json.loads(done.stdout)

    return run


def _topology(link, declared):
    ends = {end.alias: end.bootstrap for end in (link.source, link.target)}
    return json.dumps(
        {
            "version": 1,
            "name": "policies",
            "data_directory": "data",
            "datacenters": {alias: {"description": "here"} for alias in ends},
            "clusters": {a: {"datacenter": a, "bootstrap_servers": address} for a, address in ends.items()},
            "links": {link.name: {"topics": list(link.topics), "groups": list(link.groups), **declared}},
        }
    )


async def _state(link, topic, state):
    return link.partition(topic).get("state") == state


async def _with_gap(east, west, link, topic):
    """20 records copied, 30 lost, 10 left."""
    await create(east, topic)
    await produce(east, topic, some(20, "a"))
    async with running(link) as first:
        await copied_to(west, link, topic, 20)
        assert await first.stop() == 0
    await produce(east, topic, some(30, "lost"))
    await produce(east, topic, some(10, "kept"))
    await east.delete_records({TopicPartition(topic, 0): 50})


async def test_a_gap_that_is_acknowledged_stays_on_record_and_the_link_ends_well(
    pair, clients, isthmus_links
):
    east, west = clients
    topic = fresh("known")
    link = pair.link(topic)
    await _with_gap(east, west, link, topic)
    async with running(link) as second:
        await copied_to(west, link, topic, 60)
        assert await second.stop() == 3
    assert (await isthmus_links(link, "status"))[0] == 3
    words = ("--topic", topic, "--why", "INC-42", "--by", "ann")
    code, shown = await isthmus_links(link, "acknowledge-gap", *words, "--dry-run")
    assert (code, len(shown["acknowledged"])) == (0, 1)
    assert (await isthmus_links(link, "status"))[0] == 3  # nothing was written
    assert (await isthmus_links(link, "acknowledge-gap", *words))[1]["acknowledged"] == [
        {
            "topic": topic,
            "partition": 0,
            "kind": "gap",
            "start": 20,
            "end": 50,
            "reason": "retention passed",
        }
    ]
    code, status = await isthmus_links(link, "status")
    row = next(row for row in status["partitions"] if row["topic"] == topic)
    assert code == 0
    assert row["gaps"] == [[20, 50, "retention passed"]]
    assert [(one["start"], one["by"], one["why"]) for one in row["acknowledged"]] == [(20, "ann", "INC-42")]
    async with running(link) as third:
        await eventually(lambda: _state(third, topic, "running"), "running again")
        assert await third.stop() == 0
    await produce(east, topic, some(5, "lost too"))
    await produce(east, topic, some(5, "kept too"))
    await east.delete_records({TopicPartition(topic, 0): 65})
    async with running(link) as fourth:  # another one is open again
        await copied_to(west, link, topic, 70)
        assert await fourth.stop() == 3
    assert (await isthmus_links(link, "status"))[0] == 3


async def test_a_partition_that_stops_at_a_gap_goes_on_once_it_is_acknowledged(pair, clients, isthmus_links):
    east, west = clients
    topic = fresh("held")
    link = pair.link(topic, on_gap="stop", refresh_topics_interval_s=0.3)
    await _with_gap(east, west, link, topic)
    mirror = f"{link.source.alias}.{topic}"
    async with running(link) as second:
        await eventually(lambda: _state(second, topic, "held"), "the partition stops at its gap", 60)
        assert "retention passed" in second.partition(topic)["reason"]
        assert await second.stop() == 3
    assert len(await content(west, mirror)) == 20
    async with running(link) as third:  # a restart does not forget
        await eventually(lambda: _state(third, topic, "held"), "it still stands", 60)
        code, _ = await isthmus_links(
            link, "acknowledge-gap", "--all", "--why", "the old ones are not needed"
        )
        assert code == 0
        await copied_to(west, link, topic, 60)
        assert await third.stop() == 0
    assert [value for _, _, value, _ in await content(west, mirror)][20:] == [
        b"kept-%d" % i for i in range(10)
    ]


async def test_a_refused_record_goes_to_the_dead_letters_and_its_partition_on(pair, clients, isthmus_links):
    east, west = clients
    topic = fresh("buried")
    await create(east, topic)
    link = pair.link(topic, sync_topic_configs=False, on_refused="dead_letter", retry_refused_s=3600)
    target = f"{link.source.alias}.{topic}"
    await create(west, target, max_message_bytes="2000")
    await produce(east, topic, some(5, "small"))
    large = Record(0, T0, b"k", bytes(5000), [("h", None)])
    await produce(east, topic, [*some(3, "before"), large, *some(3, "after")])
    await produce(east, topic, some(5, "behind"))
    async with running(link) as first:
        await copied_to(west, link, topic, 17)
        assert await first.stop() == 3  # it is on record
    here, there = await content(east, topic), await content(west, target)
    assert there == here[:8] + here[9:]
    (buried,) = await records(west, link.dead_letter_topic)
    assert (buried.key, buried.value, buried.headers[0]) == (b"k", bytes(5000), ("h", None))
    place = dict(buried.headers)
    assert place["isthmus.source.topic"] == topic.encode()
    assert place["isthmus.source.partition"] == b"0"
    assert place["isthmus.source.offset"] == b"8"
    assert place["isthmus.source.timestamp"] == b"%d" % T0
    assert place["isthmus.target.topic"] == target.encode()
    assert place["isthmus.link"] == link.name.encode()
    assert b"message" in place["isthmus.error"]
    code, status = await isthmus_links(link, "status")
    (row,) = [row for row in status["partitions"] if row["topic"] == topic]
    assert code == 3
    assert [(start, end) for start, end, _ in row["gaps"]] == [(8, 9)]
    assert link.dead_letter_topic in row["gaps"][0][2]
    await east.commit(topic, {TopicPartition(topic, 0): Committed(12)})
    async with running(link):  # offsets are exact across it

        async def exact():
            return (await west.committed(topic)).get(TopicPartition(target, 0), Committed(-1)).offset == 11

        await eventually(exact, "the group's offset", 60)


@pytest.mark.parametrize("stamped", [False, True])
async def test_a_batch_too_large_for_the_target_is_taken_apart(pair, clients, stamped):
    east, west = clients
    topic = fresh("apart")
    await create(east, topic)
    naming = "identity" if stamped else "prefix"
    link = pair.link(
        topic, sync_topic_configs=False, retry_refused_s=3600, naming=naming, origin_headers=stamped
    )
    target = link.names().at_target(topic)
    await create(west, target, max_message_bytes="2000")
    await produce(east, topic, [Record(0, T0 + i, b"%d" % i, b"%100d" % i) for i in range(100)])
    await produce(east, topic, some(5, "behind"))
    async with running(link) as first:
        await copied_to(west, link, topic, 105)
        assert await first.stop() == 0
    there = await records(west, target)
    assert [(r.timestamp, r.key, r.value) for r in there] == [
        (r.timestamp, r.key, r.value) for r in await records(east, topic)
    ]
    assert {hops(record) for record in there} == {((east.cluster_id, topic),) if stamped else ()}


async def test_records_made_of_mirrored_ones_cross_back_and_what_is_left_out_is_counted(
    pair, clients, isthmus_links
):
    """As Kafka Streams does it: what an application writes carries the headers of what it has read."""
    east, west = clients
    tag = fresh("handed-on")
    orders, enriched = f"{tag}-orders", f"{tag}-enriched"
    settings = {"naming": "identity", "origin_headers": True, "emit_heartbeats": False}
    there = pair.link(f"{tag}.*", **settings)
    back = pair.link(f"{tag}.*", back=True, **settings)
    await create(east, orders)
    await create(west, enriched)
    await produce(east, orders, some(5, "order"))
    async with running(there):
        await copied_to(west, there, orders, 5)
    made = [Record(0, T0, b"k", b"made " + one.value, one.headers) for one in await records(west, orders)]
    await produce(west, enriched, made)
    async with running(back) as run:
        await copied_to(east, back, enriched, 5)
        await copied_to(east, back, orders, 5)
        left_out = run.metric("isthmus_link_left_out_records_total", topic=orders, partition="0")
        assert (left_out, run.partition(orders)["left_out"]) == (5, 5)
    assert [one.value for one in await records(east, enriched)] == [one.value for one in made]
    assert len(await records(east, orders)) == 5
    _, status = await isthmus_links(back, "status", **settings)
    shown = {row["topic"]: (row["copied"], row["left_out"]) for row in status["partitions"]}
    assert (shown[enriched], shown[orders]) == ((5, 0), (0, 5))
    failback = pair.link(f"{tag}.*", back=True, **settings, origin_headers_ignored=True)
    await east.delete_topics([orders])
    async with running(failback):
        await copied_to(east, failback, orders, 5)
    assert [one.value for one in await records(east, orders)] == [b"order-%d" % n for n in range(5)]


async def test_the_drift_report_says_whose_a_setting_is(pair, clients, isthmus_links):
    east, west = clients
    topic = fresh("drift")
    link = pair.link(topic, sync_topic_configs_interval_s=3600)
    target = f"{link.source.alias}.{topic}"
    await create(east, topic, 2, retention_ms="7000000", min_insync_replicas="2")
    async with running(link) as first:
        await eventually(lambda: _state(first, topic, "running"), "running")
        await first.stop()
    _, shown = await isthmus_links(link, "drift")
    (only,) = [row for row in shown["drift"] if row["topic"] == topic]
    assert (only["key"], only["owner"], only["action"]) == ("min.insync.replicas", "target", "leave")
    assert only["why"] == "named by config.properties.exclude"
    await east.alter_configs({topic: {"retention.ms": None, "segment.bytes": "2000000"}})
    await west.alter_configs({target: {"cleanup.policy": "compact"}})
    await east.create_partitions({topic: 3})
    code, shown = await isthmus_links(link, "drift")
    rows = {row["key"]: (row["owner"], row["action"]) for row in shown["drift"] if row["topic"] == topic}
    assert code == 3
    assert rows == {
        "retention.ms": ("link", "take back"),
        "segment.bytes": ("link", "set"),
        "partitions": ("link", "grow"),
        "min.insync.replicas": ("target", "leave"),
        "cleanup.policy": ("target", "leave"),
    }
    async with running(link) as second:

        async def level():
            return (await isthmus_links(link, "drift"))[0] == 0

        await eventually(lambda: _state(second, topic, "running"), "running")
        await eventually(level, "the link has done what the report announced", 60)
        await second.stop()
    left = {row["key"] for row in (await isthmus_links(link, "drift"))[1]["drift"] if row["topic"] == topic}
    assert left == {"min.insync.replicas", "cleanup.policy"}


async def test_the_check_finds_what_is_wrong_before_the_link_starts(pair, clients, isthmus_links):
    east, west = clients
    tag = fresh("check")
    link = pair.link(f"{tag}.*")
    await create(east, f"{tag}.a")
    await produce(east, f"{tag}.a", some(3))
    code, shown = await isthmus_links(link, "check")
    assert code == 0, shown
    await create(west, f"{link.source.alias}_{tag}.a")
    await create(west, f"{link.source.alias}.{tag}.b")
    await create(east, f"{tag}.b")
    code, shown = await isthmus_links(link, "check", replication_factor=2)
    ((name, found),) = [(one["link"], one["findings"]) for one in shown]
    assert (code, name) == (3, link.name)
    assert all(one["to_do"] for one in found)
    by_check = {(one["check"], one["level"]) for one in found}
    assert {("names", "error"), ("names", "warning"), ("replicas", "error"), ("topics", "error")} <= by_check
    metadata = await west.metadata(None)
    assert f"{link.source.alias}.{tag}.a" not in metadata.topics  # nothing was made
    gone = link.model_copy(update={"target": link.target.model_copy(update={"bootstrap": "127.0.0.1:1"})})
    code, shown = await isthmus_links(gone, "check")
    assert code == 1
    assert [(one["check"], one["where"]) for one in shown[0]["findings"]] == [
        ("connectivity", link.target.alias)
    ]


async def test_what_is_switched_off_writes_nothing(pair, clients):
    east, west = clients
    topic = fresh("quiet")
    await create(east, topic)
    await produce(east, topic, some(3))
    await east.commit(topic, {TopicPartition(topic, 0): Committed(2)})
    link = pair.link(
        topic,
        emit_checkpoints=False,
        emit_heartbeats=False,
        emit_offset_syncs=False,
        heartbeats_replication=False,  # those of other tests would travel on
        sync_group_offsets_interval_s=0.3,
    )
    alias = link.source.alias
    async with running(link) as first:
        await copied_to(west, link, topic, 3)

        async def followed():
            return bool(await west.committed(topic))

        await eventually(followed, "the group's offset", 60)  # its checkpoint would be due now
        assert await first.stop() == 0
    written = {name for name in (await west.metadata(None)).topics if alias in name}
    assert written == {link.progress_topic, f"{alias}.{topic}"}
    assert f"mm2-offset-syncs.{link.target.alias}.internal" not in (await east.metadata(None)).topics


async def test_a_reset_at_the_target_lasts_where_the_link_leaves_the_group_alone(
    pair, clients, isthmus_links, caplog, monkeypatch
):
    """Else the source's position counts, within seconds and with a warning: not when nobody thinks of it."""
    monkeypatch.setattr("replicator.group_sync._LOOK_AGAIN_S", (0.5, 0.5))
    east, west = clients
    topic = fresh("reset")
    link = pair.link(topic, groups=[f"{topic}.*"], sync_group_offsets_interval_s=0.2)
    here, there = TopicPartition(topic, 0), TopicPartition(f"{link.source.alias}.{topic}", 0)
    await create(east, topic)
    await produce(east, topic, some(20))
    await east.commit(topic, {here: Committed(15, -1, "until noon")})

    async def stands_at(offset):
        await eventually(lambda: _stands(west, topic, there, offset), f"{topic} at {offset}", 60)

    async with running(link):
        await stands_at(15)
        assert (await west.committed(topic))[there].metadata == "until noon"
        await west.commit(topic, {there: Committed(0)})
        await stands_at(15)
        assert "taken back at the target" in caplog.text
        code, _ = await isthmus_links(link, "set", f"groups_exclude={topic}")
        assert code == 0
        await eventually(lambda: _has_no_groups(isthmus_links, link), "the group is left alone", 30)
        await west.commit(topic, {there: Committed(0)})
        await asyncio.sleep(1.5)  # longer than a group at rest is not looked at
        assert await _stands(west, topic, there, 0)


async def _stands(client, group, tp, offset):
    found = (await client.committed(group)).get(tp)
    return found is not None and found.offset == offset


async def _has_no_groups(isthmus_links, link):
    _, told = await isthmus_links(link, "status")
    return told["groups"].get("in_sync") == 0
