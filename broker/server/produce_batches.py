"""What a Produce request holds, before anything is looked up or appended: partitions, and one batch of each.

Owns what Kafka makes of partitions that are named twice, what the request's version promises about a batch
(one of magic 2, KIP-98; zstd only from v7, KIP-110; older formats never, KIP-724), and the pieces in which a
long request is worked off. A batch's contents are the log's to check. (Kafka: `ProduceRequest`.)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from struct import Struct
from typing import Final

from broker.server.transaction_members import TRANSACTIONAL, TRANSACTIONAL_AT
from broker.server.turns import ITEMS_IN_A_TURN
from protocol.codec.schema import RecordData
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.produce_request import TopicProduceData

_HEADER_SIZE: Final = 61
_HEAD: Final = Struct(">8xi4xb5xB")  # batch length, magic, the byte of the attributes that has the codec
_MAGIC_AT: Final = 16
_MAGIC: Final = 2
_CODEC_MASK: Final = 0x07
# Of any format: the shortest message behind its length, and how much of it says which format it has.
_SMALLEST: Final = 14
_UP_TO_MAGIC: Final = 17
_ZSTD: Final = 4
_ZSTD_FROM: Final = 7


def distinct(topics: list[TopicProduceData]) -> list[TopicProduceData]:
    """Of a partition that is named twice the last batch counts, as in Kafka."""
    if len(topics) > 1 and len({topic.name for topic in topics}) < len(topics):
        merged: dict[str, TopicProduceData] = {}
        for topic in topics:
            merged.setdefault(
                topic.name, TopicProduceData(name=topic.name)
            ).partition_data += topic.partition_data
        topics = list(merged.values())
    for topic in topics:
        parts = topic.partition_data
        if len(parts) > 1 and len({part.index for part in parts}) < len(parts):
            topic.partition_data = list({part.index: part for part in parts}.values())
    return topics


def holds_transactional(topics: list[TopicProduceData]) -> bool:
    """Whether any of the batches belongs to a transaction."""
    for topic in topics:
        for data in topic.partition_data:
            batch = data.records
            if (
                isinstance(batch, memoryview)
                and len(batch) >= _HEADER_SIZE
                and batch[TRANSACTIONAL_AT] & TRANSACTIONAL
                and batch[_MAGIC_AT] == _MAGIC
            ):
                return True
    return False


def keep(topics: list[TopicProduceData]) -> None:
    """Take the batches out of the connection's buffer: they are to be appended later."""
    for topic in topics:
        for data in topic.partition_data:
            if data.records is not None:
                data.records = memoryview(bytearray(data.records))  # type: ignore[arg-type]


async def in_turns(topics: list[TopicProduceData]) -> AsyncIterator[TopicProduceData]:
    """The partitions in pieces; others have their turn in between."""
    done = 0
    for topic in topics:
        for start in range(0, len(topic.partition_data), ITEMS_IN_A_TURN):
            parts = topic.partition_data[start : start + ITEMS_IN_A_TURN]
            yield TopicProduceData(name=topic.name, partition_data=parts)
            done += len(parts)
            if done >= ITEMS_IN_A_TURN:
                done = 0
                await asyncio.sleep(0)


def single_batch(records: RecordData, version: int) -> memoryview:
    """What a partition is sent, with what the request's version promises of it. Raises KafkaError."""
    if not isinstance(records, memoryview) or len(records) < _HEADER_SIZE:
        raise KafkaError(ErrorCode.INVALID_RECORD, "a produce request holds one record batch per partition")
    length, magic, codec = _HEAD.unpack_from(records)
    batch = records
    if magic != _MAGIC or length + 12 != len(records):
        batch = _first_batch(records, length, magic)
    if codec & _CODEC_MASK == _ZSTD and version < _ZSTD_FROM:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce v{_ZSTD_FROM}, this is v{version}"
        )
    return batch


def _first_batch(batch: memoryview, length: int, magic: int) -> memoryview:
    """What Kafka takes of bytes that are not just one batch of format 2. Raises KafkaError."""
    if length < _SMALLEST or magic > _MAGIC:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"no record batch: length {length}, format {magic}")
    if magic != _MAGIC:
        raise KafkaError(
            ErrorCode.INVALID_RECORD, f"message format {magic} is not written any more, only 2 (KIP-724)"
        )
    size = length + 12
    if size > len(batch) or len(batch) - size >= _UP_TO_MAGIC:
        raise KafkaError(
            ErrorCode.INVALID_RECORD, "a produce request holds exactly one whole record batch per partition"
        )
    return batch[:size]  # what follows is too short to be anything
