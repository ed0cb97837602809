"""Any order of joins, syncs, heartbeats, leaves, lost answers, slow and failing writes, and passing time.

What must hold whatever happens: one generation at a time, an assignment only ever from the leader of the
generation it is used in, everybody in a stable group with the assignment that was stored, and nobody who
waits for ever.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from broker.coordinator.groups.events import Leaving, StoreReason
from broker.coordinator.groups.limits import GroupLimits, Timer, TimerKey
from broker.coordinator.groups.states import GroupState
from protocol.errors import ErrorCode
from tests.unit.broker.coordinator.group_room import GroupRoom, Parked

PROTOCOLS = st.sampled_from(
    [(("range", b"1"),), (("range", b"2"),), (("sticky", b"1"), ("range", b"1")), (("sticky", b"3"),)]
)
SESSION_MS = 10_000
REBALANCE_MS = 15_000


@dataclass(eq=False)
class Client:
    """What a consumer believes about itself."""

    instance: str | None
    member_id: str = ""
    generation: int = -1
    leads: bool = False
    members: list[str] = field(default_factory=list)
    must: str = "join"  # what a well-behaved client would do next: join, sync or beat
    waiting: list[Parked] = field(default_factory=list)


class GroupMachine(RuleBasedStateMachine):
    clients = Bundle("clients")

    def __init__(self) -> None:
        super().__init__()
        self.room = GroupRoom(
            GroupLimits(
                initial_rebalance_delay_ms=1_000,
                min_session_timeout_ms=1_000,
                max_size=4,
                new_member_join_timeout_ms=60_000,
            )
        )
        self.all: list[Client] = []
        self.every_request: list[Parked] = []
        self.highest = 0
        self.offered: dict[tuple[int, str], set[bytes]] = {}

    # -- what clients do

    @rule(target=clients, instance=st.sampled_from([None, None, None, "i1", "i2"]))
    def appear(self, instance: str | None) -> Client:
        client = Client(instance)
        self.all.append(client)
        return client

    @initialize(target=clients, instances=st.lists(st.sampled_from([None, None, "i1", "i2"]), max_size=4))
    def begin(self, instances: list[str | None]) -> object:
        return multiple(*(self.appear(instance) for instance in instances))

    @rule(rounds=st.integers(1, 4), protocols=PROTOCOLS, wait=st.sampled_from([0, 1_000, 2_000]))
    def everybody_does_what_it_should(
        self, rounds: int, protocols: tuple[tuple[str, bytes], ...], wait: int
    ) -> None:
        for _ in range(rounds):
            for client in self.all:
                if client.must == "join" and not client.waiting:
                    self.join(client, protocols, 9)
                elif client.must == "sync" and not client.waiting:
                    self.sync(client, True)
                elif client.must == "beat":
                    self.beat(client)
            self.time_passes(wait)

    @rule(client=clients, protocols=PROTOCOLS, version=st.sampled_from([3, 5, 9]))
    def join(self, client: Client, protocols: tuple[tuple[str, bytes], ...], version: int) -> None:
        parked = self.room.join(
            client.member_id,
            instance=client.instance if version >= 5 else None,
            session=SESSION_MS,
            rebalance=REBALANCE_MS,
            protocols=protocols,
            version=version,
        )
        client.waiting.append(parked)
        self.every_request.append(parked)
        self.collect()

    @rule(client=clients, complete=st.booleans())
    def sync(self, client: Client, complete: bool) -> None:
        assignments = {}
        if client.leads:
            chosen = client.members if complete else client.members[:1]
            assignments = {each: f"{client.generation}:{each}:{complete}".encode() for each in chosen}
            for member_id, assignment in assignments.items():
                self.offered.setdefault((client.generation, member_id), set()).add(assignment)
        parked = self.room.sync(client.member_id, client.generation, assignments, client.instance)
        client.waiting.append(parked)
        self.every_request.append(parked)
        self.collect()

    @rule(client=clients)
    def beat(self, client: Client) -> None:
        if self.room.beat(client.member_id, client.generation, client.instance) is not ErrorCode.NONE:
            client.must = "join"

    @rule(client=clients)
    def restart(self, client: Client) -> None:
        """The process is new: it knows its instance and nothing else; its old requests lead nowhere."""
        client.member_id, client.generation, client.leads, client.must = "", -1, False, "join"
        client.waiting.clear()

    @rule(client=consumes(clients))
    def leave(self, client: Client) -> None:
        self.all.remove(client)
        self.room.leave(Leaving(client.member_id, client.instance))

    @rule(instance=st.sampled_from(["i1", "i2"]))
    def administrator_removes(self, instance: str) -> None:
        self.room.leave(Leaving("", instance))

    # -- what the world does

    @rule(ms=st.sampled_from([1, 900, 1_000, 5_000, 9_999, 15_000, 60_000]))
    def time_passes(self, ms: int) -> None:
        self.room.advance(ms)
        self.collect()

    @rule(
        on=st.booleans(), error=st.sampled_from([ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NOT_COORDINATOR])
    )
    def disk_changes(self, on: bool, error: ErrorCode) -> None:
        self.room.hold_writes, self.room.disk_error = on, error

    @precondition(lambda self: self.room.open_writes)
    @rule()
    def writes_end(self) -> None:
        self.room.finish_writes()
        self.collect()

    def collect(self) -> None:
        """Clients take in their answers."""
        for client in self.all:
            for parked in [each for each in client.waiting if not each.open]:
                client.waiting.remove(parked)
                self.take(client, parked)

    def take(self, client: Client, parked: Parked) -> None:
        if parked.name.startswith("sync"):
            synced = parked.synced
            client.must = "beat" if synced.error is ErrorCode.NONE else "join"
            if synced.error is ErrorCode.NONE and synced.assignment:
                generation, member_id, _ = synced.assignment.decode().split(":")
                assert synced.assignment in self.offered[int(generation), member_id]
                assert int(generation) <= self.room.group.generation
            return
        joined = parked.joined
        client.must = "sync" if joined.error is ErrorCode.NONE else "join"
        if joined.error is ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = joined.member_id
        elif joined.error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_MAX_SIZE_REACHED):
            client.member_id, client.generation, client.leads = "", -1, False
        elif joined.error is ErrorCode.FENCED_INSTANCE_ID:
            client.instance = None
        elif joined.error is ErrorCode.NONE:
            client.member_id, client.generation = joined.member_id, joined.generation
            client.leads = joined.leader == joined.member_id and not joined.skip_assignment
            client.members = [each.member_id for each in joined.members]
            assert joined.protocol in ("range", "sticky")

    # -- what must hold

    @invariant()
    def generations_only_grow(self) -> None:
        assert self.room.group.generation >= self.highest
        self.highest = self.room.group.generation

    @invariant()
    def membership_is_consistent(self) -> None:
        group = self.room.group
        assert set(group.static_ids.values()) <= set(group.members)
        for member in group.members.values():
            if member.instance_id is not None:
                assert group.static_ids[member.instance_id] == member.member_id
        assert (group.leader in group.members) == bool(group.members)
        offered = Counter(name for m in group.members.values() for name in {n for n, _ in m.protocols})
        assert +group._offered == offered
        assert not group.pending & set(group.members)
        assert group.pending_sync <= set(group.members)
        assert len(group.members) <= 4 or group.state is GroupState.PREPARING_REBALANCE

    @invariant()
    def there_is_always_a_deadline_for_whoever_is_waited_for(self) -> None:
        room, group = self.room, self.room.group

        def armed(timer: Timer, member_id: str = "") -> bool:
            return TimerKey("g", timer, member_id) in room.deadlines

        assert all(armed(Timer.SESSION, each) for each in [*group.members, *group.pending])
        assert armed(Timer.JOIN) == (group.state is GroupState.PREPARING_REBALANCE)
        if group.state is GroupState.COMPLETING_REBALANCE:
            leader_wrote = any(store.reason is StoreReason.ASSIGNMENT for store in room.open_writes)
            assert armed(Timer.SYNC) or leader_wrote
        sessions = [key for key in room.deadlines._at if key.timer is Timer.SESSION]
        assert len(sessions) == len(group.members) + len(group.pending)

    @invariant()
    def only_the_right_states_park_requests(self) -> None:
        group = self.room.group
        joining = [member for member in group.members.values() if member.joining is not None]
        syncing = [member for member in group.members.values() if member.syncing is not None]
        if group.state is GroupState.COMPLETING_REBALANCE:
            assert not joining
        elif group.state is GroupState.STABLE:
            assert not syncing
            assert len(joining) <= len(self.room.open_writes)
        elif group.state is GroupState.PREPARING_REBALANCE:
            assert not syncing
        open_requests = [each for each in self.every_request if each.open]
        assert len(open_requests) == len(joining) + len(syncing)

    @invariant()
    def a_stable_group_has_exactly_the_assignment_that_was_stored(self) -> None:
        group, room = self.room.group, self.room
        if group.state is not GroupState.STABLE or room.open_writes:
            return
        stored = next(each.image for each in reversed(room.stored) if each.reason is not StoreReason.EMPTY)
        assert stored.generation == group.generation
        assert {m.member_id: m.assignment for m in stored.members} == {
            m.member_id: m.assignment for m in group.members.values()
        }
        for assignment in (m.assignment for m in group.members.values()):
            assert not assignment or assignment.startswith(f"{group.generation}:".encode())

    def teardown(self) -> None:
        """Everybody goes silent: all that wait are answered and the group ends empty."""
        self.room.hold_writes, self.room.disk_error = False, ErrorCode.NONE
        self.room.finish_writes()
        self.room.advance(10 * 60_000)
        assert not any(parked.open for parked in self.every_request)
        assert self.room.group.state is GroupState.EMPTY
        assert not self.room.group.members
        assert len(self.room.deadlines) == 0


TestGroupMachine = GroupMachine.TestCase
TestGroupMachine.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
