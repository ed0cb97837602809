"""What moves batches: the two sides of a transfer, as protocols, and what passes between them.

Owns the vocabulary of the engine. An endpoint is a cluster (`transfer.kafka`) or an object store
(`connectors`). A source hands out chunks of whole v2 record batches as they are stored; a sink takes them in
order per partition and answers once they are acknowledged. Neither decodes records unless a batch cannot be
moved as it is.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Protocol

from protocol.types import TopicPartition
from transfer.ledger import Copied


class AbortedTransaction(NamedTuple):
    """A transaction whose records must not be copied: from `first_offset` to its abort marker."""

    producer_id: int
    first_offset: int


@dataclass(slots=True, frozen=True)
class Chunk:
    """Whole batches of one partition, in offset order.

    `first_offset` is the position asked for: the first batch may begin before it (then its earlier records
    are not wanted). `next_offset` is the position behind the chunk, `last_epoch` the leader epoch of its last
    batch. Fields that a source does not know are -1.
    """

    tp: TopicPartition
    batches: memoryview
    first_offset: int
    next_offset: int
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    last_epoch: int = -1
    aborted: tuple[AbortedTransaction, ...] = field(default=())

    @property
    def size(self) -> int:
        """Bytes of record batches."""
        return self.batches.nbytes


class FaultKind(StrEnum):
    """Why a source cannot go on with a partition by itself."""

    RETENTION = "retention passed"
    """Records between the position and the log start are gone."""
    TRUNCATED = "source truncated"
    """The log now ends (or diverges) before the position."""
    RECREATED = "topic re-created"
    """The name now belongs to another topic id."""
    DELETED = "topic deleted"
    FAILED = "failed"
    """Anything else that waiting does not cure, e.g. not authorised or a format that cannot be moved."""


@dataclass(slots=True, frozen=True)
class SourceFault:
    """A partition that the source has stopped reading until it is opened again.

    For RETENTION and TRUNCATED `resume_offset` is where reading can go on. `unseen_s`: for DELETED and
    RECREATED, for how many seconds before that nobody has seen what was written to it.
    """

    tp: TopicPartition
    kind: FaultKind
    position: int
    resume_offset: int
    message: str
    unseen_s: float = 0.0


class TransferError(Exception):
    """A transfer cannot go on; the base of this package's errors."""

    copied: Copied | None = None
    """What was acknowledged of the failed write before the failure, for the ledger."""


class RefusedError(TransferError):
    """The target (or a rule) refuses a batch for good. Concerns only `tp`; nothing behind it was written."""

    unsure = False
    """A part of it was sent, and whether it is written is not known."""

    def __init__(self, tp: TopicPartition, offset: int, reason: str, code: int = 0) -> None:
        super().__init__(f"{tp.topic}-{tp.partition} at source offset {offset}: {reason}")
        self.tp = tp
        self.offset = offset
        self.reason = reason
        self.code = code


class PositionLostError(TransferError):
    """The target no longer knows the producer: what was written last must be found out anew, then go on."""


class DisorderError(TransferError):
    """A write that does not begin where the one before it ended: it was not made, or not booked. What is
    booked is whole, so reading anew from there cures it; it is a fault of this program all the same."""

    def __init__(self, tp: TopicPartition, reason: str) -> None:
        super().__init__(f"{tp.topic}-{tp.partition}: {reason}")
        self.tp = tp
        self.reason = reason
        self.counted = False
        """Whoever keeps ledgers has said so already."""


class AbortedError(TransferError):
    """The transaction that held a write was aborted: nothing of it is there, and it has to be made again."""


class OutcomeUnknownError(AbortedError):
    """The producer was fenced while its transaction ended: what became of it is told by stored progress."""


class BrokenEndpointError(Exception):
    """A task of an endpoint ended by a fault that nobody foresaw: nothing more can be moved, whatever the
    partition. Whoever runs the transfer ends, aloud; a restart finds out what arrived."""


class ClosedError(TransferError):
    """The partition or the endpoint was closed while a write was on its way."""


class BatchSource(Protocol):
    """Reads partitions from given positions. One task calls `read`; the rest may be called while it waits."""

    async def open(self, tp: TopicPartition, from_offset: int) -> None:
        """Starts (or restarts) reading `tp` at `from_offset`."""

    async def close(self, tp: TopicPartition) -> None:
        """Stops reading `tp`; chunks of it that are already on the way are dropped."""

    def pause(self, tp: TopicPartition) -> None:
        """Asks for no more of `tp` until `resume` (flow control)."""

    def resume(self, tp: TopicPartition) -> None:
        """Undoes `pause`."""

    async def read(self) -> list[Chunk | SourceFault]:
        """Waits for the next chunks; an empty list means that a bounded source has nothing left."""

    async def aclose(self) -> None:
        """Releases connections and tasks."""


class BatchSink(Protocol):
    """Takes chunks. Calls for one partition are made in offset order and may overlap (several in flight)."""

    def write(self, tp: TopicPartition, chunk: Chunk) -> Awaitable[Copied]:
        """Appends a chunk to `tp` (a name of the target); what it gives is there once it is acknowledged.

        Retries what can be retried, in order. Raises RefusedError; later writes of the same partition that
        were in flight then fail too, so that the caller can go on at the refused offset. A coroutine runs in
        the caller's task up to where it first waits (`transfer.eager`): no time limits before that.
        """

    async def aclose(self) -> None:
        """Waits for nothing; releases connections and tasks."""
