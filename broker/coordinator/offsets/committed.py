"""A committed offset, and the checks that a commit has to pass.

`offset` is the next record that the group will read. Bound by KIP-211 (times), KIP-320 (leader epoch),
KIP-345 (static members) and KIP-447 (what a commit in the middle of a round gets).
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.coordinator.groups.group import Group
from broker.coordinator.groups.states import GroupState
from protocol.errors import ErrorCode

NO_EXPIRY = -1


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """One group's position in one partition; times are epoch milliseconds."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    #: A time set by the client (OffsetCommit v2-4 with a retention time), else NO_EXPIRY.
    expire_ms: int = NO_EXPIRY


def commit_refusal(
    group: Group | None, member_id: str, instance_id: str | None, generation: int
) -> ErrorCode:
    """Say whether the group takes a commit from this member; NONE if it does.

    Who commits without a generation (an administrator, or a consumer that assigns its partitions itself) may
    do so as long as nobody is in the group, because a member would not notice that its position was changed.
    """
    if group is None:
        return ErrorCode.NONE if generation < 0 else ErrorCode.ILLEGAL_GENERATION
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if generation < 0 and group.state is GroupState.EMPTY:
        return ErrorCode.NONE
    error = group.check_member(member_id, instance_id)
    if error is not ErrorCode.NONE:
        return error
    if generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is GroupState.COMPLETING_REBALANCE:
        # The member knows the new generation and does not yet know its partitions: it commits too late.
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def txn_commit_refusal(
    group: Group | None, member_id: str, instance_id: str | None, generation: int
) -> ErrorCode:
    """`commit_refusal` for a commit in a transaction (KIP-447).

    A producer that says nothing of the group is let through, as those from before KIP-447 are: transactional
    ids fence them. One that names a member may commit in the middle of a round.
    """
    if group is None:
        return ErrorCode.NONE if generation < 0 else ErrorCode.ILLEGAL_GENERATION
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if generation < 0 and (group.state is GroupState.EMPTY or not (member_id or instance_id)):
        return ErrorCode.NONE
    error = group.check_member(member_id, instance_id)
    if error is ErrorCode.NONE and generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return error
