"""ZooKeeper's tree is damaged, or somebody else's things are in it: replicas stay, and the log says why.

A node that cannot be read is not known, which once was taken for "not there": a topic's logs were deleted
when its node was damaged, and set aside (`-stray`) at the next start of a broker or a controller.
"""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from broker.control import paths
from broker.control.nodes import PartitionState, TopicNode, decode_controller
from broker.control.zookeeper import ZooKeeper
from protocol.client import ClusterClient
from protocol.client.topic_calls import NewTopic
from protocol.records import Record, build_batch, decode_batches
from protocol.types import TopicPartition
from tests.support.broker import Cluster
from tests.support.waiting import eventually, wait_until

pytestmark = pytest.mark.cluster
Make = Callable[[int], Cluster]
GARBAGE = [b"", b"{", b"[1]", b"\xff\xfe", b'{"partitions":{"0":["x"]},"isr":"all","leader":{}}']


def batch(*values: bytes) -> bytes:
    return build_batch([Record(offset, 1, None, value, []) for offset, value in enumerate(values)])


@pytest.fixture
def two(cluster: Make) -> Cluster:
    return cluster(2)


@pytest.fixture
async def tree(two: Cluster) -> AsyncIterator[ZooKeeper]:
    made = await ZooKeeper.connect(two.zookeeper, session_timeout_ms=6000, wait_ms=10_000)
    yield made
    await made.close()


async def make(two: Cluster, *topics: str) -> None:
    """Topics with one partition and one record on each of both brokers."""
    async with ClusterClient(two.bootstrap) as client:
        for name in topics:
            await client.create_topics([NewTopic(name, 2, 1, assignment={0: [1], 1: [2]})])
            for index in (0, 1):
                await client.produce(TopicPartition(name, index), batch(name.encode()))


async def values(two: Cluster, topic: str, index: int) -> list[bytes | None]:
    async with ClusterClient(two.bootstrap) as client:
        fetched = await client.fetch(TopicPartition(topic, index), 0)
        return [record.value for record in decode_batches(fetched.records)]


def directories(two: Cluster, topic: str) -> set[str]:
    """What both brokers have of a topic, under whatever name."""
    return {
        f"{number}/{path.name}"
        for number, broker in two.brokers.items()
        for path in (broker.directory / "data" / "log").iterdir()
        if path.name.startswith(f"{topic}-")
    }


def both(topic: str) -> set[str]:
    return {f"1/{topic}-0", f"2/{topic}-1"}


async def controller(tree: ZooKeeper) -> int:
    node = await tree.get(paths.CONTROLLER)
    return -1 if node is None else decode_controller(node.data)


async def leaders(two: Cluster, topic: str) -> dict[int, int]:
    async with ClusterClient(two.bootstrap) as client:
        known = (await client.metadata([topic])).topics.get(topic)
        return {} if known is None else {index: each.leader for index, each in known.partitions.items()}


async def a_change_reaches_both(two: Cluster, name: str) -> None:
    """A later topic has leaders: all that came before it has been dealt with, and damage stops nothing."""
    async with ClusterClient(two.bootstrap) as client:
        await client.create_topics([NewTopic(name, 2, 1, assignment={0: [1], 1: [2]})])
    await eventually(lambda: leaders(two, name), lambda found: found == {0: 1, 1: 2})


async def test_damage_under_a_living_controller_and_at_each_start_costs_no_replica(
    two: Cluster, tree: ZooKeeper
) -> None:
    topics = [f"t{number}" for number in range(len(GARBAGE))]
    await make(two, *topics, "s")
    good = {name: await tree.get(paths.topic(name)) for name in topics}
    state = paths.partition_state("s", 0)
    good_state = await tree.get(state)
    for name, damage in zip(topics, GARBAGE, strict=True):
        await tree.set(paths.topic(name), damage)
    await tree.set(state, b"{}")
    await a_change_reaches_both(two, "after-damage")
    for name in topics:
        assert directories(two, name) == both(name)
        assert await values(two, name, 0) == [name.encode()]

    # A new controller, then a restart of each broker, so that complete orders are given and received.
    first = await controller(tree)
    two.brokers[first].kill()
    await eventually(lambda: controller(tree), lambda found: found == 3 - first)
    two.brokers[first].start()
    two.brokers[3 - first].stop()
    two.brokers[3 - first].start()
    await a_change_reaches_both(two, "after-restarts")
    for name in (*topics, "s"):
        assert directories(two, name) == both(name)
    said = two.brokers[1].output + two.brokers[2].output
    assert "cannot be read in ZooKeeper" in said
    assert f"{paths.topic('t0')} (topic: not JSON" in said
    assert f"{state} (partition state" in said
    assert "its log is set aside" not in said

    # Mended: read again at once, with every record, without a start.
    for name in topics:
        node = good[name]
        assert node is not None
        await tree.set(paths.topic(name), node.data)
    assert good_state is not None
    known = PartitionState.decode(good_state.data)
    await tree.set(state, known._replace(leader=-1, leader_epoch=known.leader_epoch + 10).encode())
    for name in (*topics, "s"):
        await eventually(lambda name=name: leaders(two, name), lambda found: found == {0: 1, 1: 2})
        for index in (0, 1):
            assert await values(two, name, index) == [name.encode()]
        assert directories(two, name) == both(name)


async def test_topics_that_somebody_removed_from_zookeeper_keep_their_files(
    two: Cluster, tree: ZooKeeper
) -> None:
    """Nobody has asked for the deletion by its name (I9). With the tree put back the records are there."""
    await make(two, "t")
    topic = await tree.get(paths.topic("t"))
    assert topic is not None
    states = [await tree.get(paths.partition_state("t", index)) for index in (0, 1)]
    await tree.delete_tree(paths.topic("t"))
    await a_change_reaches_both(two, "later")
    assert await leaders(two, "t") in ({}, {0: -1, 1: -1})
    assert directories(two, "t") == both("t")
    for index, state in enumerate(states):
        assert state is not None
        await tree.put(paths.partition_state("t", index), state.data)
    await tree.put(paths.topic("t"), topic.data)
    await eventually(lambda: leaders(two, "t"), lambda found: found == {0: 1, 1: 2})
    assert await values(two, "t", 0) == [b"t"]


async def test_strangers_things_in_the_tree_stop_nothing(two: Cluster, tree: ZooKeeper) -> None:
    await make(two, "t")
    for path in (
        f"{paths.TOPICS}/no topic at all",
        f"{paths.partitions('t')}/seven",
        f"{paths.partitions('t')}/77/state",
        f"{paths.BROKER_IDS}/someone",
        f"{paths.BROKER_IDS}/12",
        f"{paths.DELETE_TOPICS}/never-there",
        f"{paths.CONFIG_CHANGES}/config_change_x",
        "/log_dir_event_notification/log_dir_event_x",
    ):
        await tree.put(path, b"\x00\x01 not JSON")
    assert TopicNode.decode((await tree.get(paths.topic("t"))).data).assignment == {0: (1,), 1: (2,)}
    await a_change_reaches_both(two, "later")
    first = await controller(tree)
    two.brokers[first].kill()
    await eventually(lambda: controller(tree), lambda found: found == 3 - first)
    two.brokers[first].start()
    await a_change_reaches_both(two, "later-still")
    assert directories(two, "t") == both("t")
    async with ClusterClient(two.bootstrap) as client:
        await client.delete_topics(["t"])  # a stranger's nodes in its tree go with it
    wait_until(lambda: not directories(two, "t") & both("t"), "the deletion reaches both")


async def test_unreadable_settings_delete_no_records(two: Cluster, tree: ZooKeeper) -> None:
    async with ClusterClient(two.bootstrap) as client:
        await client.create_topics([NewTopic("t", 1, 1, {"retention.ms": "-1"}, assignment={0: [1]})])
        await client.produce(TopicPartition("t", 0), batch(b"old"))  # of 1970
    await tree.set(paths.topic_config("t"), b"}")
    two.brokers[1].kill()
    two.brokers[1].start()
    async with ClusterClient(two.brokers[1].bootstrap) as client:
        await asyncio.wait_for(client.metadata(["t"]), 30)
        entries = (await client.describe_configs(["t"]))["t"]
    assert {name: entries[name].value for name in ("retention.ms", "retention.bytes")} == {
        "retention.ms": "-1",
        "retention.bytes": "-1",
    }
    assert "none of its records are removed meanwhile" in two.brokers[1].output
