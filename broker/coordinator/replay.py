"""The last word on every key of an offsets partition, found by one pass through its log.

Keys and values stay bytes during the pass, because in a log that was not compacted lately most records are
superseded by later ones; only what survives is decoded. Offsets committed in a transaction count when its
commit marker comes (KIP-98), and stay aside while it is open. A batch or record that cannot be read costs
itself and an error in the log, not the partition.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import NamedTuple

from broker.coordinator.groups.restoring import restore
from broker.coordinator.records import GroupKey, OffsetKey, read_group, read_key, read_offset
from broker.coordinator.shard import Shard
from broker.log.markers import read_marker
from protocol.errors import ProtocolError
from protocol.records import BatchHeader, iter_headers, read_records
from protocol.types import Buffer

logger = logging.getLogger("isthmus.broker.coordinator")

#: Records between two points at which the caller may do something else.
_STEP = 200


class Found(NamedTuple):
    """The newest value of a key, None for a tombstone, and the offset of its record."""

    value: bytes | None
    offset: int


class Replay:
    """What has been read so far of one partition, called `where` in messages."""

    def __init__(self, where: str) -> None:
        self.records = 0
        self._where = where
        self._latest: dict[bytes, Found] = {}
        self._open: dict[int, dict[bytes, Found]] = {}  # producer id -> keys of its open transaction

    def feed(self, batches: Buffer) -> Iterator[None]:
        """Take whole batches; pauses every few hundred records so that the caller can yield to others."""
        for position, header in iter_headers(batches):
            try:
                yield from self._feed_batch(batches, position, header)
            except ProtocolError as error:
                logger.error(
                    "%s: batch at offset %d cannot be read: %s", self._where, header.base_offset, error
                )
            yield

    def _feed_batch(self, batches: Buffer, position: int, header: BatchHeader) -> Iterator[None]:
        if header.is_control:
            marker = read_marker(memoryview(batches), position, header)
            if marker is not None:
                staged = self._open.pop(header.producer_id, {})
                for key, found in staged.items() if marker.commit else ():
                    # A plain commit that came after this one is the later word, as it is in memory.
                    if key not in self._latest or self._latest[key].offset < found.offset:
                        self._latest[key] = found
            return
        into = self._open.setdefault(header.producer_id, {}) if header.is_transactional else self._latest
        for count, record in enumerate(read_records(batches, position, header), 1):
            if record.key is not None:
                into[record.key] = Found(record.value, record.offset)
            if count % _STEP == 0:
                yield
        self.records += header.record_count

    def fill(self, shard: Shard) -> Iterator[None]:
        """Put what survived into `shard`; pauses like `feed`."""
        for count, (key, found) in enumerate(self._latest.items(), 1):
            if found.value is not None:
                try:
                    self._restore(shard, key, found.value, found.offset)
                except ProtocolError as error:
                    logger.error(
                        "%s: record at offset %d cannot be read: %s", self._where, found.offset, error
                    )
            if count % _STEP == 0:
                yield
        for producer_id, staged in self._open.items():
            for key, found in staged.items():
                self._restore_pending(shard, producer_id, key, found)
        for group_id in shard.offsets:
            shard.group_or_new(group_id)  # positions of consumers that never joined, or a group Kafka forgot

    def _restore_pending(self, shard: Shard, producer_id: int, key_data: bytes, found: Found) -> None:
        try:
            key = read_key(key_data)
            if isinstance(key, OffsetKey) and found.value is not None:
                committed = read_offset(found.value)
                later = self._latest.get(key_data)
                if later is None or later.offset < found.offset:
                    shard.add_pending(producer_id, key.group_id, key.partition, committed, found.offset)
        except ProtocolError as error:
            logger.error("%s: record at offset %d cannot be read: %s", self._where, found.offset, error)

    def _restore(self, shard: Shard, key_data: bytes, value: bytes, offset: int) -> None:
        key = read_key(key_data)
        if isinstance(key, OffsetKey):
            shard.set_offset(key.group_id, key.partition, read_offset(value), offset)
        elif isinstance(key, GroupKey):
            group = restore(key.group_id, read_group(value), shard.limits, shard.deadlines)
            shard.groups[key.group_id] = group
