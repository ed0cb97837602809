"""One member of a group: what it said when it joined, its assignment, and the requests it waits on."""

from __future__ import annotations

from dataclasses import dataclass, field

from broker.coordinator.groups.events import JoinCall, MemberImage, Waiter


@dataclass(slots=True, kw_only=True)
class Member:
    """Mutable state of a member. Session and rebalance timeouts are in milliseconds."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    joining: Waiter | None = None
    syncing: Waiter | None = None
    #: It has never been told its member id by a completed join, so it cannot send heartbeats yet.
    is_new: bool = field(default=False)

    @classmethod
    def from_call(cls, member_id: str, call: JoinCall) -> Member:
        """Return the member that `call` brings in under `member_id`."""
        return cls(
            member_id=member_id,
            instance_id=call.instance_id,
            client_id=call.client_id,
            client_host=call.client_host,
            rebalance_timeout_ms=call.rebalance_timeout_ms,
            session_timeout_ms=call.session_timeout_ms,
            protocols=call.protocols,
        )

    @property
    def is_static(self) -> bool:
        """Say whether the member has a group.instance.id (KIP-345)."""
        return self.instance_id is not None

    @property
    def is_waiting(self) -> bool:
        """Say whether a join or a sync of this member is parked: it cannot send heartbeats meanwhile."""
        return self.joining is not None or self.syncing is not None

    def metadata_for(self, protocol: str | None) -> bytes:
        """Return the member's metadata for `protocol`, empty if it does not offer it."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def vote(self, candidates: set[str]) -> str:
        """Return the member's most wanted protocol among `candidates`, all of which it offers."""
        return next(name for name, _ in self.protocols if name in candidates)

    def image(self, protocol: str | None, assignment: bytes) -> MemberImage:
        """Return what is stored and described of this member."""
        return MemberImage(
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.session_timeout_ms,
            metadata=self.metadata_for(protocol),
            assignment=assignment,
        )
