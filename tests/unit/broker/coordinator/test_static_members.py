"""Static membership (KIP-345, KIP-814): coming back without a round, fencing, removal by instance."""

from __future__ import annotations

import pytest

from broker.coordinator.groups.events import Leaving, StoreReason
from broker.coordinator.groups.states import GroupState
from protocol.errors import ErrorCode
from tests.unit.broker.coordinator.group_room import GroupRoom

E = ErrorCode


def _stable(room: GroupRoom, *instances: str, session: int = 10_000, rebalance: int = 30_000) -> list[str]:
    """Static members with assignments; the leader is first."""
    joins = [room.join(instance=each, session=session, rebalance=rebalance) for each in instances]
    room.advance(0)
    ids = [parked.joined.member_id for parked in joins]
    room.assign(ids)
    assert room.group.state is GroupState.STABLE
    return sorted(ids, key=lambda each: each != room.group.leader)


def test_a_static_member_joins_in_one_step_under_an_id_that_names_its_instance() -> None:
    room = GroupRoom()
    (a,) = _stable(room, "i1")
    assert a.startswith("i1-")


@pytest.mark.parametrize("version", [5, 8, 9])
def test_coming_back_keeps_generation_and_assignment(version: int) -> None:
    room = GroupRoom()
    leader, follower = _stable(room, "i1", "i2")
    instance = follower[:2]
    back = room.join(instance=instance, version=version).joined
    assert (back.error, back.generation, back.leader) == (E.NONE, 1, leader)
    assert back.member_id != follower
    assert not back.skip_assignment
    assert room.sync(back.member_id, instance=instance).synced.assignment == follower.encode()
    assert room.stored[-1].reason is StoreReason.REPLACED_MEMBER
    assert {m.member_id for m in room.stored[-1].image.members} == {leader, back.member_id}
    assert room.group.state is GroupState.STABLE


def test_a_leader_that_comes_back_is_told_to_skip_the_assignment() -> None:
    room = GroupRoom()
    leader, _ = _stable(room, "i1", "i2")
    back = room.join(instance=leader[:2], version=9).joined
    assert back.skip_assignment
    assert back.leader == back.member_id
    assert len(back.members) == 2


def test_an_old_leader_client_that_comes_back_does_not_believe_to_lead() -> None:
    room = GroupRoom()
    leader, _ = _stable(room, "i1", "i2")
    back = room.join(instance=leader[:2], version=8).joined
    assert back.leader == leader != back.member_id
    assert back.members == ()
    assert room.group.leader == back.member_id


def test_the_old_incarnation_is_fenced_everywhere() -> None:
    room = GroupRoom()
    _, old = _stable(room, "i1", "i2")
    instance = old[:2]
    room.join(instance=instance)
    assert room.beat(old, instance=instance) is E.FENCED_INSTANCE_ID
    assert room.sync(old, instance=instance).synced.error is E.FENCED_INSTANCE_ID
    assert room.join(old, instance=instance).joined.error is E.FENCED_INSTANCE_ID
    assert room.leave(Leaving(old, instance)) == [E.FENCED_INSTANCE_ID]
    assert room.beat(old) is E.UNKNOWN_MEMBER_ID
    assert room.join("any", instance="i9").joined.error is E.UNKNOWN_MEMBER_ID


def test_a_parked_join_of_the_old_incarnation_is_fenced() -> None:
    room = GroupRoom()
    leader, follower = _stable(room, "i1", "i2")
    parked = room.join(leader, instance=leader[:2])
    back = room.join(instance=leader[:2])
    assert parked.joined.error is E.FENCED_INSTANCE_ID
    room.join(follower, instance=follower[:2])
    assert back.joined.generation == 2


def test_coming_back_during_sync_starts_the_round_again() -> None:
    room = GroupRoom()
    joins = [room.join(instance=each) for each in ("i1", "i2")]
    room.advance(0)
    assert room.group.state is GroupState.COMPLETING_REBALANCE
    follower = next(p.joined.member_id for p in joins if not p.joined.members)
    waiting = room.sync(follower, instance=follower[:2])
    back = room.join(instance=follower[:2])
    assert waiting.synced.error is E.FENCED_INSTANCE_ID
    assert back.open
    assert room.group.state is GroupState.PREPARING_REBALANCE


def test_coming_back_with_another_protocol_choice_starts_a_round() -> None:
    room = GroupRoom()
    both = (("range", b"r"), ("sticky", b"s"))
    joins = [room.join(instance=each, protocols=both) for each in ("i1", "i2")]
    room.advance(0)
    room.assign([parked.joined.member_id for parked in joins])
    assert room.join(instance="i2", protocols=(("sticky", b"s"),)).open
    assert room.group.state is GroupState.PREPARING_REBALANCE


def test_a_return_that_could_not_be_stored_is_undone() -> None:
    room = GroupRoom()
    leader, follower = _stable(room, "i1", "i2")
    room.disk_error = E.NOT_COORDINATOR
    back = room.join(instance=follower[:2])
    assert back.joined.error is E.NOT_COORDINATOR
    assert set(room.group.members) == {leader, follower}
    assert room.beat(follower, instance=follower[:2]) is E.NONE


def test_a_round_that_starts_while_the_return_is_written_takes_the_join_over() -> None:
    room = GroupRoom()
    leader, follower = _stable(room, "i1", "i2")
    room.hold_writes = True
    back = room.join(instance=follower[:2])
    room.join(room.new_id(client="c"))
    room.hold_writes = False
    room.finish_writes()
    assert back.open
    room.join(leader, instance=leader[:2])
    assert back.joined.generation == 2


def test_a_static_member_that_is_away_keeps_its_place_in_a_round() -> None:
    room = GroupRoom()
    leader, away = _stable(room, "i1", "i2", session=60_000, rebalance=5_000)
    parked = room.join(leader, instance=leader[:2], session=60_000, rebalance=5_000)
    room.advance(5_000)
    assert {each.member_id for each in parked.joined.members} == {leader, away}
    room.sync(leader, assignments={leader: b"1", away: b"2"}, instance=leader[:2])
    back = room.join(instance=away[:2], session=60_000, rebalance=5_000).joined
    assert room.sync(back.member_id, instance=away[:2]).synced.assignment == b"2"
    room.advance(20_000)
    assert room.group.generation == 2


def test_a_round_of_absent_static_members_waits_for_their_sessions() -> None:
    room = GroupRoom()
    leader, follower = _stable(room, "i1", "i2", session=20_000, rebalance=5_000)
    room.leave(Leaving("", leader[:2]))  # removed by an administrator: a round, and nobody joins
    assert room.group.state is GroupState.PREPARING_REBALANCE
    room.advance(19_000)
    assert follower in room.group.members
    room.advance(1_001)
    assert room.group.state is GroupState.EMPTY


def test_leave_by_instance_id() -> None:
    room = GroupRoom()
    leader, follower = _stable(room, "i1", "i2")
    assert room.leave(Leaving("", "i9"), Leaving("", follower[:2])) == [E.UNKNOWN_MEMBER_ID, E.NONE]
    assert set(room.group.members) == {leader}
