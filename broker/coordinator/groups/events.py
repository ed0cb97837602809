"""What goes into a group and what comes out of it.

Calls are the parts of a request that the protocol rules look at. Results are what a request is answered with;
an error is a result like any other. Effects are what the edge must do: answer a parked request, or write the
group to the offsets log and tell the group how that went.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from protocol.errors import ErrorCode

#: Whoever waits for a parked request: opaque here, a future at the edge.
Waiter = object

NO_MEMBER = ""
NO_GENERATION = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinCall:
    """A JoinGroup request. `protocols` are (name, opaque metadata) in the member's order of preference."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    requires_known_member: bool  # JoinGroup v4+, KIP-394
    can_skip_assignment: bool  # JoinGroup v9+, KIP-814


class JoinedMember(NamedTuple):
    """A member as the leader sees it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """The answer to a join. `members` is filled for the leader only."""

    error: ErrorCode = ErrorCode.NONE
    member_id: str = NO_MEMBER
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = NO_MEMBER
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncCall:
    """A SyncGroup request. `assignments` is filled by the leader only; absent names are None (before v5)."""

    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: dict[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Synced:
    """The answer to a sync."""

    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


class Leaving(NamedTuple):
    """One member that leaves; an empty member id with an instance id removes a static member (KIP-345)."""

    member_id: str
    instance_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberImage:
    """A member as it is stored and described. `metadata` is that of the group's protocol."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupImage:
    """A group as it is stored: Kafka's GroupMetadataValue. `state_timestamp_ms` is wall time or -1."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp_ms: int
    members: tuple[MemberImage, ...]


class StoreReason(Enum):
    """Why a group is written; decides what happens when the write has succeeded or failed."""

    ASSIGNMENT = "assignment"
    REPLACED_MEMBER = "replaced static member"
    EMPTY = "became empty"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Effect: answer a parked request."""

    waiter: Waiter
    result: Joined | Synced


class Replacement(NamedTuple):
    """A static member that came back under a new member id; the old values serve to undo it."""

    old_member_id: str
    new_member_id: str
    old_protocols: tuple[tuple[str, bytes], ...]
    old_rebalance_timeout_ms: int
    old_session_timeout_ms: int
    old_leader: str | None
    can_skip_assignment: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """Effect: append `image` to the offsets log, then tell the group with this object how that went."""

    reason: StoreReason
    image: GroupImage
    replacement: Replacement | None = None


Effect = Answer | Store
