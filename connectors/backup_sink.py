"""The target side of a backup: chunks of a cluster become objects of an object store.

Owns cutting partitions into objects, dropping what is no data (markers, aborted transactions), and skipping
what is damaged, aloud. It must not know manifests or what is to be backed up. An object ends at the first
batch boundary behind `object_bytes`. Names hold a nonce of the run, so runs never share an object.

A write counts as done when the object writer has taken it: until the manifest lists an object nothing refers
to it, so an earlier acknowledgement would tell nobody anything.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field

from connectors import layout
from connectors.avro_format import SUFFIX as AVRO_SUFFIX
from connectors.avro_format import AvroEncoder
from connectors.errors import ObjectStoreError
from connectors.formats import Encoder, ObjectFacts, StoredBatch
from connectors.manifest import BackupFormat, ObjectEntry
from connectors.object_store import ObjectStore
from connectors.object_writer import ObjectWriter, StoredObject
from connectors.segment_format import INDEX_SUFFIX, SegmentEncoder
from connectors.segment_format import SUFFIX as SEGMENT_SUFFIX
from protocol.errors import DecodeError
from protocol.records.header import check_crc, iter_headers
from protocol.types import TopicPartition
from transfer.endpoint import Chunk, RefusedError
from transfer.ledger import Copied, Gap
from transfer.offset_map import Run
from transfer.rewrite import AbortedFilter

_log = logging.getLogger("isthmus.connectors")


@dataclass(slots=True)
class _OpenObject:
    writer: ObjectWriter
    encoder: Encoder
    facts: ObjectFacts = field(default_factory=ObjectFacts)


@dataclass(slots=True)
class _Lane:
    end_offset: int
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    open: _OpenObject | None = None
    entries: list[ObjectEntry] = field(default_factory=list)
    damaged: list[Gap] = field(default_factory=list)
    abandoned: bool = False
    """A write was given up half-way: what the open object holds in the store is not known any more."""


@dataclass(frozen=True, slots=True)
class SinkResult:
    """What one partition came to."""

    entries: tuple[ObjectEntry, ...]
    damaged: tuple[Gap, ...]


class BackupSink:
    """A `transfer.endpoint.BatchSink`. `begin` a partition, let the engine write, then `finish` it."""

    def __init__(
        self,
        store: ObjectStore,
        backup_id: str,
        backup_format: BackupFormat,
        *,
        object_bytes: int,
        part_bytes: int,
        avro_codec: str,
        run: str | None = None,
    ) -> None:
        self._store = store
        self._backup_id = backup_id
        self._run = run or layout.new_run()
        self._format = backup_format
        self._object_bytes = object_bytes
        self._part_bytes = part_bytes
        self._avro_codec = avro_codec
        self._lanes: dict[TopicPartition, _Lane] = {}

    def begin(self, tp: TopicPartition, end_offset: int) -> None:
        """Batches at and behind `end_offset` will not be written."""
        self._lanes[tp] = _Lane(end_offset)

    async def write(self, tp: TopicPartition, chunk: Chunk) -> Copied:
        lane = self._lanes[tp]
        async with lane.lock:
            runs: list[Run] = []
            crcs: list[int] = []
            records = size = 0
            position = min(chunk.next_offset, lane.end_offset)
            refusal: RefusedError | None = None
            try:
                for batch in self._data(lane, tp, chunk):
                    added = await self._append(lane, tp, batch)
                    if added:
                        runs.append(_identity(batch))
                        crcs.append(batch.header.crc)
                        records += added
                        size += batch.header.size
            except RefusedError as error:
                refusal, position = error, error.offset
            except asyncio.CancelledError:
                lane.abandoned = True
                raise
            first = chunk.first_offset
            copied = Copied(tuple(runs), position, records, size, tuple(crcs), first_source_offset=first)
            if refusal is not None:
                refusal.copied = copied  # in the object already, so the ledger has to know
                raise refusal
            return copied

    async def finish(self, tp: TopicPartition) -> SinkResult:
        """Closes the last object; all of the partition's objects are in the store afterwards. Raises
        ObjectStoreError when it was too slow with one of them: such a backup would list what is not there."""
        lane = self._lanes[tp]
        async with lane.lock:
            if lane.abandoned:
                where = self._store.location(layout.data_prefix(self._backup_id))
                raise ObjectStoreError(
                    "write below", where, f"a piece of {tp.topic}-{tp.partition} was not taken in time"
                )
            await self._close(lane)
        del self._lanes[tp]
        return SinkResult(tuple(lane.entries), tuple(lane.damaged))

    async def aclose(self) -> None:
        """Gives up what is open; multipart uploads leave nothing behind while the store can be reached."""
        lanes, self._lanes = self._lanes, {}
        await asyncio.gather(*(self._abort(lane.open) for lane in lanes.values() if lane.open is not None))

    async def _abort(self, current: _OpenObject) -> None:
        """Why the backup ends was said elsewhere: a store that is away must not hide it."""
        try:
            await current.writer.abort()
        except ObjectStoreError as error:
            _log.warning("parts of an upload may be left in the store, and paid for: %s", error)

    def _data(self, lane: _Lane, tp: TopicPartition, chunk: Chunk) -> Iterator[StoredBatch]:
        """The batches to write; a damaged one becomes a gap, and what follows it is still read."""
        offset = chunk.first_offset
        aborted = AbortedFilter(chunk)
        try:
            for pos, header in iter_headers(chunk.batches):
                offset = max(header.base_offset, chunk.first_offset)
                if header.base_offset >= lane.end_offset:
                    return
                wanted = header.next_offset > chunk.first_offset and not aborted.skips(pos, header)
                if wanted and not check_crc(chunk.batches, pos, header):
                    lane.damaged.append(Gap(offset, header.next_offset, "damaged at the source: checksum"))
                elif wanted and header.record_count:
                    yield StoredBatch(chunk.batches, pos, header, chunk.first_offset)
                offset = max(header.next_offset, chunk.first_offset)  # of what stands behind
        except DecodeError as error:
            raise RefusedError(tp, offset, f"cannot be read: {error}") from error

    async def _append(self, lane: _Lane, tp: TopicPartition, batch: StoredBatch) -> int:
        header = batch.header
        try:
            records = batch.count()
            if not records:
                return 0
            if lane.open is None:
                lane.open = self._open(tp, max(header.base_offset, batch.first_offset))
            if self._format == "avro":  # decoding is slow: other partitions go on meanwhile
                data = await asyncio.to_thread(lane.open.encoder.add, batch)
            else:
                data = lane.open.encoder.add(batch)
        except DecodeError as error:
            gap = Gap(max(header.base_offset, batch.first_offset), header.next_offset, f"damaged: {error}")
            lane.damaged.append(gap)
            return 0
        lane.open.facts.add(batch, records)
        if len(data):
            await lane.open.writer.write(data)
        if lane.open.writer.size >= self._object_bytes:
            await self._close(lane)
        return records

    def _open(self, tp: TopicPartition, first_offset: int) -> _OpenObject:
        suffix = AVRO_SUFFIX if self._format == "avro" else SEGMENT_SUFFIX
        key = layout.object_key(self._backup_id, self._run, tp, first_offset, suffix)
        encoder: Encoder = (
            AvroEncoder(key, tp.partition, self._avro_codec) if self._format == "avro" else SegmentEncoder()
        )
        return _OpenObject(ObjectWriter(self._store, key, self._part_bytes), encoder)

    async def _close(self, lane: _Lane) -> None:
        if lane.open is None:
            return
        current = lane.open
        rest = current.encoder.finish()
        if len(rest):
            await current.writer.write(rest)
        stored = await current.writer.close()
        lane.open = None
        lane.entries.append(await self._entry(stored, current))

    async def _entry(self, stored: StoredObject, current: _OpenObject) -> ObjectEntry:
        index_key = index_sha256 = None
        index = current.encoder.index()
        if index is not None:
            index_key = f"{stored.key.rpartition('.')[0]}.{INDEX_SUFFIX}"
            index_sha256 = hashlib.sha256(index).hexdigest()
            await self._store.put(index_key, index)
        facts = current.facts
        return ObjectEntry(
            key=stored.key,
            bytes=stored.bytes,
            sha256=stored.sha256,
            records=facts.records,
            batches=facts.batches,
            first_offset=facts.first_offset,
            last_offset=facts.last_offset,
            first_timestamp=facts.first_timestamp,
            max_timestamp=facts.max_timestamp,
            max_batch_bytes=facts.max_batch_bytes,
            index_key=index_key,
            index_sha256=index_sha256,
        )


def _identity(batch: StoredBatch) -> Run:
    """In a backup every record keeps its offset; holes of a compacted batch lie inside the run."""
    start = max(batch.header.base_offset, batch.first_offset)
    return Run(start, start, batch.header.next_offset - start)
