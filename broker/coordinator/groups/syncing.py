"""SyncGroup: the leader hands in the assignment, everybody gets its own part once it is stored.

The assignment is written to the offsets log before anybody is told, so that a coordinator that takes over
knows what each member holds.
"""

from __future__ import annotations

from broker.coordinator.groups.events import Store, StoreReason, SyncCall, Synced, Waiter
from broker.coordinator.groups.group import Group
from broker.coordinator.groups.limits import Timer
from broker.coordinator.groups.member import Member
from broker.coordinator.groups.rebalance import membership_changed, reset_assignments
from broker.coordinator.groups.states import GroupState
from broker.coordinator.instant import Instant
from protocol.errors import ErrorCode

#: What a sync is answered with in states where no assignment can be had.
_NO_ASSIGNMENT = {
    GroupState.EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
    GroupState.PREPARING_REBALANCE: ErrorCode.REBALANCE_IN_PROGRESS,
}


def sync(group: Group, call: SyncCall, waiter: Waiter, now: Instant) -> None:
    """Take a SyncGroup request; `waiter` is answered at once or when the assignment is stored."""
    error = _refusal(group, call)
    if error is not ErrorCode.NONE:
        group.answer(waiter, Synced(error=error))
        return
    member = group.members[call.member_id]
    _has_synced(group, member)
    if group.state is GroupState.STABLE:
        group.answer(waiter, _assigned(group, member))
        group.keep_alive(member, now)
        return
    group.answer_sync(member, Synced(error=ErrorCode.REBALANCE_IN_PROGRESS))  # a repeated sync
    member.syncing = waiter
    if member.member_id == group.leader and not group.assignment_under_way:
        group.assignment_under_way = True
        group.effects.append(
            Store(reason=StoreReason.ASSIGNMENT, image=group.image(assignments=call.assignments))
        )


def _refusal(group: Group, call: SyncCall) -> ErrorCode:
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    error = group.check_member(call.member_id, call.instance_id)
    if error is not ErrorCode.NONE:
        return error
    if call.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if call.protocol_type not in (None, group.protocol_type) or call.protocol not in (None, group.protocol):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return _NO_ASSIGNMENT.get(group.state, ErrorCode.NONE)


def _has_synced(group: Group, member: Member) -> None:
    group.pending_sync.discard(member.member_id)
    if not group.pending_sync:
        group.disarm(Timer.SYNC)


def _assigned(group: Group, member: Member) -> Synced:
    return Synced(protocol_type=group.protocol_type, protocol=group.protocol, assignment=member.assignment)


def assignment_stored(group: Group, store: Store, error: ErrorCode, now: Instant) -> None:
    """Hand the stored assignment out, or start again if it could not be stored."""
    if group.state is not GroupState.COMPLETING_REBALANCE or group.generation != store.image.generation:
        return  # another round has begun while the write was under way
    if error is not ErrorCode.NONE:
        reset_assignments(group, error, now)
        membership_changed(group, now)
        return
    assignments = {member.member_id: member.assignment for member in store.image.members}
    group.enter(GroupState.STABLE, now)
    for member in group.members.values():
        member.assignment = assignments.get(member.member_id, b"")
        group.answer_sync(member, _assigned(group, member))
        group.keep_alive(member, now)
