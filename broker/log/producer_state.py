"""What a partition remembers of its idempotent and transactional producers (KIP-98; Kafka's
ProducerStateManager).

Owns: the last five batches of each producer (to know duplicates and holes), its epoch, its open
transaction, and which transactions keep the last stable offset back. Plain state: the log tells it what was
appended, truncated or replicated, and reads and writes the snapshots. Checking (`check`) never changes
anything, `update` never refuses.

A producer is forgotten `expiration_ms` after its last append *here*, by our clock. Record timestamps do not
count (old data may be loaded with an old timestamp), nor does the deletion of its records.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from broker.log.errors import AppendRefused
from broker.log.producer_snapshot import SnapshotEntry
from protocol.errors import ErrorCode
from protocol.records import BatchHeader
from protocol.records.header import TRANSACTIONAL

WINDOW: Final = 5
"""Batches remembered per producer; clients keep at most this many in flight."""
NO_SEQUENCE: Final = -1
_SEQUENCE_MASK: Final = 0x7FFF_FFFF


class SeenBatch(NamedTuple):
    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class CompletedTxn(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    """Offset of the marker."""
    aborted: bool


class Producer:
    __slots__ = (
        "batches", "coordinator_epoch", "epoch", "last_sequence", "producer_id", "touched_ms",
        "txn_first_offset",
    )  # fmt: skip

    def __init__(self, producer_id: int, epoch: int, touched_ms: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = -1
        self.touched_ms = touched_ms
        self.txn_first_offset: int | None = None
        self.last_sequence = NO_SEQUENCE
        self.batches: list[SeenBatch] = []


class ProducerStates:
    __slots__ = ("_ongoing", "_producers", "completed", "expiration_ms", "where")

    def __init__(self, where: str, expiration_ms: int = 86_400_000) -> None:
        self.where = where
        self.expiration_ms = expiration_ms
        self._producers: dict[int, Producer] = {}
        self._ongoing: dict[int, int] = {}
        """First offset of each open transaction -> producer id, in offset order."""
        self.completed: list[CompletedTxn] = []
        """Ended transactions whose marker is not below the high watermark yet."""

    def __len__(self) -> int:
        return len(self._producers)

    def __iter__(self) -> Iterator[Producer]:
        return iter(list(self._producers.values()))

    def get(self, producer_id: int) -> Producer | None:
        return self._producers.get(producer_id)

    # --- before the append

    def follows(self, producer_id: int, epoch: int, sequence: int, attributes: int) -> bool:
        """Whether the batch is simply the next one of a producer that is known; if not, `duplicate` and
        `check` tell more.
        """
        producer = self._producers.get(producer_id)
        return (
            producer is not None
            and sequence == (producer.last_sequence + 1) & _SEQUENCE_MASK
            and epoch == producer.epoch
            and (producer.txn_first_offset is None or bool(attributes & TRANSACTIONAL))
        )

    def duplicate(self, header: BatchHeader) -> SeenBatch | None:
        """The batch as stored before, when this one is a retry that we still remember."""
        producer = self._producers.get(header.producer_id)
        if producer is None or producer.epoch != header.producer_epoch:
            return None
        first, last = header.base_sequence, header.last_sequence
        for batch in producer.batches:
            if batch.first_sequence == first and batch.last_sequence == last:
                return batch
        return None

    def check(self, header: BatchHeader, pending: tuple[int, int] | None = None) -> None:
        """Refuse a batch of an old epoch or with a hole before it. Raises `AppendRefused`.

        `pending` is (epoch, last sequence) of an earlier batch of this producer in the same append.
        """
        producer = self._producers.get(header.producer_id)
        if producer is None and pending is None:
            return  # never seen, or expired: any sequence starts it, as in Kafka
        if pending is not None:
            epoch, last = pending
        else:
            assert producer is not None
            epoch, last = producer.epoch, producer.last_sequence
        if header.producer_epoch < epoch:
            self._refuse_epoch(header, epoch)
        first = header.base_sequence
        expected = 0 if header.producer_epoch > epoch else (last + 1) & _SEQUENCE_MASK
        if first != expected:
            raise AppendRefused(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"{self.where}: producer {header.producer_id} epoch {header.producer_epoch} sent"
                f" sequence {first} after {last} of epoch {epoch}: batches between them are missing",
            )
        if producer and producer.txn_first_offset is not None and not header.is_transactional:
            raise AppendRefused(
                ErrorCode.INVALID_TXN_STATE,
                f"{self.where}: producer {header.producer_id} has an open transaction since offset"
                f" {producer.txn_first_offset}, but sent a batch outside of it",
            )

    def check_epoch(self, header: BatchHeader) -> None:
        """Refuse a batch of an old epoch. Raises `AppendRefused`."""
        producer = self._producers.get(header.producer_id)
        if producer is not None and header.producer_epoch < producer.epoch:
            self._refuse_epoch(header, producer.epoch)

    def check_marker(self, header: BatchHeader, coordinator_epoch: int) -> None:
        """Refuse a transaction marker of an old producer or coordinator epoch. Raises `AppendRefused`."""
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return
        if header.producer_epoch < producer.epoch:
            self._refuse_epoch(header, producer.epoch)
        if coordinator_epoch < producer.coordinator_epoch:
            raise AppendRefused(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"{self.where}: marker for producer {header.producer_id} comes from coordinator epoch"
                f" {coordinator_epoch}, but {producer.coordinator_epoch} wrote already",
            )

    def _refuse_epoch(self, header: BatchHeader, epoch: int) -> None:
        raise AppendRefused(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"{self.where}: producer {header.producer_id} sent epoch {header.producer_epoch},"
            f" a newer instance with epoch {epoch} has taken over",
        )

    # --- after the append

    def update(self, header: BatchHeader, first_offset: int, now_ms: int) -> None:
        """Remember a data batch that was stored at `first_offset`."""
        producer = self._producers.get(header.producer_id)
        if producer is None or producer.epoch != header.producer_epoch:
            producer = self._enter(header.producer_id, header.producer_epoch, now_ms)
        producer.touched_ms = now_ms
        delta = header.last_offset_delta
        first = header.base_sequence
        last = producer.last_sequence = (first + delta) & _SEQUENCE_MASK if first >= 0 else first
        batches = producer.batches
        if len(batches) == WINDOW:
            del batches[0]
        seen = (first, last, first_offset, first_offset + delta, header.max_timestamp)
        batches.append(tuple.__new__(SeenBatch, seen))
        if header.attributes & TRANSACTIONAL and producer.txn_first_offset is None:
            producer.txn_first_offset = first_offset
            self._ongoing[first_offset] = header.producer_id

    def end_transaction(
        self, header: BatchHeader, offset: int, *, commit: bool, coordinator_epoch: int, now_ms: int
    ) -> CompletedTxn | None:
        """Take in a marker stored at `offset`; None when the producer had nothing open here."""
        producer = self._enter(header.producer_id, header.producer_epoch, now_ms)
        producer.coordinator_epoch = coordinator_epoch
        first, producer.txn_first_offset = producer.txn_first_offset, None
        if first is None:
            return None
        self._ongoing.pop(first, None)
        done = CompletedTxn(header.producer_id, first, offset, not commit)
        self.completed.append(done)
        return done

    def _enter(self, producer_id: int, epoch: int, now_ms: int) -> Producer:
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._producers[producer_id] = Producer(producer_id, epoch, now_ms)
        elif producer.epoch != epoch:
            producer.epoch = epoch
            producer.batches.clear()
            producer.last_sequence = NO_SEQUENCE
        producer.touched_ms = now_ms
        return producer

    # --- transactions and the last stable offset

    @property
    def first_unstable(self) -> int | None:
        """First offset of the oldest transaction that is open, or ended above the high watermark."""
        oldest = next(iter(self._ongoing), None)
        for txn in self.completed:
            if oldest is None or txn.first_offset < oldest:
                oldest = txn.first_offset
        return oldest

    def stable_after(self, done: CompletedTxn) -> int:
        """Last stable offset once `done` has ended: what an aborted entry in the index records."""
        others = [first for first in self._ongoing if first != done.first_offset]
        return min(others, default=done.last_offset + 1)

    def on_high_watermark(self, high_watermark: int) -> None:
        if self.completed:
            self.completed = [txn for txn in self.completed if txn.last_offset >= high_watermark]

    def expire(self, now_ms: int) -> int:
        """Forget producers that were quiet for too long and have nothing open; returns how many."""
        limit = now_ms - self.expiration_ms
        old = [
            p.producer_id
            for p in self._producers.values()
            if p.txn_first_offset is None and p.touched_ms <= limit
        ]
        for producer_id in old:
            del self._producers[producer_id]
        return len(old)

    def last_data_offsets(self) -> dict[int, tuple[int, int]]:
        """Epoch and last offset of data (-1: only a marker of this epoch) of each producer: compaction keeps
        those batches, because they hold the last sequence.
        """
        return {
            p.producer_id: (p.epoch, p.batches[-1].last_offset if p.batches else -1)
            for p in self._producers.values()
        }

    def end_all(self) -> None:
        """The log goes on under other producers: those before are forgotten. Markers ended what they had
        open; whoever wrote those did not know of a transaction that is open here still, because its records
        are gone there, and nobody will end it.
        """
        self._producers.clear()
        self._ongoing.clear()

    def open_transactions(self) -> list[Producer]:
        """Producers whose transaction is open, the oldest first."""
        return [self._producers[producer_id] for producer_id in self._ongoing.values()]

    # --- snapshots

    def clear(self) -> None:
        self._producers.clear()
        self._ongoing.clear()
        self.completed.clear()

    def to_snapshot(self) -> list[SnapshotEntry]:
        """Kafka keeps only the last batch of each producer in a snapshot; its timestamp here is the last
        append.
        """
        entries = []
        for p in self._producers.values():
            last = p.batches[-1] if p.batches else SeenBatch(-1, -1, -1, -1, -1)
            first_open = -1 if p.txn_first_offset is None else p.txn_first_offset
            entries.append(
                SnapshotEntry(
                    p.producer_id,
                    p.epoch,
                    last.last_sequence,
                    last.last_offset,
                    last.last_offset - last.first_offset,
                    p.touched_ms,
                    p.coordinator_epoch,
                    first_open,
                )
            )
        return entries

    def load_snapshot(self, entries: Iterable[SnapshotEntry], now_ms: int) -> None:
        """Start from a snapshot. Producers count as active now at the earliest: Kafka stores record
        timestamps.
        """
        self.clear()
        for e in entries:
            producer = self._producers[e.producer_id] = Producer(e.producer_id, e.epoch, now_ms)
            producer.coordinator_epoch = e.coordinator_epoch
            if e.last_offset >= 0:
                first = (e.last_sequence - e.offset_delta) & _SEQUENCE_MASK
                producer.last_sequence = e.last_sequence
                producer.batches.append(
                    SeenBatch(
                        first, e.last_sequence, e.last_offset - e.offset_delta, e.last_offset, e.timestamp
                    )
                )
            if e.txn_first_offset >= 0:
                producer.txn_first_offset = e.txn_first_offset
        opened = [p for p in self._producers.values() if p.txn_first_offset is not None]
        for producer in sorted(opened, key=lambda p: p.txn_first_offset or 0):
            assert producer.txn_first_offset is not None
            self._ongoing[producer.txn_first_offset] = producer.producer_id
