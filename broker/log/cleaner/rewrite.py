"""A batch with fewer records, or with the time at which its deletion markers may go (KIP-534).

Owns bytes only. Base offset, last offset delta and base sequence stay as they were, so offsets and the
producer's last sequence survive (Kafka's `MemoryRecords.filterTo`). Records are copied as they are; only a
new delete horizon, which stands in the place of the base timestamp, changes their first fields.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final

from crc32c import crc32c

from protocol.records import HEADER_SIZE, BatchHeader
from protocol.records.compression import compress
from protocol.records.header import (
    CODEC_MASK,
    CRC_START,
    DELETE_HORIZON,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
)

_HEADER: Final = Struct(">qiibIhiqqqhii")


def horizon(header: BatchHeader) -> int | None:
    """From when on deletion markers of the batch may go (ms); None while that is not written in it."""
    return header.base_timestamp if header.attributes & DELETE_HORIZON else None


def emptied(header: BatchHeader) -> bytes:
    """The header alone: it keeps offsets and the producer's sequence."""
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON)
    return _sealed(header._replace(attributes=attributes, base_timestamp=NO_TIMESTAMP, record_count=0), b"")


def rebuilt(
    header: BatchHeader, data: bytes, starts: Sequence[int], kept: Sequence[int], new_horizon: int | None
) -> tuple[bytes, int]:
    """The batch with the records `kept` alone, and its largest timestamp.

    `data` are the records, decompressed; record n is `data[starts[n]:starts[n + 1]]`.
    """
    dates = [_timestamp(data, starts[number]) for number in kept]
    if new_horizon is None:
        payload = b"".join(data[begin:end] for begin, end in _runs(starts, kept))
        base = header.base_timestamp
        attributes = header.attributes
    else:
        base = new_horizon
        attributes = header.attributes | DELETE_HORIZON
        shift = header.base_timestamp - base
        payload = b"".join(
            _redated(data, at, starts[number + 1], delta + shift)
            for number, (delta, at) in zip(kept, dates, strict=True)
        )
    latest = header.max_timestamp
    if not attributes & LOG_APPEND_TIME:
        latest = header.base_timestamp + max(delta for delta, _ in dates)
    changed = header._replace(
        attributes=attributes, base_timestamp=base, max_timestamp=latest, record_count=len(kept)
    )
    return _sealed(changed, bytes(compress(header.codec, payload))), latest


def _sealed(header: BatchHeader, payload: bytes) -> bytes:
    """Length and checksum for this payload."""
    length = HEADER_SIZE - LENGTH_OVERHEAD + len(payload)
    head = bytearray(_HEADER.pack(*header._replace(batch_length=length, crc=0)))
    crc = crc32c(payload, crc32c(memoryview(head)[CRC_START:]))
    head[CRC_START - 4 : CRC_START] = crc.to_bytes(4, "big")
    return bytes(head) + payload


def _runs(starts: Sequence[int], kept: Sequence[int]) -> list[tuple[int, int]]:
    """Neighbouring records as one range of bytes."""
    runs: list[tuple[int, int]] = []
    for number in kept:
        begin, end = starts[number], starts[number + 1]
        if runs and runs[-1][1] == begin:
            runs[-1] = (runs[-1][0], end)
        else:
            runs.append((begin, end))
    return runs


def _timestamp(data: bytes, start: int) -> tuple[int, int]:
    """Timestamp delta of the record at `start`, and where the field after it begins."""
    pos = start
    while data[pos] > 127:  # length of the record
        pos += 1
    pos += 2  # and its attributes
    number = shift = 0
    while True:
        byte = data[pos]
        pos += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number >> 1 ^ -(number & 1), pos
        shift += 7


def _redated(data: bytes, rest: int, end: int, delta: int) -> bytes:
    """A record whose fields after the timestamp are `data[rest:end]`."""
    date = _signed(delta)
    return b"".join((_signed(1 + len(date) + end - rest), b"\x00", date, data[rest:end]))


def _signed(number: int) -> bytes:
    rest = (number << 1 ^ number >> 63) & 0xFFFF_FFFF_FFFF_FFFF
    out = bytearray()
    while rest > 127:
        out.append(rest & 127 | 128)
        rest >>= 7
    out.append(rest)
    return bytes(out)
