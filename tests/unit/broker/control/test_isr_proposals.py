"""Leaders' proposals for other in-sync replicas, judged by the controller's core."""

import pytest

from broker.control.nodes import PartitionState
from broker.control.proposed_isr import IsrProposal
from protocol.errors import ErrorCode
from protocol.types import TopicPartition
from tests.support.control_world import World, live

T0 = TopicPartition("t", 0)
THREE = {number: live(number) for number in (1, 2, 3)}


@pytest.fixture
def world() -> World:
    """Broker 1 leads t-0, alone in the ISR, in leader epoch 0; 2 and 3 follow."""
    made = World(THREE)
    made.create("t", {0: (1, 2, 3)})
    made.in_sync("t", 0, 1)
    return made


def proposal(*isr: int | tuple[int, int], leader_epoch: int = 0, partition_epoch: int = 1) -> IsrProposal:
    members = tuple(member if isinstance(member, tuple) else (member, -1) for member in isr)
    return IsrProposal(leader_epoch, partition_epoch, members)


def test_a_follower_joins_and_everybody_hears(world: World) -> None:
    world.sent.clear()
    code, write = world.core.propose_isr(1, T0, proposal(1, (2, 1)))
    assert code == ErrorCode.NONE
    assert write is not None
    assert write.state == PartitionState(1, 0, (1, 2), 1)
    world.isr_stored(write)
    assert world.told[3].cache.partition("t", 0).isr == (1, 2)  # type: ignore[union-attr]
    assert {kind for _, kind in world.sent} == {"UpdateMetadataRequest"}, "the leader has its answer"


def test_what_is_stored_already_is_no_error_whatever_version_was_known(world: World) -> None:
    assert world.core.propose_isr(1, T0, proposal(1, partition_epoch=-1)) == (ErrorCode.NONE, None)


@pytest.mark.parametrize(
    ("leader", "proposed", "code"),
    [
        (1, proposal(1, 2, leader_epoch=1), ErrorCode.NOT_CONTROLLER),
        (1, proposal(1, 2, leader_epoch=-1), ErrorCode.FENCED_LEADER_EPOCH),
        (1, proposal(1, 2, partition_epoch=2), ErrorCode.NOT_CONTROLLER),
        (1, proposal(1, 2, partition_epoch=-1), ErrorCode.INVALID_UPDATE_VERSION),
        (2, proposal(1, 2), ErrorCode.INVALID_REQUEST),
        (1, proposal(2), ErrorCode.INVALID_REQUEST),
        (1, proposal(1, 4), ErrorCode.INVALID_REQUEST),
        (1, proposal(1, (2, 7)), ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_refusals(world: World, leader: int, proposed: IsrProposal, code: ErrorCode) -> None:
    assert world.core.propose_isr(leader, T0, proposed) == (code, None)


def test_a_dead_or_leaving_broker_does_not_join(world: World) -> None:
    world.brokers_are({1: live(1), 2: live(2)})
    assert world.core.propose_isr(1, T0, proposal(1, 3))[0] == ErrorCode.INELIGIBLE_REPLICA
    world.leave(2)
    assert world.core.propose_isr(1, T0, proposal(1, 2))[0] == ErrorCode.INELIGIBLE_REPLICA


def test_a_topic_that_is_gone_or_going(world: World) -> None:
    unknown = TopicPartition("u", 0)
    assert world.core.propose_isr(1, unknown, proposal(1))[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    world.delete("t")
    assert world.core.propose_isr(1, T0, proposal(1, 2))[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
