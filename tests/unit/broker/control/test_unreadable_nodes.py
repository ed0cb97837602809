"""Nodes that are there and cannot be read are not known: nothing is deleted, elected or set aside."""

import pytest

from broker.control.controller_core import ControllerCore
from broker.control.elections import Election
from broker.control.nodes import PartitionState, TopicNode
from broker.control.orders import LiveBroker, Sender, StoredState
from broker.control.proposed_isr import IsrProposal
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.leader_and_isr_request import LeaderAndIsrRequest
from protocol.messages.stop_replica_request import StopReplicaRequest
from protocol.types import TopicPartition, new_topic_id
from tests.support.control_world import World, live

THREE: dict[int, LiveBroker] = {number: live(number) for number in (1, 2, 3)}
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def full_orders(core: ControllerCore) -> dict[int, dict[str, list[int]]]:
    """Partitions of each complete LeaderAndIsr by broker and topic; a topic may be named twice."""
    found: dict[int, dict[str, list[int]]] = {}
    for number, request, _ in core.take_orders():
        if isinstance(request, LeaderAndIsrRequest) and request.type == 2:
            topics = found.setdefault(number, {})
            for topic in request.topic_states:
                named = topics.setdefault(topic.topic_name, [])
                named += [state.partition_index for state in topic.partition_states]
                if not topic.partition_states:
                    named.append(-1)
    return found


def reign() -> ControllerCore:
    return ControllerCore(Sender(1, 2, "PLAINTEXT"))


def test_a_new_reign_names_topics_it_cannot_read_without_partitions() -> None:
    core = reign()
    core.cannot_read(topics=["gone-bad"])
    core.start(THREE, {}, {})
    assert full_orders(core) == {number: {"gone-bad": [-1]} for number in THREE}


def test_a_partition_whose_state_cannot_be_read_is_not_made_anew() -> None:
    core = reign()
    node = TopicNode(new_topic_id(), {0: (1, 2), 1: (2, 3)})
    core.cannot_read(partitions=[T0])
    writes = core.start(THREE, {"t": node}, {T1: StoredState(PartitionState(2, 4, (2, 3), 1), 7)})
    assert writes == []
    assert full_orders(core) == {1: {"t": [-1]}, 2: {"t": [1, -1]}, 3: {"t": [1, -1]}}
    core.found(T0, PartitionState(1, 9, (1, 2), 1), 12)  # mended
    core.brokers_are({**THREE, 1: live(1, epoch=2)})
    assert full_orders(core) == {1: {"t": [0]}}


def test_a_state_that_is_damaged_during_a_reign_is_left_alone() -> None:
    world = World(THREE)
    world.create("t", {0: (1, 2)})
    world.in_sync("t", 0, 1, 2)
    world.core.cannot_read(partitions=[T0])
    world.brokers_are({2: live(2), 3: live(3)})
    assert world.state("t", 0).leader == 1
    assert world.core.propose_isr(1, T0, IsrProposal(0, 1, ((1, -1),)))[0] == ErrorCode.INVALID_UPDATE_VERSION
    with pytest.raises(KafkaError, match="cannot be read"):
        world.core.elect(Election.PREFERRED, T0)
    assert world.core.leave(1) == []


def test_a_topic_that_vanished_unasked_stops_without_losing_its_files() -> None:
    world = World(THREE)
    world.create("t", {0: (1, 2)})
    core = world.core
    core.topics_are({}, ["t"])
    stops = [order.request for order in core.take_orders() if isinstance(order.request, StopReplicaRequest)]
    assert len(stops) == 2
    for stop in stops:
        assert [state.delete_partition for state in stop.topic_states[0].partition_states] == [False]


def test_a_topic_that_is_another_one_now_loses_no_files_of_the_first() -> None:
    world = World(THREE)
    world.create("t", {0: (1, 2)})
    core = world.core
    core.topics_are({"t": TopicNode(new_topic_id(), {0: (1, 2)})})
    stops = [order.request for order in core.take_orders() if isinstance(order.request, StopReplicaRequest)]
    assert all(
        not state.delete_partition
        for stop in stops
        for topic in stop.topic_states
        for state in topic.partition_states
    )


def test_a_deletion_that_the_last_controller_began_goes_on_from_the_start() -> None:
    """Its states are not made anew, its replicas are deleted and not set aside."""
    core = reign()
    node = TopicNode(new_topic_id(), {0: (1, 2), 1: (2, 3)})
    states = {T1: StoredState(PartitionState(2, 4, (2, 3), 1), 7)}  # that of partition 0 was removed
    assert core.start(THREE, {"t": node}, states, deletions=["t", "unknown"]) == []
    orders = core.take_orders()
    deleted = {
        (number, state.partition_index)
        for number, request, _ in orders
        if isinstance(request, StopReplicaRequest)
        for state in request.topic_states[0].partition_states
        if state.delete_partition
    }
    assert deleted == {(1, 0), (2, 0), (2, 1), (3, 1)}
    kinds = [type(order.request).__name__ for order in orders]
    assert kinds == sorted(
        kinds, key=["StopReplicaRequest", "LeaderAndIsrRequest", "UpdateMetadataRequest"].index
    )
    named = [
        (topic.topic_name, len(topic.partition_states))
        for order in orders
        if isinstance(order.request, LeaderAndIsrRequest)
        for topic in order.request.topic_states
    ]
    assert named == [("t", 0)] * 3


def test_a_removed_state_is_made_again_in_another_term() -> None:
    world = World(THREE)
    world.create("t", {0: (1, 2)})
    [write] = world.core.lost([T0, TopicPartition("unknown", 0)])
    assert write == (T0, PartitionState(1, 1, (1, 2), 1), None)
