"""Kafka's producer snapshot file, version 1 (`<offset>.snapshot`; ProducerStateManager's schema).

Layout: version int16, CRC32C uint32 of everything after it, number of entries int32, then 46 bytes per
producer. Owns bytes only. A snapshot taken at offset N holds the state that the batches below N lead to.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from broker.log.checkpoints import CheckpointDamaged

_HEAD: Final = Struct(">hIi")
_ENTRY: Final = Struct(">qhiqiqiq")
_VERSION: Final = 1


class SnapshotEntry(NamedTuple):
    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    """Last minus first offset of the last batch."""
    timestamp: int
    coordinator_epoch: int
    txn_first_offset: int
    """First offset of the open transaction, -1 without one."""


def encode_snapshot(entries: Sequence[SnapshotEntry]) -> bytes:
    data = bytearray(_HEAD.size + _ENTRY.size * len(entries))
    _HEAD.pack_into(data, 0, _VERSION, 0, len(entries))
    for i, entry in enumerate(entries):
        _ENTRY.pack_into(data, _HEAD.size + i * _ENTRY.size, *entry)
    _HEAD.pack_into(data, 0, _VERSION, crc32c(memoryview(data)[6:]), len(entries))
    return bytes(data)


def decode_snapshot(data: bytes, name: str) -> list[SnapshotEntry]:
    """Raises `CheckpointDamaged`; `name` is for its message."""
    if len(data) < _HEAD.size:
        raise CheckpointDamaged(f"{name}: {len(data)} bytes are too few for a producer snapshot")
    version, crc, count = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise CheckpointDamaged(f"{name}: producer snapshot version {version} is unknown")
    if crc != crc32c(memoryview(data)[6:]) or len(data) != _HEAD.size + count * _ENTRY.size:
        raise CheckpointDamaged(f"{name}: producer snapshot has a wrong checksum or size")
    return [SnapshotEntry._make(fields) for fields in _ENTRY.iter_unpack(data[_HEAD.size :])]
