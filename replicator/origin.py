"""Where a record has been: a header with the ids of the clusters that it went through (DESIGN §4, I6).

Owns reading and writing that header, pure, and the sink in front of a link's own. With identical names a
topic says nothing of its way, so each record does: a link adds its source, and leaves out what has been at
its target. This is the record lane: batches are decoded and built again, compressed as they were. Left-out
records are holes of the offset map, like aborted ones. Every link of a circle has to do it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from protocol.errors import ProtocolError
from protocol.records.building import build_batch
from protocol.records.header import BatchHeader, check_crc, iter_headers
from protocol.records.reading import read_records
from protocol.records.record import Record
from protocol.types import TopicPartition
from transfer.endpoint import BatchSink, Chunk
from transfer.ledger import Copied

ORIGIN_HEADER: Final = "isthmus-origin"
"""Cluster ids with commas, the one where the record was produced first."""

_CRC_AT: Final = 17


def hops(record: Record) -> tuple[str, ...]:
    """Ids of the clusters that a record came through; none for one that was produced where it is."""
    for key, value in record.headers:
        if key == ORIGIN_HEADER:
            return tuple(filter(None, (value or b"").decode(errors="replace").split(",")))
    return ()


@dataclass(frozen=True, slots=True)
class Origin:
    """The rule of one link, by cluster ids."""

    source: str
    target: str

    def stamped(self, record: Record) -> Record | None:
        """The record with one hop more; None when it has been at the target."""
        way = hops(record)
        if self.target in way:
            return None
        others = [header for header in record.headers if header[0] != ORIGIN_HEADER]
        return replace(record, headers=[*others, (ORIGIN_HEADER, ",".join((*way, self.source)).encode())])

    def apply(self, chunk: Chunk) -> Chunk:
        """The chunk with its data stamped; markers stay, and what cannot be read is left for the sink to
        refuse."""
        return replace(chunk, batches=memoryview(b"".join(self._batches(chunk.batches))))

    def _batches(self, buf: memoryview) -> Iterator[bytes | memoryview]:
        done = 0
        try:
            for pos, header in iter_headers(buf):
                done = pos + header.size
                yield from self._batch(buf, pos, header)
        except ProtocolError:
            yield buf[done:]

    def _batch(self, buf: memoryview, pos: int, header: BatchHeader) -> Iterator[bytes | memoryview]:
        whole = buf[pos : pos + header.size]
        if header.is_control or not header.record_count or not check_crc(buf, pos, header):
            yield whole
            return
        try:
            records = [
                kept for one in read_records(buf, pos, header) if (kept := self.stamped(one)) is not None
            ]
        except ProtocolError:
            yield _spoiled(whole)
            return
        if records:
            yield build_batch(
                records,
                codec=header.codec,
                base_offset=header.base_offset,
                last_offset=header.last_offset,
                leader_epoch=header.leader_epoch,
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                transactional=header.is_transactional,
                preserve_offsets=True,
            )


def _spoiled(batch: memoryview) -> bytes:
    """A batch that nobody can read must not go on unstamped: with a wrong checksum the sink refuses it."""
    copy = bytearray(batch)
    copy[_CRC_AT] ^= 0xFF
    return bytes(copy)


class OriginSink:
    """A sink that stamps what it is given."""

    def __init__(self, sink: BatchSink, origin: Origin) -> None:
        self._sink = sink
        self._origin = origin

    async def write(self, tp: TopicPartition, chunk: Chunk) -> Copied:
        """As `BatchSink.write`. Nothing is awaited before the sink has the batches."""
        return await self._sink.write(tp, self._origin.apply(chunk))

    async def aclose(self) -> None:
        """Closes the sink behind it."""
        await self._sink.aclose()
