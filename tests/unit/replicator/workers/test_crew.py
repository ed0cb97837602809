"""Workers beside a group that forgets them, or that they lead."""

import asyncio
from types import SimpleNamespace
from typing import Any

from protocol.errors import ErrorCode, KafkaError
from protocol.types import TopicPartition
from replicator.lease import LeaseView
from replicator.workers.crew import Crew
from replicator.workers.membership import Membership, Round
from replicator.workers.messages import MemberState, Orders, WorkerInfo
from replicator.workers.permit import Permit

ALL = frozenset({TopicPartition("t", 0), TopicPartition("t", 1)})


class ForgetfulGroup(Membership):
    """Forgets its member while that takes what the first round gave it, as a coordinator does that is elected
    uncleanly."""

    def __init__(self) -> None:
        self.group, self.member_id, self.generation = "g", "", -1
        self.states: list[MemberState] = []
        self.taken = asyncio.Event()
        self.seen_again = asyncio.Event()

    async def join(self, metadata: bytes, reason: str = "") -> Round:
        self.states.append(MemberState.decode(metadata))
        self.member_id, self.generation = f"member-{len(self.states)}", len(self.states)
        if len(self.states) > 1:
            self.seen_again.set()
            await asyncio.Event().wait()
        return Round(self.generation, False, {})

    async def sync(self, orders: Any) -> bytes:
        return Orders(1, "another", ALL).encode()

    async def heartbeat(self) -> None:
        await self.taken.wait()  # the answer takes long, and meanwhile all is taken
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, "who?")


class Holdings:
    """Partitions without anything that copies them."""

    def __init__(self, taken: asyncio.Event | None = None) -> None:
        self.taken = taken or asyncio.Event()
        self.alone = False
        self.owned: set[TopicPartition] = set()
        self.leaving: set[TopicPartition] = set()
        self.rates: dict[TopicPartition, float] = {}
        self.lost: list[frozenset[TopicPartition]] = []

    def held(self) -> frozenset[TopicPartition]:
        return frozenset(self.owned)

    async def take(self, tps: Any) -> None:
        await asyncio.sleep(0.05)  # fences others, reads their progress
        self.owned |= tps
        self.taken.set()

    def measure(self) -> dict[TopicPartition, float]:
        return self.rates

    async def lose(self) -> None:
        self.lost.append(self.held())
        self.owned.clear()


def _crew(group: Membership, holdings: Holdings, wanted: Any = set) -> Crew:
    async def nothing() -> None:
        pass

    store: Any = SimpleNamespace(highest_epoch=0, epoch=0, refresh=nothing, lease=LeaseView())
    return Crew(
        "a->b",
        WorkerInfo("w"),
        SimpleNamespace(),  # type: ignore[arg-type]
        group,
        store,
        Permit(),
        holdings,  # type: ignore[arg-type]
        wanted,
        session_s=0.1 if isinstance(group, ForgetfulGroup) else 300,
        rebalance_s=1,
        settings="",
    )


class LedGroup(Membership):
    """Of one member, who leads it."""

    def __init__(self) -> None:
        self.group, self.member_id, self.generation = "g", "member", -1
        self.given: asyncio.Queue[frozenset[TopicPartition]] = asyncio.Queue()
        """What each round gave its member."""
        self._state = b""

    async def join(self, metadata: bytes, reason: str = "") -> Round:
        self.generation += 1
        return Round(self.generation, True, {"member": metadata})

    async def sync(self, orders: Any) -> bytes:
        self.given.put_nowait(Orders.decode(orders["member"]).partitions)
        return bytes(orders["member"])

    async def heartbeat(self) -> None:
        pass


async def test_new_partitions_do_not_wait_for_the_leaders_next_heartbeat() -> None:
    group, wanted = LedGroup(), {TopicPartition("t", 0)}

    async def all_wanted() -> set[TopicPartition]:
        return wanted

    crew = _crew(group, Holdings(), all_wanted)
    crew._beat_s = 3600
    running = asyncio.create_task(crew._take_part())
    try:
        async with asyncio.timeout(20):
            assert await group.given.get() == wanted
            await crew.joined.wait()
            crew.share_out(wanted)
            wanted = ALL
            crew.share_out(wanted)
            assert await group.given.get() == ALL
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert group.given.empty()


async def test_what_a_first_round_gave_is_lost_with_the_membership() -> None:
    """Else a worker claims it in its next join that went on copying beside those who got it meanwhile."""
    group = ForgetfulGroup()
    holdings = Holdings(group.taken)
    crew = _crew(group, holdings)
    running = asyncio.create_task(crew._take_part())
    try:
        async with asyncio.timeout(20):
            await group.seen_again.wait()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert holdings.lost == [ALL]
    assert [state.held for state in group.states] == [frozenset(), frozenset()]


async def test_who_leads_is_heard_while_it_asks_what_there_is() -> None:
    """Beside a source that does not answer it lost its membership, and whoever led next did."""
    group, beats, seen = LedGroup(), asyncio.Semaphore(0), asyncio.Event()

    async def heartbeat() -> None:
        beats.release()

    async def wanted() -> frozenset[TopicPartition]:
        for _ in range(2):
            await beats.acquire()
        seen.set()
        return ALL

    group.heartbeat = heartbeat  # type: ignore[method-assign]
    crew = _crew(group, Holdings(), wanted)
    crew._beat_s = 0.01
    running = asyncio.create_task(crew._take_part())
    try:
        async with asyncio.timeout(20):
            await seen.wait()
            assert await group.given.get() == ALL
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
