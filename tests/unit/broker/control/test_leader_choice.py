"""Who leads: Kafka's rules for one partition."""

import pytest

from broker.control.leader_choice import first_state, handed_over, left_out, next_state
from broker.control.nodes import PartitionState


def state(leader, isr, epoch=5):
    return PartitionState(leader, epoch, isr, 1)


def test_a_new_partition_starts_with_all_living_replicas_in_sync():
    assert first_state((3, 1, 2), {1, 2}, 7) == PartitionState(1, 0, (1, 2), 7)
    assert first_state((3,), {1, 2}, 7) is None


@pytest.mark.parametrize(
    ("before", "replicas", "living", "after"),
    [
        (state(1, (1, 2, 3)), (1, 2, 3), {1, 2, 3}, None),  # all is well
        (state(1, (1, 2, 3)), (1, 2, 3), {1, 2}, (1, (1, 2))),  # a follower died
        (state(1, (1, 2, 3)), (1, 3, 2), {2, 3}, (3, (2, 3))),  # the leader died: order of the assignment
        (state(1, (1, 2)), (1, 3, 2), {2, 3}, (2, (2,))),  # only who is in sync may lead
        (state(1, (1,)), (1, 2), {2}, (-1, (1,))),  # nobody; the ISR waits for its member
        (state(-1, (1,)), (1, 2), {2}, None),  # still nobody
        (state(-1, (1,)), (1, 2), {1, 2}, (1, (1,))),  # it came back
        (state(1, (1, 2)), (1, 2), set(), (-1, (1, 2))),
    ],
)
def test_after_brokers_came_and_went(before, replicas, living, after):
    decided = next_state(before, replicas, living, 9)
    if after is None:
        assert decided is None
        return
    leader, isr = after
    term = before.leader_epoch + (leader != before.leader)  # the same leader goes on in its term
    assert decided == PartitionState(leader, term, isr, 9)


def test_unclean_election_only_where_it_is_allowed():
    lost = state(1, (1,))
    assert next_state(lost, (1, 2, 3), {3, 2}, 9).leader == -1
    assert next_state(lost, (1, 2, 3), {3, 2}, 9, unclean=True) == PartitionState(2, 6, (2,), 9)


def test_a_restarted_leader_yields_to_a_steady_one():
    decided = next_state(state(1, (1, 2)), (1, 2), {1, 2}, 9, restarted={1})
    assert decided == PartitionState(2, 6, (2,), 9)


def test_a_restarted_leader_without_others_gets_a_new_epoch():
    decided = next_state(state(1, (1,)), (1, 2), {1, 2}, 9, restarted={1})
    assert decided == PartitionState(1, 6, (1,), 9)


def test_handing_over():
    assert handed_over(state(1, (1, 2)), (1, 2), {1, 2}, {1}, 9) == PartitionState(2, 6, (2,), 9)
    assert handed_over(state(1, (1,)), (1, 2), {1, 2}, {1}, 9) is None


def test_leaving_the_isr():
    assert left_out(state(1, (1, 2, 3)), 2, 9) == PartitionState(1, 5, (1, 3), 9)  # the leader's term goes on
    assert left_out(state(1, (1, 3)), 2, 9) is None
    assert left_out(state(2, (1, 2)), 2, 9) is None  # that is handed over
    assert left_out(state(-1, (2,)), 2, 9) is None  # the only one who may lead when it is back
