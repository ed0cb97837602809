"""Real brokers together: topics spread, kills and returns, re-created topics, settings, ghosts, pauses."""

import asyncio
import time
from collections.abc import Callable
from functools import partial

import pytest

from broker.control import paths
from broker.control.nodes import BrokerNode, PartitionState, TopicNode, decode_controller, decode_epoch
from broker.control.zookeeper import ZooKeeper
from protocol.client import ClusterClient
from protocol.client.topic_calls import NewTopic
from protocol.errors import ErrorCode, KafkaError
from protocol.records import Record, build_batch, decode_batches
from protocol.types import TopicPartition
from tests.support.broker import BrokerProcess, Cluster
from tests.support.waiting import eventually

pytestmark = pytest.mark.cluster
Make = Callable[[int], Cluster]


async def until(condition, what: str, timeout_s: float = 30.0) -> None:
    """Wait for an async condition with a bound."""
    deadline = time.monotonic() + timeout_s
    while not await condition():
        assert time.monotonic() < deadline, f"not within {timeout_s:g} s: {what}"
        await asyncio.sleep(0.05)


async def leaders(broker: BrokerProcess, topic: str) -> dict[int, int]:
    """Leaders as this very broker tells them."""
    async with ClusterClient(broker.bootstrap) as client:
        known = (await client.metadata([topic])).topics.get(topic)
        return {} if known is None else {index: item.leader for index, item in known.partitions.items()}


def batch(*values: bytes) -> bytes:
    return build_batch([Record(offset, 1, None, value, []) for offset, value in enumerate(values)])


async def values(client: ClusterClient, tp: TopicPartition) -> list[bytes | None]:
    return [record.value for record in decode_batches((await client.fetch(tp, 0)).records)]


async def zookeeper_of(cluster: Cluster) -> ZooKeeper:
    return await ZooKeeper.connect(cluster.zookeeper, session_timeout_ms=6000, wait_ms=10_000)


async def test_topics_are_spread_and_zookeeper_holds_kafkas_layout(cluster: Make) -> None:
    two = cluster(2)
    async with ClusterClient(two.bootstrap) as client:
        await client.create_topics([NewTopic("t", 4, 1, {"retention.ms": "1000000"})])
        for number in (1, 2):
            look = partial(leaders, two.brokers[number], "t")  # each is told in its own time
            await eventually(look, lambda told: sorted(told.values()) == [1, 1, 2, 2])
        for index in range(4):
            await client.produce(TopicPartition("t", index), batch(b"v%d" % index))
            assert await values(client, TopicPartition("t", index)) == [b"v%d" % index]
        topic_id = (await client.metadata(["t"])).topics["t"].topic_id
    zookeeper = await zookeeper_of(two)
    try:
        topic = TopicNode.decode((await zookeeper.get(paths.topic("t"))).data)
        assert topic.topic_id == topic_id
        assert sorted(topic.assignment) == [0, 1, 2, 3]
        state = PartitionState.decode((await zookeeper.get(paths.partition_state("t", 0))).data)
        assert state == PartitionState(topic.assignment[0][0], 0, topic.assignment[0], 1)
        assert b'"retention.ms":"1000000"' in (await zookeeper.get(paths.topic_config("t"))).data
        for number in (1, 2):
            node = BrokerNode.decode((await zookeeper.get(paths.broker(number))).data)
            assert node.endpoints[0].port == two.brokers[number].port
        assert decode_controller((await zookeeper.get(paths.CONTROLLER)).data) in (1, 2)
    finally:
        await zookeeper.close()


async def test_the_controller_is_killed_and_returns(cluster: Make) -> None:
    two = cluster(2)
    zookeeper = await zookeeper_of(two)
    try:
        first = decode_controller((await zookeeper.get(paths.CONTROLLER)).data)
        epoch = decode_epoch((await zookeeper.get(paths.CONTROLLER_EPOCH)).data)
        survivor = 3 - first
        async with ClusterClient(two.bootstrap) as client:
            await client.create_topics([NewTopic("t", 2, 1, assignment={0: [1], 1: [2]})])
            for index in range(2):
                await client.produce(TopicPartition("t", index), batch(b"before"))
        two.brokers[first].kill()

        async def taken_over() -> bool:
            return await leaders(two.brokers[survivor], "t") == {first - 1: -1, survivor - 1: survivor}

        await until(taken_over, "the survivor says that the dead broker's partition has no leader")
        assert decode_controller((await zookeeper.get(paths.CONTROLLER)).data) == survivor
        assert decode_epoch((await zookeeper.get(paths.CONTROLLER_EPOCH)).data) == epoch + 1
        async with ClusterClient(two.brokers[survivor].bootstrap) as client:
            await client.create_topics([NewTopic("during", 2, 1)])  # on who is left
            assert set((await leaders(two.brokers[survivor], "during")).values()) == {survivor}
            with pytest.raises(KafkaError) as caught:
                await client.create_topics([NewTopic("two", 1, 2)])
            assert caught.value.code == ErrorCode.INVALID_REPLICATION_FACTOR

        two.brokers[first].start()

        async def back() -> bool:
            return await leaders(two.brokers[survivor], "t") == {0: 1, 1: 2}

        await until(back, "the returned broker leads again")
        state = PartitionState.decode((await zookeeper.get(paths.partition_state("t", first - 1))).data)
        assert state == PartitionState(first, 2, (first,), epoch + 1)  # lost, and led again: two epochs later
        async with ClusterClient(two.brokers[first].bootstrap) as client:
            assert await values(client, TopicPartition("t", first - 1)) == [b"before"]
            await client.produce(TopicPartition("t", first - 1), batch(b"after"))
            assert await values(client, TopicPartition("t", first - 1)) == [b"before", b"after"]
    finally:
        await zookeeper.close()


async def test_a_stopped_controller_hands_over_at_once(cluster: Make) -> None:
    two = cluster(0)
    for number in (1, 2):
        two.add(number, settings={"zookeeper.session.timeout.ms": "60000"})
    two.start()
    zookeeper = await zookeeper_of(two)
    try:
        first = decode_controller((await zookeeper.get(paths.CONTROLLER)).data)
        assert two.brokers[first].stop() == 0
        survivor = two.brokers[3 - first]

        async def alone() -> bool:
            async with ClusterClient(survivor.bootstrap) as client:
                metadata = await client.metadata([])
                return metadata.controller_id == 3 - first and list(metadata.brokers) == [3 - first]

        await until(alone, "the other one is the controller, long before any session times out", 15.0)
    finally:
        await zookeeper.close()


async def test_a_topic_recreated_while_its_broker_was_away_is_another_one(cluster: Make) -> None:
    # Case C16: deletion does not wait for the dead broker; its old files are set aside when it is back.
    two = cluster(2)
    victim = two.brokers[2]
    tp = TopicPartition("t", 0)
    async with ClusterClient(two.bootstrap) as client:
        await client.create_topics([NewTopic("t", 1, 1, assignment={0: [2]})])
        await client.produce(tp, batch(*[b"A"] * 500))
    victim.kill()
    async with ClusterClient(two.brokers[1].bootstrap) as client:

        async def missed() -> bool:
            return 2 not in (await client.metadata([])).brokers

        await until(missed, "broker 2 is missed")
        begun = time.monotonic()
        await client.delete_topics(["t"])
        assert time.monotonic() - begun < 10
        assert "t" not in (await client.metadata(None)).topics
        victim.start()
        await client.create_topics([NewTopic("t", 1, 1, assignment={0: [2]})])
        await client.produce(tp, batch(*[b"B"] * 20))
        assert await values(client, tp) == [b"B"] * 20
    log = victim.directory / "data" / "log"
    assert [path.name for path in log.iterdir() if path.name.startswith("t-0")].count("t-0") == 1
    assert victim.output.count("t-0 is not this broker's any more, its log is set aside") == 1


async def test_a_broker_paused_beyond_its_session_comes_back_by_itself(cluster: Make) -> None:
    # Case C14 (c): same process, registered again, leading again.
    two = cluster(2)
    victim = two.brokers[2]
    tp = TopicPartition("t", 0)
    async with ClusterClient(two.brokers[1].bootstrap) as client:
        await client.create_topics([NewTopic("t", 1, 1, assignment={0: [2]})])
        await client.produce(tp, batch(b"before"))
        victim.pause()

        async def leaderless() -> bool:
            return await leaders(two.brokers[1], "t") == {0: -1}

        await until(leaderless, "the paused broker's session has ended")
        victim.resume()

        async def leads_again() -> bool:
            return await leaders(two.brokers[1], "t") == {0: 2}

        await until(leads_again, "the broker registered again")
        assert victim.running
        await client.produce(tp, batch(b"after"))
        assert await values(client, tp) == [b"before", b"after"]


async def test_a_broker_killed_and_started_at_once_registers_again(cluster: Make) -> None:
    # Case C14 (a).
    one = cluster(1)
    broker = one.brokers[1]
    broker.kill()
    broker.start()
    async with ClusterClient(broker.bootstrap) as client:
        await client.create_topics([NewTopic("t", 1, 1)])


async def test_growth_settings_and_deletion(cluster: Make) -> None:
    two = cluster(2)
    async with ClusterClient(two.bootstrap) as client:
        await client.create_topics([NewTopic("t", 1, 1)])
        await client.create_partitions({"t": 3})
        for number in (1, 2):

            async def all_led(broker: BrokerProcess = two.brokers[number]) -> bool:
                told = await leaders(broker, "t")
                return sorted(told) == [0, 1, 2] and set(told.values()) <= {1, 2}

            await until(all_led, "the partitions' directories are all_led")
        await client.alter_configs({"t": {"retention.ms": "5000"}})
        for number in (1, 2):
            async with ClusterClient(two.brokers[number].bootstrap) as other:
                described = await other.describe_configs(["t"])
                assert described["t"]["retention.ms"].value == "5000"
        await client.delete_topics(["t"])

        async def gone() -> bool:
            return not any(
                path.name.startswith("t-") and not path.name.endswith("-delete")
                for number in (1, 2)
                for path in (two.brokers[number].directory / "data" / "log").iterdir()
            )

        await until(gone, "the partitions' directories are gone")


async def test_replicas_are_spread_over_racks_or_refused(cluster: Make) -> None:
    four = cluster(0)
    for number, rack in ((1, "a"), (2, "a"), (3, "b")):
        four.add(number, rack=rack)
    four.start()
    async with ClusterClient(four.bootstrap) as client:
        await client.create_topics([NewTopic("t", 6, 2)])
        metadata = (await client.metadata(["t"])).topics["t"]
        for item in metadata.partitions.values():
            assert len({number == 3 for number in item.replicas}) == 2
        with pytest.raises(KafkaError) as caught:
            await client.create_topics([NewTopic("u", 1, 4)])
        assert caught.value.code == ErrorCode.INVALID_REPLICATION_FACTOR
        four.add(4).start()
        with pytest.raises(KafkaError, match=r"brokers 4 have no broker\.rack"):
            await client.create_topics([NewTopic("u", 1, 2)])
