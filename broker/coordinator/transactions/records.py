"""Records of `__transaction_state`: Kafka's own keys and values, to bytes and back.

Written is value version 0, as Kafka up to 3.9 does, or from transaction.version 1 on version 1 (KIP-890) with
its tagged fields; both are read. A null value is a tombstone.
"""

from __future__ import annotations

import struct
from typing import Final

from broker.coordinator.transactions.states import TxnState
from broker.coordinator.transactions.transaction import Image
from protocol.codec import decode, dumps
from protocol.errors import DecodeError
from protocol.messages.transaction_log_key import TransactionLogKey
from protocol.messages.transaction_log_value import PartitionsSchema, TransactionLogValue
from protocol.records import Record
from protocol.types import TopicPartition

_PREFIX: Final = struct.Struct(">h")
FLEXIBLE_FROM: Final = 1
"""The first level of `transaction.version` whose brokers all read value version 1."""


def transaction_record(transactional_id: str, image: Image | None, now_ms: int, level: int = 0) -> Record:
    """The record that stores an image, or its tombstone for None; `level` is of `transaction.version`."""
    version = 1 if level >= FLEXIBLE_FROM else 0
    key = _PREFIX.pack(0) + dumps(TransactionLogKey(transactional_id=transactional_id), 0)
    if image is None:
        return Record(offset=0, timestamp=now_ms, key=key, value=None)
    by_topic: dict[str, list[int]] = {}
    for partition in sorted(image.partitions):
        by_topic.setdefault(partition.topic, []).append(partition.partition)
    value = TransactionLogValue(
        producer_id=image.producer_id,
        producer_epoch=image.epoch,
        transaction_timeout_ms=image.timeout_ms,
        transaction_status=image.state,
        transaction_partitions=None
        if image.state is TxnState.EMPTY
        else [PartitionsSchema(topic=topic, partition_ids=ids) for topic, ids in by_topic.items()],
        transaction_last_update_timestamp_ms=image.update_ms,
        transaction_start_timestamp_ms=image.start_ms,
    )
    if version:
        value.previous_producer_id = image.last_producer_id
        value.next_producer_id = image.next_producer_id
        value.client_transaction_version = image.client_version
    return Record(offset=0, timestamp=now_ms, key=key, value=_PREFIX.pack(version) + dumps(value, version))


def read_transactional_id(data: bytes) -> str | None:
    """What a key is about; None for kinds that are not known. Raises `DecodeError`."""
    if _number(data) != TransactionLogKey.RECORD_TYPE:
        return None
    return decode(TransactionLogKey, 0, data, _PREFIX.size).transactional_id


def read_image(data: bytes) -> Image:
    """The image in a value. Raises `DecodeError`."""
    version = _number(data)
    low, high = TransactionLogValue.VALID_VERSIONS
    if not low <= version <= high:
        raise DecodeError(f"TransactionLogValue of version {version}, known are {low} to {high}")
    value = decode(TransactionLogValue, version, data, _PREFIX.size)
    try:
        state = TxnState(value.transaction_status)
    except ValueError:
        raise DecodeError(f"transaction state {value.transaction_status} is not known") from None
    return Image(
        producer_id=value.producer_id,
        epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        partitions=frozenset(
            TopicPartition(topic.topic, index)
            for topic in value.transaction_partitions or ()
            for index in topic.partition_ids
        ),
        start_ms=value.transaction_start_timestamp_ms,
        update_ms=value.transaction_last_update_timestamp_ms,
        last_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        client_version=value.client_transaction_version,
    )


def _number(data: bytes) -> int:
    if len(data) < _PREFIX.size:
        raise DecodeError(f"a key or value of {len(data)} bytes has no kind or version in front")
    return int(_PREFIX.unpack_from(data)[0])
