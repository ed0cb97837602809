"""The controller's orders at a broker's door: stale ones are refused, whoever sends them (invariant I3)."""

from collections.abc import AsyncIterator

import pytest

from broker.control import paths
from broker.control.zookeeper import ZooKeeper
from protocol.client import ClusterClient, Connection
from protocol.client.topic_calls import NewTopic
from protocol.errors import ErrorCode
from protocol.messages.controlled_shutdown_request import ControlledShutdownRequest
from protocol.messages.leader_and_isr_request import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from protocol.messages.stop_replica_request import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from protocol.messages.update_metadata_request import UpdateMetadataRequest
from tests.support.broker import BrokerProcess

pytestmark = pytest.mark.cluster


@pytest.fixture
async def connection(broker: BrokerProcess) -> AsyncIterator[Connection]:
    connection = await Connection.open("127.0.0.1", broker.port)
    yield connection
    await connection.close()


async def test_orders_of_an_old_controller_change_nothing(
    broker: BrokerProcess, connection: Connection
) -> None:
    async with ClusterClient(broker.bootstrap) as client:
        await client.create_topics([NewTopic("kept", 1, 1)])
        topic_id = (await client.metadata(["kept"])).topics["kept"].topic_id
        state = LeaderAndIsrPartitionState(
            partition_index=0, controller_epoch=0, leader=9, leader_epoch=7, isr=[9], replicas=[1, 9]
        )
        topic = LeaderAndIsrTopicState(topic_name="kept", topic_id=topic_id, partition_states=[state])
        stop = StopReplicaTopicState(
            topic_name="kept",
            partition_states=[StopReplicaPartitionState(partition_index=0, delete_partition=True)],
        )
        for request in (
            LeaderAndIsrRequest(controller_id=9, controller_epoch=0, type=1, topic_states=[topic]),
            LeaderAndIsrRequest(controller_id=9, controller_epoch=0, type=2),
            UpdateMetadataRequest(controller_id=9, controller_epoch=0),
            StopReplicaRequest(controller_id=9, controller_epoch=0, topic_states=[stop]),
        ):
            answer = await connection.send(request)
            assert answer.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
        metadata = await client.metadata(["kept"])
        assert metadata.topics["kept"].partitions[0].leader == 1
        assert metadata.controller_id == 1


async def test_orders_for_an_earlier_life_of_the_broker_are_refused(connection: Connection) -> None:
    for kind in (LeaderAndIsrRequest, UpdateMetadataRequest, StopReplicaRequest):
        answer = await connection.send(kind(controller_id=1, controller_epoch=1_000, broker_epoch=0))
        assert answer.error_code == ErrorCode.STALE_BROKER_EPOCH


async def test_controlled_shutdown_answers(broker: BrokerProcess, connection: Connection) -> None:
    answer = await connection.send(ControlledShutdownRequest(broker_id=77))
    assert answer.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    answer = await connection.send(ControlledShutdownRequest(broker_id=1, broker_epoch=0))
    assert answer.error_code == ErrorCode.STALE_BROKER_EPOCH


async def test_a_deposed_controller_stops_writing(broker: BrokerProcess) -> None:
    """Somebody else's epoch appears in ZooKeeper: the reign ends, and a new one begins above it."""
    zookeeper = await ZooKeeper.connect(broker.zookeeper, session_timeout_ms=6000, wait_ms=10_000)
    try:
        node = await zookeeper.get(paths.CONTROLLER_EPOCH)
        await zookeeper.set(paths.CONTROLLER_EPOCH, b"%d" % (int(node.data) + 5), node.version)
        await zookeeper.delete(paths.CONTROLLER)
        async with ClusterClient(broker.bootstrap) as client:
            await client.create_topics([NewTopic("after", 1, 1)])
            assert (await client.metadata(["after"])).topics["after"].partitions[0].leader == 1
        assert int((await zookeeper.get(paths.CONTROLLER_EPOCH)).data) == int(node.data) + 6
    finally:
        await zookeeper.close()
