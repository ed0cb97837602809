"""The round itself: opening a join phase, waiting for its members, closing it with a new generation.

Bound by KIP-62 (a round waits for the longest rebalance timeout), KIP-134 (an empty group waits a little for
more members, and longer while they keep coming) and KIP-345 (static members that are away keep their place).
"""

from __future__ import annotations

from broker.coordinator.groups.events import Store, StoreReason, Synced
from broker.coordinator.groups.group import Group
from broker.coordinator.groups.limits import InitialDelay, Timer
from broker.coordinator.groups.states import CAN_REBALANCE, GroupState
from broker.coordinator.instant import Instant
from protocol.errors import ErrorCode


def membership_changed(group: Group, now: Instant) -> None:
    """Start a round, or close the one that is open if everybody has joined."""
    if group.state in CAN_REBALANCE:
        prepare(group, now)
    else:
        maybe_complete_join(group, now)


def prepare(group: Group, now: Instant) -> None:
    """Open the join phase. Members that wait for their assignment are told to join again."""
    if group.state is GroupState.COMPLETING_REBALANCE:
        reset_assignments(group, ErrorCode.REBALANCE_IN_PROGRESS, now)
    group.disarm(Timer.SYNC)
    group.pending_sync.clear()
    was_empty = group.state is GroupState.EMPTY
    group.enter(GroupState.PREPARING_REBALANCE, now)
    if was_empty:
        delay = group.limits.initial_rebalance_delay_ms
        group.initial_delay = InitialDelay(delay, max(group.rebalance_timeout_ms - delay, 0))
        group.member_joined_during_delay = False
        group.arm(Timer.JOIN, now, delay)
    elif group.all_joined:
        complete_join(group, now)
    else:
        group.arm(Timer.JOIN, now, group.rebalance_timeout_ms)


def maybe_complete_join(group: Group, now: Instant) -> None:
    """Close the join phase if nobody is waited for. The first round of an empty group runs its time."""
    if group.state is GroupState.PREPARING_REBALANCE and group.initial_delay is None and group.all_joined:
        complete_join(group, now)


def on_join_deadline(group: Group, now: Instant) -> None:
    """The join phase has run its time: prolong the initial delay if members keep coming, else close it."""
    if group.state is not GroupState.PREPARING_REBALANCE:
        return
    delay = group.initial_delay
    if delay is None or not group.member_joined_during_delay or not delay.remaining_ms:
        complete_join(group, now)
        return
    step = min(group.limits.initial_rebalance_delay_ms, delay.remaining_ms)
    group.member_joined_during_delay = False
    group.initial_delay = InitialDelay(step, max(delay.remaining_ms - delay.step_ms, 0))
    group.arm(Timer.JOIN, now, step)


def complete_join(group: Group, now: Instant) -> None:
    """Close the join phase: drop dynamic members that did not come, start the generation, answer."""
    group.disarm(Timer.JOIN)
    for member in list(group.members.values()):
        if member.joining is None and not member.is_static:
            group.remove(member.member_id)
    if group.members and not group.elect_joined_leader():
        # Only static members that are away: wait for them, their sessions end it if they never come.
        group.arm(Timer.JOIN, now, group.rebalance_timeout_ms)
        return
    group.initial_delay = None
    group.next_generation(now)
    if group.state is GroupState.EMPTY:
        group.effects.append(Store(reason=StoreReason.EMPTY, image=group.image()))
        return
    for member in group.members.values():
        leads = member.member_id == group.leader
        group.answer_join(member, group.joined(member.member_id, with_members=leads, leader=group.leader))
        group.keep_alive(member, now)
        member.is_new = False
        group.pending_sync.add(member.member_id)
    group.arm(Timer.SYNC, now, group.rebalance_timeout_ms)


def on_sync_deadline(group: Group, now: Instant) -> None:
    """Members that have not asked for their assignment in time are removed, and a new round starts.

    Heartbeats alone do not keep a member: it would hold partitions that nobody reads (KAFKA-12890).
    """
    if group.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE) or not group.pending_sync:
        return
    for member_id in list(group.pending_sync):
        group.remove(member_id)
    prepare(group, now)


def reset_assignments(group: Group, error: ErrorCode, now: Instant) -> None:
    """Take every assignment back and answer the members that wait for theirs with `error`."""
    for member in group.members.values():
        member.assignment = b""
        if member.syncing is not None:
            group.answer_sync(member, Synced(error=error))
        group.keep_alive(member, now)
