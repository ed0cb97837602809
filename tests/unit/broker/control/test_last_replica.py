"""The last replica of an ISR that came back from an unclean end: who waits for a word, what the word does."""

import pytest

from broker.control.elections import Election
from broker.control.last_replica import PreviousEnd, warning
from broker.control.leader_choice import next_state
from broker.control.nodes import BrokerNode, PartitionState
from broker.control.orders import LiveBroker
from broker.control.previous_end import FILE_NAME, previous_end, remember_boot
from protocol.errors import ErrorCode, KafkaError
from protocol.types import TopicPartition
from tests.support.control_world import World, live

T0 = TopicPartition("t", 0)
CLEAN, KILLED, LOST = PreviousEnd.CLEAN, PreviousEnd.KILLED, PreviousEnd.LOST
THREE = {number: live(number) for number in (1, 2, 3)}


def back(number: int, end: PreviousEnd, epoch: int = 9) -> LiveBroker:
    return live(number, epoch)._replace(previous_end=end)


def alone(*isr: int, replicas: tuple[int, ...] = (1, 2, 3)) -> World:
    """t-0, whose in-sync replicas are `isr`."""
    world = World(THREE)
    world.create("t", {0: replicas})
    world.in_sync("t", 0, *isr)
    return world


def without(*gone: int) -> dict[int, LiveBroker]:
    return {number: broker for number, broker in THREE.items() if number not in gone}


@pytest.mark.parametrize(
    ("isr", "replicas", "end", "leader"),
    [
        ((1,), (1, 2, 3), CLEAN, 1),
        ((1,), (1, 2, 3), KILLED, -1),  # one by itself is not believed
        ((1,), (1, 2, 3), LOST, -1),
        ((1,), (1,), KILLED, 1),  # nothing else could be elected
        ((1,), (1,), LOST, 1),
        ((1, 2), (1, 2, 3), KILLED, 1),  # both wrote what was acknowledged
        ((1, 2), (1, 2, 3), LOST, -1),  # 2 may have what 1 lacks
    ],
)
def test_who_leads_after_coming_back(isr, replicas, end, leader):
    for before, restarted in ((PartitionState(-1, 5, isr, 1), ()), (PartitionState(1, 5, isr, 1), (1,))):
        after = next_state(before, replicas, {1, 3}, 9, restarted=restarted, ends={1: end, 3: CLEAN})
        assert after is not None
        assert after.leader == leader
        assert after.suspects == (() if leader == 1 else (1,))
        assert after.isr == ((1,) if leader == 1 else isr)


def test_a_setting_chooses_kafkas_behaviour():
    assert next_state(PartitionState(-1, 5, (1,), 1), (1, 2), {1}, 9, ends=None).leader == 1


def test_a_broker_that_was_killed_long_ago_is_a_member_like_any_other():
    before = PartitionState(2, 5, (1, 2), 1)
    after = next_state(before, (1, 2), {1}, 9, ends={1: LOST})
    assert after == PartitionState(1, 6, (1,), 9)


def test_doubt_outlives_clean_restarts_and_controllers_and_ends_with_a_word():
    world = alone(1)
    world.brokers_are(without(1))
    assert world.state("t", 0).leader == -1
    world.brokers_are({**THREE, 1: back(1, KILLED)})
    assert world.state("t", 0)[:1] + world.state("t", 0)[2:] == (-1, (1,), 1, (1,))
    assert PartitionState.decode(world.state("t", 0).encode()) == world.state("t", 0)
    world.brokers_are(without(1))
    world.brokers_are({**THREE, 1: back(1, CLEAN, 12)})
    assert world.state("t", 0).leader == -1
    world.elect(world.core.brokers, 2)
    assert world.state("t", 0).leader == -1
    with pytest.raises(KafkaError, match="unclean") as refused:
        world.core.elect(Election.PREFERRED, T0)
    assert refused.value.code == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    write = world.core.elect(Election.UNCLEAN, T0)
    assert (write.state.leader, write.state.isr, write.state.suspects) == (1, (1,), ())


def test_a_trusted_member_takes_over_and_the_others_have_to_catch_up():
    world = alone(1, 2)
    world.brokers_are(without(1, 2))
    world.brokers_are({**without(2), 1: back(1, LOST)})
    assert world.state("t", 0).leader == -1
    world.brokers_are({**THREE, 1: back(1, LOST), 2: back(2, KILLED)})
    assert world.state("t", 0)[:1] + world.state("t", 0)[2:] == (2, (2,), 1, ())


@pytest.mark.parametrize("first", [1, 2, 3])
def test_a_whole_cluster_that_was_killed_at_once_helps_itself(first):
    """Whoever is back first is the controller, and takes the others' last registrations for life."""
    world = alone(1, 2, 3)
    world.silent = {1, 2, 3} - {first}
    world.zxids = {T0: 5}
    world.elect({**THREE, first: back(first, KILLED, 6)}, 2)
    others = sorted(world.silent)
    known = dict(world.core.brokers)
    for number in others:
        world.silent.discard(number)
        known[number] = back(number, KILLED, 6 + number)
        world.brokers_are(dict(known))
    assert world.state("t", 0).leader in (1, 2, 3)
    assert world.state("t", 0).suspects == ()


def test_one_that_led_alone_before_it_was_killed_is_in_doubt():
    world = alone(1, 2, 3)
    world.brokers_are(without(2, 3))  # broker 1 answers: from now on it may write alone
    world.brokers_are({})
    world.brokers_are({1: back(1, KILLED)})
    assert world.state("t", 0).suspects == (1,)
    world = alone(1, 2, 3)
    world.silent = {1}
    world.brokers_are(without(2, 3))
    world.brokers_are({})
    world.silent = set()
    world.brokers_are({1: back(1, KILLED)})
    assert world.state("t", 0).leader == 1, "it was dead before the others were missed"


def test_the_longest_log_is_elected_where_the_ends_are_known():
    world = alone(1)
    world.brokers_are(without(1))
    world.brokers_are({**THREE, 1: back(1, KILLED)})
    assert world.core.elect(Election.UNCLEAN, T0, {1: (4, 90), 3: (4, 100)}).state.leader == 3
    assert world.core.elect(Election.UNCLEAN, T0, {1: (5, 90), 3: (4, 100)}).state.leader == 1
    assert world.core.elect(Election.UNCLEAN, T0, {2: (4, 90), 3: (4, 90)}).state[0:3:2] == (2, (2,))


def test_what_the_operator_is_told():
    text = warning((TopicPartition("t", each), PartitionState(-1, 1, (1,), 1, (1,))) for each in range(7))
    assert "t-0 (broker 1)" in text
    assert "and 2 more" in text
    assert "isthmus elect" in text


def test_how_the_run_before_ended(tmp_path):
    directories = [str(tmp_path / name) for name in "ab"]
    for path in directories:
        (tmp_path / path).mkdir()
    assert previous_end(directories, clean=True) is CLEAN
    assert previous_end(directories, clean=False) is LOST, "a new directory"
    remember_boot(directories, "monday")
    assert previous_end(directories, clean=False, boot_id="monday") is KILLED
    assert previous_end(directories, clean=False, boot_id="tuesday") is LOST
    (tmp_path / "b" / FILE_NAME).unlink()
    assert previous_end(directories, clean=False, boot_id="monday") is LOST, "one was replaced"


def test_registrations_say_so_and_kafkas_need_not():
    node = BrokerNode(THREE[1].endpoints, previous_end=KILLED)
    assert PreviousEnd.of(BrokerNode.decode(node.encode()).previous_end) is KILLED
    assert b"previous_end" not in BrokerNode(THREE[1].endpoints).encode()
    assert PreviousEnd.of("") is CLEAN
