"""A group as its last record tells it: members and assignments stay, so that they go on without a new
round.

What the record does not hold is taken as Kafka does (`GroupMetadataManager.replay`): with members the group
is stable, without it is empty, and every member gets a full session to be heard of.
"""

from __future__ import annotations

from broker.coordinator.deadlines import Deadlines
from broker.coordinator.groups.events import GroupImage
from broker.coordinator.groups.group import Group
from broker.coordinator.groups.limits import GroupLimits, TimerKey
from broker.coordinator.groups.member import Member
from broker.coordinator.groups.rebalance import prepare
from broker.coordinator.groups.states import GroupState
from broker.coordinator.instant import Instant


def restore(group_id: str, image: GroupImage, limits: GroupLimits, deadlines: Deadlines[TimerKey]) -> Group:
    """Return the group that `image` describes; sessions do not run before `resume`."""
    group = Group(group_id, limits, deadlines)
    protocol = image.protocol or ""
    for stored in image.members:
        member = Member(
            member_id=stored.member_id,
            instance_id=stored.instance_id,
            client_id=stored.client_id,
            client_host=stored.client_host,
            rebalance_timeout_ms=stored.rebalance_timeout_ms,
            session_timeout_ms=stored.session_timeout_ms,
            protocols=((protocol, stored.metadata),),
            assignment=stored.assignment,
        )
        group.add(member, image.protocol_type)
    group.protocol_type = image.protocol_type or None
    group.generation = image.generation
    group.protocol = image.protocol
    group.leader = image.leader if image.leader in group.members else next(iter(group.members), None)
    group.state = GroupState.STABLE if group.members else GroupState.EMPTY
    group.state_timestamp_ms = image.state_timestamp_ms
    group.refresh_subscriptions()
    return group


def resume(group: Group, now: Instant) -> None:
    """Start the sessions of a restored group; one that is above its limit shrinks in a new round."""
    for member in group.members.values():
        group.keep_alive(member, now)
    if len(group.members) > group.limits.max_size:
        prepare(group, now)
