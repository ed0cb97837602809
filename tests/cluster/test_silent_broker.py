"""A client of a cluster of which one broker takes requests and says nothing (SIGSTOP): others answer."""

import asyncio
import time
from pathlib import Path

import pytest

from broker.control.internal_topics import OFFSETS_TOPIC
from protocol.client import LATEST, NO_RETRIES, ClusterClient, Connection
from protocol.errors import ProtocolError
from protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from protocol.types import TopicPartition
from replicator.mirrors.assessing import ends_that_answer
from replicator.mirrors.lineage import MirrorSource
from tests.support.broker import BrokerProcess, Cluster
from tests.support.three_brokers import create

pytestmark = pytest.mark.cluster
SESSION = {"zookeeper.session.timeout.ms": "30000"}
ROUNDS = 6


async def heard_of(broker: BrokerProcess, topic: str) -> None:
    connection = await Connection.open("127.0.0.1", broker.port)
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    try:
        async with asyncio.timeout(10):
            while (await connection.send(request, 9)).topics[0].error_code:
                await asyncio.sleep(0.02)
    finally:
        await connection.close()


@pytest.mark.parametrize("known", [False, True])
async def test_look_ups_do_not_wait_for_it(zookeeper: str, tmp_path: Path, *, known: bool) -> None:
    """Nor do the ends of what others lead; `known`: the client has a connection to it already."""
    cluster = Cluster(tmp_path, zookeeper)
    try:
        for number in (1, 2):
            cluster.add(number, settings=SESSION)
        await asyncio.to_thread(cluster.start)
        await asyncio.to_thread(create, cluster, "t", (1,), (2,))
        here, there = TopicPartition("t", 0), TopicPartition("t", 1)
        async with ClusterClient(cluster.bootstrap) as client:
            if known:
                await client.list_offsets({here: LATEST, there: LATEST})
            await client.committed("g", [here])  # makes what coordinates groups
            await heard_of(cluster.brokers[1], OFFSETS_TOPIC)  # it would ask the controller for it
            topic = await client.topic("t")
            mirror = MirrorSource.of("a->b", client.cluster_id, topic.topic_id)
            cluster.brokers[2].pause()
            try:
                for _ in range(ROUNDS):
                    began = time.monotonic()
                    assert set((await client.metadata(["t"], retry=NO_RETRIES)).topics["t"].partitions) == {
                        0,
                        1,
                    }
                    client.forget_coordinator("g")
                    await client.coordinator("g")
                    assert time.monotonic() - began < 4
                client.forget_leader(here)
                found = await ends_that_answer(client, {"t": mirror}, [here, there])
                assert found == {here: 0}, "what the living broker leads counts as heard now"
                with pytest.raises((ProtocolError, TimeoutError)):
                    async with asyncio.timeout(1):
                        await client.list_offsets({there: LATEST}, retry=NO_RETRIES)
            finally:
                cluster.brokers[2].resume()
    finally:
        cluster.close()
