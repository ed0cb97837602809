"""Apache Kafka's MirrorClient, RemoteClusterUtils and formatters judge what our links write."""

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from protocol.client import ClusterClient, Committed
from protocol.types import TopicPartition
from replicator.layouts import Checkpoint, OffsetSync
from replicator.settings import ClusterEnd
from tests.cluster.links import (
    Pair,
    copied_to,
    create,
    eventually,
    fresh,
    produce,
    records,
    running,
    some,
    two_brokers,
)
from tests.support.apache_kafka import apache_kafka, kafka_script
from tests.support.slow import slow

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.timeout(420)]

_JUDGE = Path(__file__).with_name("Judge.java")


@pytest.fixture(scope="module")
def pair():
    with apache_kafka("judge-east") as east, apache_kafka("judge-west") as west:
        yield Pair("apache", east, west)


@pytest.fixture(scope="module")
def ours(zookeeper_server, tmp_path_factory):
    """The same of our brokers, which are there sooner."""
    kafka_script()
    with two_brokers(zookeeper_server, tmp_path_factory.mktemp("pair")) as pair:
        yield pair


def judge(*arguments, **settings):
    """What Java says, as (name, value) pairs; settings of its clients have `_` for `.`."""
    home = Path(os.environ.get("INTEROP_HOME", Path.home() / ".cache" / "isthmus-interop"))
    done = subprocess.run(
        [
            *("java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{home}/libs/*"),
            *(f"-Dmirror.{name.replace('_', '.')}={text}" for name, text in settings.items()),
            *(str(_JUDGE), *arguments),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [line.partition("=")[::2] for line in done.stdout.splitlines() if "=" in line]


def listed(text):
    """The names in Java's way to print a set."""
    return set(text.strip("[]").split(", "))


_IDENTITY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"


@pytest.mark.parametrize(
    ("policy", "theirs", "between", "inside"),
    [
        pytest.param({"separator": "_"}, {"replication_policy_separator": "_"}, "_", "_", id="separator"),
        pytest.param(
            {"separator": "_", "internal_separator": False},
            {
                "replication_policy_separator": "_",
                "replication_policy_internal_topic_separator_enabled": "false",
            },
            *("_", "."),
            id="separator of topics only",
            marks=slow("another separator"),
        ),
        pytest.param({"naming": "identity"}, {"replication_policy_class": _IDENTITY}, "", ".", id="identity"),
    ],
)
async def test_java_knows_our_names_under_every_policy(ours, policy, theirs, between, inside):
    topic = fresh("policy")
    group, link = f"{topic}-group", ours.link(f"{topic}.*", **policy)
    alias = link.source.alias
    target = f"{alias}{between}{topic}" if between else topic
    checkpoints = f"{alias}{inside}checkpoints{inside}internal"
    beats = f"{alias}{between or '.'}heartbeats"
    async with ClusterClient(ours.east) as east, ClusterClient(ours.west) as west:
        await create(east, topic)
        await create(west, target)
        await produce(west, target, some(3, "foreign"))
        await produce(east, topic, some(20))
        await east.commit(group, {TopicPartition(topic, 0): Committed(7)})
        async with running(link):

            async def written():
                points = [Checkpoint.read(r.key, r.value) for r in await records(west, checkpoints)]
                return Checkpoint(group, target, 0, 7, 10) in points and await records(west, beats)

            await eventually(written, "checkpoint and heartbeats", 60)
        syncs = f"mm2-offset-syncs{inside}{link.target.alias}{inside}internal"
        assert syncs in (await east.metadata(None)).topics
    found = dict(
        await asyncio.to_thread(judge, ours.west, alias, group, source_cluster_alias=alias, **theirs)
    )
    assert found[f"offset.{target}-0"].startswith("10/")
    assert beats in listed(found["heartbeats"])
    assert checkpoints in listed(found["checkpoints"])
    assert alias in listed(found["upstream"])
    assert target in listed(found["remote"])
    assert found[f"hops.{alias}"] == "1"


async def test_java_sees_a_chain_of_clusters_from_its_end(ours):
    """a -> b -> c, where a and c are one cluster under two names, whatever `topics` says of heartbeats."""
    topic = fresh("chain")
    first = ours.link(topic)
    a, b, c = first.source.alias, first.target.alias, f"c{first.source.alias}"
    second = first.model_copy(
        update={
            "source": ClusterEnd(alias=b, bootstrap=ours.west),
            "target": ClusterEnd(alias=c, bootstrap=ours.east),
            "topics": (rf"{a}\.{topic}",),
        }
    )
    async with ClusterClient(ours.east) as east:
        await create(east, topic)
        await produce(east, topic, some(9))
        async with running(first), running(second):

            async def through():
                return (
                    len(await records(east, f"{b}.{a}.{topic}")) == 9
                    and await records(east, f"{b}.{a}.heartbeats")
                    and await records(east, f"{b}.heartbeats")
                )

            await eventually(through, "records and heartbeats go through both links", 60)
    found = dict(await asyncio.to_thread(judge, ours.east, b, "nobody"))
    assert {a, b} <= listed(found["upstream"])
    assert (found[f"hops.{b}"], found[f"hops.{a}"]) == ("1", "2")
    assert f"{b}.{a}.{topic}" in listed(found["remote"])


async def test_java_translates_offsets_and_finds_its_way_by_our_topics(pair):
    topic, group = fresh("judged"), fresh("judged-group")
    link = pair.link("judged.*")
    alias, target = link.source.alias, f"{link.source.alias}.{topic}"
    syncs, checkpoints = f"mm2-offset-syncs.{link.target.alias}.internal", f"{alias}.checkpoints.internal"
    async with ClusterClient(pair.east) as east, ClusterClient(pair.west) as west:
        await create(east, topic, 2)
        await create(west, target, 2)
        await produce(west, target, some(4, "foreign"))  # so that offsets differ on the two sides
        for partition in (0, 1):
            await produce(east, topic, some(30), partition)
        here = [TopicPartition(topic, partition) for partition in (0, 1)]
        await east.commit(group, {here[0]: Committed(12), here[1]: Committed(0)})
        async with running(link):
            await copied_to(west, link, topic, 30, 0)
            await copied_to(west, link, topic, 30, 1)

            async def written():
                points = [Checkpoint.read(r.key, r.value) for r in await records(west, checkpoints)]
                pairs = [OffsetSync.read(r.key, r.value) for r in await records(east, syncs)]
                return (
                    Checkpoint(group, target, 0, 12, 16) in points
                    and Checkpoint(group, target, 1, 0, 0) in points
                    and OffsetSync(topic, 0, 29, 33) in pairs
                    and await records(west, f"{alias}.heartbeats")
                )

            await eventually(written, "checkpoints, offset syncs and heartbeats")
    said = await asyncio.to_thread(
        judge,
        *(pair.west, alias, group),
        *(pair.west, "heartbeats", "HeartbeatFormatter"),
        *(pair.east, syncs, "OffsetSyncFormatter"),
        *(pair.west, checkpoints, "CheckpointFormatter"),
    )
    found = dict(said)
    assert found[f"offset.{target}-0"].startswith("16/")
    assert found[f"offset.{target}-1"].startswith("0/")
    assert {f"{alias}.heartbeats", "heartbeats"} <= listed(found["heartbeats"])
    assert checkpoints in listed(found["checkpoints"])
    assert alias in listed(found["upstream"])
    assert target in listed(found["remote"])
    assert found[f"hops.{alias}"] == "1"
    printed = [value for name, value in said if name.endswith("Formatter")]
    beat = f"sourceClusterAlias={alias}, targetClusterAlias={link.target.alias}"
    assert any(beat in row for row in printed)
    assert any(f"topicPartition={topic}-0, upstreamOffset=29, downstreamOffset=33" in row for row in printed)
    point = f"consumerGroupId={group}, topicPartition={target}-0, upstreamOffset=12, downstreamOffset=16"
    assert any(point in row for row in printed)
