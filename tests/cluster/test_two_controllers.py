"""Two controllers: one was replaced and goes on believing. Its orders and its writes count no more (I3).

Broker 1 is started first and is the controller.
"""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from broker.control import paths
from broker.control.nodes import PartitionState, TopicNode, decode_controller, decode_epoch
from broker.control.zookeeper import ZooKeeper
from broker.control.zookeeper_types import Node
from protocol.client import ClusterClient, Connection
from protocol.client.topic_calls import NewTopic
from protocol.errors import ErrorCode
from protocol.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from protocol.messages.alter_partition_request import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    TopicData,
)
from tests.support.broker import Cluster
from tests.support.commands import isthmus
from tests.support.proxy import LossyProxy
from tests.support.three_brokers import QUICK, consume, create, in_sync, produce
from tests.support.waiting import eventually, wait_until

pytestmark = pytest.mark.cluster
Make = Callable[[int], Cluster]
OLD, SLOW, OTHER = 1, 2, 3
LATE = {"late-a", "late-b"}
RECORDS = 100


def start(cluster: Cluster, sessions: dict[int, int], relayed: str = "") -> Cluster:
    """Brokers with these session timeouts; the first is the controller before the others start. `relayed` is
    ZooKeeper's address for that one.
    """
    for number, timeout_ms in sessions.items():
        settings = {
            **QUICK,
            "zookeeper.session.timeout.ms": str(timeout_ms),
            "auto.leader.rebalance.enable": "false",
        }
        broker = cluster.add(number, settings=settings)
        if number == OLD and relayed:
            broker.zookeeper = relayed
        broker.launch()
        if number == OLD:
            cluster.brokers[number].wait_ready()
    for each in cluster.brokers.values():
        each.wait_ready()
    create(cluster, "kept", (1, 2, 3), (2, 3, 1), (3, 1, 2))
    return cluster


@pytest.fixture
async def tree(zookeeper: str) -> AsyncIterator[ZooKeeper]:
    made = await ZooKeeper.connect(zookeeper, session_timeout_ms=6000, wait_ms=10_000)
    yield made
    await made.close()


async def reigning(tree: ZooKeeper) -> tuple[int, int]:
    """Controller (-1: none) and epoch."""
    claim, epoch = await tree.get(paths.CONTROLLER), await tree.get(paths.CONTROLLER_EPOCH)
    return -1 if claim is None else decode_controller(claim.data), -1 if epoch is None else _number(epoch)


def _number(node: Node) -> int:
    return decode_epoch(node.data)


async def view(cluster: Cluster, number: int) -> tuple[int, dict[str, list[int]]]:
    """Controller and leaders as this very broker tells them."""
    async with ClusterClient(cluster.brokers[number].bootstrap) as client:
        found = await client.metadata(None)
        return found.controller_id, {
            name: [topic.partitions[index].leader for index in sorted(topic.partitions)]
            for name, topic in found.topics.items()
            if not name.startswith("__")
        }


async def agree(cluster: Cluster, controller: int, topics: set[str]) -> None:
    """Every broker names this controller and these topics, each with the same leaders."""

    async def views() -> list[tuple[int, dict[str, list[int]]]]:
        return [await view(cluster, number) for number in cluster.brokers]

    def good(found: list[tuple[int, dict[str, list[int]]]]) -> bool:
        first = found[0]
        led = [leader for leaders in first[1].values() for leader in leaders]
        return (
            found == [first] * len(found)
            and first[0] == controller
            and set(first[1]) == topics
            and -1 not in led
        )

    await eventually(views, good)


def move(topic: str, partition: int, *replicas: int) -> AlterPartitionReassignmentsRequest:
    wanted = ReassignablePartition(partition_index=partition, replicas=list(replicas))
    return AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=topic, partitions=[wanted])], timeout_ms=30_000
    )


def smaller_isr(topic_id: bytes, state: PartitionState, version: int) -> AlterPartitionRequest:
    """Broker 1, which leads partition 0, wants its last follower out of the ISR."""
    data = PartitionData(
        partition_index=0,
        leader_epoch=state.leader_epoch,
        new_isr_with_epochs=[BrokerState(broker_id=number) for number in state.isr[:-1]],
        partition_epoch=version,
    )
    return AlterPartitionRequest(broker_id=OLD, topics=[TopicData(topic_id=topic_id, partitions=[data])])


async def state_of(tree: ZooKeeper, topic: str, partition: int) -> Node:
    node = await tree.get(paths.partition_state(topic, partition))
    assert node is not None
    return node


async def replicas_of(tree: ZooKeeper, topic: str) -> TopicNode:
    node = await tree.get(paths.topic(topic))
    assert node is not None
    return TopicNode.decode(node.data)


def stored(cluster: Cluster) -> set[str]:
    """Topics of which any broker holds partitions."""
    folders = [each.directory / "data" / "log" for each in cluster.brokers.values()]
    return {path.name.rpartition("-")[0] for folder in folders for path in folder.glob("*-[0-9]")}


def write(cluster: Cluster, tag: str) -> list[bytes]:
    """To all partitions of `kept`, acknowledged by all replicas that count."""
    return [
        value
        for index in range(3)
        for value in produce(
            cluster, "kept", [b"%s-%d-%d" % (tag.encode(), index, n) for n in range(RECORDS)], partition=index
        )
    ]


def read(cluster: Cluster, count: int) -> list[bytes]:
    return [value for index in range(3) for value in consume(cluster, "kept", count // 3, index)]


def compare(cluster: Cluster) -> None:
    for index in range(3):
        wait_until(lambda: in_sync(cluster, "kept", index), "replicas in sync")  # noqa: B023
    done = isthmus("replicas", "compare", "--cluster", cluster.bootstrap, "--topic", "kept", timeout_s=120)
    assert done.returncode == 0, done.stdout + done.stderr


async def test_late_orders_of_a_controller_that_was_replaced_are_refused(
    cluster: Make, tree: ZooKeeper
) -> None:
    """Broker 2 is paused with it for a moment, so that orders wait on their way from one to the other: they
    go out when the old controller wakes up. Broker 2 keeps its session long, the others lose theirs soon.
    """
    made = await asyncio.to_thread(start, cluster(0), {OLD: 6_000, SLOW: 20_000, OTHER: 6_000})
    old, slow = made.brokers[OLD], made.brokers[SLOW]
    assert await reigning(tree) == (OLD, 1)
    acknowledged = await asyncio.to_thread(write, made, "before")

    slow.pause()
    try:
        async with ClusterClient(old.bootstrap) as client:
            for name in sorted(LATE):
                await client.create_topics([NewTopic(name, 1, 2, assignment={0: [OTHER, SLOW]})])
        old.pause()  # what broker 2 has not answered yet goes on when this one wakes up
    finally:
        slow.resume()
    try:
        second, epoch = await eventually(
            lambda: reigning(tree), lambda found: found[0] in (SLOW, OTHER) and found[1] == 2
        )
        await eventually(lambda: view(made, second), lambda found: found[0] == second)
        async with ClusterClient(made.brokers[second].bootstrap) as client:
            await client.delete_topics(LATE)
            await client.create_topics(
                [NewTopic("new", 2, 2, assignment={0: [SLOW, OTHER], 1: [OTHER, SLOW]})]
            )
            answer = await client.send_controller(move("kept", 1, OTHER, SLOW))
            assert answer.error_code == ErrorCode.NONE
            assert answer.responses[0].partitions[0].error_code == ErrorCode.NONE
        await eventually(lambda: replicas_of(tree, "kept"), lambda node: node.assignment[1] == (OTHER, SLOW))
        await eventually(lambda: tree.children(paths.TOPICS), lambda names: not LATE & set(names))
        acknowledged += await asyncio.to_thread(write, made, "without")
    finally:
        old.resume()
    gone = f"broker {OLD} is not the controller any more"
    await asyncio.to_thread(wait_until, lambda: gone in old.output, "the old controller knows")
    refused = f"of controller {OLD} with epoch 1 is refused: epoch 2 was seen"
    await asyncio.to_thread(wait_until, lambda: refused in slow.output, "a late order came, and was refused")

    await agree(made, second, {"kept", "new"})
    assert await reigning(tree) == (second, epoch), "nobody else was elected"
    async with ClusterClient(old.bootstrap) as client:  # a broker like the others
        await client.create_topics([NewTopic("after", 3, 3)])
    await agree(made, second, {"kept", "new", "after"})
    await asyncio.to_thread(wait_until, lambda: not LATE & stored(made), "no broker holds deleted topics")
    acknowledged += await asyncio.to_thread(write, made, "after")
    assert sorted(await asyncio.to_thread(read, made, len(acknowledged))) == sorted(acknowledged)
    await asyncio.to_thread(compare, made)


async def test_a_controller_that_does_not_hear_that_it_was_deposed_writes_nothing(
    cluster: Make, zookeeper: str, tree: ZooKeeper
) -> None:
    """Its session lives and ZooKeeper hears it, so its writes arrive: the epoch alone is in the way.

    What ZooKeeper says to it is held back; a leader that has not heard of the new controller either sends it
    another ISR.
    """
    address, _, chroot = zookeeper.partition("/")
    host, _, port = address.partition(":")
    async with LossyProxy(host, int(port)) as proxy:
        new = cluster(0)
        relayed = f"127.0.0.1:{proxy.port}/{chroot}"
        made = await asyncio.to_thread(start, new, dict.fromkeys((OLD, SLOW, OTHER), 20_000), relayed)
        old = made.brokers[OLD]
        assert await reigning(tree) == (OLD, 1)
        acknowledged = await asyncio.to_thread(write, made, "before")
        before = await state_of(tree, "kept", 0)
        connection = await Connection.open("127.0.0.1", old.port, timeout_s=60)
        try:
            proxy.hold()
            await tree.delete(paths.CONTROLLER)  # somebody asks for another controller
            second, epoch = await eventually(
                lambda: reigning(tree), lambda found: found[0] in (SLOW, OTHER) and found[1] == 2
            )
            await eventually(lambda: view(made, second), lambda found: found[0] == second)
            arrived = proxy.passing(paths.partition_state("kept", 0).encode())
            state = PartitionState.decode(before.data)
            proposal = smaller_isr((await replicas_of(tree, "kept")).topic_id, state, before.version)
            asked = asyncio.create_task(connection.send(proposal))
            async with asyncio.timeout(60):
                await arrived.wait()
            proxy.let_go()
            assert (await asked).error_code == ErrorCode.NOT_CONTROLLER
        finally:
            proxy.let_go()
            await connection.close()
        gone = f"broker {OLD} is not the controller any more"
        await asyncio.to_thread(wait_until, lambda: gone in old.output, "the old controller knows")
        assert await state_of(tree, "kept", 0) == before
        await agree(made, second, {"kept"})
        assert await reigning(tree) == (second, epoch)
        acknowledged += await asyncio.to_thread(write, made, "after")
        assert sorted(await asyncio.to_thread(read, made, len(acknowledged))) == sorted(acknowledged)
        await asyncio.to_thread(compare, made)
        await asyncio.to_thread(made.close)
