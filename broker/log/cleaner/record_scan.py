"""What the cleaner needs to know of each record of a batch, without making records.

One flat loop over the bytes of a batch (format v2, KIP-98): where each record starts, its offset, its key as
two hashes and whether it has a value. This loop is the cost of compaction, so it does nothing else; whole
batches are compared and copied by those who call it. The two hashes together are 96 bits wide, and the first
is salted by the interpreter, so no keys can be made to collide. They mean nothing outside of this process.
"""

from typing import NamedTuple

from crc32c import crc32c

from protocol.errors import DecodeError
from protocol.records import BatchHeader


class Scanned(NamedTuple):
    """Of record n: it starts at `starts[n]` of the payload and ends at `starts[n + 1]`."""

    starts: list[int]
    offsets: list[int]
    hashes: list[int]
    checks: list[int]
    keyless: list[int]
    """Positions in these lists of records without a key; their hashes are 0."""
    tombstones: list[int]
    """Positions of records with a key and without a value."""


def scan(data: bytes, header: BatchHeader) -> Scanned:
    """Raises `DecodeError` for what does not read as the records of this batch."""
    try:
        return _scan(data, header)
    except IndexError:
        raise DecodeError(f"batch at offset {header.base_offset}: a record ends after the batch") from None


def _scan(data: bytes, header: BatchHeader) -> Scanned:  # noqa: C901 (hot: kept in one function)
    base = header.base_offset
    starts: list[int] = []
    offsets: list[int] = []
    hashes: list[int] = []
    checks: list[int] = []
    keyless: list[int] = []
    tombstones: list[int] = []
    start, offset, hashed, check = starts.append, offsets.append, hashes.append, checks.append
    total = len(data)
    pos = 0
    for number in range(header.record_count):
        start(pos)
        size = data[pos]
        pos += 1
        if size > 127:
            more = data[pos]
            pos += 1
            size = size & 127 | (more & 127) << 7
            shift = 14
            while more > 127:
                more = data[pos]
                pos += 1
                size |= (more & 127) << shift
                shift += 7
        end = pos + (size >> 1)
        if size & 1 or end > total:
            raise _damage(header, f"record of impossible size at byte {pos}")
        pos += 1
        while data[pos] > 127:  # timestamp
            pos += 1
        pos += 1
        delta = data[pos]
        pos += 1
        if delta > 127:
            more = data[pos]
            pos += 1
            delta = delta & 127 | (more & 127) << 7
            shift = 14
            while more > 127:
                more = data[pos]
                pos += 1
                delta |= (more & 127) << shift
                shift += 7
        offset(base + (delta >> 1))
        size = data[pos]
        pos += 1
        if size > 127:
            more = data[pos]
            pos += 1
            size = size & 127 | (more & 127) << 7
            shift = 14
            while more > 127:
                more = data[pos]
                pos += 1
                size |= (more & 127) << shift
                shift += 7
        if size & 1:
            keyless.append(number)
            hashed(0)
            check(0)
        else:
            stop = pos + (size >> 1)
            if stop >= end:
                raise _damage(header, f"key ends after its record at byte {pos}")
            key = data[pos:stop]
            hashed(hash(key))
            check(crc32c(key))
            if data[stop] == 1:  # the length of the value, -1
                tombstones.append(number)
        pos = end
    if pos != total:
        raise _damage(header, f"{total - pos} bytes after the last of {header.record_count} records")
    start(pos)
    return Scanned(starts, offsets, hashes, checks, keyless, tombstones)


def _damage(header: BatchHeader, what: str) -> DecodeError:
    return DecodeError(f"batch at offset {header.base_offset}: {what}")
