"""Where a record has been: a header with the clusters and topics that it went through (DESIGN §4, I6).

Owns reading and writing that header, pure, and the sink in front of a link's own. With identical names a
topic says nothing of its way, so each record does: a link adds its source topic, and leaves out what has been
in its target topic. The topic counts because applications hand headers on: what Kafka Streams makes of a
mirrored record carries that record's way, and is new in its own topic. This is the record lane: batches are
decoded and built again, compressed as they were. Left-out records are counted holes of the offset map, like
aborted ones. Every link of a circle has to do it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from protocol.errors import ProtocolError
from protocol.records.building import build_batch
from protocol.records.header import BatchHeader, check_crc, iter_headers
from protocol.records.reading import read_records
from protocol.records.record import Record
from protocol.types import TopicPartition
from transfer.endpoint import BatchSink, Chunk, TransferError
from transfer.ledger import Copied

ORIGIN_HEADER: Final = "isthmus-origin"
"""`cluster id/topic` with commas, the one where the record was produced first."""

_CRC_AT: Final = 17


class Place(NamedTuple):
    """A topic of one cluster."""

    cluster: str
    topic: str

    def __str__(self) -> str:
        return f"{self.cluster}/{self.topic}"


class Stamped(NamedTuple):
    """A chunk as the target gets it, and the source offsets of what was left out of it, in order."""

    chunk: Chunk
    left_out: list[int]

    def left_out_before(self, offset: int) -> int:
        """How many that a position of `offset` has behind it."""
        return bisect_left(self.left_out, offset)


def hops(record: Record) -> tuple[Place, ...]:
    """Where a record came through; nowhere for one that was produced where it is."""
    for key, value in record.headers:
        if key == ORIGIN_HEADER:
            parts = (value or b"").decode(errors="replace").split(",")
            return tuple(Place(*part.rsplit("/", 1)) for part in parts if "/" in part)
    return ()


@dataclass(frozen=True, slots=True)
class Origin:
    """The rule of one link, by cluster ids."""

    source: str
    target: str
    at_target: Callable[[str], str] = str
    """The name of a source topic at the target."""
    ignored: bool = False
    """Nothing is left out: the target has lost what it had (failback)."""

    def stamped(self, record: Record, topic: str) -> Record | None:
        """A record of `topic` with one hop more; None when it has been where it would go."""
        way, here = hops(record), Place(self.source, topic)
        if not self.ignored and Place(self.target, self.at_target(topic)) in way:
            return None
        if here not in way:
            way = (*way, here)
        others = [header for header in record.headers if header[0] != ORIGIN_HEADER]
        return replace(record, headers=[*others, (ORIGIN_HEADER, ",".join(map(str, way)).encode())])

    def apply(self, chunk: Chunk) -> Stamped:
        """The chunk with its data stamped; markers stay, and what cannot be read is left for the sink to
        refuse."""
        left_out: list[int] = []
        batches = memoryview(b"".join(self._batches(chunk.batches, chunk.tp.topic, left_out)))
        wanted = [offset for offset in left_out if offset >= chunk.first_offset]
        return Stamped(replace(chunk, batches=batches), wanted)

    def _batches(self, buf: memoryview, topic: str, left_out: list[int]) -> Iterator[bytes | memoryview]:
        done = 0
        try:
            for pos, header in iter_headers(buf):
                done = pos + header.size
                yield from self._batch(buf, pos, header, topic, left_out)
        except ProtocolError:
            yield buf[done:]

    def _batch(
        self, buf: memoryview, pos: int, header: BatchHeader, topic: str, left_out: list[int]
    ) -> Iterator[bytes | memoryview]:
        whole = buf[pos : pos + header.size]
        if header.is_control or not header.record_count or not check_crc(buf, pos, header):
            yield whole
            return
        try:
            found = [(one.offset, self.stamped(one, topic)) for one in read_records(buf, pos, header)]
        except ProtocolError:
            yield _spoiled(whole)
            return
        records = [kept for _, kept in found if kept is not None]
        left_out += [offset for offset, kept in found if kept is None]
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
        stamped = self._origin.apply(chunk)
        try:
            return _counted(await self._sink.write(tp, stamped.chunk), stamped)
        except TransferError as error:
            if error.copied is not None:
                error.copied = _counted(error.copied, stamped)
            raise

    async def aclose(self) -> None:
        """Closes the sink behind it."""
        await self._sink.aclose()


def _counted(copied: Copied, stamped: Stamped) -> Copied:
    return copied._replace(left_out=stamped.left_out_before(copied.next_source_offset))
