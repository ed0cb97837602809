"""Whether the target still has what it has acknowledged: by leader epochs, and by content where those leave
it open.

Owns the question when a partition begins. Behind an unclean election another history stands where
acknowledged records were, and may be longer than they reached, by what others write, markers, and what is
aborted: the end of the log alone does not tell (KIP-101). The leader is asked where the last epoch that was
written in ended in its log. The true one may be later than the one that the leader was known by, so what lies
behind that end is compared, record by record, with what the source has at the offsets of the ledger.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

from protocol.client import EARLIEST, LATEST, ClientError, ClusterClient, Isolation, NotSupportedError
from protocol.client.metadata import Leader
from protocol.errors import KafkaError
from protocol.records.header import iter_headers
from protocol.records.reading import read_records
from protocol.types import TopicPartition
from replicator.entry_rows import Entry
from replicator.origin import Origin
from replicator.own_transactions import OwnTransactions
from replicator.whole_batches import committed_chunk, whole_batches
from transfer.endpoint import Chunk
from transfer.kafka.leaders import NOT_ASKED
from transfer.kafka.readable import seen_until
from transfer.kafka.written import Written
from transfer.offset_map import OffsetMap
from transfer.rewrite import AbortedFilter

_WINDOW: Final = 1 << 20


class Content(NamedTuple):
    """What is compared of a record."""

    timestamp: int
    """-1: the broker's own."""
    key: bytes | None
    value: bytes | None
    headers: tuple[object, ...]

    def same(self, other: Content) -> bool:
        """Whether it is the same record, copied."""
        timed = self.timestamp >= 0 and other.timestamp >= 0
        return self[1:] == other[1:] and (not timed or self.timestamp == other.timestamp)


class Kept(NamedTuple):
    """What the target has of an entry."""

    end: int
    """Offset up to which it has what was written."""
    doubted: int = -1
    """Offset from which on that is known by content, not by epochs; -1: none of it."""


NO_RECORD: Final = Content(-1, None, None, ("a marker, or aborted",))


class Window:
    """What stands in a partition, read forwards piece by piece."""

    def __init__(self, read: Callable[[int], Awaitable[Chunk]], first: int, end: int) -> None:
        """`read` gives whole batches from an offset on, `first` or behind it, below `end`."""
        self._read = read
        self._first = first
        self._end = end
        self._next = -1
        self._found: dict[int, Content] = {}

    async def at(self, offset: int) -> Content | None:
        """The record there, or NO_RECORD; None: nothing is, it was compacted or deleted. Offsets have to
        grow. Raises ProtocolError."""
        while self._next <= offset and self._first <= offset < self._end:
            chunk = await self._read(max(self._next, offset))
            self._next = chunk.next_offset
            self._found = dict(contents(chunk))
        return self._found.get(offset)


def contents(chunk: Chunk) -> Iterator[tuple[int, Content]]:
    """What stands at the offsets of a chunk. Raises DecodeError."""
    aborted = AbortedFilter(chunk)
    for pos, header in iter_headers(chunk.batches):
        if aborted.skips(pos, header):
            yield from ((offset, NO_RECORD) for offset in range(header.base_offset, header.next_offset))
            continue
        for record in read_records(chunk.batches, pos, header):
            at = -1 if header.timestamp_type else record.timestamp
            yield record.offset, Content(at, record.key, record.value, tuple(record.headers))


async def same_until(runs: OffsetMap, start: int, end: int, source: Window, target: Window) -> int:
    """Up to which offset of the target, from `start` on, it has what `runs` say. What the source has no more
    nobody can tell; what was compacted away at the target is replaced by what stands behind it. Raises
    ProtocolError."""
    told = start
    for offset, original in pairs(runs, start, end):
        there = await target.at(offset)
        if there is not None:
            here = await source.at(original)
            if here is None:
                continue
            if not there.same(here):
                return told
        told = offset + 1
    return end if told >= runs.target_end else told


def pairs(runs: OffsetMap, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Offsets at the target from `start` to before `end`, and at the source."""
    for at in range(runs.number_at(start), len(runs)):
        run = runs[at]
        if run.target >= end:
            return
        for number in range(max(start - run.target, 0), min(end - run.target, run.length)):
            yield run.target + number, run.source + number


class TargetHistory:
    """Of a link."""

    def __init__(
        self,
        source: ClusterClient,
        target: ClusterClient,
        origin: Origin | None = None,
        own: OwnTransactions | None = None,
    ) -> None:
        """`own` ends transactions of the link that hang; None: nothing is done to the target."""
        self._own = own
        self._source = source
        self._target = target
        self._origin = origin

    async def kept(self, entry: Entry, leader: Leader, target_end: int, source: tuple[int, int]) -> Kept:
        """What the target has of what was written for an entry, which stays as it is. `target_end` is the end
        of its log, asked for after `leader`; `source` the first offset there, and the readable end. Raises
        ProtocolError."""
        tp, runs = TopicPartition(*entry.ledger.target[2:]), entry.ledger.runs
        end = min(runs.target_end, target_end)
        written = written_of(entry)
        hung = None
        if entry.once and self._own is not None and leader.epoch != written.epoch:
            hung = await self._own.end(tp, target_end)
        if not written.doubts(leader.epoch) and not written.other(leader.epoch):
            return Kept(end)
        asked = min(written.epochs.last, leader.epoch)
        answer, start = await self._ask(leader.node, tp, (asked, leader.epoch)), end
        while answer is not None and -1 < (before := written.epochs.floor(answer[0])) < answer[0]:
            answer = await self._ask(leader.node, tp, (before, leader.epoch))  # KIP-279
        if answer is not None and not written.kept(*answer):
            start = min(written.epochs.common_end(*answer), end)
        if entry.once:
            start = await self._hidden_from(tp, start if hung is None else min(start, hung))
        if start >= end:
            return Kept(end, end if written.other(leader.epoch) else -1)
        if entry.once:
            await self._check_stable(tp, end)
        start = max(start, runs.target_start)
        return Kept(await self._same(entry, tp, (start, end), source), start)

    async def _hidden_from(self, tp: TopicPartition, offset: int) -> int:
        """What is before an offset may be of a transaction whose end the leader does not have, or has got
        another one for since: from where on readers of committed records do not see it; else `offset`."""
        return (await seen_until(self._target, tp, offset)).until

    async def _check_stable(self, tp: TopicPartition, end: int) -> None:
        """What is committed can be read up to there. Raises ClientError."""
        stable = (await self._target.offset(tp, LATEST, isolation=Isolation.READ_COMMITTED)).offset
        if stable < end:
            error = ClientError(
                f"{tp}: a new broker leads it at the target, and a transaction is open there from offset"
                f" {stable} on: whether all that was copied is there is known once that has ended"
            )
            error.to_do = "if it hangs, isthmus links check says whose it is and how to end it"
            raise error

    async def _ask(self, node: int, tp: TopicPartition, epochs: tuple[int, int]) -> tuple[int, int] | None:
        try:
            answer = (await self._target.epoch_ends_at(node, {tp: epochs}))[tp]
        except NotSupportedError:  # brokers before 0.11
            return None
        if not isinstance(answer, KafkaError):
            return answer
        if answer.code in NOT_ASKED:
            return None
        raise self._target.moved(tp, answer)

    async def _same(
        self, entry: Entry, tp: TopicPartition, doubted: tuple[int, int], source: tuple[int, int]
    ) -> int:
        start, end = doubted
        first = (await self._target.offset(tp, EARLIEST)).offset
        start = min(max(start, first), end)  # step by step over what is gone takes long, in one go
        here = Window(partial(self._original, TopicPartition(*entry.ledger.source[2:])), *source)
        there = Window(partial(self._committed if entry.once else self._written, tp), first, end)
        return await same_until(entry.ledger.runs, start, end, here, there)

    async def _original(self, tp: TopicPartition, offset: int) -> Chunk:
        chunk = await committed_chunk(self._source, tp, offset, max_bytes=_WINDOW)
        return chunk if self._origin is None else self._origin.apply(chunk).chunk

    async def _committed(self, tp: TopicPartition, offset: int) -> Chunk:
        return await committed_chunk(self._target, tp, offset, max_bytes=_WINDOW)

    async def _written(self, tp: TopicPartition, offset: int) -> Chunk:
        """Whatever becomes of other producers' transactions: this link's records are in none."""
        found = await whole_batches(self._target, tp, offset, max_bytes=_WINDOW)
        return Chunk(tp, found.batches, offset, found.next_offset)


def written_of(entry: Entry) -> Written:
    """What the target has acknowledged of an entry, or held before that began."""
    return Written(entry.at_target, entry.ledger.runs.target_end, entry.ledger.lost_end)
