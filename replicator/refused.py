"""A batch that the target refuses because of its records: taken apart, so that only these stay behind.

Owns which refusals are about records (their size, their time) and halving the batch until each part is
written or is one record that the target does not take. That one becomes a dead letter and a gap, or, without
dead letters, the partition stops before it. A refusal for any other reason (no right to write, a damaged
batch) is left alone. Order holds, because nothing else of the partition is on its way meanwhile. Where the
book is not as far as the refused batch, that one is not settled: what stands before it is copied first (I7).
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator

from protocol.client import ClusterClient
from protocol.client.retry import NO_RETRIES, retrying
from protocol.errors import ErrorCode, KafkaError
from protocol.records import Record, build_batch
from protocol.records.header import iter_headers
from protocol.records.reading import read_records
from protocol.types import TopicPartition
from replicator.dead_letters import DeadLetters
from replicator.whole_batches import committed_chunk
from replicator.workers.permit import permitted
from transfer.endpoint import RefusedError
from transfer.ledger import Copied, DiscontinuityError, Gap, PartitionLedger
from transfer.offset_map import Run
from transfer.rewrite import AbortedFilter

_ABOUT_RECORDS = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.INVALID_RECORD,
    }
)

Book = Callable[[Copied | Gap], None]
Store = Callable[[], Awaitable[None]]
Stamp = Callable[[Record, str], Record | None]
"""What the link does to each record of a source topic; None: it is not copied."""


async def _nowhere() -> None: ...


class RefusedBatches:
    """Settles refused batches of one link; `dead_letters` None: stop before a record that is refused."""

    def __init__(
        self,
        source: ClusterClient,
        target: ClusterClient,
        dead_letters: DeadLetters | None,
        stamp: Stamp | None = None,
        may_write: Callable[[], bool] = lambda: True,
    ) -> None:
        self._source = source
        self._target = target
        self._dead_letters = dead_letters
        self._stamp = stamp
        self._may_write = may_write

    async def settle(
        self, ledger: PartitionLedger, refused: RefusedError, book: Book, store: Store = _nowhere
    ) -> bool:
        """Whether copying can go on where the ledger ends then. What was done is handed to `book` at once, in
        order, each with where it begins; `store` is awaited behind a gap: the target's tail does not tell of
        it. Raises ProtocolError when a cluster could not be asked; calling again goes on where this ended, if
        `refused.unsure` is false; DiscontinuityError before a part is written that does not continue what is
        booked."""
        if ErrorCode.of(refused.code) not in _ABOUT_RECORDS:
            return False
        source = TopicPartition(ledger.source.topic, ledger.source.partition)
        first = ledger.next_source_offset
        found = await self._batch(source, first, refused.offset)
        if found is None:
            return True
        records, end, codec = found
        there = TopicPartition(ledger.target.topic, ledger.target.partition)
        writer = _Writer(self._target, there, codec, self._may_write)
        records, left_out = self._stamped(records, source.topic)
        if not records:
            book(Copied((), end, 0, 0, (), left_out=len(left_out), first_source_offset=first))
        whole = range(len(records))
        todo = _halves(whole) if len(records) > 1 else [whole] * len(records)
        while todo:
            part = todo.pop(0)
            begins, behind = _bounds(records, part, first, end)
            if begins != ledger.next_source_offset:
                raise DiscontinuityError(begins, ledger.next_source_offset)
            error = KafkaError(ErrorCode.of(refused.code), refused.reason)
            if len(records) > 1 or first > refused.offset:  # alone it was not tried yet
                refused.unsure = True  # unless an answer comes
                done = await writer.write(records[part.start : part.stop], behind)
                refused.unsure = False
                if isinstance(done, Copied):
                    passed = sum(begins <= offset < behind for offset in left_out)
                    book(done._replace(left_out=passed, first_source_offset=begins))
                    continue
                error = done
            if len(part) > 1:
                todo = [*_halves(part), *todo]
            elif self._dead_letters is None:
                return False
            else:
                await permitted(self._may_write)
                await self._dead_letters.bury(records[part.start], ledger, error.message)
                reason = f"refused by the target ({error.code.name}), in {self._dead_letters.topic}"
                book(Gap(ledger.next_source_offset, behind, reason, time.time_ns() // 1_000_000))
                await store()
        return True

    def _stamped(self, records: list[Record], topic: str) -> tuple[list[Record], list[int]]:
        """What the target is to get, and the offsets of the others."""
        if self._stamp is None:
            return records, []
        stamped = [(one.offset, self._stamp(one, topic)) for one in records]
        kept = [one for _, one in stamped if one is not None]
        return kept, [offset for offset, one in stamped if one is None]

    async def _batch(
        self, source: TopicPartition, position: int, refused: int
    ) -> tuple[list[Record], int, int] | None:
        """What `position` is to go on with: the records of the refused batch from there on, the offset behind
        it, its codec. None where other records stand before it, which the book knows nothing of."""
        while True:
            chunk = await committed_chunk(self._source, source, position)
            not_data = AbortedFilter(chunk)
            for place, header in iter_headers(chunk.batches):
                if header.next_offset <= position or not_data.skips(place, header):
                    continue
                found = read_records(chunk.batches, place, header)
                wanted = [record for record in found if record.offset >= position]
                if wanted:
                    is_it = header.next_offset > refused
                    return (wanted, header.next_offset, header.codec) if is_it else None
            position = chunk.next_offset


class _Writer:
    """Writes parts with a producer of its own, so that one whose answer is lost is not written twice. Before
    each attempt it waits for the permit: nobody else writes the partition while this worker has it."""

    def __init__(
        self, target: ClusterClient, tp: TopicPartition, codec: int, may_write: Callable[[], bool]
    ) -> None:
        self._target = target
        self._tp = tp
        self._codec = codec
        self._may_write = may_write
        self._producer: tuple[int, int] | None = None
        self._sequence = 0

    async def write(self, part: list[Record], behind: int) -> Copied | KafkaError:
        """Where it stands then, or why the target does not take it."""
        if self._producer is None:
            self._producer = await self._target.init_producer_id()
        number, epoch = self._producer
        batch = build_batch(
            part, codec=self._codec, producer_id=number, producer_epoch=epoch, base_sequence=self._sequence
        )

        async def attempt() -> int:
            await permitted(self._may_write)
            return await self._target.produce(self._tp, batch, retry=NO_RETRIES)

        try:
            base = await retrying(attempt, self._target.retry)
        except KafkaError as error:
            if error.code not in _ABOUT_RECORDS:
                raise
            return error
        self._sequence += len(part)
        latest = max(record.timestamp for record in part)
        return Copied(tuple(_runs(part, base)), behind, len(part), len(batch), (), None, -1, latest)


def _runs(part: list[Record], base: int) -> Iterator[Run]:
    """Stretches of neighbouring source offsets."""
    first = 0
    for index in range(1, len(part) + 1):
        if index == len(part) or part[index].offset != part[index - 1].offset + 1:
            yield Run(part[first].offset, base + first, index - first)
            first = index


def _bounds(records: list[Record], part: range, first: int, end: int) -> tuple[int, int]:
    """The source offsets that a part accounts for, told by its place in the batch and not by what was written
    before it: what the batch holds from `first` on, up to `end`, is in one part or another."""
    begins = records[part.start].offset if part.start else first
    behind = records[part.stop].offset if part.stop < len(records) else end
    return begins, behind


def _halves(part: range) -> list[range]:
    middle = len(part) // 2
    return [part[:middle], part[middle:]]
