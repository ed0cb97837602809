"""One partition's way into a Kafka cluster: sequences, batches in flight, and order over retries (KIP-98).

Owns plain state: events and a clock go in, batches to send come out. It must not know sockets, leaders or
requests. Sequence numbers belong to a batch from its first sending on, so that a retry is recognised by the
broker. One batch is in flight until the first is acknowledged, again while retrying, and after a rest: a
broker without state for a producer (it forgets those that rest: `producer.id.expiration.ms`) takes any
sequence number, and a successor must not overtake a failed batch.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Protocol

from protocol.records.header import TRANSACTIONAL
from protocol.types import ZERO_UUID, Buffer, TopicPartition
from transfer.endpoint import ClosedError, DisorderError, TransferError
from transfer.kafka.written import Written
from transfer.ledger import Copied, DiscontinuityError, ProducerState
from transfer.offset_map import Run
from transfer.rewrite import Outgoing, next_sequence, seal

MAX_IN_FLIGHT = 5
_NOBODY = ProducerState(-1, -1, 0)
_FIRST_BACKOFF_S = 0.05
_LONGEST_BACKOFF_S = 2.0
_RESTED_S = 60.0
"""A producer that wrote nothing for so long may be forgotten; brokers remember it for a day by default."""


@dataclass(slots=True, eq=False)
class Ticket:
    """One `write`: its batches, what is known of their places, and who waits."""

    done: asyncio.Future[Copied]
    next_source_offset: int
    epoch: int = -1
    source: TopicPartition | None = None
    first_source_offset: int = -1
    """Where it begins; -1: it is no part of a source."""
    batches: list[Pending] = field(default_factory=list)
    open: int = 0
    target_epoch: int = -1
    """Leader epoch by which the leader was known that answered last: it had what others had answered for."""

    def copied(self, producer: ProducerState | None) -> Copied:
        """The acknowledged batches up to the first that is not."""
        runs: list[list[int]] = []
        last = [-1, -1, 0]
        crcs: list[int] = []
        records = size = written = 0
        position = epoch = timestamp = -1
        for pending in self.batches:
            target = pending.base_offset
            if target is None:
                break
            out = pending.out
            for source, length in out.sources:
                if source - last[0] == last[2] == target - last[1]:
                    last[2] += length
                else:
                    last = [source, target, length]
                    runs.append(last)
                target += length
            crcs += out.source_crcs
            records += out.record_count
            written += 1
            size += out.source_size
            position = out.next_source_offset
            epoch = out.source_epoch
            timestamp = out.max_timestamp
        if not self.open:
            position, epoch = self.next_source_offset, self.epoch
        joined = tuple(map(Run._make, runs))
        return Copied(
            joined,
            position,
            records,
            size,
            tuple(crcs),
            producer,
            epoch,
            timestamp,
            written=written,
            first_source_offset=self.first_source_offset,
            at_ms=time.time_ns() // 1_000_000,
            target_epoch=self.target_epoch,
        )


@dataclass(slots=True, eq=False)
class Pending:
    """A batch on its way. `base_offset` is its place at the target once acknowledged."""

    out: Outgoing
    ticket: Ticket
    sequence: int = -1
    base_offset: int | None = None
    segments: list[Buffer] | None = None
    repeated: bool = False
    """Whether it was sent before, and may be there although the answer to the last sending says no."""


class Gate(Protocol):
    """What a transaction decides about a lane."""

    def lets(self, lane: ProduceLane, pending: Pending) -> bool:
        """Whether the lane's next batch may be sent now."""

    def landed(self, lane: ProduceLane, ticket: Ticket, copied: Copied, error: TransferError | None) -> None:
        """All batches of a ticket, or with `error` those before the failure, are written, not committed. The
        gate answers whoever waits."""


class ProduceLane:
    """Order and identity of one partition's batches. With a `gate` they are parts of transactions."""

    def __init__(
        self,
        tp: TopicPartition,
        producer: ProducerState | None = None,
        topic_id: bytes = ZERO_UUID,
        gate: Gate | None = None,
        position: int = -1,
        written: Written | None = None,
    ) -> None:
        """`position` is the source offset at which the first write has to begin; -1: anywhere. `written` is
        what the target has acknowledged before."""
        self.written = written or Written()
        self._gate = gate
        self._position = position
        self._passed_from = -1
        """Where the writes without data since the last one with data began."""
        self.tp = tp
        self.leader = -1
        self.topic_id = topic_id
        self.not_before = 0.0
        self.error: TransferError | None = None
        self.broken: Exception | None = None
        """What writes fail with, whatever `error` says, once the whole endpoint is broken."""
        self.retries = 0
        self._blocked: TransferError | None = None
        self._producer = producer or _NOBODY
        self._next_sequence = self._producer.next_sequence
        self._queue: deque[Pending] = deque()
        self._in_flight: deque[Pending] = deque()
        self._failed: list[Pending] = []
        self._tickets: deque[Ticket] = deque()
        self._window = 1
        self._taken_at = 0.0
        self._attempt = 0

    @property
    def identified(self) -> bool:
        """Whether the producer that writes is known; nothing is sent before."""
        return self._producer is not _NOBODY

    @property
    def producer(self) -> ProducerState:
        """Where it stands behind the last acknowledged write."""
        return self._producer

    @property
    def transactional(self) -> bool:
        """Whether what it writes is parts of transactions."""
        return self._gate is not None

    @property
    def quiet(self) -> bool:
        """Whether every write that has begun is acknowledged in full."""
        return not self._in_flight and not self._failed and not (self._queue and has_begun(self._queue[0]))

    @property
    def troubled(self) -> bool:
        """Whether what was sent last failed, and nothing has been taken since."""
        return self._attempt > 0

    def identify(self, producer: ProducerState) -> None:
        """Gives the lane its producer, while nothing of it is on its way."""
        self._window = 1  # the broker may know nothing of it
        self._producer = producer
        self._next_sequence = producer.next_sequence

    def offer(self, ticket: Ticket) -> None:
        """Queues the batches of a write. One that does not continue the last fails, and all behind it do."""
        error = self.error or self._blocked or self._out_of_place(ticket)
        if error is not None:
            self.block(error)
            ticket.done.set_exception(self.broken or error)
            return
        ticket.open = len(ticket.batches)
        self._tickets.append(ticket)
        self._queue.extend(ticket.batches)
        self._finish_tickets()

    def _out_of_place(self, ticket: Ticket) -> DisorderError | None:
        """Looks that it begins where the last one ended. What was passed without data is of the next write
        with data: a transaction holds that one only."""
        first = ticket.first_source_offset
        if first < 0:
            return None
        if first != self._position and self._position >= 0:
            return DisorderError(self.tp, f"{DiscontinuityError(first, self._position)}; it is not sent")
        self._position = ticket.next_source_offset
        if not ticket.batches:
            self._passed_from = first if self._passed_from < 0 else self._passed_from
        elif self._passed_from >= 0:
            ticket.first_source_offset, self._passed_from = self._passed_from, -1
        return None

    def take(self, now: float) -> Pending | None:
        """The next batch to send, sealed; None while nothing may be sent."""
        if not self._queue or self._failed or len(self._in_flight) >= self._window or now < self.not_before:
            return None
        producer = self._producer
        if producer is _NOBODY:
            return None
        if now - self._taken_at > _RESTED_S and not self._in_flight:
            self._window = 1
        if self._gate is not None and not self._gate.lets(self, self._queue[0]):
            return None
        pending = self._queue.popleft()
        if pending.segments is None:
            out = pending.out
            if self._gate is not None:
                out.attributes |= TRANSACTIONAL
            pending.sequence = sequence = self._next_sequence
            self._next_sequence = next_sequence(sequence, out.record_count)
            pending.segments = seal(out, producer.producer_id, producer.epoch, sequence)
        self._in_flight.append(pending)
        self._taken_at = now
        return pending

    @property
    def open(self) -> bool:
        """Whether one more batch may be on its way, and there is one."""
        return bool(self._queue) and len(self._in_flight) < self._window

    @property
    def waiting(self) -> bool:
        """Whether batches are queued (perhaps held back by the window or a back-off)."""
        return bool(self._queue) and not self._failed

    @property
    def awaited(self) -> bool:
        """Whether an answer is on its way."""
        return bool(self._in_flight)

    @property
    def idle(self) -> bool:
        """Whether nothing is queued or in flight."""
        return not (self._queue or self._in_flight or self._failed)

    def acknowledged(self, pending: Pending, base_offset: int) -> bool:
        """The broker has the batch at `base_offset`. Whether there is more to send; False, and nothing is
        done, for a batch that nobody waits for any more."""
        if not self._landed(pending):
            return False
        pending.base_offset = base_offset
        pending.segments = None
        ticket = pending.ticket
        ticket.target_epoch = self.written.epoch
        self.written.acknowledged(base_offset, pending.out.record_count)
        ticket.open -= 1
        self._window = MAX_IN_FLIGHT
        self._attempt = 0
        if not ticket.open or self._failed or self.error is not None:
            self._settle(None)
        return bool(self._queue)

    def retry(self, pending: Pending, now: float) -> None:
        """The batch may not have been written: send it again, first, after a back-off."""
        self._landed(pending)
        pending.repeated = True
        self._failed.append(pending)
        self._settle(now)

    def close(self, error: TransferError, pending: Pending | None = None) -> None:
        """Gives up with `error`; writes fail once nothing is in flight any more."""
        if pending is not None:
            self._landed(pending)
        if self.error is None:
            self.error = error
        self._settle(None)

    def block(self, error: TransferError) -> None:
        """Takes no more writes; those offered before go on."""
        self._blocked = self._blocked or error

    def abandon(self, error: TransferError) -> None:
        """Gives up now; answers that are still on the way will not be looked at."""
        self.error = self.error or error
        self._in_flight.clear()
        self._settle(None)

    def owns(self, pending: Pending) -> bool:
        """Whether an answer for `pending` still matters."""
        return pending in self._in_flight

    def follows_trouble(self, pending: Pending) -> bool:
        """Whether a batch before `pending` has failed or has no answer yet."""
        return bool(self._failed) or (pending in self._in_flight and self._in_flight[0] is not pending)

    def _landed(self, pending: Pending) -> bool:
        """It is not on its way any more; False where it was not."""
        in_flight = self._in_flight
        if in_flight and in_flight[0] is pending:  # nearly always: answers come in order
            in_flight.popleft()
        elif pending in in_flight:
            in_flight.remove(pending)
        else:
            return False
        return True

    def _settle(self, failed_at: float | None) -> None:
        if self.error is not None:
            self._queue.clear()
            self._failed.clear()
            self._finish_tickets()
            if not self._in_flight:
                self._fail_tickets(self.error)
            return
        if self._failed and not self._in_flight:
            self._failed.sort(key=self._age)
            self._queue.extendleft(reversed(self._failed))
            self._failed.clear()
            self._window = 1
            self.retries += 1
            if failed_at is not None:
                backoff = min(_FIRST_BACKOFF_S * 2**self._attempt, _LONGEST_BACKOFF_S)
                self.not_before = failed_at + backoff
                self._attempt = min(self._attempt + 1, 10)
        self._finish_tickets()

    def _age(self, pending: Pending) -> int:
        """Sequence order, also across the wrap to 0."""
        return (pending.sequence - self._next_sequence) & 0x7FFF_FFFF

    def _finish_tickets(self) -> None:
        while self._tickets and not self._tickets[0].open:
            ticket = self._tickets.popleft()
            if ticket.batches:
                last = ticket.batches[-1]
                self._producer = self._producer._replace(
                    next_sequence=next_sequence(last.sequence, last.out.record_count)
                )
            if self._gate is not None and ticket.batches:
                self._gate.landed(self, ticket, ticket.copied(None), None)
            elif not ticket.done.done():
                ticket.done.set_result(ticket.copied(self._producer if self._gate is None else None))
            ticket.batches.clear()  # they point back here: without a cycle their memory is free at once

    def _fail_tickets(self, error: TransferError) -> None:
        tickets, self._tickets = self._tickets, deque()  # a gate may give the lane up while it is told
        if tickets:
            error = self._with_partial(error, tickets[0])
        for ticket in tickets:
            if self._gate is not None and error.copied is not None:
                self._gate.landed(self, ticket, error.copied, error)
            elif not ticket.done.done():
                ticket.done.set_exception(self.broken or error)
            ticket.batches.clear()
            error = ClosedError(f"{self.tp.topic}-{self.tp.partition}: an earlier write failed")

    def _with_partial(self, error: TransferError, ticket: Ticket) -> TransferError:
        # Up to the first that is not known to be there, as `Ticket.copied` tells: one behind it may well be.
        written = list(takewhile(lambda pending: pending.base_offset is not None, ticket.batches))
        if written:
            last = written[-1]
            producer = self._producer._replace(
                next_sequence=next_sequence(last.sequence, last.out.record_count)
            )
            self._producer = producer
            error.copied = ticket.copied(producer if self._gate is None else None)
        return error


def has_begun(pending: Pending) -> bool:
    """Whether it, or a batch of the same write before it, was sent."""
    return pending.segments is not None or pending.ticket.batches[0] is not pending
