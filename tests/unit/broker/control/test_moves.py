"""Elections that are asked for and replicas that move, by the controller's core and the topic's node."""

import pytest

from broker.control import reassignment
from broker.control.elections import Election
from broker.control.nodes import PartitionState, TopicNode
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.stop_replica_request import StopReplicaRequest
from protocol.types import TopicPartition, new_topic_id
from tests.support.control_world import World, live

T0 = TopicPartition("t", 0)
FOUR = {number: live(number) for number in (1, 2, 3, 4)}


@pytest.fixture
def world() -> World:
    """t-0 on 1, 2, 3, led by 1, all in sync."""
    made = World(FOUR)
    made.create("t", {0: (1, 2, 3)})
    made.in_sync("t", 0, 1, 2, 3)
    return made


def refusal(world: World, kind: Election, partition: TopicPartition = T0) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        world.core.elect(kind, partition)
    return caught.value.code


def test_a_preferred_leader_takes_over_when_it_is_in_sync(world: World) -> None:
    assert refusal(world, Election.PREFERRED) == ErrorCode.ELECTION_NOT_NEEDED
    world.brokers_are({number: FOUR[number] for number in (2, 3, 4)})
    assert world.state("t", 0) == PartitionState(2, 1, (2, 3), 1)
    assert refusal(world, Election.PREFERRED) == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    world.brokers_are(FOUR)
    assert refusal(world, Election.PREFERRED) == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    world.in_sync("t", 0, 2, 3, 1)
    write = world.core.elect(Election.PREFERRED, T0)
    assert write.state == PartitionState(1, 2, (2, 3, 1), 1)
    assert refusal(world, Election.PREFERRED, TopicPartition("u", 0)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_unclean_election_takes_whoever_lives(world: World) -> None:
    assert refusal(world, Election.UNCLEAN) == ErrorCode.ELECTION_NOT_NEEDED
    world.in_sync("t", 0, 1)
    world.brokers_are({number: FOUR[number] for number in (2, 3, 4)})
    assert world.state("t", 0).leader == -1
    assert world.core.elect(Election.UNCLEAN, T0).state == PartitionState(2, 2, (2,), 1)
    world.brokers_are({4: FOUR[4]})
    assert refusal(world, Election.UNCLEAN) == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


def test_leaders_move_home_only_where_too_many_are_missing() -> None:
    world = World(FOUR)
    world.create("t", dict.fromkeys(range(10), (1, 2)))
    for index in range(10):
        world.in_sync("t", index, 1, 2)
    assert world.core.to_move_home(0) == []
    for index in (0, 1):
        world.led("t", index, 2)
    assert world.core.to_move_home(10) == [T0, TopicPartition("t", 1)]
    assert world.core.to_move_home(20) == []
    world.in_sync("t", 0, 2)
    assert world.core.to_move_home(10) == [TopicPartition("t", 1)]


# -- moving


def moved(node: TopicNode, *target: int) -> TopicNode:
    return reassignment.begun(node, 0, target)


def test_a_node_holds_old_and_new_replicas_until_the_move_is_done() -> None:
    node = TopicNode(new_topic_id(), {0: (1, 2), 1: (5,)})
    moving = moved(node, 2, 3)
    assert moving.assignment == {0: (2, 3, 1), 1: (5,)}
    assert (moving.adding, moving.removing) == ({0: (3,)}, {0: (1,)})
    assert reassignment.target_of(moving, 0) == (2, 3)
    assert not reassignment.can_finish(moving, 0, (1, 2))
    assert reassignment.can_finish(moving, 0, (1, 2, 3))
    assert reassignment.finished(moving, 0) == TopicNode(node.topic_id, {0: (2, 3), 1: (5,)})
    assert set(reassignment.cancelled(moving, 0).assignment[0]) == {1, 2}
    assert TopicNode.decode(moving.encode()) == moving


def test_a_move_can_be_sent_elsewhere_on_its_way() -> None:
    moving = moved(TopicNode(new_topic_id(), {0: (1, 2)}), 3)
    elsewhere = moved(moving, 4, 1)
    assert set(elsewhere.assignment[0]) == {1, 2, 4}
    assert (elsewhere.adding, elsewhere.removing) == ({0: (4,)}, {0: (2,)})


def test_another_order_of_the_same_replicas_is_done_at_once() -> None:
    moving = moved(TopicNode(new_topic_id(), {0: (1, 2)}), 2, 1)
    assert not reassignment.is_moving(moving, 0)
    assert moving.assignment[0] == (2, 1)


def test_replicas_move(world: World) -> None:
    world.change("t", moved(world.topics["t"], 4, 2))
    assert world.state("t", 0) == PartitionState(1, 1, (1, 2, 3), 1), "a new term, so that broker 4 hears"
    assert world.told[4].hosted == {T0: (1, 1)}
    assert world.told[3].cache.partition("t", 0).replicas == (4, 2, 1, 3)  # type: ignore[union-attr]
    assert world.core.moves_to_finish() == {}
    world.in_sync("t", 0, 1, 2, 3, 4)
    assert world.core.moves_to_finish() == {"t": [0]}
    world.change("t", reassignment.finished(world.topics["t"], 0))
    assert world.state("t", 0) == PartitionState(4, 2, (2, 4), 1)
    assert world.told[1].hosted == world.told[3].hosted == {}
    assert world.told[2].hosted == world.told[4].hosted == {T0: (4, 2)}
    assert world.told[1].cache.partition("t", 0).replicas == (4, 2)  # type: ignore[union-attr]


def test_a_new_controller_goes_on_with_a_move(world: World) -> None:
    world.change("t", moved(world.topics["t"], 4))
    world.in_sync("t", 0, 1, 2, 3, 4)
    world.elect(FOUR, epoch=2)
    assert world.core.moves_to_finish() == {"t": [0]}
    # The old controller may have finished the node and died before anybody was told.
    world.topics["t"] = reassignment.finished(world.topics["t"], 0)
    world.elect(FOUR, epoch=3)
    assert world.state("t", 0) == PartitionState(4, 3, (4,), 3)
    assert world.told[4].hosted == {T0: (4, 3)}


def test_a_leader_learns_of_a_move_that_its_controller_did_not_live_to_tell(world: World) -> None:
    world.topics["t"] = moved(world.topics["t"], 4, 2)  # written, and nothing else
    before = world.state("t", 0)
    world.elect(FOUR, epoch=2)
    after = world.state("t", 0)
    assert after == PartitionState(1, before.leader_epoch + 1, before.isr, 2), (
        "an order that is not a repetition"
    )
    assert world.told[1].hosted == world.told[4].hosted == {T0: (1, after.leader_epoch)}


def test_a_replica_that_comes_back_before_it_was_told_to_go_stays(world: World) -> None:
    there = world.topics["t"]
    away = reassignment.finished(reassignment.begun(there, 0, (2, 3)), 0)
    core = world.core
    for write in core.topics_are({"t": away}):
        core.written(write.partition, write.state, (write.version or 0) + 1)
    for write in core.topics_are({"t": there}):
        core.written(write.partition, write.state, (write.version or 0) + 1)
    stops = [order for order in core.take_orders() if isinstance(order.request, StopReplicaRequest)]
    assert stops == []


def test_a_replica_on_a_failed_directory_does_not_lead_after_an_unclean_election(world: World) -> None:
    world.in_sync("t", 0, 1)
    world.lose(2, T0)
    world.brokers_are({number: FOUR[number] for number in (2, 3, 4)})
    assert world.core.elect(Election.UNCLEAN, T0).state[:3] == (3, 2, (3,))


def test_a_cancelled_move_lets_go_of_the_new_replicas(world: World) -> None:
    world.change("t", moved(world.topics["t"], 4))
    world.in_sync("t", 0, 1, 2, 3, 4)
    world.change("t", reassignment.cancelled(world.topics["t"], 0))
    assert world.told[4].hosted == {}
    state = world.state("t", 0)
    assert (state.leader, sorted(state.isr)) == (1, [1, 2, 3])
