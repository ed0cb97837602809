"""Batches that the target refuses for good, put aside so that their partition can go on.

Owns which refusals are about the records themselves (their size, their time), and the dead-letter topic at
the target: each record as it was, with headers that say where it stood and why it was refused. Nothing is
dropped: the batch becomes a gap only once all of its records are there. A refusal for any other reason (no
right to write, a damaged batch) is never put aside.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace

from protocol.client import ClusterClient, NewTopic
from protocol.errors import ErrorCode, KafkaError, ProtocolError
from protocol.records import Codec, Record, build_batch
from protocol.records.header import iter_headers
from protocol.records.reading import read_records
from protocol.types import TopicPartition
from replicator.settings import LinkSettings
from transfer.endpoint import RefusedError
from transfer.ledger import Gap, PartitionLedger

_log = logging.getLogger("isthmus.replicator")

_ABOUT_RECORDS = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.INVALID_RECORD,
    }
)
_CONFIGS = {"cleanup.policy": "delete", "retention.ms": "-1", "max.message.bytes": str(100 << 20)}
_BATCH_BYTES = 512 << 10


class DeadLetters:
    """The dead-letter topic of one link."""

    def __init__(self, source: ClusterClient, target: ClusterClient, settings: LinkSettings) -> None:
        self._source = source
        self._target = target
        self._link = settings.name
        self.topic = settings.dead_letter_topic
        self._replication_factor = settings.internal_replication_factor
        self._made = False

    async def bury(self, ledger: PartitionLedger, refused: RefusedError) -> Gap | None:
        """Writes the refused batch's records to the dead-letter topic and returns the gap that they leave;
        None for a refusal that is not about the records. Raises ProtocolError: nothing is settled then."""
        if ErrorCode.of(refused.code) not in _ABOUT_RECORDS:
            return None
        start = ledger.next_source_offset
        source = TopicPartition(ledger.source.topic, ledger.source.partition)
        records, end = await self._batch(source, max(start, refused.offset))
        await self._ensure()
        await self._write([self._with_place(record, ledger, refused) for record in records])
        reason = f"{len(records)} records in {self.topic}: {refused.reason}"
        _log.error("%s: offsets %d..%d are put aside: %s", source, start, end, reason)
        return Gap(start, end, reason, time.time_ns() // 1_000_000)

    async def _batch(self, source: TopicPartition, offset: int) -> tuple[list[Record], int]:
        """The records from `offset` on of the batch that holds it, and the offset behind the batch."""
        fetched = await self._source.fetch(source, offset)
        for position, header in iter_headers(fetched.records):
            if header.next_offset > offset:
                found = read_records(fetched.records, position, header)
                return [record for record in found if record.offset >= offset], header.next_offset
        raise ProtocolError(f"{source}: the refused batch at offset {offset} cannot be read again")

    def _with_place(self, record: Record, ledger: PartitionLedger, refused: RefusedError) -> Record:
        place = {
            "isthmus.link": self._link,
            "isthmus.source.cluster.id": ledger.source.cluster_id,
            "isthmus.source.topic.id": ledger.source.topic_id,
            "isthmus.source.topic": ledger.source.topic,
            "isthmus.source.partition": str(ledger.source.partition),
            "isthmus.source.offset": str(record.offset),
            "isthmus.source.timestamp": str(record.timestamp),
            "isthmus.target.topic": ledger.target.topic,
            "isthmus.error": refused.reason,
        }
        headers = [*record.headers, *((name, value.encode()) for name, value in place.items())]
        # The record's own time may be what was refused; it stands in a header.
        return replace(record, offset=0, timestamp=time.time_ns() // 1_000_000, headers=headers)

    async def _ensure(self) -> None:
        if self._made:
            return
        try:
            await self._target.create_topics([NewTopic(self.topic, 1, self._replication_factor, _CONFIGS)])
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        self._made = True

    async def _write(self, records: list[Record]) -> None:
        batch: list[Record] = []
        size = 0
        for record in records:
            batch.append(record)
            size += len(record.key or b"") + len(record.value or b"")
            if size >= _BATCH_BYTES:
                await self._produce(batch)
                batch, size = [], 0
        if batch:
            await self._produce(batch)

    async def _produce(self, batch: list[Record]) -> None:
        await self._target.produce(TopicPartition(self.topic, 0), build_batch(batch, codec=Codec.LZ4))
