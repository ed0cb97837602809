"""The finalized level of transaction.version: new clusters, old ones, changed while brokers run (KIP-584)."""

import asyncio
from collections.abc import Callable

import pytest

from broker.control import paths
from broker.control.features import decode
from broker.control.zookeeper import ZooKeeper
from protocol.client import Connection
from protocol.client.cluster import ClusterClient
from protocol.client.topic_calls import NewTopic
from protocol.errors import ErrorCode
from protocol.messages.api_versions_request import ApiVersionsRequest
from protocol.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from tests.support.broker import BrokerProcess, Cluster
from tests.support.transactions import TIMEOUT_S, producer, read_until, write
from tests.support.transactions_v2 import BOUND_S, RawProducer

pytestmark = pytest.mark.cluster
FEATURE = "transaction.version"
UPGRADE, SAFE_DOWNGRADE = 1, 2


async def connect(broker: BrokerProcess) -> Connection:
    return await Connection.open("127.0.0.1", broker.port)


async def level(broker: BrokerProcess) -> int:
    connection = await connect(broker)
    try:
        request = ApiVersionsRequest(client_software_name="tests", client_software_version="1.0")
        answer = await connection.send(request, 4)
        return {each.name: each.max_version_level for each in answer.finalized_features}.get(FEATURE, 0)
    finally:
        await connection.close()


async def finalize(
    broker: BrokerProcess, wanted: int, kind: int, *, name: str = FEATURE, dry: bool = False
) -> ErrorCode:
    connection = await connect(broker)
    try:
        update = FeatureUpdateKey(feature=name, max_version_level=wanted, upgrade_type=kind)
        request = UpdateFeaturesRequest(feature_updates=[update], validate_only=dry)
        one = await connection.send(request, 2)
        if one.error_code != ErrorCode.NOT_CONTROLLER and dry:
            each = await connection.send(request, 1)
            assert [result.error_code for result in each.results] == [one.error_code]
        return ErrorCode(one.error_code)
    finally:
        await connection.close()


async def becomes(broker: BrokerProcess, wanted: int) -> None:
    async with asyncio.timeout(BOUND_S):
        while await level(broker) != wanted:
            await asyncio.sleep(0.05)


async def controller_of(two: Cluster) -> BrokerProcess:
    async with ClusterClient(two.bootstrap) as client:
        async with asyncio.timeout(BOUND_S):
            while (found := (await client.metadata([])).controller_id) not in two.brokers:
                await asyncio.sleep(0.05)
    return two.brokers[found]


async def transact(broker: BrokerProcess, topic: str, value: str) -> None:
    """librdkafka (version 1) commits one record."""
    made = await asyncio.to_thread(producer, broker.bootstrap, topic)
    made.begin_transaction()
    await asyncio.to_thread(write, made, topic, value)
    await asyncio.to_thread(made.commit_transaction, TIMEOUT_S)


async def test_the_level_is_changed_while_brokers_run(cluster: Callable[[int], Cluster]) -> None:
    two = cluster(2)
    boss = await controller_of(two)
    (other,) = [broker for broker in two.brokers.values() if broker is not boss]
    assert [await level(broker) for broker in (boss, other)] == [2, 2], "a new cluster"
    assert await finalize(other, 0, SAFE_DOWNGRADE) is ErrorCode.NOT_CONTROLLER
    refused = ErrorCode.INVALID_UPDATE_VERSION
    assert await finalize(boss, 3, UPGRADE, dry=True) is refused
    assert await finalize(boss, 1, UPGRADE, dry=True) is refused
    assert await finalize(boss, 1, UPGRADE, name="no.such.feature", dry=True) is refused
    assert await finalize(boss, 0, SAFE_DOWNGRADE, dry=True) is ErrorCode.NONE
    assert await level(boss) == 2, "that was only asked"
    async with ClusterClient(two.bootstrap) as client:
        await client.create_topics([NewTopic("t", 1, 1)])
    await transact(boss, "t", "one")
    assert await finalize(boss, 0, SAFE_DOWNGRADE) is ErrorCode.NONE
    for broker in (boss, other):
        await becomes(broker, 0)
    await transact(boss, "t", "two")
    other.kill()
    other.start()  # not in a thread: the broker ends with the thread that started it
    assert await level(other) == 0
    assert await finalize(boss, 2, UPGRADE) is ErrorCode.NONE
    for broker in (boss, other):
        await becomes(broker, 2)
    await transact(boss, "t", "three")
    found = await asyncio.to_thread(
        read_until, two.bootstrap, "t", "read_committed", lambda found: len(found) >= 3
    )
    assert found == ["one", "two", "three"]


async def test_an_older_cluster_stays_as_it_is_until_it_is_upgraded(
    cluster: Callable[[int], Cluster],
) -> None:
    one = cluster(1)
    broker = one.brokers[1]
    broker.kill()
    zookeeper = await ZooKeeper.connect(one.zookeeper, session_timeout_ms=6000, wait_ms=10_000)
    try:
        assert decode((await zookeeper.get(paths.FEATURES)).data) == {FEATURE: 2}
        await zookeeper.delete(paths.FEATURES)
    finally:
        await zookeeper.close()
    broker.start()
    assert await level(broker) == 0
    async with ClusterClient(one.bootstrap) as client:
        await client.create_topics([NewTopic("t", 1, 1)])
    connection = await connect(broker)
    try:
        made = RawProducer(connection, "fenced")
        first = await made.begin()
        assert await made.add("t") is ErrorCode.NONE
        second = RawProducer(connection, "fenced")
        assert await second.begin() == (first.producer_id, first.epoch + 2)
        await controller_of(one)
        assert await finalize(broker, 2, UPGRADE) is ErrorCode.NONE
        await becomes(broker, 2)
        assert await second.produce("t", "a", 0) is ErrorCode.NONE
        assert await second.end(True) == (ErrorCode.NONE, first.producer_id, first.epoch + 3)
    finally:
        await connection.close()
