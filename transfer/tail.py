"""Finding out what a killed transfer had already written: exact matching of a target's tail.

Owns the comparison, pure and without I/O. Progress is stored a moment after data is acknowledged, so after
a crash the target may hold batches that no ledger knows. They were written in order, and the raw lane keeps
payloads as they are; so the source's next batches are looked for, in order, in what stands behind the
recorded end of the target. Batches of other producers in between are stepped over. A copy at least once steps
over those of transactions too, which may be aborted; one exactly once has its progress in them, so that it
finds something only where a log stands again that it took for lost, or where progress was lost. What is not
found is copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from protocol.errors import ProtocolError
from protocol.records.header import HEADER_SIZE, BatchHeader, iter_headers, read_header
from protocol.records.reading import read_records
from protocol.records.record import Record
from transfer.endpoint import Chunk
from transfer.ledger import Copied
from transfer.offset_map import Run
from transfer.rewrite import AbortedFilter, Outgoing, seal


class Placed(NamedTuple):
    """A batch of the tail, at `pos` of a buffer."""

    buf: memoryview
    pos: int
    header: BatchHeader
    before: int = 0
    """Records of it that are in front of the tail."""


def outside_transactions(chunk: Chunk) -> Iterator[Placed]:
    """Batches with records at the chunk's first offset or behind it that are in no transaction."""
    for pos, header in iter_headers(chunk.batches):
        if not (header.is_control or header.is_transactional):
            yield from _placed(chunk, pos, header)


def committed(chunk: Chunk) -> Iterator[Placed]:
    """Those that readers of committed records see. Raises DecodeError."""
    aborted = AbortedFilter(chunk)
    for pos, header in iter_headers(chunk.batches):
        if not aborted.skips(pos, header):
            yield from _placed(chunk, pos, header)


def _placed(chunk: Chunk, pos: int, header: BatchHeader) -> Iterator[Placed]:
    """Nothing of a batch that the cleaner has emptied, and keeps for its producer's state."""
    before = max(chunk.first_offset - header.base_offset, 0)
    whole = header.record_count == header.last_offset_delta + 1
    if header.record_count and (before < header.record_count if whole else not before):
        yield Placed(chunk.batches, pos, header, before)


class TailMatcher:
    """Give it batches of the target's tail, then the source's batches in order until `done`."""

    def __init__(self, tail: Iterable[Placed]) -> None:
        self._tail = list(tail)
        self._next = 0
        self._within = 0
        """Records of the next one that were recognised: it may hold several batches of the source."""
        self._runs: list[Run] = []
        self._crcs: list[int] = []
        self._bytes = 0
        self._next_source = -1
        self._epoch = self._target_epoch = -1
        self._recognised = 0
        self._decoded: tuple[int, list[tuple[object, ...]] | None] = (-1, None)
        self.records = 0
        self.done = not self._tail
        self.has_tail = not self.done

    def offer(self, out: Outgoing) -> bool:
        """Whether the source's next batch is already at the target. False ends the matching."""
        if self.done:
            return False
        own = _Contents(out)
        for index in range(self._next, len(self._tail)):
            header = self._tail[index].header
            within = self._within if index == self._next else 0
            begun = within or self._tail[index].before
            if self._holds(own, index, begun):
                self._book(out, header.base_offset + begun)
                self._is_in(header)
                whole = begun + out.record_count == header.record_count
                self._next, self._within = (index + 1, 0) if whole else (index, begun + out.record_count)
                self._recognised += whole
                self.done = self._next == len(self._tail)
                return True
            if within:
                break
            if begun:
                continue
            taken = self._in_parts(own, index)
            if taken:
                return taken == out.record_count
        self.done = True
        return False

    def _in_parts(self, contents: _Contents, first: int) -> int:
        """How many records of `out` the batch at the target holds, with others behind it: what was refused
        as a whole is taken apart. What is there to a part only is the end of what was written."""
        out, taken = contents.out, 0
        for index in range(first, len(self._tail)):
            buf, pos, header, _ = self._tail[index]
            behind = taken + header.record_count
            own = contents.of(header) if behind <= out.record_count else None
            if own is None or not _begins_with(buf, pos, header, own[taken:behind]):
                if not taken:
                    return 0
                continue
            self._runs += _stretches(out.sources, taken, behind, header.base_offset)
            self._is_in(header)
            self._bytes += header.size
            self._recognised += 1
            self._next, taken = index + 1, behind
            if taken == out.record_count:
                break
        whole = taken == out.record_count
        last = self._runs[-1]
        self._next_source = out.next_source_offset if whole else last.source + last.length
        self._epoch = out.source_epoch
        self.records += taken
        self.done = not whole or self._next == len(self._tail)
        return taken

    def _holds(self, contents: _Contents, index: int, begun: int) -> bool:
        """Whether the records of a batch are in one at the target, from number `begun` on."""
        buf, pos, header, _ = self._tail[index]
        out = contents.out
        if not begun and header.record_count == out.record_count:
            return same_records(out, buf, pos, header, contents)
        if header.record_count < begun + out.record_count:
            return False
        own = contents.of(header)
        if own is None or not (begun or _begins_with(buf, pos, header, own)):
            return False
        if self._decoded[0] != index:  # it is looked at once for each batch that it was made of
            self._decoded = index, _content(buf, pos, header)
        there = self._decoded[1]
        return there is not None and there[begun : begun + out.record_count] == own

    def _book(self, out: Outgoing, target: int) -> None:
        for source, length in out.sources:
            self._runs.append(Run(source, target, length))
            target += length
        self._crcs += out.source_crcs
        self._bytes += out.source_size
        self._next_source = out.next_source_offset
        self._epoch = out.source_epoch
        self.records += out.record_count

    def _is_in(self, header: BatchHeader) -> None:
        self._target_epoch = header.leader_epoch

    @property
    def left_over(self) -> int:
        """Batches of the tail that were not recognised."""
        return len(self._tail) - self._recognised

    def copied(self) -> Copied | None:
        """What the ledger lacks; None when nothing was recognised."""
        if not self._runs:
            return None
        runs, crcs = tuple(self._runs), tuple(self._crcs)
        return Copied(
            runs,
            self._next_source,
            self.records,
            self._bytes,
            crcs,
            epoch=self._epoch,
            target_epoch=self._target_epoch,
        )


def _stretches(sources: Sequence[tuple[int, int]], first: int, behind: int, target: int) -> Iterator[Run]:
    """Of records number `first` up to `behind` of a batch, which stand from `target` on."""
    number = 0
    for source, length in sources:
        begin, end = max(first, number), min(behind, number + length)
        if begin < end:
            yield Run(source + begin - number, target + begin - first, end - begin)
        number += length


class _Contents:
    """Records of a batch of the source, decoded where there is something to compare them with, and once: the
    tail may be thousands of other producers' batches."""

    def __init__(self, out: Outgoing) -> None:
        self.out = out
        self._found: dict[bool, list[tuple[object, ...]] | None] = {}

    def of(self, header: BatchHeader) -> list[tuple[object, ...]] | None:
        """As they are compared with those of a batch at the target: with their times, where it has those."""
        timed = not header.timestamp_type
        if timed not in self._found:
            self._found[timed] = _own_content(self.out, with_time=timed)
        return self._found[timed]


def same_records(
    out: Outgoing, buf: memoryview, pos: int, header: BatchHeader, contents: _Contents | None = None
) -> bool:
    """Whether a batch at the target holds the records of `out`.

    Byte for byte first; a target that compresses anew or stamps its own time is compared record by record.
    """
    if header.record_count != out.record_count:
        return False
    if not header.timestamp_type and header.base_timestamp != out.base_timestamp:
        return False
    payload = buf[pos + HEADER_SIZE : pos + header.size]
    if payload == out.payload and header.codec == out.attributes:
        return True
    if header.codec == out.attributes and not header.timestamp_type:
        return False
    own = (contents or _Contents(out)).of(header)
    return own is not None and _begins_with(buf, pos, header, own)


def _begins_with(buf: memoryview, pos: int, header: BatchHeader, own: list[tuple[object, ...]]) -> bool:
    """Whether these are its first records. No more of it is decoded than shows that they are not."""
    timed = not header.timestamp_type
    try:
        found = read_records(buf, pos, header)
        return all(_fields(next(found), timed) == one for one in own)
    except ProtocolError:
        return False


def _own_content(out: Outgoing, *, with_time: bool) -> list[tuple[object, ...]] | None:
    head, payload = seal(out, -1, -1, -1)
    whole = memoryview(b"".join((head, payload)))
    return _content(whole, 0, read_header(whole), with_time=with_time)


def _content(
    buf: memoryview, pos: int, header: BatchHeader, *, with_time: bool | None = None
) -> list[tuple[object, ...]] | None:
    timed = not header.timestamp_type if with_time is None else with_time
    try:
        return [_fields(record, timed) for record in read_records(buf, pos, header)]
    except ProtocolError:
        return None


def _fields(record: Record, timed: bool) -> tuple[object, ...]:
    return (record.timestamp if timed else 0, record.key, record.value, record.headers)
