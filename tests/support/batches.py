"""Record batches for tests of the log: short to write, and writable, as a connection's buffer is."""

import struct
import zlib
from collections.abc import Iterable, Sequence

from protocol.records import Codec, Record, build_batch, decode_batches, iter_headers

T0 = 1_700_000_000_000
"""Where `VirtualClock` starts."""


def batch(
    values: int | Sequence[bytes] = 1,
    *,
    timestamps: Sequence[int] | None = None,
    keys: Sequence[bytes | None] | None = None,
    codec: Codec = Codec.NONE,
    producer: tuple[int, int, int] = (-1, -1, -1),
    transactional: bool = False,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> memoryview:
    """`values` records, or one for each value; `producer` is (id, epoch, base sequence)."""
    if isinstance(values, int):
        values = [b"value-%d" % i for i in range(values)]
    records = [
        Record(i, timestamps[i] if timestamps else T0, keys[i] if keys else b"key", value)
        for i, value in enumerate(values)
    ]
    data = build_batch(
        records,
        codec=codec,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        transactional=transactional,
    )
    return memoryview(bytearray(data))


def marker(producer_id: int, epoch: int, *, commit: bool, coordinator_epoch: int = 0) -> memoryview:
    """A control batch that ends a transaction."""
    key = (0).to_bytes(2, "big") + int(commit).to_bytes(2, "big")
    value = (0).to_bytes(2, "big") + coordinator_epoch.to_bytes(4, "big")
    data = build_batch(
        [Record(0, T0, key, value)],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=-1,
        transactional=True,
        control=True,
    )
    return memoryview(bytearray(data))


def old_message(offset: int, value: bytes, timestamp: int, *, magic: int = 1) -> bytes:
    """A message of format v0 or v1, as logs may hold it that were written before Kafka 0.11."""
    time = struct.pack(">q", timestamp) if magic else b""
    body = struct.pack(">bb", magic, 0) + time + struct.pack(">ii", -1, len(value)) + value
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def records_of(segments: Iterable[bytes | memoryview]) -> list[Record]:
    """Every record; fails if the bytes are not whole batches."""
    found = []
    for segment in segments:
        assert sum(header.size for _, header in iter_headers(segment)) == len(segment)
        found += decode_batches(segment)
    return found
