"""Progress as a part of the transactions that hold the data (`exactly_once`), and who else may have one open.

Owns the ledgers as they will be once the transaction of this moment is committed, the records that say so,
and the list of transactional ids in the progress topic by which a successor finds what to fence. The book's
own ledgers move only afterwards. A successor fences first and reads then: what was not committed never
counts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from protocol.client import ClientError, ClusterClient
from protocol.types import TopicPartition
from replicator.book import Book
from replicator.entry_rows import RUNS_PER_SLICE, Entry, rows_of, tail_rows_of
from replicator.progress import ProgressStore
from transfer.endpoint import DisorderError
from transfer.ledger import Copied, DiscontinuityError, book_into
from transfer.offset_map import OffsetMap

_log = logging.getLogger("isthmus.replicator")

_LOOK_AGAIN_S = 0.1
_DECIDED_S = 5.0


@dataclass(slots=True)
class Ahead:
    """A partition's entry as a transaction will leave it. `whole`: with all runs, else with those that are
    not in stored slices (a copy of the long history for each transaction would cost more than the data)."""

    entry: Entry
    whole: bool = False
    _stored: tuple[int, OffsetMap] | None = None
    """Slices and runs that it has once the rows given last are committed."""

    @classmethod
    def of(cls, entry: Entry) -> Ahead:
        """As it stands before the transaction."""
        sealed = min(entry.sealed, max(len(entry.ledger.runs) - 1, 0) // RUNS_PER_SLICE)
        ahead = _copy(entry, sealed * RUNS_PER_SLICE)
        ahead.sealed = sealed
        return cls(ahead)

    def add(self, copied: Copied, now: Entry) -> None:
        """Books a write. `now` is the committed entry. Raises DiscontinuityError."""
        if copied.runs and copied.runs[0].target < self.entry.ledger.runs.target_end and not self.whole:
            self.entry, self.whole = _copy(now, 0), True
        position = self.entry.ledger.next_source_offset
        book_into(self.entry.ledger, copied)
        self.entry.reached(copied, position)

    def passed(self, now: Entry) -> None:
        """What the committed entry has left behind without a write counts here too."""
        if now.ledger.next_source_offset > self.entry.ledger.next_source_offset:
            self.entry.ledger.runs.cover_to(now.ledger.next_source_offset)
            self.entry.epoch, self.entry.epochs = now.epoch, now.epochs.copy()

    def rows(self, epoch: int) -> list[tuple[bytes, bytes | None]]:
        """What is to be stored of it."""
        if self.whole:
            rows, sealed = rows_of(self.entry, epoch)
            self._stored = sealed, self.entry.ledger.runs
        else:
            rows, sealed, runs = tail_rows_of(self.entry, epoch)
            self._stored = sealed, runs
        return rows

    def committed(self) -> None:
        """The rows given last count."""
        if self._stored is not None:
            self.entry.sealed, self.entry.ledger.runs = self._stored


def _copy(entry: Entry, first_run: int) -> Entry:
    ledger = entry.ledger
    copied = replace(
        ledger, runs=ledger.runs.part(first_run), gaps=list(ledger.gaps), notes=list(ledger.notes)
    )
    return replace(entry, ledger=copied, epochs=entry.epochs.copy(), at_target=entry.at_target.copy())


class TransactionalProgress:
    """`Journal` of a link's worker."""

    def __init__(self, book: Book, store: ProgressStore, incarnation: Callable[[], str]) -> None:
        self._book = book
        self._store = store
        self._incarnation = incarnation
        self._ahead: dict[TopicPartition, Ahead] = {}
        self._touched: dict[TopicPartition, Ahead] = {}
        self._moved: set[TopicPartition] = set()
        """Of these: with data in the transaction."""
        self._undone: set[TopicPartition] = set()
        """Their data was aborted: nothing of them is stored until they begin anew."""
        self._wanted: set[TopicPartition] = set()
        """To be stored although nothing of them was copied."""
        self._asked: set[TopicPartition] = set()
        self._over = asyncio.Event()
        self.ask: Callable[[], None] = lambda: None
        """Has a transaction begun soon."""

    @property
    def tp(self) -> TopicPartition:
        """Where progress is."""
        return TopicPartition(self._store.name, 0)

    def holds_back(self, tp: TopicPartition) -> bool:
        """Whether what the book has of a partition may be less than what is committed."""
        return tp in self._undone

    @property
    def pending(self) -> bool:
        """Whether something has to be stored again."""
        return bool(self._wanted)

    async def register(self, transactional_id: str) -> None:
        """Whoever comes after us finds the id, whatever becomes of us."""
        await self._store.save_transactional_id(transactional_id, self._incarnation())

    def forget(self, tp: TopicPartition) -> None:
        """The partition begins anew from what the book has. To be called only when nothing of it is on its
        way: the book hears of what is committed a moment later, of a write in several parts at its end."""
        self._ahead.pop(tp, None)
        self._undone.discard(tp)

    async def save(self, tps: Collection[TopicPartition]) -> None:
        """Stores what the book has of them; returns once it is committed. Those whose data is aborted
        meanwhile are marked in the book again."""
        waiting = set(tps)
        self._wanted |= waiting
        self._asked -= waiting  # the rows of a transaction that ends just now are of what was before
        while waiting & self._wanted:
            self._over.clear()
            self.ask()
            await self._over.wait()

    def batches(self, written: Mapping[TopicPartition, Sequence[Copied]]) -> list[bytes]:
        """Records of all partitions that a transaction moves. Raises LookupError when one was given up, and
        DisorderError when what was written of one does not continue what is stored."""
        accounts = {account.target: account for account in self._book.accounts.values()}
        self._touched, self._moved, self._asked = {}, set(), set(self._wanted)
        for target, writes in written.items():
            account = accounts.get(target)
            if account is None or account.entry is None:
                raise LookupError(f"{target} is not copied here any more")
            ahead = self._ahead_of(account.tp, account.entry)
            self._moved.add(account.tp)
            try:
                for copied in writes:
                    ahead.add(copied, account.entry)
            except DiscontinuityError as error:
                disorder = DisorderError(target, str(error))
                self._book.disorder(account, disorder)
                raise disorder from error
        for tp in self._wanted:
            account = self._book.accounts.get(tp)
            if account is not None and account.entry is not None:
                self._ahead_of(tp, account.entry).passed(account.entry)
        rows = [row for ahead in self._touched.values() for row in ahead.rows(self._store.epoch)]
        return self._store.batches(rows)

    def _ahead_of(self, tp: TopicPartition, entry: Entry) -> Ahead:
        ahead = self._ahead.get(tp)
        if ahead is None:
            ahead = self._ahead[tp] = Ahead.of(entry)
        self._touched[tp] = ahead
        return ahead

    def ended(self, *, committed: bool) -> None:
        """The transaction is over."""
        touched, self._touched = self._touched, {}
        if committed:
            self._wanted -= self._asked
            for tp, ahead in touched.items():
                ahead.committed()
                account = self._book.accounts.get(tp)
                if account is not None and account.entry is not None and self._ahead.get(tp) is ahead:
                    account.entry.sealed = ahead.entry.sealed
        else:
            self._undo(self._moved)
        self._asked, self._moved = set(), set()
        self._over.set()

    def _undo(self, moved: Collection[TopicPartition]) -> None:
        """They begin anew; until then the book may know less than what was committed before."""
        for tp in moved:
            self._ahead.pop(tp, None)
        self._undone |= set(moved)
        for tp in self._wanted & self._undone:
            self._book.mark(tp)
        self._wanted -= self._undone


class Decisions:
    """Waits for what the last owner of a partition has committed. A coordinator says so once it has decided;
    until it has written the marker, the row is in the log and does not count (KIP-98). Whoever began before
    that would copy once more what is copied."""

    def __init__(self, store: ProgressStore) -> None:
        self._store = store
        self._reading = asyncio.Lock()  # many partitions may wait; one of them looks

    async def wait(self, tp: TopicPartition) -> None:
        """Reads on until no open transaction has progress of the partition. Raises ClientError when that
        takes long, ProtocolError."""
        try:
            async with asyncio.timeout(_DECIDED_S):
                while self._store.open_transaction(tp) is not None:
                    async with self._reading:
                        if self._store.open_transaction(tp) is not None:
                            await asyncio.sleep(_LOOK_AGAIN_S)
                            await self._store.refresh()
        except TimeoutError as error:
            producer, offset = self._store.open_transaction(tp) or (-1, -1)
            raise ClientError(
                f"progress of {tp} stands in a transaction of producer {producer} in {self._store.name}-0"
                f" (from offset {offset} on) that was neither committed nor aborted for {_DECIDED_S:.0f} s:"
                " its coordinator has still to write the marker. If it never does (Apache Kafka forgets it"
                " where the broker with the only replica is stopped meanwhile), kafka-transactions.sh"
                " find-hanging names all partitions that wait, and abort --topic"
                f" {self._store.name} --partition 0 --start-offset {offset} ends this one"
            ) from error


async def fence(
    client: ClusterClient,
    store: ProgressStore,
    living: Callable[[], Collection[str]],
    timeout_ms: int = 30_000,
    begins: Callable[[], None] = lambda: None,
) -> None:
    """Takes the transactional ids of all who are gone: what they left open is aborted, and one that was only
    paused can end nothing any more. To be done before progress is read. Raises ProtocolError.

    Each takes a while, in which a worker that was paused may join again: it is left alone then, and what it
    has registered meanwhile stays on record. `begins` is called where there is somebody to fence.
    """
    progress = await store.refresh()
    seen = dict(progress.registrations)
    gone = []
    for name, owner in list(progress.transactional_ids.items()):
        if owner not in living():
            begins()
            _log.info("the producer %s of a worker that is gone is fenced", name)
            await client.init_transactional_producer(name, timeout_ms)
            gone.append(name)
    if gone:
        progress = await store.refresh()
        again = {name for name in gone if progress.registrations[name] != seen.get(name, 0)}
        await store.forget_transactional_ids([name for name in gone if name not in again])
