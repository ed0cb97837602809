"""JoinGroup: who may come in, under which id, and whether that starts a new round.

The two-step join of KIP-394 gives a dynamic member its id first, so that a join whose answer is lost leaves
no ghost. A static member (KIP-345) that comes back without an id takes its old place without a round if
nothing that matters to the others has changed.
"""

from __future__ import annotations

import uuid

from broker.coordinator.groups.events import (
    NO_MEMBER,
    JoinCall,
    Joined,
    Replacement,
    Store,
    StoreReason,
    Waiter,
)
from broker.coordinator.groups.group import Group
from broker.coordinator.groups.limits import Timer
from broker.coordinator.groups.member import Member
from broker.coordinator.groups.rebalance import maybe_complete_join, membership_changed
from broker.coordinator.groups.states import GroupState
from broker.coordinator.instant import Instant
from protocol.errors import ErrorCode


def join(group: Group, call: JoinCall, waiter: Waiter, now: Instant) -> None:
    """Take a JoinGroup request; `waiter` is answered at once or when the round closes."""
    error = _refusal(group, call)
    if error is not ErrorCode.NONE:
        if error is ErrorCode.GROUP_MAX_SIZE_REACHED:
            group.remove(call.member_id)
        known = NO_MEMBER if error is ErrorCode.GROUP_MAX_SIZE_REACHED else call.member_id
        group.answer(waiter, Joined(error=error, member_id=known))
        # Removing a pending id may have been the last thing the round was waiting for.
        maybe_complete_join(group, now)
    elif call.member_id == NO_MEMBER:
        _join_unknown(group, call, waiter, now)
    elif call.member_id in group.pending:
        _add(group, call.member_id, call, waiter, now)
    else:
        _rejoin(group, group.members[call.member_id], call, waiter, now)


def _refusal(group: Group, call: JoinCall) -> ErrorCode:
    """Return why the call cannot be accepted, or NONE."""
    limits = group.limits
    if not limits.min_session_timeout_ms <= call.session_timeout_ms <= limits.max_session_timeout_ms:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if not _has_room(group, call.member_id):
        return ErrorCode.GROUP_MAX_SIZE_REACHED
    if not group.supports(call.protocol_type, call.protocols):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if call.member_id == NO_MEMBER or call.member_id in group.pending:
        return ErrorCode.NONE
    if group.state is GroupState.EMPTY:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return group.check_member(call.member_id, call.instance_id)


def _has_room(group: Group, member_id: str) -> bool:
    member = group.members.get(member_id)
    if group.state is GroupState.EMPTY:
        return True
    if group.state is GroupState.PREPARING_REBALANCE:
        # Whoever joins first in a round stays: a group that is too big shrinks to its limit in one round.
        waiting = sum(each.joining is not None for each in group.members.values())
        return (member is not None and member.joining is not None) or waiting < group.limits.max_size
    return member is not None or len(group.members) < group.limits.max_size


def _join_unknown(group: Group, call: JoinCall, waiter: Waiter, now: Instant) -> None:
    prefix = call.client_id if call.instance_id is None else call.instance_id
    member_id = f"{prefix}-{uuid.uuid4()}"
    if call.instance_id is not None and call.instance_id in group.static_ids:
        _replace_static(group, group.static_ids[call.instance_id], member_id, call, waiter, now)
    elif call.instance_id is None and call.requires_known_member:
        group.pending.add(member_id)
        group.arm(Timer.SESSION, now, call.session_timeout_ms, member_id)
        group.answer(waiter, Joined(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id))
    else:
        _add(group, member_id, call, waiter, now)


def _add(group: Group, member_id: str, call: JoinCall, waiter: Waiter, now: Instant) -> None:
    member = Member.from_call(member_id, call)
    member.joining = waiter
    member.is_new = True
    if group.initial_delay is not None:
        group.member_joined_during_delay = True
    group.add(member, call.protocol_type)
    group.arm(Timer.SESSION, now, group.limits.new_member_join_timeout_ms, member_id)
    membership_changed(group, now)


def _rejoin(group: Group, member: Member, call: JoinCall, waiter: Waiter, now: Instant) -> None:
    unchanged = member.protocols == call.protocols
    leads = group.leader == member.member_id
    # A repeated join of the current round gets the current answer again: the first may have been lost. The
    # leader of a stable group joins again on purpose, to have partitions assigned anew.
    settled = group.state is GroupState.COMPLETING_REBALANCE or (
        group.state is GroupState.STABLE and not leads
    )
    if settled and unchanged:
        group.answer(waiter, group.joined(member.member_id, with_members=leads, leader=group.leader))
        return
    _update(group, member, call, waiter)
    membership_changed(group, now)


def _update(group: Group, member: Member, call: JoinCall, waiter: Waiter) -> None:
    # An older join of the same member can only be one whose connection is gone or that timed out.
    group.answer_join(member, Joined(error=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id))
    group.update_protocols(member, call.protocols)
    member.rebalance_timeout_ms = call.rebalance_timeout_ms
    member.session_timeout_ms = call.session_timeout_ms
    member.joining = waiter


def _replace_static(
    group: Group, old_member_id: str, new_member_id: str, call: JoinCall, waiter: Waiter, now: Instant
) -> None:
    member = group.members[old_member_id]
    replacement = Replacement(
        old_member_id=old_member_id,
        new_member_id=new_member_id,
        old_protocols=member.protocols,
        old_rebalance_timeout_ms=member.rebalance_timeout_ms,
        old_session_timeout_ms=member.session_timeout_ms,
        old_leader=group.leader,
        can_skip_assignment=call.can_skip_assignment,
    )
    group.rename_static(member, new_member_id)
    _update(group, member, call, waiter)
    group.keep_alive(member, now)
    if group.state is GroupState.STABLE and group.protocol == group.select_protocol():
        group.effects.append(
            Store(reason=StoreReason.REPLACED_MEMBER, image=group.image(), replacement=replacement)
        )
    elif group.state is GroupState.PREPARING_REBALANCE:
        maybe_complete_join(group, now)
    else:
        # The leader may already be assigning to the old id, so the round has to start again.
        membership_changed(group, now)


def replacement_stored(group: Group, store: Store, error: ErrorCode, now: Instant) -> None:
    """Answer a static member that came back, now that its new id is stored; or undo it."""
    replacement = store.replacement
    assert replacement is not None
    member = group.members.get(replacement.new_member_id)
    if member is None:
        return
    if error is not ErrorCode.NONE:
        group.answer_join(member, Joined(error=error))
        group.rename_static(member, replacement.old_member_id)
        group.update_protocols(member, replacement.old_protocols)
        member.rebalance_timeout_ms = replacement.old_rebalance_timeout_ms
        member.session_timeout_ms = replacement.old_session_timeout_ms
        group.keep_alive(member, now)
        maybe_complete_join(group, now)
        return
    if group.state is not GroupState.STABLE or group.generation != store.image.generation:
        return  # a round has started meanwhile: the parked join counts as this member's join in it
    leads = group.leader == member.member_id
    if replacement.can_skip_assignment:
        answer = group.joined(member.member_id, with_members=leads, leader=group.leader, skip=leads)
    else:
        # Naming the old leader keeps a leader that came back from assigning anew: a stable group would not
        # hand its assignment out.
        answer = group.joined(member.member_id, with_members=False, leader=replacement.old_leader)
    group.answer_join(member, answer)
