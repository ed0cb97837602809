"""Small compacted topics in which links keep their own records: progress, offset syncs, checkpoints,
heartbeats.

Owns creating, appending and reading them back. One partition, last value of a key wins, so writing a record
twice does no harm. Knows nothing about what the records mean.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from protocol.client import EARLIEST, LATEST, ClusterClient, NewTopic
from protocol.errors import ErrorCode, KafkaError
from protocol.records.building import build_batch
from protocol.records.compression import Codec
from protocol.records.reading import decode_batches
from protocol.records.record import Record
from protocol.types import TopicPartition

Row = tuple[bytes, bytes | None]

_COMPACT = {"cleanup.policy": "compact"}
_ROWS_PER_BATCH = 500
_BYTES_PER_BATCH = 512 << 10


class InternalTopic:
    """One such topic. `configs` are added to `cleanup.policy=compact` when it is created."""

    def __init__(
        self,
        client: ClusterClient,
        name: str,
        *,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self._client = client
        self._tp = TopicPartition(name, 0)
        self._replication_factor = replication_factor
        self._configs = {**_COMPACT, **(configs or {})}
        self._position = -1
        self._ensured = False

    async def ensure(self) -> None:
        """Creates the topic if it is not there."""
        found = (await self._client.metadata([self.name])).topics.get(self.name)
        if found is not None and not found.error:
            return
        topic = NewTopic(self.name, 1, self._replication_factor, self._configs)
        try:
            await self._client.create_topics([topic])
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise

    async def ensure_once(self) -> None:
        """As `ensure`, but asks only until it has succeeded."""
        if not self._ensured:
            await self.ensure()
            self._ensured = True

    async def append(self, rows: Sequence[Row]) -> None:
        """Writes rows in order, with acks=all."""
        now = time.time_ns() // 1_000_000
        batch: list[Record] = []
        size = 0
        for key, value in rows:
            batch.append(Record(0, now, key, value))
            size += len(key) + len(value or b"")
            if len(batch) >= _ROWS_PER_BATCH or size >= _BYTES_PER_BATCH:
                await self._write(batch)
                batch, size = [], 0
        if batch:
            await self._write(batch)

    async def _write(self, batch: list[Record]) -> None:
        await self._client.produce(self._tp, build_batch(batch, codec=Codec.LZ4))

    async def read_new(self) -> list[Row]:
        """Rows behind those read before, up to what is there now. A missing topic has none."""
        try:
            end = (await self._client.list_offsets({self._tp: LATEST}))[self._tp].offset
            if self._position < 0:
                self._position = (await self._client.list_offsets({self._tp: EARLIEST}))[self._tp].offset
        except KafkaError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return []
            raise
        rows: list[Row] = []
        while self._position < end:
            fetched = await self._client.fetch(self._tp, self._position, max_wait_ms=100)
            last = -1
            for record in decode_batches(fetched.records):
                last = record.offset
                if record.offset >= self._position and record.key is not None:
                    rows.append((record.key, record.value))
            if last < self._position:
                break  # markers or an emptied tail: there is nothing more to read
            self._position = last + 1
        return rows
