"""A group with a virtual clock, members that are easy to write down, and a disk that answers when told."""

from __future__ import annotations

from dataclasses import dataclass, field

from broker.coordinator.deadlines import Deadlines
from broker.coordinator.groups.departing import heartbeat, leave
from broker.coordinator.groups.events import Answer, JoinCall, Joined, Leaving, Store, SyncCall, Synced
from broker.coordinator.groups.group import Group
from broker.coordinator.groups.joining import join
from broker.coordinator.groups.limits import GroupLimits, TimerKey
from broker.coordinator.groups.syncing import sync
from broker.coordinator.groups.transitions import on_deadline, on_stored
from broker.coordinator.instant import Instant
from protocol.errors import ErrorCode

RANGE = (("range", b"r"),)


@dataclass(eq=False)
class Parked:
    """A request and what it was answered with, at most once."""

    name: str
    answers: list[Joined | Synced] = field(default_factory=list)

    @property
    def open(self) -> bool:
        return not self.answers

    @property
    def joined(self) -> Joined:
        assert len(self.answers) == 1, f"{self.name}: {len(self.answers)} answers"
        assert isinstance(self.answers[0], Joined)
        return self.answers[0]

    @property
    def synced(self) -> Synced:
        assert len(self.answers) == 1, f"{self.name}: {len(self.answers)} answers"
        assert isinstance(self.answers[0], Synced)
        return self.answers[0]


class GroupRoom:
    """One group; `disk_error` is what writes end with, `hold_writes` keeps them open for a while."""

    def __init__(self, limits: GroupLimits | None = None) -> None:
        self.deadlines: Deadlines[TimerKey] = Deadlines()
        self.limits = limits or GroupLimits(
            initial_rebalance_delay_ms=0, min_session_timeout_ms=1_000, max_session_timeout_ms=60_000
        )
        self.group = Group("g", self.limits, self.deadlines)
        self.now_ms = 1_000_000
        self.stored: list[Store] = []
        self.hold_writes = False
        self.open_writes: list[Store] = []
        self.disk_error = ErrorCode.NONE

    @property
    def now(self) -> Instant:
        return Instant(self.now_ms, 1_700_000_000_000 + self.now_ms)

    def settle(self) -> None:
        """Carry out the effects, and the effects of those."""
        while effects := self.group.take_effects():
            for effect in effects:
                if isinstance(effect, Answer):
                    assert isinstance(effect.waiter, Parked)
                    effect.waiter.answers.append(effect.result)
                    assert len(effect.waiter.answers) == 1, f"{effect.waiter.name} answered twice"
                else:
                    self.open_writes.append(effect)
            if not self.hold_writes:
                self._write()

    def finish_writes(self) -> None:
        self._write()
        self.settle()

    def _write(self) -> None:
        writes, self.open_writes = self.open_writes, []
        for store in writes:
            if self.disk_error is ErrorCode.NONE:
                self.stored.append(store)
            on_stored(self.group, store, self.disk_error, self.now)

    def advance(self, ms: int) -> None:
        """Let time pass, with every deadline at its own moment."""
        end = self.now_ms + ms
        while (due := self.deadlines.next_ms()) is not None and due <= end:
            self.now_ms = max(self.now_ms, due)
            key = self.deadlines.pop_due(self.now_ms)
            assert key is not None
            on_deadline(self.group, key, self.now)
            self.settle()
        self.now_ms = end

    def join(
        self,
        member_id: str = "",
        *,
        instance: str | None = None,
        session: int = 10_000,
        rebalance: int = 30_000,
        protocols: tuple[tuple[str, bytes], ...] = RANGE,
        protocol_type: str = "consumer",
        version: int = 9,
        client: str = "c",
    ) -> Parked:
        parked = Parked(f"join {member_id or client}")
        call = JoinCall(
            member_id=member_id,
            instance_id=instance,
            client_id=client,
            client_host="/127.0.0.1",
            session_timeout_ms=session,
            rebalance_timeout_ms=rebalance,
            protocol_type=protocol_type,
            protocols=protocols,
            requires_known_member=version >= 4,
            can_skip_assignment=version >= 9,
        )
        join(self.group, call, parked, self.now)
        self.settle()
        return parked

    def new_id(self, **options: object) -> str:
        """The first step of a dynamic member's join."""
        answer = self.join(**options).joined  # type: ignore[arg-type]
        assert answer.error is ErrorCode.MEMBER_ID_REQUIRED
        return answer.member_id

    def sync(
        self,
        member_id: str,
        generation: int | None = None,
        assignments: dict[str, bytes] | None = None,
        instance: str | None = None,
        protocol: str | None = None,
        protocol_type: str | None = None,
    ) -> Parked:
        parked = Parked(f"sync {member_id}")
        call = SyncCall(
            member_id=member_id,
            instance_id=instance,
            generation=self.group.generation if generation is None else generation,
            protocol=protocol,
            protocol_type=protocol_type,
            assignments=assignments or {},
        )
        sync(self.group, call, parked, self.now)
        self.settle()
        return parked

    def beat(self, member_id: str, generation: int | None = None, instance: str | None = None) -> ErrorCode:
        at = self.group.generation if generation is None else generation
        error = heartbeat(self.group, member_id, instance, at, self.now)
        self.settle()
        return error

    def leave(self, *members: str | Leaving) -> list[ErrorCode]:
        leavings = [Leaving(each, None) if isinstance(each, str) else each for each in members]
        errors = leave(self.group, leavings, self.now)
        self.settle()
        return errors

    def stable(self, *names: str, **options: object) -> list[str]:
        """Bring dynamic members in and hand each its own name as assignment; returns their ids."""
        ids = [self.new_id(client=name, **options) for name in names]
        joins = [self.join(member_id, **options) for member_id in ids]  # type: ignore[arg-type]
        self.advance(self.limits.initial_rebalance_delay_ms)
        assert not any(parked.open for parked in joins)
        self.assign(ids)
        return ids

    def assign(self, ids: list[str]) -> list[Parked]:
        """Everybody syncs, followers first; each gets its own id as assignment."""
        leader = self.group.leader
        assert leader in ids
        followers = [self.sync(each) for each in ids if each != leader]
        assignments = {each: each.encode() for each in ids}
        return [*followers, self.sync(leader, assignments=assignments)]
