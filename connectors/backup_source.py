"""The source side of a restore (and of an audit): objects of a backup become chunks again.

Owns reading objects in order, checking them against the manifest while they pass, and memory: only so many
partitions are read at a time, one range of one object each, plus one range ahead. It must not know where the
chunks go. Damage is a fault of that partition, named with its object; the others go on.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field

from connectors.avro_format import read_rows, rows_to_batches
from connectors.errors import ConnectorError, DamagedBackup
from connectors.manifest import Manifest, ObjectEntry
from connectors.object_store import ObjectStore
from connectors.segment_format import BatchCutter, SegmentIndex
from protocol.errors import ProtocolError
from protocol.records.compression import Codec
from protocol.types import TopicPartition
from transfer.endpoint import Chunk, FaultKind, SourceFault

RANGE_BYTES = 4 << 20
_QUEUE = 4


@dataclass(slots=True)
class _Reading:
    task: asyncio.Task[None] | None = None
    resumed: asyncio.Event = field(default_factory=asyncio.Event)


class BackupSource:
    """A bounded `transfer.endpoint.BatchSource` over one manifest."""

    def __init__(
        self,
        store: ObjectStore,
        manifest: Manifest,
        *,
        open_partitions: int = 8,
        avro_codec: Codec = Codec.LZ4,
    ) -> None:
        self._store = store
        self._manifest = manifest
        self._avro_codec = avro_codec
        self._slots = asyncio.Semaphore(open_partitions)
        self._readings: dict[TopicPartition, _Reading] = {}
        self._arrived: asyncio.Queue[tuple[_Reading, Chunk | SourceFault]] = asyncio.Queue(_QUEUE)

    async def open(self, tp: TopicPartition, from_offset: int) -> None:
        """Starts reading `tp` at `from_offset`; its last chunk ends at the backup's end offset."""
        await self.close(tp)
        reading = self._readings[tp] = _Reading()
        reading.resumed.set()
        reading.task = asyncio.create_task(self._run(reading, tp, from_offset))

    async def close(self, tp: TopicPartition) -> None:
        reading = self._readings.pop(tp, None)
        if reading is not None and reading.task is not None:
            reading.task.cancel()
            await asyncio.wait({reading.task})

    def pause(self, tp: TopicPartition) -> None:
        if tp in self._readings:
            self._readings[tp].resumed.clear()

    def resume(self, tp: TopicPartition) -> None:
        if tp in self._readings:
            self._readings[tp].resumed.set()

    async def read(self) -> list[Chunk | SourceFault]:
        while True:
            arrived = [await self._arrived.get()]
            while not self._arrived.empty():
                arrived.append(self._arrived.get_nowait())
            current = [item for reading, item in arrived if self._readings.get(item.tp) is reading]
            if current:
                return current

    async def aclose(self) -> None:
        for tp in list(self._readings):
            await self.close(tp)

    async def _run(self, reading: _Reading, tp: TopicPartition, from_offset: int) -> None:
        position = from_offset
        try:
            async with self._slots:
                async for chunk in self.chunks(tp, from_offset):
                    await reading.resumed.wait()
                    await self._arrived.put((reading, chunk))
                    position = chunk.next_offset
        except (ConnectorError, ProtocolError) as error:
            fault = SourceFault(tp, FaultKind.FAILED, position, position, str(error))
            await self._arrived.put((reading, fault))

    async def chunks(self, tp: TopicPartition, from_offset: int) -> AsyncGenerator[Chunk, None]:
        """The partition's chunks from `from_offset` on; the last one ends at the backup's end."""
        partition = self._manifest.partition(tp)
        end = partition.end_offset
        position = from_offset
        for entry in partition.objects:
            if entry.last_offset < from_offset:
                continue
            async for batches, next_offset in self.batches(entry, position):
                yield Chunk(tp, batches, position, next_offset, end, end, partition.start_offset)
                position = next_offset
        if position < end:
            yield Chunk(tp, memoryview(b""), position, end, end, end, partition.start_offset)

    def batches(self, entry: ObjectEntry, from_offset: int) -> AsyncIterator[tuple[memoryview, int]]:
        """(whole batches, offset behind them) of one object, checked against its entry."""
        if self._manifest.format == "avro":
            return self._avro(entry, from_offset)
        return self._segment(entry, from_offset)

    async def _segment(self, entry: ObjectEntry, from_offset: int) -> AsyncIterator[tuple[memoryview, int]]:
        start = await self._begin(entry, from_offset)
        sha = hashlib.sha256()
        cutter = BatchCutter()
        ahead = self._fetch(entry, start)
        try:
            for position in range(start, entry.bytes, RANGE_BYTES):
                data = await ahead
                ahead = self._fetch(entry, position + RANGE_BYTES)
                if not start:
                    await asyncio.to_thread(sha.update, data)
                batches, next_offset = cutter.feed(data)
                if len(batches) and next_offset > from_offset:
                    yield batches, next_offset
        finally:
            ahead.cancel()
            await asyncio.wait({ahead})
        where = self._store.location(entry.key)
        if cutter.left:
            raise DamagedBackup(f"{where}: ends inside a batch")
        if not start and sha.hexdigest() != entry.sha256:
            raise DamagedBackup(f"{where}: its SHA-256 is not the one in the manifest")

    async def _begin(self, entry: ObjectEntry, from_offset: int) -> int:
        """Where to read from: byte 0, or by the index when a good part can be left out."""
        size = await self._store.size(entry.key)
        if size != entry.bytes:
            raise DamagedBackup(
                f"{self._store.location(entry.key)}: {size} bytes, {entry.bytes} by the manifest"
            )
        if from_offset <= entry.first_offset or entry.index_key is None or entry.bytes <= RANGE_BYTES:
            return 0
        index = await self._store.get(entry.index_key)
        if hashlib.sha256(index).hexdigest() != entry.index_sha256:
            return 0
        return SegmentIndex.decode(index, self._store.location(entry.index_key)).position(from_offset)

    def _fetch(self, entry: ObjectEntry, position: int) -> asyncio.Task[bytes]:
        async def fetch() -> bytes:
            if position >= entry.bytes:
                return b""
            return await self._store.get(entry.key, position, min(RANGE_BYTES, entry.bytes - position))

        return asyncio.create_task(fetch())

    async def _avro(self, entry: ObjectEntry, from_offset: int) -> AsyncIterator[tuple[memoryview, int]]:
        where = self._store.location(entry.key)
        data = await self._store.get(entry.key)
        if await asyncio.to_thread(lambda: hashlib.sha256(data).hexdigest()) != entry.sha256:
            raise DamagedBackup(f"{where}: its SHA-256 is not the one in the manifest")
        made = rows_to_batches(read_rows(data, where), from_offset, self._avro_codec)
        while True:
            pair = await asyncio.to_thread(next, made, None)
            if pair is None:
                return
            yield memoryview(pair[0]), pair[1]
