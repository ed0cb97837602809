"""Joining: the two steps, the initial delay, votes, limits, and joins that are repeated."""

from __future__ import annotations

import pytest

from broker.coordinator.groups.limits import GroupLimits
from broker.coordinator.groups.states import GroupState
from protocol.errors import ErrorCode
from tests.unit.broker.coordinator.group_room import GroupRoom

E = ErrorCode


def test_a_dynamic_member_gets_its_id_first_and_the_id_names_its_client() -> None:
    room = GroupRoom()
    first = room.join(client="reader").joined
    assert (first.error, first.generation) == (E.MEMBER_ID_REQUIRED, -1)
    assert first.member_id.startswith("reader-")
    assert room.group.state is GroupState.EMPTY
    second = room.join(first.member_id)
    room.advance(0)
    assert second.joined.error is E.NONE
    assert second.joined.leader == second.joined.member_id == first.member_id
    assert [each.member_id for each in second.joined.members] == [first.member_id]
    assert (second.joined.protocol_type, second.joined.protocol) == ("consumer", "range")
    assert room.group.generation == 1


def test_before_version_4_one_step_is_enough() -> None:
    room = GroupRoom()
    parked = room.join(version=3)
    room.advance(0)
    assert parked.joined.error is E.NONE
    assert parked.joined.generation == 1


def test_a_made_up_member_id_is_refused() -> None:
    room = GroupRoom()
    assert room.join("mine").joined.error is E.UNKNOWN_MEMBER_ID
    room.stable("a")
    assert room.join("mine").joined.error is E.UNKNOWN_MEMBER_ID


def test_a_pending_id_that_is_not_used_expires_with_its_session() -> None:
    room = GroupRoom()
    member_id = room.new_id(session=5_000)
    room.advance(5_001)
    assert room.join(member_id).joined.error is E.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("session", [999, 60_001, 0, -1])
def test_session_timeouts_outside_the_limits(session: int) -> None:
    assert GroupRoom().join(session=session).joined.error is E.INVALID_SESSION_TIMEOUT


def test_the_first_round_waits_the_initial_delay_and_longer_while_members_come() -> None:
    room = GroupRoom(GroupLimits(initial_rebalance_delay_ms=3_000))
    a = room.join(room.new_id(rebalance=10_000), rebalance=10_000)
    room.advance(2_000)
    b = room.join(room.new_id(rebalance=10_000), rebalance=10_000)
    room.advance(1_500)  # 3.5 s: prolonged because b came
    assert a.open
    assert b.open
    room.advance(2_500)  # 6 s: nobody came in the second step
    assert a.joined.generation == b.joined.generation == 1
    assert len(a.joined.members) == 2
    assert b.joined.members == ()


def test_the_initial_delay_never_exceeds_the_rebalance_timeout() -> None:
    room = GroupRoom(GroupLimits(initial_rebalance_delay_ms=3_000))
    first = room.join(room.new_id(rebalance=7_000), rebalance=7_000)
    for _ in range(14):
        room.advance(500)
        room.join(room.new_id(rebalance=7_000), rebalance=7_000)
    room.advance(1)
    assert not first.open


def test_the_protocol_with_most_votes_that_all_offer_wins() -> None:
    room = GroupRoom()
    offers = [("sticky", "range"), ("range", "sticky"), ("sticky", "roundrobin", "range")]
    joins = []
    for names in offers:
        protocols = tuple((name, name.encode()) for name in names)
        joins.append(room.join(room.new_id(protocols=protocols), protocols=protocols))
    room.advance(0)
    assert {parked.joined.protocol for parked in joins} == {"sticky"}
    leader = next(parked.joined for parked in joins if parked.joined.members)
    assert {each.metadata for each in leader.members} == {b"sticky"}


def test_a_member_without_a_common_protocol_or_of_another_type_is_refused() -> None:
    room = GroupRoom()
    room.stable("a")
    assert room.join(protocols=(("sticky", b""),)).joined.error is E.INCONSISTENT_GROUP_PROTOCOL
    assert room.join(protocol_type="connect").joined.error is E.INCONSISTENT_GROUP_PROTOCOL
    assert GroupRoom().join(protocols=()).joined.error is E.INCONSISTENT_GROUP_PROTOCOL
    assert GroupRoom().join(protocol_type="").joined.error is E.INCONSISTENT_GROUP_PROTOCOL


def test_connect_workers_join_with_opaque_metadata() -> None:
    room = GroupRoom()
    protocols = (("sessioned", b"\x00\xff"), ("compatible", b"\x01"))
    ids = room.stable("w1", "w2", protocol_type="connect", protocols=protocols)
    assert room.group.protocol == "sessioned"
    assert room.group.subscribed_topics is None
    assert room.sync(ids[0]).synced.assignment == ids[0].encode()


def test_a_new_member_sends_everybody_back_to_join() -> None:
    room = GroupRoom()
    (a,) = room.stable("a")
    b_join = room.join(room.new_id(client="b"))
    assert room.group.state is GroupState.PREPARING_REBALANCE
    assert room.beat(a) is E.REBALANCE_IN_PROGRESS
    assert room.sync(a).synced.error is E.REBALANCE_IN_PROGRESS
    a_join = room.join(a)
    assert a_join.joined.generation == b_join.joined.generation == 2
    assert a_join.joined.leader == a


def test_a_repeated_join_gets_the_current_answer_again() -> None:
    room = GroupRoom()
    ids = [room.new_id(client=name) for name in "ab"]
    for each in ids:
        room.join(each)
    room.advance(0)
    leader = room.group.leader
    assert leader is not None
    again = room.join(leader).joined
    assert (again.error, again.generation, len(again.members)) == (E.NONE, 1, 2)
    (follower,) = (each for each in ids if each != leader)
    assert room.join(follower).joined.members == ()
    room.assign(ids)
    assert room.join(follower).joined.generation == 1
    assert room.group.state is GroupState.STABLE


def test_the_leader_of_a_stable_group_starts_a_round_by_joining_again() -> None:
    room = GroupRoom()
    a, b = room.stable("a", "b")
    leader = room.group.leader
    assert leader is not None
    parked = room.join(leader)
    assert parked.open
    assert room.beat(a if leader == b else b) is E.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize("synced", [False, True])
def test_changed_metadata_starts_a_round(synced: bool) -> None:
    room = GroupRoom()
    ids = [room.new_id(client=name) for name in "ab"]
    for each in ids:
        room.join(each)
    room.advance(0)
    (follower,) = (each for each in ids if each != room.group.leader)
    waiting = room.sync(follower)
    if synced:
        room.sync(str(room.group.leader), assignments={})
    assert room.join(follower, protocols=(("range", b"other"),)).open
    assert room.group.state is GroupState.PREPARING_REBALANCE
    assert waiting.synced.error is (E.NONE if synced else E.REBALANCE_IN_PROGRESS)


def test_a_join_that_replaces_an_older_one_of_the_member_answers_both() -> None:
    room = GroupRoom()
    a, b = room.stable("a", "b")
    older = room.join(a, protocols=(("range", b"2"),))
    newer = room.join(a, protocols=(("range", b"3"),))
    assert older.joined.error is E.REBALANCE_IN_PROGRESS
    room.join(b)
    assert newer.joined.generation == 2


def test_who_does_not_join_within_the_rebalance_timeout_is_out() -> None:
    room = GroupRoom()
    a, b = room.stable("a", "b", session=60_000, rebalance=20_000)
    late = b if room.group.leader == a else a
    parked = room.join(str(room.group.leader), session=60_000, rebalance=20_000)
    for _ in range(20):
        room.advance(1_000)
        room.beat(late)
    assert parked.joined.generation == 2
    assert room.beat(late) is E.UNKNOWN_MEMBER_ID


def test_a_leader_that_does_not_join_again_loses_its_place_to_one_that_did() -> None:
    room = GroupRoom()
    ids = room.stable("a", "b", session=60_000, rebalance=5_000)
    old = str(room.group.leader)
    (follower,) = (each for each in ids if each != old)
    parked = room.join(follower, session=60_000, rebalance=5_000, protocols=(("range", b"x"),))
    room.advance(5_000)
    assert parked.joined.leader == follower
    assert len(parked.joined.members) == 1


def test_the_group_takes_no_more_members_than_its_limit() -> None:
    room = GroupRoom(GroupLimits(initial_rebalance_delay_ms=0, max_size=2))
    ids = [room.new_id(client=name) for name in "abc"]  # ids are given out freely in an empty group
    joins = [room.join(each) for each in ids]
    assert joins[2].joined.error is E.GROUP_MAX_SIZE_REACHED
    room.advance(0)
    assert [parked.joined.error for parked in joins[:2]] == [E.NONE, E.NONE]
    assert room.join().joined.error is E.GROUP_MAX_SIZE_REACHED
    room.assign(ids[:2])
    assert room.join().joined.error is E.GROUP_MAX_SIZE_REACHED
    assert room.join(ids[0]).open or room.group.state is GroupState.STABLE


def test_a_new_member_whose_client_is_gone_does_not_hold_a_round_for_ever() -> None:
    limits = GroupLimits(initial_rebalance_delay_ms=0, new_member_join_timeout_ms=300_000)
    room = GroupRoom(limits)
    (a,) = room.stable("a", session=1_000_000, rebalance=1_000_000)
    ghost = room.join(room.new_id(session=10_000, rebalance=1_000_000), rebalance=1_000_000)
    room.advance(300_000)
    assert ghost.joined.error is E.UNKNOWN_MEMBER_ID
    assert room.join(a, session=1_000_000).joined.generation == 2


def test_an_id_that_is_never_used_does_not_disturb_a_stable_group() -> None:
    room = GroupRoom()
    (member,) = room.stable("a")
    room.new_id(session=2_000)
    generation = room.group.generation
    for _ in range(8):
        room.advance(500)
        assert room.beat(member) is ErrorCode.NONE
    assert not room.group.pending
    assert room.group.generation == generation
