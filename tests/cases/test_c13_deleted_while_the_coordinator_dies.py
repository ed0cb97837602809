"""C13 with three brokers: a topic deleted under an open transaction whose coordinator is killed.

Another broker reads the transaction from the replicated log, ends it where there still is something to end,
and the id is of use at once.
"""

import asyncio
from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from protocol.client.cluster import ClusterClient
from protocol.client.connection import Connection
from protocol.client.topic_calls import NewTopic
from protocol.messages.find_coordinator_request import FindCoordinatorRequest
from tests.support.broker import Cluster
from tests.support.three_brokers import three_brokers
from tests.support.transactions import producer, read_until, write

pytestmark = pytest.mark.cluster

REPLICATED = {
    "auto.create.topics.enable": "false",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "3",
    "min.insync.replicas": "2",
}
_TRANSACTION = 1


async def coordinator(cluster: Cluster, transactional_id: str) -> int:
    living = next(broker for broker in cluster.brokers.values() if broker.running)
    connection = await Connection.open("127.0.0.1", living.port)
    try:
        request = FindCoordinatorRequest(key_type=_TRANSACTION, coordinator_keys=[transactional_id])
        return (await connection.send(request)).coordinators[0].node_id
    finally:
        await connection.close()


async def begun(cluster: Cluster, gone: str, kept: str) -> Producer:
    async with ClusterClient(cluster.bootstrap) as client:
        await client.create_topics([NewTopic(gone, 1, 3), NewTopic(kept, 1, 3)])
    made = await asyncio.to_thread(producer, cluster.bootstrap, f"id-{kept}")
    made.begin_transaction()
    await asyncio.to_thread(write, made, gone, "gone")
    await asyncio.to_thread(write, made, kept, "kept")
    return made


async def ended_by_another(brokers: Cluster, *, commit: bool) -> int:
    """Returns the coordinator that was killed."""
    gone, kept = f"gone-{commit}", f"kept-{commit}"
    made = await begun(brokers, gone, kept)
    first = await coordinator(brokers, f"id-{kept}")
    async with ClusterClient(brokers.bootstrap) as client:
        await client.delete_topics([gone])
    await asyncio.to_thread(brokers.brokers[first].kill)
    async with asyncio.timeout(90):
        await asyncio.to_thread(made.commit_transaction if commit else made.abort_transaction, 60)
    assert await coordinator(brokers, f"id-{kept}") != first
    made.begin_transaction()
    await asyncio.to_thread(write, made, kept, "next")
    await asyncio.to_thread(made.commit_transaction, 60)
    expected = [*["kept"] * commit, "next"]
    values = await asyncio.to_thread(
        read_until, brokers.bootstrap, kept, "read_committed", lambda found: found == expected
    )
    assert values == expected
    return first


async def test_the_coordinator_is_killed_before_the_end(cluster: Callable[[int], Cluster]) -> None:
    brokers = three_brokers(cluster(0), REPLICATED)
    killed = await ended_by_another(brokers, commit=True)
    brokers.brokers[killed].start()  # not in a thread: the broker ends with the thread that started it
    await ended_by_another(brokers, commit=False)
