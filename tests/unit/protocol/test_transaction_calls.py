"""Requests to a transaction's coordinator, of which one hangs."""

import asyncio

from protocol.api import ApiKey
from protocol.client import ClusterClient, ProducerId
from protocol.messages.end_txn_response import EndTxnResponse
from protocol.types import TopicPartition
from tests.support.fake_cluster import FakeCluster


async def test_the_end_of_a_transaction_does_not_wait_for_a_partition_that_is_being_added() -> None:
    """A broker answers one request of a connection after the other."""
    hangs, added = asyncio.Event(), asyncio.Event()

    async def add(*_: object) -> None:
        added.set()
        await hangs.wait()

    async with FakeCluster() as cluster:
        cluster.on(ApiKey.ADD_PARTITIONS_TO_TXN, add)
        cluster.on(ApiKey.END_TXN, lambda *_: EndTxnResponse())
        async with ClusterClient(cluster.bootstrap) as client:
            producer = ProducerId(7, 0)
            adding = asyncio.create_task(client.add_to_transaction("t", producer, [TopicPartition("a", 0)]))
            async with asyncio.timeout(20):
                await added.wait()
                await client.end_transaction("t", producer, commit=False)
            adding.cancel()
            hangs.set()
