"""Heartbeats, leaving, and sessions that end.

A member that waits in a join or a sync cannot send heartbeats, so it is not expired for their absence; only a
new one, whose client may have gone without a trace, has a limit of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker.coordinator.groups.events import NO_MEMBER, Joined, Leaving, Synced
from broker.coordinator.groups.group import Group
from broker.coordinator.groups.limits import Timer
from broker.coordinator.groups.rebalance import maybe_complete_join, membership_changed
from broker.coordinator.groups.states import GroupState
from broker.coordinator.instant import Instant
from protocol.errors import ErrorCode


def heartbeat(
    group: Group, member_id: str, instance_id: str | None, generation: int, now: Instant
) -> ErrorCode:
    """Keep a member alive; the answer tells it to join again (27) or that it is out (25, 22, 82)."""
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = group.check_member(member_id, instance_id)
    if error is not ErrorCode.NONE:
        return error
    if generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    group.keep_alive(group.members[member_id], now)
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def leave(group: Group, leavings: Sequence[Leaving], now: Instant) -> list[ErrorCode]:
    """Remove members, in one round for all of them; the errors are in the order of `leavings`."""
    if group.state is GroupState.DEAD:
        return [ErrorCode.COORDINATOR_NOT_AVAILABLE] * len(leavings)
    errors = [_leave_one(group, leaving) for leaving in leavings]
    if ErrorCode.NONE in errors:
        _member_gone(group, now)
    return errors


def _leave_one(group: Group, leaving: Leaving) -> ErrorCode:
    member_id = leaving.member_id
    if member_id == NO_MEMBER and leaving.instance_id is not None:
        member_id = group.static_ids.get(leaving.instance_id, NO_MEMBER)
    if member_id not in group.pending:
        error = group.check_member(member_id, leaving.instance_id)
        if error is not ErrorCode.NONE:
            return error
    group.remove(member_id)
    return ErrorCode.NONE


def on_session_deadline(group: Group, member_id: str, now: Instant) -> bool:
    """A session has ended, or a given-out id was not used in time; say whether a member was removed."""
    if member_id in group.pending:
        group.remove(member_id)
        maybe_complete_join(group, now)  # a stable group never counted on it
        return False
    member = group.members.get(member_id)
    if member is None:
        return False
    if member.is_waiting and not member.is_new:
        group.keep_alive(member, now)
        return False
    group.remove(member_id)
    _member_gone(group, now)
    return True


def _member_gone(group: Group, now: Instant) -> None:
    """Somebody is gone: start a round without them, or see whether the open one can close."""
    if group.state is not GroupState.EMPTY:
        membership_changed(group, now)


def kill(group: Group, error: ErrorCode) -> None:
    """End the group here: it was deleted, or its coordinator has moved. Whoever waits gets `error`."""
    for member in group.members.values():
        group.answer_join(member, Joined(error=error, member_id=member.member_id))
        group.answer_sync(member, Synced(error=error))
        group.disarm(Timer.SESSION, member.member_id)
    for member_id in group.pending:
        group.disarm(Timer.SESSION, member_id)
    group.disarm(Timer.JOIN)
    group.disarm(Timer.SYNC)
    group.state = GroupState.DEAD
