"""A broker that is stopped on purpose: nobody waits for it, clients hear who leads before its port closes.

What the controller promises when it answers ControlledShutdown, and what clients with default settings see.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable

import pytest

from broker.control import paths
from broker.control.zookeeper import ZooKeeper
from protocol.client import ClusterClient, Connection
from protocol.client.topic_calls import NewTopic
from protocol.errors import ErrorCode
from protocol.messages.controlled_shutdown_request import ControlledShutdownRequest
from tests.support.broker import Cluster
from tests.support.steady_load import Consuming, Producing
from tests.support.waiting import eventually, wait_until

pytestmark = pytest.mark.cluster
Make = Callable[[int], Cluster]
PARTITIONS = 6
MANY = 60
SETTINGS = {
    "zookeeper.session.timeout.ms": "60000",  # nothing here may wait for a session to end
    "replica.lag.time.max.ms": "60000",  # nor for a leader to find out that a follower is gone
    "offsets.topic.replication.factor": "3",
    "auto.leader.rebalance.enable": "false",
}
GAP_S = 5.0
"""More than it should be by ten times: the machine may be busy. What it was without a hand-over is longer."""

View = dict[int, tuple[int, set[int]]]


@pytest.fixture
def three(cluster: Make) -> Cluster:
    made = cluster(0)
    for number in (1, 2, 3):
        made.add(number, rack=f"r{number}", settings=SETTINGS)
    return made.start()


async def seen(bootstrap: str, topic: str) -> View:
    """Leader and ISR by partition, as this very broker has them now."""
    async with ClusterClient(bootstrap) as client:
        found = (await client.metadata([topic])).topics[topic].partitions
        return {index: (each.leader, set(each.isr)) for index, each in found.items()}


async def create(cluster: Cluster, topic: str, partitions: int) -> None:
    """In sync everywhere, each broker the leader of a third."""
    orders = [[1, 2, 3], [2, 3, 1], [3, 1, 2]]
    async with ClusterClient(cluster.bootstrap) as client:
        assignment = {index: orders[index % 3] for index in range(partitions)}
        config = {"min.insync.replicas": "2"}
        await client.create_topics([NewTopic(topic, partitions, 3, config, assignment=assignment)])


def all_in_sync(cluster: Cluster, topic: str) -> bool:
    views = [asyncio.run(seen(each.bootstrap, topic)) for each in cluster.brokers.values()]
    return all(isr == {1, 2, 3} for view in views for _, isr in view.values())


def the_controller(cluster: Cluster) -> int:
    async def asked() -> int:
        async with ClusterClient(cluster.bootstrap) as client:
            return (await client.metadata([])).controller_id

    return asyncio.run(asked())


def test_everybody_knows_when_the_controller_has_answered(three: Cluster) -> None:
    asyncio.run(create(three, "t", MANY))
    wait_until(lambda: all_in_sync(three, "t"), "in sync")
    controller = the_controller(three)
    leaving = next(number for number in three.brokers if number != controller)

    async def leave() -> dict[int, View]:
        connection = await Connection.open("127.0.0.1", three.brokers[controller].port)
        try:
            answer = await connection.send(ControlledShutdownRequest(broker_id=leaving, broker_epoch=-1))
        finally:
            await connection.close()
        assert (answer.error_code, answer.remaining_partitions) == (ErrorCode.NONE, [])
        return {number: await seen(each.bootstrap, "t") for number, each in three.brokers.items()}

    views = asyncio.run(leave())
    for number, view in views.items():
        assert len(view) == MANY
        for leader, isr in view.values():
            assert leader != leaving, f"broker {number} sends clients to the one that stops"
            assert leaving not in isr, "acks=all waits for one that stops"


def test_the_next_controller_never_counts_on_the_one_that_stops(three: Cluster) -> None:
    """It does not know who is leaving: new topics would be led by a broker whose port is closed."""
    number = the_controller(three)

    async def gone() -> list[str]:
        order: list[str] = []

        async def told() -> int:
            return len(order)

        zookeeper = await ZooKeeper.connect(three.zookeeper, session_timeout_ms=6000, wait_ms=10_000)
        try:
            for path in (paths.CONTROLLER, paths.broker(number)):
                assert await zookeeper.get(path, functools.partial(order.append, path)) is not None
            assert await asyncio.to_thread(three.brokers[number].stop) == 0
            await eventually(told, lambda count: count == 2)  # in the order in which it happened
        finally:
            await zookeeper.close()
        return order

    assert asyncio.run(gone()) == [paths.broker(number), paths.CONTROLLER]


@pytest.mark.parametrize("role", ["another", "controller"])
def test_clients_hardly_notice(three: Cluster, role: str) -> None:
    asyncio.run(create(three, "t", PARTITIONS))
    wait_until(lambda: all_in_sync(three, "t"), "in sync")
    controller = the_controller(three)
    others = [number for number in three.brokers if number != controller]
    stopped = three.brokers[controller if role == "controller" else others[0]]
    with (
        Producing(three.bootstrap, "t", PARTITIONS) as producing,
        Consuming(three.bootstrap, "t") as consuming,
    ):
        wait_until(lambda: len(consuming.places) > 100, "records are read")
        began = time.monotonic()
        assert stopped.stop() == 0
        at = len(producing.acknowledged)
        wait_until(lambda: len(producing.acknowledged) > at + 100, "acknowledged without it")
        stopped.start()
        wait_until(lambda: all_in_sync(three, "t"), "in sync again")
        ended = time.monotonic()
        producing.end()
        wanted = set(producing.acknowledged)
        wait_until(lambda: wanted <= consuming.places.keys(), "all that was acknowledged is read")
    assert not producing.errors
    assert not consuming.errors
    assert all(len(places) == 1 for places in consuming.places.values()), "stored twice"
    gaps = producing.longest_gap_s(began, ended), consuming.longest_gap_s(began, ended)
    print(f"longest gaps: producer {gaps[0]:.2f} s, consumer {gaps[1]:.2f} s")  # noqa: T201 - with pytest -s
    assert max(gaps) < GAP_S
