"""The controller's process is killed at once after a write of its own in the middle of a job.

Each step of each job is tried in memory (`test_controller_killed_at_each_step.py`); here the same with real
processes at one step of four jobs. All brokers reach ZooKeeper through a relay that sees the write pass.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from broker.control import paths
from broker.control.nodes import TopicNode, decode_controller
from broker.control.zookeeper import ZooKeeper
from protocol.client import ClusterClient, Connection
from protocol.client.errors import ClientError
from protocol.codec.schema import Request
from protocol.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from protocol.messages.create_partitions_request import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from protocol.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from tests.support.broker import Cluster
from tests.support.commands import isthmus
from tests.support.proxy import LossyProxy
from tests.support.slow import slow
from tests.support.three_brokers import QUICK, produce
from tests.support.waiting import eventually, wait_until

pytestmark = [
    pytest.mark.cluster,
    slow("each step of each job is tried in memory, in test_controller_killed_at_each_step.py"),
]
Make = Callable[[int], Cluster]
TOPIC = "made"


class World:
    def __init__(self, cluster: Cluster, tree: ZooKeeper, proxy: LossyProxy) -> None:
        self.cluster = cluster
        self.tree = tree
        self.proxy = proxy

    async def controller(self) -> int:
        claim = await self.tree.get(paths.CONTROLLER)
        return -1 if claim is None else decode_controller(claim.data)

    async def others(self) -> list[int]:
        reigning = await self.controller()
        return [number for number in self.cluster.brokers if number != reigning]

    async def replicas(self) -> dict[int, tuple[int, ...]] | None:
        """By partition; None while any moves. Nothing without the topic."""
        node = await self.tree.get(paths.topic(TOPIC))
        if node is None:
            return {}
        topic = TopicNode.decode(node.data)
        return None if topic.adding or topic.removing else dict(topic.assignment)

    async def interrupted(self, request: Request[Any], partition: int, *, at: int) -> None:
        """Ask broker `at`; kill the controller when it writes that partition's state, and bring it back."""
        reigning = await self.controller()
        written = self.proxy.passing(paths.partition_state(TOPIC, partition).encode())
        connection = await Connection.open("127.0.0.1", self.cluster.brokers[at].port, timeout_s=60)
        try:
            asked = asyncio.create_task(connection.send(request))
            async with asyncio.timeout(60):
                await written.wait()
            self.cluster.brokers[reigning].kill()
            with contextlib.suppress(ClientError):
                await asked  # done, too late or lost: what counts is what becomes of it
        finally:
            await connection.close()
        await eventually(self.controller, lambda found: found not in (-1, reigning))
        await asyncio.to_thread(self.cluster.brokers[reigning].start)

    async def agree(self, wanted: dict[int, tuple[int, ...]]) -> None:
        """ZooKeeper has these replicas; each broker names them, all in sync, each with its first as leader
        or another one of them.
        """
        await eventually(self.replicas, lambda found: found == wanted)
        for broker in self.cluster.brokers.values():
            async with ClusterClient(broker.bootstrap) as client:

                async def seen(client: ClusterClient = client) -> dict[int, tuple[frozenset[int], bool]]:
                    topics = (await client.metadata(None)).topics
                    partitions = topics[TOPIC].partitions if TOPIC in topics else {}
                    return {
                        index: (
                            frozenset(each.replicas),
                            set(each.isr) == set(each.replicas) and each.leader >= 0,
                        )
                        for index, each in partitions.items()
                    }

                good = {index: (frozenset(each), True) for index, each in wanted.items()}
                await eventually(seen, lambda found: found == good)  # noqa: B023

    def stored(self) -> bool:
        """Whether any broker holds partitions of the topic."""
        return any(
            list((each.directory / "data" / "log").glob(f"{TOPIC}-[0-9]"))
            for each in self.cluster.brokers.values()
        )


@pytest.fixture
async def world(cluster: Make, zookeeper: str) -> AsyncIterator[World]:
    address, _, chroot = zookeeper.partition("/")
    host, _, port = address.partition(":")
    tree = await ZooKeeper.connect(zookeeper, session_timeout_ms=6000, wait_ms=10_000)
    async with LossyProxy(host, int(port)) as proxy:
        made = cluster(0)
        made.zookeeper = f"127.0.0.1:{proxy.port}/{chroot}"
        for number in (1, 2, 3):
            settings = {
                **QUICK,
                "zookeeper.session.timeout.ms": "6000",
                "auto.leader.rebalance.enable": "false",
            }
            made.add(number, settings=settings)
        await asyncio.to_thread(made.start)
        yield World(made, tree, proxy)
        await asyncio.to_thread(made.close)
    await tree.close()


def creation(*replicas: Sequence[int]) -> CreateTopicsRequest:
    assignments = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=list(each))
        for index, each in enumerate(replicas)
    ]
    topic = CreatableTopic(name=TOPIC, num_partitions=-1, replication_factor=-1, assignments=assignments)
    return CreateTopicsRequest(topics=[topic], timeout_ms=20_000)


def growth(count: int, *replicas: Sequence[int]) -> CreatePartitionsRequest:
    assignments = [CreatePartitionsAssignment(broker_ids=list(each)) for each in replicas]
    topic = CreatePartitionsTopic(name=TOPIC, count=count, assignments=assignments)
    return CreatePartitionsRequest(topics=[topic], timeout_ms=20_000)


def move(partition: int, *replicas: int) -> AlterPartitionReassignmentsRequest:
    wanted = ReassignablePartition(partition_index=partition, replicas=list(replicas))
    return AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=TOPIC, partitions=[wanted])], timeout_ms=20_000
    )


def deletion() -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topics=[DeleteTopicState(name=TOPIC)], timeout_ms=20_000)


async def test_jobs_of_killed_controllers_are_ended_by_the_next(world: World) -> None:
    first, second = await world.others()
    wanted: dict[int, tuple[int, ...]] = {0: (first, second), 1: (second, first)}
    await world.interrupted(creation(*wanted.values()), 0, at=first)
    await world.agree(wanted)

    here, there = await world.others()  # of another controller now
    wanted |= {2: (here, there), 3: (there, here)}
    await world.interrupted(growth(4, wanted[2], wanted[3]), 2, at=here)
    await world.agree(wanted)
    acknowledged = await asyncio.to_thread(produce, world.cluster, TOPIC, [b"%d" % n for n in range(200)])
    assert len(acknowledged) == 200

    third = next(number for number in world.cluster.brokers if number not in wanted[0])
    wanted[0] = (wanted[0][1], third)
    await world.interrupted(move(0, *wanted[0]), 0, at=await world.controller())
    await world.agree(wanted)
    done = await asyncio.to_thread(
        isthmus, "replicas", "compare", "--cluster", world.cluster.bootstrap, "--topic", TOPIC, timeout_s=120
    )
    assert done.returncode == 0, done.stdout + done.stderr

    await world.interrupted(deletion(), 0, at=(await world.others())[0])
    await world.agree({})
    assert await world.tree.children(paths.DELETE_TOPICS) == []
    await asyncio.to_thread(wait_until, lambda: not world.stored(), "no broker holds the deleted topic")
