"""Syncing, heartbeats, leaving, sessions; C09."""

from __future__ import annotations

from broker.coordinator.groups.events import Leaving, StoreReason
from broker.coordinator.groups.states import GroupState
from protocol.errors import ErrorCode
from tests.unit.broker.coordinator.group_room import GroupRoom

E = ErrorCode


def _completing(room: GroupRoom, *names: str, rebalance: int = 30_000) -> list[str]:
    """Members that have joined; the leader is first."""
    ids = [room.new_id(client=name, rebalance=rebalance) for name in names]
    for each in ids:
        room.join(each, session=30_000, rebalance=rebalance)
    room.advance(0)
    assert room.group.state is GroupState.COMPLETING_REBALANCE
    return sorted(ids, key=lambda each: each != room.group.leader)


def test_everybody_gets_exactly_its_part_once_the_leader_has_synced() -> None:
    room = GroupRoom()
    leader, b, c = _completing(room, "a", "b", "c")
    b_sync = room.sync(b)
    assert b_sync.open
    leader_sync = room.sync(leader, assignments={leader: b"1", b: b"2"})
    assert (leader_sync.synced.assignment, b_sync.synced.assignment) == (b"1", b"2")
    assert (b_sync.synced.protocol_type, b_sync.synced.protocol) == ("consumer", "range")
    assert room.sync(c).synced.assignment == b""  # the leader gave it nothing
    assert room.group.state is GroupState.STABLE


def test_nobody_is_told_before_the_assignment_is_stored() -> None:
    room = GroupRoom()
    room.hold_writes = True
    leader, b = _completing(room, "a", "b")
    syncs = [room.sync(b), room.sync(leader, assignments={b: b"2"})]
    assert all(parked.open for parked in syncs)
    (write,) = room.open_writes
    assert write.reason is StoreReason.ASSIGNMENT
    assert {m.member_id: m.assignment for m in write.image.members} == {leader: b"", b: b"2"}
    room.finish_writes()
    assert [parked.synced.error for parked in syncs] == [E.NONE, E.NONE]


def test_an_assignment_that_could_not_be_stored_starts_the_round_again() -> None:
    room = GroupRoom()
    room.disk_error = E.COORDINATOR_NOT_AVAILABLE
    leader, b = _completing(room, "a", "b")
    syncs = [room.sync(b), room.sync(leader, assignments={b: b"2"})]
    assert [parked.synced.error for parked in syncs] == [E.COORDINATOR_NOT_AVAILABLE] * 2
    assert room.group.state is GroupState.PREPARING_REBALANCE


def test_a_round_that_starts_while_the_assignment_is_written_wins() -> None:
    room = GroupRoom()
    leader, b = _completing(room, "a", "b")
    room.hold_writes = True
    syncs = [room.sync(b), room.sync(leader, assignments={leader: b"1", b: b"2"})]
    c = room.join(room.new_id(client="c"))
    assert [parked.synced.error for parked in syncs] == [E.REBALANCE_IN_PROGRESS] * 2
    room.hold_writes = False
    room.finish_writes()
    assert room.group.state is GroupState.PREPARING_REBALANCE
    room.join(leader)
    room.join(b)
    assert c.joined.generation == 2
    assert all(member.assignment == b"" for member in room.group.members.values())


def test_a_leader_that_syncs_twice_gets_the_assignment_that_is_being_written() -> None:
    room = GroupRoom()
    leader, b = _completing(room, "a", "b")
    room.hold_writes = True
    first = room.sync(leader, assignments={leader: b"1", b: b"2"})
    second = room.sync(leader, assignments={leader: b"12"})
    assert first.synced.error is E.REBALANCE_IN_PROGRESS
    assert len(room.open_writes) == 1
    room.finish_writes()
    assert second.synced.assignment == b"1"
    assert room.sync(b).synced.assignment == b"2"


def test_refusals() -> None:
    room = GroupRoom()
    assert room.sync("nobody", 0).synced.error is E.UNKNOWN_MEMBER_ID
    (a,) = room.stable("a")
    assert room.sync(a, generation=0).synced.error is E.ILLEGAL_GENERATION
    assert room.sync(a, protocol="sticky").synced.error is E.INCONSISTENT_GROUP_PROTOCOL
    assert room.sync(a, protocol_type="connect").synced.error is E.INCONSISTENT_GROUP_PROTOCOL
    assert room.sync(a, protocol="range", protocol_type="consumer").synced.error is E.NONE
    assert room.beat(a, generation=0) is E.ILLEGAL_GENERATION
    assert room.beat("nobody") is E.UNKNOWN_MEMBER_ID
    assert room.leave("nobody") == [E.UNKNOWN_MEMBER_ID]


def test_heartbeats_keep_a_session_and_their_absence_ends_it() -> None:
    room = GroupRoom()
    a, b = room.stable("a", "b", session=10_000)
    for _ in range(3):
        room.advance(9_000)
        assert room.beat(a) in (E.NONE, E.REBALANCE_IN_PROGRESS)
    assert room.beat(b) is E.UNKNOWN_MEMBER_ID
    assert room.join(a).joined.generation == 2
    assert set(room.group.members) == {a}


def test_a_wall_clock_that_jumps_neither_ends_nor_keeps_sessions() -> None:
    room = GroupRoom()
    (a,) = room.stable("a", session=10_000)
    assert room.deadlines.next_ms() == room.now.monotonic_ms + 10_000
    assert room.group.state_timestamp_ms == room.now.wall_ms
    assert room.beat(a) is E.NONE


def test_c09_a_member_that_only_sends_heartbeats_is_removed() -> None:
    room = GroupRoom()
    a, b = _completing(room, "a", "b", rebalance=3_000)
    assert room.sync(a, assignments={a: b"1", b: b"2"}).synced.assignment == b"1"
    for _ in range(9):
        room.advance(300)
        assert room.beat(b) is E.NONE
        assert room.beat(a) is E.NONE
    room.advance(300)
    assert room.beat(a) is E.REBALANCE_IN_PROGRESS
    assert room.beat(b) is E.UNKNOWN_MEMBER_ID
    assert room.sync(b).synced.error is E.UNKNOWN_MEMBER_ID
    assert room.join(a, session=30_000, rebalance=3_000).joined.generation == 2
    assert room.sync(a, assignments={a: b"12"}).synced.assignment == b"12"
    assert room.group.state is GroupState.STABLE
    room.advance(3_000)
    assert room.group.generation == 2


def test_c09_a_leader_that_never_syncs_is_removed_too() -> None:
    room = GroupRoom()
    a, b = _completing(room, "a", "b", rebalance=3_000)
    waiting = room.sync(b)
    room.advance(3_000)
    assert waiting.synced.error is E.REBALANCE_IN_PROGRESS
    assert room.beat(a) is E.UNKNOWN_MEMBER_ID
    assert room.join(b).joined.leader == b


def test_c09_a_pending_member_that_never_comes_back_does_not_hold_the_round() -> None:
    room = GroupRoom()
    (a,) = room.stable("a", session=30_000, rebalance=30_000)
    room.join(room.new_id(client="b"))  # starts a round
    room.new_id(client="c", session=3_000)
    again = room.join(a, session=30_000)
    assert again.open
    room.advance(3_000)
    assert again.joined.generation == 2
    assert len(room.group.members) == 2


def test_leaving_starts_a_round_at_once_and_the_last_one_empties_the_group() -> None:
    room = GroupRoom()
    a, b = room.stable("a", "b")
    assert room.leave(a) == [E.NONE]
    assert room.beat(b) is E.REBALANCE_IN_PROGRESS
    assert room.join(b).joined.generation == 2
    assert room.leave(b) == [E.NONE]
    assert room.group.state is GroupState.EMPTY
    assert room.stored[-1].reason is StoreReason.EMPTY
    assert room.stored[-1].image.members == ()
    assert room.stored[-1].image.state_timestamp_ms == room.now.wall_ms
    assert len(room.deadlines) == 0


def test_several_members_leave_in_one_round() -> None:
    room = GroupRoom()
    a, b, c = room.stable("a", "b", "c")
    assert room.leave(a, "nobody", b) == [E.NONE, E.UNKNOWN_MEMBER_ID, E.NONE]
    assert room.join(c).joined.generation == 2


def test_a_pending_member_may_leave() -> None:
    room = GroupRoom()
    pending = room.new_id()
    assert room.leave(pending) == [E.NONE]
    assert room.join(pending).joined.error is E.UNKNOWN_MEMBER_ID


def test_a_member_that_leaves_while_it_waits_is_answered() -> None:
    room = GroupRoom()
    a, b = room.stable("a", "b")
    waiting = room.join(a, protocols=(("range", b"2"),))
    room.leave(Leaving(a, None))
    assert waiting.joined.error is E.UNKNOWN_MEMBER_ID
    assert room.join(b).joined.generation == 2


def test_members_that_wait_for_the_round_do_not_expire_for_missing_heartbeats() -> None:
    room = GroupRoom()
    a, b = room.stable("a", "b", session=2_000, rebalance=30_000)
    waiting = room.join(a, session=2_000, protocols=(("range", b"2"),))
    for _ in range(5):
        room.advance(1_500)
        assert room.beat(b) is E.REBALANCE_IN_PROGRESS
    assert waiting.open
    room.join(b, session=2_000)
    assert waiting.joined.generation == 2
    room.advance(2_000)
    assert room.beat(a) is E.UNKNOWN_MEMBER_ID
