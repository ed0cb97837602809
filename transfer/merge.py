"""Neighbouring small batches become one: what a slow stream left behind is written as a fast one would have.

Owns rebuilding batches of a few records into one larger batch of the same codec, without objects for
records: a record keeps its bytes but for its length, its time and its offset, which are relative to the batch
(KIP-98). Producers without linger write a batch for each record; copied as they are, a hundred bytes cost the
target broker and the link as much as a batch of 64 KB. Must not know lanes or sequences.

Clients leave single batches uncompressed where that is shorter: such a one joins its compressed neighbours.
Only what stands next to each other in one answer is joined, so nothing waits for company, and at the end of
a log there is little to join. Each batch's checksum is verified before, and kept for the ledger's digest.
"""

from __future__ import annotations

from functools import cache
from struct import Struct
from typing import Final, NamedTuple

import crc32c

from protocol.errors import DecodeError
from protocol.records.compression import Codec, compress, decompress
from protocol.records.header import CRC_START, HEADER_SIZE, LENGTH_OVERHEAD, MAGIC
from protocol.types import Buffer

MOST_BYTES: Final = 64 * 1024
"""Of the source's batches that become one: far below what targets take by default (a megabyte)."""
SMALL: Final = 4096
"""A larger batch is left as it is: rewriting its records would cost more than it saves."""
FEW: Final = 16
"""Records of a batch, for the same reason."""
_QUICK: Final = frozenset({Codec.NONE, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD})
"""Packing gzip anew takes longer than sending its batches apart."""
MOST_UNPACKED: Final = 1024 * 1024
"""Of records that were compressed: more is not put into one batch, and a batch with more is left as it is."""

_PLAIN: Final = Struct(">qiibIhiqq14xi")
_TABLE: Final = 1 << 13
_ONE_BYTE: Final = 64
_RELATIVE: Final = b"\0\0\0"
"""Attributes, time and offset of a batch's only record: all 0."""


class Joined(NamedTuple):
    """Several batches of a source, from offset `base` on, as one; `end` is where they end in the buffer."""

    payload: Buffer
    codec: int
    base: int
    records: int
    base_timestamp: int
    max_timestamp: int
    crcs: tuple[int, ...]
    leader_epoch: int
    end: int


def join(buf: memoryview, pos: int) -> Joined | None:
    """What stands at `pos` and can become one batch; None where that is fewer than two batches."""
    data = bytes(buf[pos : pos + MOST_BYTES])
    size, at = len(data), 0
    unpack, checksum, zigzag = _PLAIN.unpack_from, crc32c.crc32c, _small_zigzags()
    parts: list[bytes] = []
    crcs: list[int] = []
    done = expected = first = first_time = newest = codec = unpacked = 0
    last_epoch = -1
    time, shift = 0, b"\0"
    while size - at >= HEADER_SIZE and done < _TABLE - FEW:
        base, length, epoch, magic, crc, attributes, delta, base_time, max_time, count = unpack(data, at)
        behind = at + LENGTH_OVERHEAD + length
        if not crcs:
            first = expected = base
            first_time = time = newest = base_time
        if (
            magic != MAGIC
            or (attributes and attributes != codec and (codec or attributes not in _QUICK))
            or base != expected
            or not 0 < count <= FEW
            or count != delta + 1
            or behind > size
            or not HEADER_SIZE - LENGTH_OVERHEAD < length <= SMALL
            or checksum(data[at + CRC_START : behind]) != crc
        ):
            break
        if attributes:
            codec = attributes
            records = _unpacked(codec, data[at + HEADER_SIZE : behind])
            start, stop = 0, len(records)
            unpacked += stop
            if not stop or unpacked > MOST_UNPACKED:
                break
        else:
            records, start, stop = data, at + HEADER_SIZE, behind
        if base_time != time:
            time, shift = base_time, _zigzag(base_time - first_time)
        inner = stop - start - (1 if stop - start <= _ONE_BYTE else 2)
        if count == 1 and inner < _TABLE and records.startswith(zigzag[inner] + _RELATIVE, start):
            middle = b"\0" + shift + zigzag[done]
            parts.append(zigzag[inner - 3 + len(middle)] + middle)
            parts.append(records[stop - inner + 3 : stop])
        elif not _rewrite(parts, records, (start, stop), count, base_time - first_time, done):
            break
        crcs.append(crc)
        done += count
        expected += count
        newest = max(newest, max_time)
        last_epoch = epoch
        at = behind
    if len(crcs) < 2:
        return None
    payload = compress(codec, b"".join(parts))
    return Joined(payload, codec, first, done, first_time, newest, tuple(crcs), last_epoch, pos + at)


def _unpacked(codec: int, data: bytes) -> bytes:
    """A batch's records; nothing where they are damaged or more than may be joined."""
    try:
        return decompress(codec, data, MOST_UNPACKED)
    except DecodeError:
        return b""


def _rewrite(
    parts: list[bytes], data: bytes, where: tuple[int, int], count: int, later: int, done: int
) -> bool:
    """Adds a batch's records, `later` ms and `done` records behind the first batch's. False: not as expected,
    and nothing is added."""
    at, behind = where
    found: list[bytes] = []
    try:
        for number in range(count):
            length, body = _read(data, at)
            at = body + length
            if length < 0 or at > behind or data[body]:
                return False
            time, rest = _read(data, body + 1)
            offset, rest = _read(data, rest)
            if offset != number or rest > at:
                return False
            middle = b"\0" + _zigzag(later + time) + _zigzag(done + number)
            found += (_zigzag(len(middle) + at - rest), middle, data[rest:at])
    except IndexError:
        return False
    if at != behind:
        return False
    parts += found
    return True


def _read(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint, and where it ends."""
    value = shift = 0
    while (byte := data[at]) > 0x7F:
        value |= (byte & 0x7F) << shift
        shift += 7
        at += 1
    value |= byte << shift
    return (value >> 1) ^ -(value & 1), at + 1


def _zigzag(value: int) -> bytes:
    if 0 <= value < _TABLE:
        return _small_zigzags()[value]
    return _varint((value << 1) ^ (value >> 63))


def _varint(rest: int) -> bytes:
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


@cache
def _small_zigzags() -> tuple[bytes, ...]:
    return tuple(_varint(value << 1) for value in range(_TABLE))
