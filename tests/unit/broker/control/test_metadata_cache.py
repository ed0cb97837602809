"""The metadata cache: what UpdateMetadata says, and waiting for it."""

import asyncio

from broker.control.metadata_cache import BrokerEndpoint, MetadataCache
from protocol.messages.update_metadata_request import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from protocol.types import ZERO_UUID, new_topic_id


def update(topic_id, *leaders, brokers=(1,), topic="t"):
    states = [
        UpdateMetadataPartitionState(
            partition_index=index, leader=leader, leader_epoch=3, replicas=[1], isr=[1]
        )
        for index, leader in enumerate(leaders)
    ]
    endpoint = UpdateMetadataEndpoint(host="h", port=9, listener="PLAINTEXT", security_protocol=0)
    return UpdateMetadataRequest(
        controller_id=1,
        controller_epoch=4,
        topic_states=[UpdateMetadataTopicState(topic_name=topic, topic_id=topic_id, partition_states=states)],
        live_brokers=[UpdateMetadataBroker(id=number, rack="r", endpoints=[endpoint]) for number in brokers],
    )


def test_what_was_told_is_known():
    cache = MetadataCache("cluster", 1)
    topic_id = new_topic_id()
    cache.update(update(topic_id, 1, -1, brokers=(2, 1)))
    assert (cache.controller_id, cache.controller_epoch) == (1, 4)
    assert cache.leader("t", 0) == 1
    assert cache.leader("t", 1) == -1
    assert cache.leader("t", 2) == -1
    assert cache.topic_name(topic_id) == "t"
    assert cache.endpoint(2, "PLAINTEXT") == BrokerEndpoint("h", 9, 0)
    assert cache.endpoint(2, "OTHER") is None
    assert [info.broker_id for info in cache.alive("PLAINTEXT")] == [1, 2]
    assert cache.alive("OTHER") == []


def test_partitions_not_named_stay_and_brokers_not_named_go():
    cache = MetadataCache()
    topic_id = new_topic_id()
    cache.update(update(topic_id, 1, 2, brokers=(1, 2)))
    cache.update(update(topic_id, 3, brokers=(3,)))
    assert (cache.leader("t", 0), cache.leader("t", 1)) == (3, 2)
    assert list(cache.brokers) == [3]


def test_deletion_and_recreation():
    cache = MetadataCache()
    first, second = new_topic_id(), new_topic_id()
    cache.update(update(first, 1, 1))
    assert cache.update(update(first, -2, -2)) == [("t", 0), ("t", 1)]
    assert cache.topic("t") is None
    assert cache.topic_name(first) is None
    assert cache.topic_id("t") == ZERO_UUID
    cache.update(update(first, 1, 1))
    cache.update(update(second, 2))  # nobody told of the deletion
    assert list(cache.topic("t").partitions) == [0]
    assert (cache.topic_name(first), cache.topic_name(second)) == (None, "t")


async def test_waiting_for_a_change():
    cache = MetadataCache()
    waiting = asyncio.create_task(cache.wait_until(lambda: cache.leader("t", 0) == 2, 5.0))
    await asyncio.sleep(0)
    cache.update(update(new_topic_id(), 1, topic="other"))
    await asyncio.sleep(0)
    assert not waiting.done()
    cache.update(update(new_topic_id(), 2))
    assert await waiting
    assert not await cache.wait_until(lambda: False, 0.01)
