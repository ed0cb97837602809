"""This worker among the workers of its link: a member of a group at the target cluster, as long as it lives.

Owns the rounds: join and say what it holds, lead if the coordinator says so, take and give up what the orders
say, beat until the next round; and the permit to write, which ends by itself when the coordinator is not
heard. Nothing stops for a round but what moves. How a worker begins before its group does is `begin`'s.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, TypeVar

from protocol.client import ClusterClient
from protocol.counted import counted
from protocol.errors import ErrorCode, KafkaError, ProtocolError
from protocol.types import TopicPartition
from replicator.progress import ProgressStore
from replicator.workers.begin import Begin
from replicator.workers.holdings import Holdings
from replicator.workers.membership import Membership
from replicator.workers.messages import MemberState, Orders, UnreadableError, WorkerInfo
from replicator.workers.permit import Permit, now
from replicator.workers.planning import OtherSourceError, Planning

_log = logging.getLogger("isthmus.replicator")

T = TypeVar("T")

_LOST = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID})
_ANOTHER_ROUND = frozenset({ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION})
_FORBIDDEN = frozenset({ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED})
_BEAT_S = 1.0
_TRY_AGAIN_S = 0.3


class Crew:
    """Of one link. `wanted` finds the partitions that there are (asked at the leader only)."""

    def __init__(
        self,
        link: str,
        info: WorkerInfo,
        client: ClusterClient,
        membership: Membership,
        store: ProgressStore,
        permit: Permit,
        holdings: Holdings,
        wanted: Callable[[], Awaitable[set[TopicPartition]]],
        *,
        session_s: float,
        rebalance_s: float,
        settings: str,
    ) -> None:
        self._link = link
        self.info = info
        self._membership = membership
        self._store = store
        self._permit = permit
        self._holdings = holdings
        self._wanted = wanted
        self._session_s = session_s
        self._rebalance_s = rebalance_s
        self._beat_s = min(_BEAT_S, session_s / 5)
        self._settings = settings
        self.begin = Begin(link, info, client, membership, store, permit)
        self.planning = Planning()
        self.joined = asyncio.Event()
        """A round with this worker in it is over."""
        self.became_leader = asyncio.Event()
        self.problem = ""
        self.former: set[str] = set()
        """Incarnations of workers that were members and are none now."""
        self.rounds = 0
        self.orders = Orders(0, "")
        self._again = asyncio.Event()
        self._giving: set[asyncio.Task[None]] = set()
        self._stable_at = 0.0
        self._leads = False

    @property
    def leading(self) -> bool:
        """Whether this worker does what is done once for the whole link."""
        return self._permit.allows() and (self._leads or self.begin.early)

    @property
    def may_write(self) -> bool:
        """Whether the others still count with this worker."""
        return self._permit.allows()

    async def run(self) -> None:
        """Takes part for ever. Raises LeaseHeld or LeaseLost when an older version runs the link, and
        OtherSourceError when the others copy from another cluster."""
        tending = asyncio.create_task(self.begin.tend(lambda: self._leads, self._lose))
        taking_part = asyncio.create_task(self._take_part())
        try:
            done, _ = await asyncio.wait({tending, taking_part}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            tasks = (tending, taking_part, *self._giving)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _in_group(self) -> bool:
        return self._membership.generation >= 0

    async def _take_part(self) -> None:
        while True:
            try:
                await self._round()
                await self._stay()
            except KafkaError as error:
                await self._after(error)
            except ProtocolError as error:
                self._say(f"the coordinator of {self._membership.group} does not answer: {error}")
                await asyncio.sleep(_TRY_AGAIN_S)

    async def _after(self, error: KafkaError) -> None:
        if error.code in _ANOTHER_ROUND:
            return  # a round that we missed has left us what we had said that we hold
        if error.code in _LOST:
            self._membership.forget()
            # Under its own claim it had them before it was a member. Else they are lost with the membership,
            # also those of a first round that has not come to its end.
            if not self.begin.early and (self.joined.is_set() or self._holdings.held()):
                await self._lose(str(error))
            return
        if error.code in _FORBIDDEN and self.begin.early:
            self._say(
                f"this worker copies alone, others cannot share the work: {error}; allow READ and DESCRIBE of"
                f" group {self._membership.group} at the target"
            )
            await asyncio.sleep(self._session_s)
            return
        self._say(str(error))
        await asyncio.sleep(_TRY_AGAIN_S)

    def _say(self, problem: str) -> None:
        if problem and problem != self.problem:
            _log.warning("%s: %s", self._link, problem)
        self.problem = problem

    async def _lose(self, why: str) -> None:
        """The group went on without us: others have our partitions, or will have them in a moment."""
        self._permit.withdraw()
        self._leads = False
        _log.warning("%s: this worker was given up by the others (%s) and joins them anew", self._link, why)
        for task in self._giving:
            task.cancel()
        await asyncio.gather(*self._giving, return_exceptions=True)
        await self._holdings.lose()

    async def _round(self) -> None:
        self._again.clear()
        epoch = max(self._store.highest_epoch, self.orders.epoch)
        held, rates = self._holdings.held(), self._holdings.rates
        state = MemberState(self.info, epoch, held, self._holdings.alone, rates, self._settings)
        joined = await self._beating(self._membership.join(state.encode()))
        orders = {}
        if joined.leading:
            for member, one in (await self._beating(self._orders(joined))).items():
                orders[member] = one.encode()
        sent_at = now()
        answer = await self._beating(self._membership.sync(orders))
        self._heard(sent_at)
        try:
            found = Orders.decode(answer)
        except UnreadableError as error:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error)) from error
        self.rounds += 1
        if found.source and self.info.source and found.source != self.info.source:
            await self._membership.leave()
            raise OtherSourceError(self._link, found.source, self.info.source)
        self._say(self.planning.problem if joined.leading else "")
        await self._follow(found, leading=joined.leading)

    async def _orders(self, joined: Any) -> Mapping[str, Orders]:
        await self._store.refresh()
        try:
            wanted = await self._wanted()
        except ProtocolError as error:  # the source is away: who holds something keeps it
            _log.warning("%s: planned from what is known, %s", self._link, error)
            wanted = set(self._store.partitions())
        epoch = max(self._store.highest_epoch, self.orders.epoch)
        withheld = self.begin.somebody_else(joined.members)
        orders = self.planning.orders(joined, self.info, wanted, epoch, withheld=withheld)
        if withheld or self.planning.unfinished:
            self._again.set()
        return orders

    async def _follow(self, orders: Orders, *, leading: bool) -> None:
        held = self._holdings.held()
        before, self.orders = self.orders, orders
        self._store.epoch = orders.epoch
        was_alone, self._holdings.alone = self._holdings.alone, False
        if was_alone:
            self._holdings.owned |= held
        was_early = self.begin.early
        if was_early:
            self.begin.early = False
            # The claim's time may be longer than the group's.
            self._permit.replace(self._stable_at, self._session_s)
        present = {info.incarnation for info in orders.members.values()}
        self.former |= {info.incarnation for info in before.members.values()} - present
        self.former -= present
        if leading and not (self._leads or was_early):
            self.became_leader.set()
        self._leads = leading
        gained, lost = orders.partitions - held, held - orders.partitions
        if gained or lost or before.members.keys() != orders.members.keys():
            _log.info(
                "%s: %s%s; this one has %s, %d of them new, and gives up %d",
                self._link,
                counted(len(orders.members), "worker"),
                ", led by this one" if leading else "",
                counted(len(orders.partitions | held) - len(lost), "partition"),
                len(gained),
                len(lost),
            )
        if lost - self._holdings.leaving:
            task = asyncio.create_task(self._give_up(lost - self._holdings.leaving))
            self._giving.add(task)
            task.add_done_callback(self._giving.discard)
        if gained:
            await self._beating(self._until_taken(gained))
        self.joined.set()

    async def _until_taken(self, gained: frozenset[TopicPartition]) -> None:
        while True:
            try:
                return await self._holdings.take(gained)
            except ProtocolError as error:
                self._say(f"progress cannot be read: {error}")
                await asyncio.sleep(_TRY_AGAIN_S)

    async def _give_up(self, lost: frozenset[TopicPartition]) -> None:
        await self._holdings.give_up(lost)
        self._again.set()  # the next round gives them out

    async def _stay(self) -> None:
        """Beats until another round is due."""
        while True:
            try:
                async with asyncio.timeout(self._beat_s):
                    await self._again.wait()
            except TimeoutError:
                pass
            self._holdings.measure()
            await self._beat()
            if self._again.is_set():
                await asyncio.sleep(0 if not self.begin.waiting else _TRY_AGAIN_S)
                return
            await self._look_at_peers()
            if self._leads and await self._should_plan():
                return

    async def _beat(self) -> None:
        """Raises KafkaError when the group wants something, or has given us up."""
        sent_at = now()
        try:
            await self._membership.heartbeat()
        except KafkaError as error:
            if error.code is ErrorCode.REBALANCE_IN_PROGRESS:
                # Still a member, until the round ends without us.
                left = self._stable_at + self._rebalance_s - sent_at
                self._permit.extend(sent_at, min(self._session_s, max(left, 0.0)))
            raise
        self._heard(sent_at)

    def _heard(self, sent_at: float) -> None:
        self._stable_at = sent_at
        self._permit.extend(sent_at, self._session_s)

    async def _beating(self, waiting: Awaitable[T]) -> T:
        """The result of what takes long; meanwhile the coordinator hears of us. Raises what it says."""
        task = asyncio.ensure_future(waiting)
        try:
            while not (await asyncio.wait({task}, timeout=self._beat_s))[0]:
                if self._in_group():
                    await self._beat_quietly()
            return task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _beat_quietly(self) -> None:
        try:
            await self._beat()
        except KafkaError as error:
            if error.code is ErrorCode.UNKNOWN_MEMBER_ID:
                raise
        except ProtocolError as error:
            _log.info("%s: heartbeat: %s", self._link, error)

    async def _look_at_peers(self) -> None:
        """A worker of this machine that was killed need not be waited for."""
        dead = [member for member, info in self.orders.members.items() if info.dead]
        if dead:
            for member in dead:
                _log.warning(
                    "%s: %s is dead, its partitions go on here", self._link, self.orders.members[member]
                )
            await self._membership.remove(dead)

    async def _should_plan(self) -> bool:
        try:
            wanted = await self._wanted()
        except ProtocolError:
            return False
        return self.planning.changed(wanted)

    def plan_again(self) -> None:
        """Another round soon: there is something to tell, or to move."""
        self._again.set()

    def share_out(self, wanted: Collection[TopicPartition]) -> None:
        """Has the leader give out at once what is new among all that are to be copied."""
        if self.leading and self.planning.changed(wanted):
            self.plan_again()

    async def leave(self) -> bool:
        """Says good-bye, after all was given up; True when nobody else is left."""
        self._leads = False
        await self._membership.leave()
        return await self.begin.nobody_left()
