"""The digest of a record: 128 bits over key, value, headers and timestamp, from the batch's bytes.

Owns what "the same record" means. Offsets, producer, compression and batch boundaries are no part of it. A
record's own encoding from the key on is the canonical form (null has length -1, empty has 0; headers in
order), so that nothing is decoded and encoded again unless headers are to be ignored.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection
from hashlib import blake2b
from struct import Struct
from typing import Final, NamedTuple

from protocol.errors import DecodeError
from protocol.records.compression import decompress
from protocol.records.header import HEADER_SIZE, BatchHeader

DIGEST_SIZE: Final = 16
_TIMESTAMP: Final = Struct(">q")


class BatchDigests(NamedTuple):
    """Columns of one batch: offsets, timestamps (ms), and the digests one behind the other."""

    offsets: array[int]
    timestamps: array[int]
    digests: bytes
    keys: array[int]
    """63 bits of a digest of the key, and 1 in the lowest bit where compaction may drop the record though it
    is the last of its key: it has no value, or no key. Empty unless asked for."""
    ways: list[bytes]
    """Where each record has been (`replicator.origin`). Empty unless asked for."""


def batch_digests(
    buf: memoryview,
    pos: int,
    header: BatchHeader,
    *,
    with_timestamp: bool = True,
    ignore_headers: Collection[bytes] = (),
    with_keys: bool = False,
    way_in: bytes = b"",
) -> BatchDigests:
    """Digests of all records of the batch at `pos`. Raises DecodeError for damage.

    `ignore_headers` are header names (UTF-8) that either side may have added; `with_timestamp` is false when
    a side stamps its own append time; `with_keys` is for topics that are compacted, and `way_in` the name of
    the ignored header that says where a record has been.
    """
    payload = decompress(header.codec, buf[pos + HEADER_SIZE : pos + header.size])
    try:
        made = _digests(payload, header, with_timestamp, frozenset(ignore_headers), with_keys, way_in)
    except IndexError:
        raise DecodeError(f"batch at offset {header.base_offset}: a record ends after the batch") from None
    return made


def _digests(  # noqa: C901 (hot: one flat loop, lengths of one and two bytes decoded in line)
    data: bytes,
    header: BatchHeader,
    with_timestamp: bool,
    ignore: frozenset[bytes],
    with_keys: bool,
    way_in: bytes,
) -> BatchDigests:
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    append_time = header.max_timestamp if header.timestamp_type else None
    offsets, timestamps, keys = array("q"), array("q"), array("q")
    digests: list[bytes] = []
    ways: list[bytes] = []
    add_offset, add_timestamp, add_digest = offsets.append, timestamps.append, digests.append
    pack, none = _TIMESTAMP.pack, b""
    total, pos = len(data), 0
    for _ in range(header.record_count):
        size = data[pos]
        pos += 1
        if size > 127:
            more = data[pos]
            if more < 128:
                size = size & 127 | more << 7
                pos += 1
            else:
                size, pos = _number(data, pos - 1, 5)
        end = pos + (size >> 1)
        if size & 1 or end > total:
            raise DecodeError(f"batch at offset {base_offset}: record of impossible size at byte {pos}")
        pos += 1  # attributes of a record: unused

        delta = data[pos]
        pos += 1
        if delta > 127:
            more = data[pos]
            if more < 128:
                delta = delta & 127 | more << 7
                pos += 1
            else:
                delta, pos = _number(data, pos - 1, 10)
        timestamp = base_timestamp + (delta >> 1 ^ -(delta & 1)) if append_time is None else append_time

        delta = data[pos]
        pos += 1
        if delta > 127:
            more = data[pos]
            if more < 128:
                delta = delta & 127 | more << 7
                pos += 1
            else:
                delta, pos = _number(data, pos - 1, 5)
        if delta & 1 or pos > end:
            raise DecodeError(f"batch at offset {base_offset}: impossible offset delta at byte {pos}")

        content = data[pos:end] if not ignore else _without(data, pos, end, ignore)
        if way_in:
            ways.append(_way(data, pos, way_in))
        if with_keys:
            keys.append(_key(data, pos))
        add_offset(base_offset + (delta >> 1))
        add_timestamp(timestamp)
        stamp = pack(timestamp) if with_timestamp else none
        add_digest(blake2b(stamp + content, digest_size=DIGEST_SIZE).digest())
        pos = end
    if pos != total:
        raise DecodeError(f"batch at offset {base_offset}: {total - pos} bytes after the last record")
    return BatchDigests(offsets, timestamps, b"".join(digests), keys, ways)


def _way(data: bytes, pos: int, name: bytes) -> bytes:
    """Value of the first header of that name, of the record whose key's length stands at `pos`; empty without
    one. A record that is damaged is found out elsewhere."""
    for _ in ("key", "value"):
        size, pos = _number(data, pos, 5)
        pos += 0 if size & 1 else size >> 1
    count, pos = _number(data, pos, 5)
    for _ in range(count >> 1):
        size, begin = _number(data, pos, 5)
        behind = begin + (size >> 1)
        size, value = _number(data, behind, 5)
        pos = value if size & 1 else value + (size >> 1)
        if data[begin:behind] == name:
            return data[value:pos]
    return b""


def _key(data: bytes, pos: int) -> int:
    """Of the record whose key's length stands at `pos`; see `BatchDigests.keys`."""
    size, start = _number(data, pos, 5)
    end = start if size & 1 else start + (size >> 1)
    value, _ = _number(data, end, 5)
    digest = int.from_bytes(blake2b(data[pos:end], digest_size=8).digest(), signed=True)
    return digest | 1 if (size | value) & 1 else digest & -2


def _without(data: bytes, pos: int, end: int, ignore: frozenset[bytes]) -> bytes:
    """Key, value and headers as encoded, less the ignored headers."""
    start = pos
    for _ in ("key", "value"):
        size, pos = _number(data, pos, 5)
        pos += 0 if size & 1 else size >> 1
    head, at = pos, pos
    count, pos = _number(data, pos, 5)
    kept: list[bytes] = []
    for _ in range(count >> 1):
        begin = pos
        size, pos = _number(data, pos, 5)
        name = data[pos : pos + (size >> 1)]
        pos += size >> 1
        size, pos = _number(data, pos, 5)
        pos += 0 if size & 1 else size >> 1
        if pos > end:
            raise DecodeError(f"record headers run past the record's end at byte {at}")
        if name not in ignore:
            kept.append(data[begin:pos])
    if pos != end:
        raise DecodeError(f"record ends at byte {pos}, its size says {end}")
    if len(kept) == count >> 1:
        return data[start:end]
    return b"".join((data[start:head], _zigzag(len(kept)), *kept))


def _zigzag(count: int) -> bytes:
    rest, out = count << 1, bytearray()
    while rest > 127:
        out.append(rest & 127 | 128)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def _number(data: bytes, pos: int, longest: int) -> tuple[int, int]:
    """Base-128 number of at most `longest` bytes: (number, position after it)."""
    number = shift = 0
    for at in range(pos, pos + longest):
        byte = data[at]
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at + 1
        shift += 7
    raise DecodeError(f"number of more than {longest} bytes in a record at byte {pos}")
