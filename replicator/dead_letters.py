"""Records that the target refuses for good, put aside at the target so that their partition can go on.

Owns the dead-letter topic: each record as it was, with headers that say where it stood and why it was
refused. Nothing expires there by itself. Which records come here is decided in `refused`.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace

from protocol.client import ClusterClient
from protocol.errors import KafkaError
from protocol.records import Codec, Record, build_batch
from replicator.internal_topics import InternalTopic, is_gone
from replicator.settings import LinkSettings
from transfer.ledger import PartitionLedger

_log = logging.getLogger("isthmus.replicator")

_CONFIGS = {"cleanup.policy": "delete", "retention.ms": "-1", "max.message.bytes": str(100 << 20)}


class DeadLetters:
    """The dead-letter topic of one link."""

    def __init__(self, target: ClusterClient, settings: LinkSettings) -> None:
        self._link = settings.name
        self.topic = settings.dead_letter_topic
        replicas = settings.internal_replication_factor
        self._internal = InternalTopic(target, self.topic, replication_factor=replicas, configs=_CONFIGS)

    async def bury(self, record: Record, ledger: PartitionLedger, why: str) -> None:
        """Returns once it is acknowledged. Raises ProtocolError."""
        letter = build_batch([self._with_place(record, ledger, why)], codec=Codec.LZ4)
        try:
            await self._put(letter)
        except KafkaError as error:
            told = f" ({error.message})" if error.message else ""
            raise KafkaError(error.code, f"no dead letter can be written to {self.topic}{told}") from error
        where = f"{ledger.source.topic}-{ledger.source.partition} offset {record.offset}"
        _log.error("%s is put aside in %s: %s", where, self.topic, why)

    async def _put(self, letter: bytes) -> None:
        """The topic is asked for once, and made again where somebody has deleted it."""
        await self._internal.ensure_once()
        try:
            await self._internal.produce(letter)
        except KafkaError as error:
            if not is_gone(error):
                raise
            await self._internal.ensure_once()
            await self._internal.produce(letter)

    def _with_place(self, record: Record, ledger: PartitionLedger, why: str) -> Record:
        place = {
            "isthmus.link": self._link,
            "isthmus.source.cluster.id": ledger.source.cluster_id,
            "isthmus.source.topic.id": ledger.source.topic_id,
            "isthmus.source.topic": ledger.source.topic,
            "isthmus.source.partition": str(ledger.source.partition),
            "isthmus.source.offset": str(record.offset),
            "isthmus.source.timestamp": str(record.timestamp),
            "isthmus.target.topic": ledger.target.topic,
            "isthmus.error": why,
        }
        headers = [*record.headers, *((name, value.encode()) for name, value in place.items())]
        # The record's own time may be what was refused; it stands in a header.
        return replace(record, offset=0, timestamp=time.time_ns() // 1_000_000, headers=headers)
