"""What a leader knows of its followers: positions, high watermark, who leaves the ISR and who joins."""

from broker.replication.in_sync import Follower, InSyncReplicas

LAG_S = 10.0


def leading(*isr: int, end: int = 0) -> InSyncReplicas:
    """Broker 1 leads partition replicas 1, 2, 3 from offset `end` on."""
    in_sync = InSyncReplicas(1)
    in_sync.begin(isr, 5, (1, 2, 3), end, 0.0)
    return in_sync


def test_the_high_watermark_is_what_every_member_has() -> None:
    in_sync = leading(1, 2, 3)
    assert in_sync.high_watermark(10) == -1  # nobody has fetched in this term
    in_sync.followers[2].fetched(7, 0, 10, 1.0)
    assert in_sync.high_watermark(10) == -1
    in_sync.followers[3].fetched(4, 0, 10, 1.0)
    assert in_sync.high_watermark(10) == 4
    in_sync.followers[3].fetched(10, 0, 10, 1.0)
    assert in_sync.high_watermark(10) == 7


def test_a_follower_outside_the_isr_does_not_hold_the_high_watermark_back() -> None:
    in_sync = leading(1, 2)
    in_sync.followers[2].fetched(7, 0, 10, 1.0)
    assert in_sync.high_watermark(10) == 7
    in_sync.followers[3].fetched(2, 0, 10, 1.0)
    assert in_sync.high_watermark(10) == 7


def test_whoever_joins_counts_before_the_controller_has_stored_it() -> None:
    in_sync = leading(1, 2)
    in_sync.followers[2].fetched(10, 0, 10, 1.0)
    in_sync.followers[3].fetched(10, 0, 10, 1.0)
    assert in_sync.may_join(3, 10)
    in_sync.propose_joining(3)
    assert not in_sync.may_join(3, 10)
    assert in_sync.high_watermark(12) == 10
    in_sync.followers[2].fetched(12, 0, 12, 2.0)
    assert in_sync.high_watermark(12) == 10  # the controller may elect broker 3 already
    assert in_sync.members == (1, 2)


def test_whoever_leaves_counts_until_the_controller_has_stored_it() -> None:
    in_sync = leading(1, 2)
    in_sync.followers[2].fetched(3, 0, 10, 1.0)
    in_sync.propose_leaving([2])
    assert in_sync.proposed == (1,)
    assert in_sync.high_watermark(10) == 3
    in_sync.settle((1,), 6)
    assert in_sync.high_watermark(10) == 10


def test_joining_needs_what_is_acknowledged_and_the_start_of_the_term() -> None:
    in_sync = leading(1, end=8)
    in_sync.followers[2].fetched(7, 0, 8, 1.0)
    assert not in_sync.may_join(2, 5)  # below where the leader's term began
    in_sync.followers[2].fetched(8, 0, 12, 1.0)
    assert not in_sync.may_join(2, 9)
    assert in_sync.may_join(2, 8)


def test_a_follower_is_behind_when_it_has_not_caught_up_for_the_time() -> None:
    follower = Follower(2, caught_up_at=0.0)
    follower.fetched(10, 0, 10, 5.0)
    assert not follower.is_behind(20, 15.0, LAG_S)
    assert follower.is_behind(20, 15.1, LAG_S)
    assert not follower.is_behind(10, 100.0, LAG_S)  # nothing new: nobody is behind


def test_a_follower_that_gets_what_was_there_at_its_last_fetch_keeps_up_under_load() -> None:
    follower = Follower(2, caught_up_at=0.0)
    for second in range(1, 60):
        # The leader's log grows faster than one fetch takes: the end is never reached.
        follower.fetched(100 * (second - 1), 0, 100 * second, float(second))
        assert not follower.is_behind(100 * second, float(second), LAG_S)


def test_only_members_of_the_isr_leave_it() -> None:
    in_sync = leading(1, 2)
    assert in_sync.lagging(10, 11.0, LAG_S) == [2]
    assert in_sync.lagging(10, 9.0, LAG_S) == []


def test_positions_survive_a_word_of_the_controller_in_the_same_term() -> None:
    in_sync = leading(1, 2)
    in_sync.followers[2].fetched(7, 0, 10, 1.0)
    in_sync.update((1, 2), 6, (1, 2, 4), 2.0)
    assert in_sync.high_watermark(10) == 7
    assert sorted(in_sync.followers) == [2, 4]
    in_sync.begin((1, 2), 7, (1, 2, 4), 10, 3.0)
    assert in_sync.high_watermark(10) == -1


def test_whom_the_controller_has_taken_out_is_not_proposed_soon() -> None:
    in_sync = leading(1, 2)
    follower = in_sync.followers[2]
    follower.fetched(10, 0, 10, 1.0)
    follower.broker_epoch = 7
    in_sync.update((1,), 6, (1, 2, 3), 4.0)  # it has been at rest since
    follower.fetched(10, 0, 10, 8.0)  # it stops soon, and fetches still
    assert not in_sync.may_join(2, 10)
    follower.fetched(10, 0, 10, 30.0)
    assert in_sync.may_join(2, 10)


def test_whom_the_controller_has_taken_out_is_proposed_when_it_is_back() -> None:
    in_sync = leading(1, 2)
    follower = in_sync.followers[2]
    follower.broker_epoch = 7
    in_sync.update((1,), 6, (1, 2, 3), 4.0)
    follower.fetched(10, 0, 10, 5.0)
    assert not in_sync.may_join(2, 10)
    follower.broker_epoch = 9
    assert in_sync.may_join(2, 10)


def test_the_others_of_a_refusal_wait_a_second() -> None:
    in_sync = leading(1)
    follower = in_sync.followers[2]
    follower.broker_epoch = 7
    follower.fetched(10, 0, 10, 1.0)
    in_sync.propose_joining(2)
    in_sync.refuse()
    assert not in_sync.may_join(2, 10)
    follower.fetched(10, 0, 10, 2.5)
    assert in_sync.may_join(2, 10)
