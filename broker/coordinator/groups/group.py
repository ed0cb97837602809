"""A group's membership: members, leader, generation, protocol, and the questions the rules ask about them.

This module changes data and keeps it consistent; when to do so is decided in `joining`, `rebalance`,
`syncing` and `departing`. What the outside must do is collected in `effects`.
"""

from __future__ import annotations

from collections import Counter

from broker.coordinator.deadlines import Deadlines
from broker.coordinator.groups.events import (
    Answer,
    Effect,
    GroupImage,
    Joined,
    JoinedMember,
    Synced,
    Waiter,
)
from broker.coordinator.groups.limits import GroupLimits, InitialDelay, Timer, TimerKey
from broker.coordinator.groups.member import Member
from broker.coordinator.groups.states import ENTERED_FROM, GroupState
from broker.coordinator.groups.subscription import subscribed_topics
from broker.coordinator.instant import Instant
from protocol.errors import ErrorCode


class Group:
    """The state of one classic group."""

    __slots__ = (
        "_offered",
        "assignment_under_way",
        "deadlines",
        "effects",
        "generation",
        "group_id",
        "initial_delay",
        "leader",
        "limits",
        "member_joined_during_delay",
        "members",
        "pending",
        "pending_sync",
        "protocol",
        "protocol_type",
        "state",
        "state_timestamp_ms",
        "static_ids",
        "subscribed_topics",
    )

    def __init__(self, group_id: str, limits: GroupLimits, deadlines: Deadlines[TimerKey]) -> None:
        self.group_id = group_id
        self.limits = limits
        self.deadlines = deadlines
        self.effects: list[Effect] = []
        self.state = GroupState.EMPTY
        self.state_timestamp_ms = -1
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.static_ids: dict[str, str] = {}  # group.instance.id -> member id
        self.pending: set[str] = set()  # ids that were given out (KIP-394) and not yet used
        self.pending_sync: set[str] = set()
        #: The leader's assignment of this generation is being written; another one would not be handed out.
        self.assignment_under_way = False
        self.initial_delay: InitialDelay | None = None
        self.member_joined_during_delay = False
        #: None while unknown: nothing may be concluded about what the members read.
        self.subscribed_topics: frozenset[str] | None = frozenset()
        self._offered: Counter[str] = Counter()  # protocol -> members that offer it

    # -- state and deadlines ---------------------------------------------------------------------------

    def enter(self, state: GroupState, now: Instant) -> None:
        """Move to `state`; a move that the table does not know is a programming error."""
        if self.state not in ENTERED_FROM[state]:
            raise AssertionError(f"group {self.group_id!r} cannot go from {self.state} to {state}")
        self.state = state
        self.state_timestamp_ms = now.wall_ms

    def arm(self, timer: Timer, now: Instant, delay_ms: int, member_id: str = "") -> None:
        """Set a deadline `delay_ms` from now."""
        self.deadlines.set(TimerKey(self.group_id, timer, member_id), now.monotonic_ms + delay_ms)

    def disarm(self, timer: Timer, member_id: str = "") -> None:
        """Cancel a deadline."""
        self.deadlines.cancel(TimerKey(self.group_id, timer, member_id))

    def keep_alive(self, member: Member, now: Instant) -> None:
        """Start the member's session anew."""
        self.arm(Timer.SESSION, now, member.session_timeout_ms, member.member_id)

    # -- answers ---------------------------------------------------------------------------------------

    def take_effects(self) -> list[Effect]:
        """Return and forget the effects of the calls since the last time."""
        effects, self.effects = self.effects, []
        return effects

    def answer(self, waiter: Waiter, result: Joined | Synced) -> None:
        """Answer a request."""
        self.effects.append(Answer(waiter=waiter, result=result))

    def answer_join(self, member: Member, result: Joined) -> None:
        """Answer the member's parked join, if there is one."""
        if member.joining is not None:
            self.answer(member.joining, result)
            member.joining = None

    def answer_sync(self, member: Member, result: Synced) -> None:
        """Answer the member's parked sync, if there is one."""
        if member.syncing is not None:
            self.answer(member.syncing, result)
            member.syncing = None

    def joined(self, member_id: str, *, with_members: bool, leader: str | None, skip: bool = False) -> Joined:
        """Return the answer that tells `member_id` the current generation."""
        return Joined(
            member_id=member_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            leader=leader or "",
            skip_assignment=skip,
            members=self._member_list() if with_members else (),
        )

    def _member_list(self) -> tuple[JoinedMember, ...]:
        return tuple(
            JoinedMember(member.member_id, member.instance_id, member.metadata_for(self.protocol))
            for member in self.members.values()
        )

    # -- members ---------------------------------------------------------------------------------------

    def add(self, member: Member, protocol_type: str) -> None:
        """Take in a new member; the first one leads and sets the protocol type."""
        if not self.members:
            self.protocol_type = protocol_type
        self.members[member.member_id] = member
        self.pending.discard(member.member_id)
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member.member_id
        self._offered.update({name for name, _ in member.protocols})
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member_id: str, error: ErrorCode = ErrorCode.UNKNOWN_MEMBER_ID) -> None:
        """Forget a member or a pending id; whatever it waits for is answered with `error`."""
        self.disarm(Timer.SESSION, member_id)
        self.pending.discard(member_id)
        self.pending_sync.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self.answer_join(member, Joined(error=error))
        self.answer_sync(member, Synced(error=error))
        if member.instance_id is not None and self.static_ids.get(member.instance_id) == member_id:
            del self.static_ids[member.instance_id]
        self._offered.subtract({name for name, _ in member.protocols})
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    def update_protocols(self, member: Member, protocols: tuple[tuple[str, bytes], ...]) -> None:
        """Replace what a member offers."""
        self._offered.subtract({name for name, _ in member.protocols})
        member.protocols = protocols
        self._offered.update({name for name, _ in protocols})

    def rename_static(self, member: Member, new_member_id: str) -> None:
        """Put a static member under a new id, keeping its place, its assignment and its leadership (KIP-345).

        A request that still waits under the old id is answered with FENCED_INSTANCE_ID.
        """
        old_member_id = member.member_id
        fenced = ErrorCode.FENCED_INSTANCE_ID
        self.answer_join(member, Joined(error=fenced, member_id=old_member_id))
        self.answer_sync(member, Synced(error=fenced))
        self.disarm(Timer.SESSION, old_member_id)
        member.member_id = new_member_id
        self.members = {each.member_id: each for each in self.members.values()}
        assert member.instance_id is not None
        self.static_ids[member.instance_id] = new_member_id
        if old_member_id in self.pending_sync:
            self.pending_sync.remove(old_member_id)
            self.pending_sync.add(new_member_id)
        if self.leader == old_member_id:
            self.leader = new_member_id

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Say whether the pair names a member: NONE, UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID."""
        if instance_id is not None:
            known = self.static_ids.get(instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    @property
    def all_joined(self) -> bool:
        """Say whether nobody is waited for in the join phase."""
        return not self.pending and all(member.joining is not None for member in self.members.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long a round may wait: the longest that any member allows."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def elect_joined_leader(self) -> bool:
        """Make sure that the leader is one that has joined this round; False if nobody has."""
        current = self.members.get(self.leader) if self.leader is not None else None
        if current is not None and current.joining is not None:
            return True
        joined = next((m.member_id for m in self.members.values() if m.joining is not None), None)
        if joined is None:
            return False
        self.leader = joined
        return True

    # -- protocols and generations ---------------------------------------------------------------------

    def supports(self, protocol_type: str, protocols: tuple[tuple[str, bytes], ...]) -> bool:
        """Say whether a member that offers `protocols` has one in common with all others."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        size = len(self.members)
        return self.protocol_type == protocol_type and any(
            self._offered[name] == size for name, _ in protocols
        )

    def select_protocol(self) -> str:
        """Return the protocol that wins the members' votes; an earlier member breaks a tie."""
        size = len(self.members)
        candidates = {name for name, count in self._offered.items() if count == size}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def next_generation(self, now: Instant) -> None:
        """Close the join phase: CompletingRebalance with members, Empty without."""
        self.generation += 1
        self.assignment_under_way = False
        self.pending_sync.clear()
        if self.members:
            self.protocol = self.select_protocol()
            self.enter(GroupState.COMPLETING_REBALANCE, now)
        else:
            self.protocol = None
            self.leader = None
            self.enter(GroupState.EMPTY, now)
        self.refresh_subscriptions()

    def refresh_subscriptions(self) -> None:
        """Work out which topics the members read, for the offsets' expiry and deletion."""
        self.subscribed_topics = subscribed_topics(
            self.protocol_type, [member.metadata_for(self.protocol) for member in self.members.values()]
        )

    def may_read(self, topic: str) -> bool:
        """Say whether a member reads `topic`, or might."""
        return self.subscribed_topics is None or topic in self.subscribed_topics

    # -- images ----------------------------------------------------------------------------------------

    def image(self, assignments: dict[str, bytes] | None = None) -> GroupImage:
        """Return what is stored of the group, with `assignments` in place of the current ones if given."""
        return GroupImage(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            state_timestamp_ms=self.state_timestamp_ms,
            members=tuple(
                member.image(
                    self.protocol,
                    member.assignment if assignments is None else assignments.get(member.member_id, b""),
                )
                for member in self.members.values()
            ),
        )
