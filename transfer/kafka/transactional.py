"""Writing in transactions: data of many partitions, and the progress that says how far each is, at once.

Owns the course of transactions: partitions are added as they have something to send; after some time or bytes
what has begun is finished, progress is written, the transaction ends; who waits is answered then. Whatever
cannot be known for certain is aborted (KIP-98), and the next epoch asked for (KIP-360), so that nothing late
of one transaction gets into the next. What progress is, and where it is kept, is the journal's.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from protocol.client import ClusterClient, ProducerId
from protocol.client.retry import may_be_cured
from protocol.client.transaction_calls import FENCED
from protocol.errors import ErrorCode, KafkaError, ProtocolError
from protocol.types import Buffer, TopicPartition
from transfer.endpoint import AbortedError, DisorderError, OutcomeUnknownError, RefusedError, TransferError
from transfer.kafka.candidates import Candidates
from transfer.kafka.journal import Counts, Journal
from transfer.kafka.lane import Pending, ProduceLane, Ticket
from transfer.kafka.transaction import Transaction, Write
from transfer.kafka.transactional_producer import (
    ASK_AGAIN_S,
    NO_PERMIT,
    STUCK_S,
    FencedError,
    TransactionalProducer,
    TransactionSettings,
    UnknownError,
)
from transfer.ledger import Copied, ProducerState
from transfer.rewrite import built

_log = logging.getLogger("isthmus.transfer")

_HELD_UP_S = 2.0
"""So long partitions of brokers that answer wait for a broker of which nothing is heard."""
_GONE = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


class Transactions:
    """The gate of a sink's lanes. `wake` sends what a lane has; `leave` looks for its leader anew."""

    def __init__(
        self,
        client: ClusterClient,
        settings: TransactionSettings,
        journal: Journal,
        may_write: Callable[[], bool] = lambda: True,
        fenced: Callable[[], None] = lambda: None,
    ) -> None:
        self._client = client
        self._settings = settings
        self._journal = journal
        self._may_write = may_write
        self._producer = TransactionalProducer(client, settings, journal.register, may_write, fenced)
        self._sequences: dict[TopicPartition, int] = {}
        self._candidates = Candidates()
        self._current: Transaction | None = None
        self._closing = False
        self._ended = asyncio.Event()
        self._stirred = asyncio.Event()
        self._wake: Callable[[ProduceLane], None] = lambda _: None
        self._leave: Callable[[ProduceLane], None] = lambda _: None
        self._open: Callable[[TopicPartition], ProduceLane] = lambda tp: ProduceLane(tp)
        self._progress: ProduceLane | None = None
        self.counts = Counts()
        self.on_end: Callable[[bool], None] = lambda _: None
        """Called at the end of each transaction: whether it was committed."""
        self.on_landed: Callable[[TopicPartition], None] = lambda _: None
        """Called with a source partition when a write of it has landed and waits for its transaction."""

    def attach(
        self,
        wake: Callable[[ProduceLane], None],
        leave: Callable[[ProduceLane], None],
        open_lane: Callable[[TopicPartition], ProduceLane],
    ) -> None:
        """Says how lanes are reached: by the sink that owns them."""
        self._wake, self._leave, self._open = wake, leave, open_lane

    @property
    def transactional_id(self) -> str:
        """In use now."""
        return self._producer.transactional_id

    @property
    def problem(self) -> str:
        """What keeps transactions from going on now."""
        return self._producer.problem

    # What lanes and the sink ask and say

    def lets(self, lane: ProduceLane, pending: Pending) -> bool:
        """See `Gate`."""
        now = self._current
        if now is None:
            return False
        if lane is self._progress:
            return lane in now.lanes and not now.spoiled
        return now.lets(lane, pending)

    def landed(self, lane: ProduceLane, ticket: Ticket, copied: Copied, error: TransferError | None) -> None:
        """See `Gate`."""
        now = self._current
        self._sequences[lane.tp] = lane.producer.next_sequence
        if lane is self._progress:
            if error is not None and now is not None:
                now.spoil(f"progress cannot be written: {error}")
            if not ticket.done.done():
                ticket.done.set_result(copied)
        elif now is None or now.spoiled or lane not in now.lanes:
            failure = error if isinstance(error, AbortedError) else AbortedError(f"{lane.tp} was given up")
            failure.copied = None
            if not ticket.done.done():
                ticket.done.set_exception(failure)
            lane.abandon(failure)  # what stands behind it must not go on in the next transaction
        else:
            now.landed(lane, Write(ticket, copied, error))
            self._candidates.aside.written(lane)
            if ticket.source is not None:
                self.on_landed(ticket.source)
        self._stirred.set()

    def takes(self, lane: ProduceLane) -> bool:
        """Whether the lane is in the transaction; if not, it will be in one."""
        now = self._current
        if now is not None and lane in now.lanes:
            return True
        if lane.waiting and lane is not self._progress:
            self._candidates.add(lane)
            self._stirred.set()
        return False

    def spoil(self, lane: ProduceLane, why: str) -> None:
        """What became of the lane's last batches cannot be known."""
        if self._current is not None and lane in self._current.lanes:
            self._current.spoil(why)
        self._stirred.set()

    def give_up(self, why: str) -> None:
        """Whatever stands in the transaction of this moment is another's to write now. One whose commit is
        asked for already may count."""
        if self._current is not None:
            self._current.spoil(why)
            self._stirred.set()

    def stir(self) -> None:
        """Something has changed that transactions may wait for; or the journal has something to write."""
        self._stirred.set()

    async def closed(self, lane: ProduceLane, *, dirty: bool) -> None:
        """A lane was closed; `dirty`: with batches on their way. Returns when no transaction holds it."""
        self._candidates.drop(lane)
        now = self._current
        if now is None or lane not in now.lanes:
            return
        if dirty:
            now.spoil(f"{lane.tp} was closed with batches on their way")
        self._stirred.set()
        if dirty or lane in now.writes:
            await self.settled()

    def to_json(self) -> dict[str, Any]:
        """For the status."""
        here = {"transactional_id": self.transactional_id, "problem": self.problem}
        return here | self.counts.to_json()

    async def settled(self) -> None:
        """Returns when what became of the transaction of this moment is known."""
        if self._current is not None:
            await self._ended.wait()

    # The course of things

    async def run(self) -> None:
        """Transaction after transaction, until `abort_open`."""
        pause = ASK_AGAIN_S
        while not self._closing:
            self._stirred.clear()
            if not self._candidates.now(self._time()) and not self._journal.pending:
                await self._wait(self._candidates.wait_s(self._time()))
                continue
            try:
                await self._transact(await self._identified())
                self._producer.problem, pause = "", ASK_AGAIN_S
            except ProtocolError as error:
                self._producer.problem = f"transactions of {self.transactional_id}: {error}"
                _log.warning("%s", self.problem)
                await asyncio.sleep(pause)
                pause = min(pause * 2, 2.0)

    async def abort_open(self) -> None:
        """At the end: readers need not wait for the transaction's timeout. None begins behind this one, which
        would be taken for it."""
        self._closing = True
        now, producer = self._current, self._producer.id
        if now is not None and now.lanes and producer is not None:
            now.spoil("closed")
            with contextlib.suppress(ProtocolError):
                await self._client.end_transaction(self.transactional_id, producer, commit=False)

    async def ready(self) -> None:
        """Returns once the producer has its id, so that nothing of an earlier one with it is open."""
        while not self._producer.ready:
            if self._current is None and not self._candidates:
                await self._identified()
            else:
                await asyncio.sleep(ASK_AGAIN_S)

    async def _identified(self) -> ProducerId:
        found, is_new = await self._producer.identified(soon=self._candidates.aside.holds_any)
        if is_new:
            self._sequences.clear()
        return found

    async def _transact(self, producer: ProducerId) -> None:
        now = self._current = Transaction()
        self._ended.clear()
        outcome: type[AbortedError] | None = AbortedError
        try:
            await self._fill(now, producer)
            if now.lanes:
                await self._finish(now, producer)
                if not self._may_write():  # a successor that could not fence us may have begun
                    now.spoil(NO_PERMIT)
                if not now.spoiled:
                    await self._producer.end(producer, commit=True)
                    outcome = None
                else:
                    await self._producer.end(producer, commit=False)
        except FencedError as error:
            outcome = OutcomeUnknownError
            now.spoil(str(error))
            self._producer.leave()
        except UnknownError as error:
            outcome = OutcomeUnknownError
            now.spoil(str(error))
        finally:
            self._settle(now, outcome)

    def _settle(self, now: Transaction, outcome: type[AbortedError] | None) -> None:
        self._current = None
        if now.lanes:
            self.on_end(outcome is None)
            self._journal.ended(committed=outcome is None)
            if outcome is None:
                for lane in now.lanes:
                    lane.written.settle()
                self.counts.commit()
                now.committed()
            else:
                self.counts.abort(now.spoiled or "it could not be ended")
                self._producer.ask_for_next_epoch()
                _log.warning("%s: a transaction was aborted: %s", self.transactional_id, now.spoiled)
                self._give_up_progress(now.spoiled)
                now.failed(outcome, f"its transaction was aborted ({now.spoiled})")
        elif now.spoiled:
            self._producer.ask_for_next_epoch()  # which ends what the coordinator may have begun
        self._ended.set()
        for lane in now.lanes:
            self.takes(lane)

    def _give_up_progress(self, why: str) -> None:
        """Of data that waits for its first request, the next transaction may have it. Progress says that the
        data of this one is there: also what was never sent of it must not go on."""
        if self._progress is not None and not self._progress.idle:
            self._progress.abandon(AbortedError(f"{self._progress.tp}: its transaction was aborted ({why})"))

    async def _fill(self, now: Transaction, producer: ProducerId) -> None:
        until = 0.0
        while not now.spoiled and now.size < self._settings.max_bytes:
            self._stirred.clear()
            new = self._candidates.now(self._time())
            if new or (self._journal.pending and not now.lanes):
                await self._add(now, producer, new)
            until = until or (self._time() + self._settings.interval_s)
            left = until - self._time()
            if left <= 0 or now.lanes <= {self._progress}:
                return
            await self._wait(left)

    async def _add(self, now: Transaction, producer: ProducerId, lanes: Iterable[ProduceLane]) -> None:
        """Adds partitions; those that cannot be are left out."""
        adding = {lane.tp: lane for lane in lanes}
        progress = self._progress_lane()
        if progress not in now.lanes:
            adding[progress.tp] = progress
        began, pause = self._time(), 0.002
        while adding and not now.spoiled:
            try:
                answers = await self._producer.add(producer, adding, now, self._stirred)
            except ProtocolError as error:
                if not may_be_cured(error):
                    raise
                answers = {}
            codes = set(answers.values())
            if codes == {ErrorCode.NONE}:
                self._admit(now, producer, adding.values())
                return
            if FENCED & codes:
                raise FencedError(f"{self.transactional_id}: {next(iter(FENCED & codes)).name}")
            stuck = self._time() - began > STUCK_S
            if stuck and not now.lanes and ErrorCode.CONCURRENT_TRANSACTIONS in codes:
                self._producer.go_on_elsewhere()
                return
            self._leave_out(adding, answers)
            await asyncio.sleep(pause)
            pause = min(pause * 2, 0.1)

    def _leave_out(
        self, adding: dict[TopicPartition, ProduceLane], answers: Mapping[TopicPartition, ErrorCode]
    ) -> None:
        for tp, code in answers.items():
            if code is ErrorCode.NONE or code is ErrorCode.OPERATION_NOT_ATTEMPTED or tp not in adding:
                continue
            if code.retriable and code not in _GONE:
                continue
            if tp == self._journal.tp:
                raise KafkaError(code, f"{tp} cannot be in a transaction of {self.transactional_id}")
            lane = adding.pop(tp)
            self._candidates.drop(lane)
            if code in _GONE:
                self._candidates.aside.put(tp, self._time())
                self._leave(lane)
            else:
                lane.close(RefusedError(tp, -1, f"{code.name}: {code.description}", int(code)))

    def _admit(self, now: Transaction, producer: ProducerId, lanes: Iterable[ProduceLane]) -> None:
        for lane in lanes:
            self._candidates.drop(lane)
            if lane.error is not None:
                continue
            known = lane.producer
            if not lane.identified or (known.producer_id, known.epoch) != producer:
                sequence = self._sequences.get(lane.tp, 0)
                lane.identify(ProducerState(producer.producer_id, producer.epoch, sequence))
            now.lanes.add(lane)
            self._wake(lane)

    def _progress_lane(self) -> ProduceLane:
        if self._progress is None or self._progress.error is not None:
            self._progress = self._open(self._journal.tp)
        return self._progress

    async def _finish(self, now: Transaction, producer: ProducerId) -> None:
        """What has begun, then progress; the transaction is spoiled where that takes too long."""
        now.closing = True
        await self._until_quiet(now)
        written = {
            lane.tp: [write.copied for write in writes]
            for lane, writes in now.writes.items()
            if lane is not self._progress
        }
        if now.spoiled or (not written and not self._journal.pending):
            return
        try:
            batches = self._journal.batches(written)
        except LookupError as error:
            now.spoil(str(error))
            return
        except DisorderError as error:
            now.wrong[error.tp] = error
            now.spoil(str(error))
            return
        await self._write_progress(now, batches)

    async def _until_quiet(self, now: Transaction) -> None:
        began, aside = self._time(), self._candidates.aside
        tried = [aside.patience_s(lane) for lane in now.late if aside.tried(lane)]
        while not now.spoiled:
            self._stirred.clear()
            late = now.late
            if not late:
                return
            limit = max(tried) if tried else _HELD_UP_S if self._hold_up(now, late) else self._settings.end_s
            left = began + min(limit, self._settings.end_s) - self._time()
            if left <= 0:
                self._candidates.leave_out(late, now.silent_brokers(late) - {-1}, self._time())
                now.spoil(f"{', '.join(str(lane.tp) for lane in late[:3])} took too long")
                return
            await self._wait(left)

    def _hold_up(self, now: Transaction, late: Sequence[ProduceLane]) -> bool:
        """Whether partitions of brokers that answer wait for these."""
        silent = now.silent_brokers(late)
        others = (lane for lanes in (now.writes, self._candidates.now(self._time())) for lane in lanes)
        return len(silent) > 0 and any(lane.leader not in silent for lane in others)

    async def _write_progress(self, now: Transaction, batches: Sequence[Buffer]) -> None:
        lane = self._progress_lane()
        ticket = Ticket(asyncio.get_running_loop().create_future(), 0)
        ticket.done.add_done_callback(lambda done: done.exception())  # it may come when nobody waits any more
        ticket.batches = [Pending(built(batch), ticket) for batch in batches]
        lane.offer(ticket)
        self._wake(lane)
        until = self._time() + self._settings.end_s
        while not ticket.done.done() and not now.spoiled:
            self._stirred.clear()
            if self._time() >= until:
                now.spoil("progress could not be written in time")
            elif not ticket.done.done():
                await self._wait(until - self._time())
        if ticket.done.done() and ticket.done.exception() is not None:
            now.spoil(f"progress cannot be written: {ticket.done.exception()}")

    async def _wait(self, seconds: float | None) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stirred.wait()

    def _time(self) -> float:
        return asyncio.get_running_loop().time()
