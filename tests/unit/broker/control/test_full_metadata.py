"""Brokers that were away while topics went: what they are told when they are back leaves nothing behind."""

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.control.shared_body import SharedBody
from protocol.codec import dumps
from protocol.messages.update_metadata_request import (
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from protocol.types import TopicPartition, new_topic_id
from tests.support.control_world import World, live

THREE = {number: live(number) for number in (1, 2, 3)}
WITHOUT_3 = {number: live(number) for number in (1, 2)}
BACK = {**THREE, 3: live(3, epoch=7)}


def known(world: World, number: int) -> dict[str, list[int]]:
    return {name: sorted(topic.partitions) for name, topic in world.told[number].cache.topics.items()}


def test_a_topic_deleted_while_a_broker_was_away_is_not_known_there_any_more() -> None:
    world = World(THREE)
    world.create("kept", {0: (1, 3)})
    world.create("gone", {0: (3, 1), 1: (1, 2)})
    world.brokers_are(WITHOUT_3)
    world.delete("gone")
    world.vanish("gone")
    world.brokers_are(BACK)
    assert [known(world, number) for number in THREE] == 3 * [{"kept": [0]}]


def test_a_topic_made_again_meanwhile_has_its_new_id_and_partitions() -> None:
    world = World(THREE)
    world.create("t", {0: (3, 1), 1: (1, 2)})
    world.brokers_are(WITHOUT_3)
    world.delete("t")
    world.vanish("t")
    world.create("t", {0: (1, 2)})
    world.brokers_are(BACK)
    assert known(world, 3) == {"t": [0]}
    assert world.told[3].cache.topic_id("t") == world.topics["t"].topic_id


def test_a_topic_that_the_controller_before_deleted_is_forgotten_with_the_next_one() -> None:
    world = World(THREE)
    world.create("gone", {0: (1, 2)})
    del world.topics["gone"]
    world.stored.clear()
    world.elect(THREE, epoch=2)
    assert known(world, 2) == {}


def test_topics_that_cannot_be_read_or_have_no_states_stay_known() -> None:
    world = World(THREE)
    world.create("damaged", {0: (1,), 1: (2,)})
    world.create("half", {0: (1,), 1: (3,)})
    before = world.topics.pop("damaged")
    for partition in list(world.stored):
        if partition.topic == "damaged" or partition == TopicPartition("half", 1):
            del world.stored[partition]
    world.elect(WITHOUT_3, epoch=2, unread=["damaged"])
    assert known(world, 1) == {"damaged": [0, 1], "half": [0, 1]}
    assert world.told[1].cache.topic_id("damaged") == before.topic_id


def test_a_broker_that_comes_back_while_a_topic_is_being_deleted_hears_nothing_of_it() -> None:
    world = World(THREE)
    world.create("going", {0: (1, 3)})
    world.brokers_are(WITHOUT_3)
    world.delete("going")
    world.brokers_are(BACK)
    assert known(world, 3) == {}


numbers = st.integers(0, 2**31 - 1)


@settings(max_examples=50)
@given(
    states=st.lists(st.tuples(st.text(max_size=20), st.lists(st.tuples(numbers, st.lists(numbers))))),
    racks=st.lists(st.none() | st.text(max_size=5)),
    epochs=st.lists(st.integers(-1, 2**63 - 1), min_size=1, max_size=4),
    kind=st.integers(0, 2),
    controller=st.tuples(numbers, numbers),
)
def test_a_shared_body_is_what_each_message_would_have_been(states, racks, epochs, kind, controller) -> None:
    topics = [
        UpdateMetadataTopicState(
            topic_name=name,
            topic_id=new_topic_id(),
            partition_states=[
                UpdateMetadataPartitionState(partition_index=index, isr=isr, replicas=isr)
                for index, isr in partitions
            ],
        )
        for name, partitions in states
    ]
    brokers = [UpdateMetadataBroker(id=number, rack=rack) for number, rack in enumerate(racks)]
    body = SharedBody()
    for version in (7, 8):
        for epoch in epochs:
            request = UpdateMetadataRequest(
                controller_id=controller[0],
                controller_epoch=controller[1],
                broker_epoch=epoch,
                type=kind if version == 8 else 0,
                topic_states=topics,
                live_brokers=brokers,
            )
            segments = body.segments(request, version)
            assert segments is not None
            assert b"".join(segments) == dumps(request, version)
    assert body.segments(request, 6) is None
