"""The raw lane: batches as a source stores them become batches that a Kafka cluster takes from a producer.

Owns the rules, pure and without I/O; it must not know where chunks come from or who sends the result.
Payloads are neither copied nor decompressed: a new 61-byte header is put before a view of the old payload.
Large ones are not even read: their new checksum follows from the old one and from what the header changes, so
that it holds at the target if and only if it held at the source (`is_intact` tells why a target refuses one).
A batch that cannot go as it is gets decoded and built again, alone; small ones may be joined (`merge`).

What a Kafka target wants (LogValidator, ProduceRequest): base offset 0, leader epoch -1, offsets without
holes, CreateTime, no control batches, one batch per partition and request. Transactional sources are read
committed (KIP-98): markers are skipped, aborted batches dropped, the transactional bit cleared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

import crc32c

from protocol.errors import ProtocolError
from protocol.records.building import build_batch
from protocol.records.checksum import with_other_front
from protocol.records.header import (
    CODEC_MASK,
    CRC_START,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    BatchHeader,
    UnsupportedMagicError,
    check_crc,
    iter_headers,
    read_header,
)
from protocol.records.reading import read_records
from protocol.records.record import Record
from protocol.types import Buffer
from transfer.endpoint import Chunk
from transfer.merge import FEW, SMALL, Joined, join

_FRONT: Final = Struct(">qiibI")
_BODY: Final = Struct(">hiqqqhii")
_LENGTH_BEFORE_PAYLOAD: Final = 49
_PLAIN: Final = Struct(">qiibIhiqq14xi")
_LARGE: Final = 8192
"""From here on arithmetic costs less than reading a payload twice."""
_SHORTEST: Final = HEADER_SIZE - LENGTH_OVERHEAD
_ABORT_MARKER: Final = 0


@dataclass(slots=True)
class Outgoing:
    """One batch ready to be sealed with a producer's identity."""

    payload: memoryview
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    record_count: int
    sources: tuple[tuple[int, int], ...]
    """(source offset, length) stretches of its records, in order."""
    next_source_offset: int
    source_crcs: tuple[int, ...]
    """Of the source's batches that it holds: several where small ones were joined."""
    source_size: int
    source_epoch: int
    source_head: int = -1
    """Checksum of that part of the source's header which the batch's own covers, where nobody has looked
    whether that one holds; -1: it does."""

    @property
    def size(self) -> int:
        """Bytes of the batch as it will be sent."""
        return HEADER_SIZE + self.payload.nbytes


class Refusal(NamedTuple):
    """A batch at `offset` that this lane cannot move; what stands before it can be."""

    offset: int
    reason: str


def plan(chunk: Chunk, *, merge: bool = False) -> tuple[list[Outgoing], Refusal | None]:
    """The batches of a chunk to send, in order, up to the first that cannot be moved.

    `merge`: small ones that stand next to each other become one.
    """
    planned: list[Outgoing] = []
    start = _plain(chunk, planned, merge=merge)
    offset = planned[-1].next_source_offset if planned else chunk.first_offset
    if start == len(chunk.batches):
        return planned, None
    aborted = AbortedFilter(chunk)
    try:
        for pos, header in iter_headers(chunk.batches, start):
            offset = max(header.base_offset, chunk.first_offset)
            if header.next_offset <= chunk.first_offset or aborted.skips(pos, header):
                continue
            if not check_crc(chunk.batches, pos, header):
                return planned, Refusal(offset, DAMAGED)
            out = _outgoing(chunk, pos, header)
            if out is not None:
                planned.append(out)
    except UnsupportedMagicError as error:
        return planned, Refusal(offset, f"{error}: convert the topic with Kafka 3.9's broker or a consumer")
    except ProtocolError as error:
        return planned, Refusal(offset, f"damaged batch: {error}")
    return planned, None


def _plain(chunk: Chunk, planned: list[Outgoing], *, merge: bool) -> int:
    """Plans what needs no second look, and returns where that ends; the rest is for the careful loop.

    Nearly all batches of nearly all topics: whole, no transaction, no holes, the producer's own times. Two
    thirds of the time of planning went into calls and objects for cases that were not there.
    """
    buf, pos, end = chunk.batches, 0, len(chunk.batches)
    first = chunk.first_offset
    while end - pos >= HEADER_SIZE:
        base, length, leader_epoch, magic, crc, attributes, delta, base_time, max_time, count = (
            _PLAIN.unpack_from(buf, pos)
        )
        behind = pos + LENGTH_OVERHEAD + length
        if (
            magic != MAGIC
            or attributes & ~CODEC_MASK
            or base < first
            or count != delta + 1
            or count <= 0
            or length < _SHORTEST
            or behind > end
        ):
            break
        may_join = merge and length <= SMALL and count <= FEW and behind < end
        if may_join and (joined := join(buf, pos)) is not None:
            planned.append(_of_joined(joined, pos))
            pos = joined.end
            continue
        head = -1
        if length >= _LARGE:
            head = crc32c.crc32c(buf[pos + CRC_START : pos + HEADER_SIZE])
        elif crc32c.crc32c(buf[pos + CRC_START : behind]) != crc:
            break
        planned.append(
            Outgoing(
                buf[pos + HEADER_SIZE : behind],
                attributes,
                delta,
                base_time,
                max_time,
                count,
                ((base, count),),
                base + count,
                (crc,),
                behind - pos,
                leader_epoch,
                head,
            )
        )
        pos = behind
    return pos


def _of_joined(joined: Joined, start: int) -> Outgoing:
    return Outgoing(
        payload=memoryview(joined.payload),
        attributes=joined.codec,
        last_offset_delta=joined.records - 1,
        base_timestamp=joined.base_timestamp,
        max_timestamp=joined.max_timestamp,
        record_count=joined.records,
        sources=((joined.base, joined.records),),
        next_source_offset=joined.base + joined.records,
        source_crcs=joined.crcs,
        source_size=joined.end - start,
        source_epoch=joined.leader_epoch,
    )


def seal(out: Outgoing, producer_id: int, epoch: int, base_sequence: int) -> list[Buffer]:
    """The batch as two segments: a header with this producer's identity and a fresh CRC, and the payload."""
    body = _BODY.pack(
        out.attributes,
        out.last_offset_delta,
        out.base_timestamp,
        out.max_timestamp,
        producer_id,
        epoch,
        base_sequence,
        out.record_count,
    )
    crc = crc32c.crc32c(body)
    if out.source_head < 0:
        crc = crc32c.crc32c(out.payload, crc)
    else:
        crc = with_other_front(out.source_crcs[0], out.source_head, crc, out.payload.nbytes)
    return [_FRONT.pack(0, _LENGTH_BEFORE_PAYLOAD + out.payload.nbytes, -1, 2, crc) + body, out.payload]


def is_intact(sealed: Sequence[Buffer]) -> bool:
    """Whether what `seal` gave is what its checksum says; if not, the source's batch was damaged."""
    front, payload = sealed
    crc: int = _FRONT.unpack_from(front)[-1]
    return bool(crc32c.crc32c(payload, crc32c.crc32c(front[CRC_START:])) == crc)


def is_readable(sealed: Sequence[Buffer]) -> bool:
    """Whether records can be read from what `seal` gave. Brokers that take batches as they come may hold
    others, whose checksum is right."""
    whole = memoryview(b"".join(sealed))
    try:
        for _ in read_records(whole, 0, read_header(whole)):
            pass
    except ProtocolError:
        return False
    return True


DAMAGED: Final = "the batch's checksum does not hold: damaged at the source"
UNREADABLE: Final = "the batch's records cannot be read: damaged before it was produced at the source"


def next_sequence(sequence: int, records: int) -> int:
    """The sequence number after a batch of `records`; it wraps to 0 behind 2^31 - 1."""
    return (sequence + records) & 0x7FFF_FFFF


def _outgoing(chunk: Chunk, pos: int, header: BatchHeader) -> Outgoing | None:
    if header.record_count == 0:  # the cleaner keeps such a batch for its producer's state only
        return None
    whole = header.record_count == header.last_offset_delta + 1 and header.base_offset >= chunk.first_offset
    if not whole or header.timestamp_type:
        return _built_again(chunk, pos, header)
    return Outgoing(
        payload=chunk.batches[pos + HEADER_SIZE : pos + header.size],
        attributes=header.attributes & CODEC_MASK,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
        record_count=header.record_count,
        sources=((header.base_offset, header.record_count),),
        next_source_offset=header.next_offset,
        source_crcs=(header.crc,),
        source_size=header.size,
        source_epoch=header.leader_epoch,
    )


def _built_again(chunk: Chunk, pos: int, header: BatchHeader) -> Outgoing | None:
    """Decodes one batch: it has holes, begins before the wanted offset, or carries the broker's append time.

    An append time is one field of the header for all records; a producer may only send CreateTime, so each
    record gets that time as its own.
    """
    records = [
        record for record in read_records(chunk.batches, pos, header) if record.offset >= chunk.first_offset
    ]
    if not records:
        return None
    made = built(build_batch(records, codec=header.codec))
    made.sources = tuple(_stretches(records))
    made.next_source_offset = header.next_offset
    made.source_crcs, made.source_size, made.source_epoch = (header.crc,), header.size, header.leader_epoch
    return made


def built(batch: Buffer) -> Outgoing:
    """A batch that was built here, whole and from offset 0 on."""
    buf = memoryview(batch)
    header = read_header(buf)
    return Outgoing(
        payload=buf[HEADER_SIZE:],
        attributes=header.attributes,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
        record_count=header.record_count,
        sources=((0, header.record_count),),
        next_source_offset=header.record_count,
        source_crcs=(header.crc,),
        source_size=header.size,
        source_epoch=-1,
    )


def _stretches(records: list[Record]) -> Iterator[tuple[int, int]]:
    first = last = records[0].offset
    for record in records[1:]:
        if record.offset != last + 1:
            yield first, last + 1 - first
            first = record.offset
        last = record.offset
    yield first, last + 1 - first


class AbortedFilter:
    """Which batches of a chunk belong to aborted transactions (Kafka's CompletedFetch)."""

    def __init__(self, chunk: Chunk) -> None:
        self._buf = chunk.batches
        self._ahead = sorted(chunk.aborted, key=lambda entry: entry.first_offset, reverse=True)
        self._open: set[int] = set()

    def skips(self, pos: int, header: BatchHeader) -> bool:
        """Whether the next batch is not data: a marker, or aborted."""
        while self._ahead and self._ahead[-1].first_offset <= header.last_offset:
            self._open.add(self._ahead.pop().producer_id)
        if header.is_control:
            if header.producer_id in self._open and _is_abort(self._buf, pos, header):
                self._open.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._open


def _is_abort(buf: memoryview, pos: int, header: BatchHeader) -> bool:
    for record in read_records(buf, pos, header):
        key = record.key or b""
        return len(key) >= 4 and int.from_bytes(key[2:4]) == _ABORT_MARKER
    return False
