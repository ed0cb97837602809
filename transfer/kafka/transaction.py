"""One transaction of a producer: plain state, no I/O.

Owns what is in a transaction, what may be sent in it, and what became of it for those who wait (KIP-98). It
must not know requests or how progress is kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from protocol.types import TopicPartition
from transfer.endpoint import AbortedError, TransferError
from transfer.kafka.lane import Pending, ProduceLane, Ticket, has_begun
from transfer.ledger import Copied


@dataclass(slots=True, eq=False)
class Write:
    """A write that stands in the transaction; `error`: what came behind it failed."""

    ticket: Ticket
    copied: Copied
    error: TransferError | None


@dataclass(slots=True, eq=False)
class Transaction:
    """From the first partition that is added until its end is known."""

    lanes: set[ProduceLane] = field(default_factory=set)
    writes: dict[ProduceLane, list[Write]] = field(default_factory=dict)
    size: int = 0
    spoiled: str = ""
    """Why it can only be aborted."""
    closing: bool = False
    """Writes that have begun are finished, no others begin."""
    wrong: dict[TopicPartition, TransferError] = field(default_factory=dict)
    """Partitions that it was spoiled for, and what they are told instead of the others."""

    def lets(self, lane: ProduceLane, pending: Pending) -> bool:
        """Whether a batch may be sent now."""
        if lane not in self.lanes or self.spoiled:
            return False
        return not self.closing or has_begun(pending)

    def landed(self, lane: ProduceLane, write: Write) -> None:
        """A write is acknowledged."""
        self.writes.setdefault(lane, []).append(write)
        self.size += write.copied.bytes

    def spoil(self, why: str) -> None:
        """It must not be committed."""
        self.spoiled = self.spoiled or why

    def holds(self, lane: ProduceLane) -> bool:
        """Whether the lane's fate hangs on it."""
        return lane in self.lanes and (lane in self.writes or not lane.quiet)

    @property
    def late(self) -> list[ProduceLane]:
        """Lanes with writes that have begun and are not acknowledged."""
        return [lane for lane in self.lanes if not lane.quiet]

    def silent_brokers(self, late: Iterable[ProduceLane]) -> set[int]:
        """Leaders of late lanes that have acknowledged nothing in this transaction (-1: it is looked for)."""
        return {lane.leader for lane in late} - {lane.leader for lane in self.writes}

    def committed(self) -> None:
        """Answers all who wait."""
        for writes in self.writes.values():
            for write in writes:
                if write.ticket.done.done():
                    continue
                if write.error is None:
                    write.ticket.done.set_result(write.copied)
                else:
                    write.ticket.done.set_exception(write.error)

    def failed(self, kind: type[AbortedError], why: str) -> None:
        """Nothing of it counts: all of its partitions have to begin again."""
        for lane in self.lanes:
            error = self.wrong.get(lane.tp) or kind(f"{lane.tp.topic}-{lane.tp.partition}: {why}")
            for write in self.writes.get(lane, ()):
                if not write.ticket.done.done():
                    write.ticket.done.set_exception(error)
            if lane in self.writes or not lane.quiet:
                lane.abandon(error)
