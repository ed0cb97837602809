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


def full(*topics):
    return UpdateMetadataRequest(controller_id=1, controller_epoch=4, type=2, topic_states=list(topics))


def named(topic_id, *leaders, topic="t"):
    return update(topic_id, *leaders, topic=topic).topic_states[0]


def test_what_a_full_update_does_not_name_is_gone():
    cache = MetadataCache()
    kept, gone = new_topic_id(), new_topic_id()
    cache.update(update(kept, 1, 1, topic="kept"))
    cache.update(update(gone, 1, 1, topic="gone"))
    told: list[tuple[str, int]] = []
    cache.on_deletion(told.extend)
    assert cache.update(full(named(kept, 2, topic="kept"))) == [("kept", 1), ("gone", 0), ("gone", 1)]
    assert told == [("kept", 1), ("gone", 0), ("gone", 1)]
    assert cache.topic("gone") is None
    assert cache.topic_name(gone) is None
    assert list(cache.topics["kept"].partitions) == [0]
    assert cache.leader("kept", 0) == 2


def test_a_full_update_leaves_alone_what_it_names_without_partitions():
    cache = MetadataCache()
    damaged, unled, other = new_topic_id(), new_topic_id(), new_topic_id()
    cache.update(update(damaged, 1, 1, topic="damaged"))
    cache.update(update(unled, 1, 1, topic="partly"))
    cache.update(update(other, 1, 1, topic="replaced"))
    gone = cache.update(
        full(
            named(unled, 2, topic="partly"),
            named(ZERO_UUID, topic="damaged"),
            named(unled, topic="partly"),
            named(new_topic_id(), topic="replaced"),
        )
    )
    assert gone == [("replaced", 0), ("replaced", 1)], "it is another topic now"
    assert [cache.leader("damaged", index) for index in (0, 1)] == [1, 1]
    assert [cache.leader("partly", index) for index in (0, 1)] == [2, 1]
    assert cache.topic("replaced") is None


def test_a_full_update_of_a_topic_made_again_replaces_it():
    cache = MetadataCache()
    first, second = new_topic_id(), new_topic_id()
    cache.update(update(first, 1, 1, 1))
    assert set(cache.update(full(named(second, 2)))) == {("t", 0), ("t", 1), ("t", 2)}
    assert cache.topic_name(first) is None
    assert cache.topic_name(second) == "t"
    assert list(cache.topics["t"].partitions) == [0]
