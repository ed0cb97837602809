"""Records out of a batch (Kafka's DefaultRecord).

One flat loop per batch: most lengths take one or two bytes and most deltas up to three, which are decoded
in line; longer ones go through a function. The payload is indexed as `bytes`, the fastest thing to index,
so a read past its end is an IndexError, and a slice past its end shows in the check at the record's end.
Every damage is a `DecodeError` before the damaged record is handed out.
"""

from collections.abc import Iterator
from typing import Final

from protocol.errors import DecodeError
from protocol.records.compression import DEFAULT_LIMIT, decompress
from protocol.records.header import HEADER_SIZE, LOG_APPEND_TIME, BatchHeader, iter_headers
from protocol.records.record import NAME_ERRORS, Header, Record
from protocol.types import Buffer

_I64_MIN: Final = -(1 << 63)
_I64_MAX: Final = (1 << 63) - 1


def read_records(
    buf: Buffer, pos: int, header: BatchHeader, *, limit: int = DEFAULT_LIMIT
) -> Iterator[Record]:
    """Records of the batch at `pos`, whose header was read before; at most `limit` bytes decompressed.

    A control batch yields its markers like records. A record's offset is where it is, not its number:
    compacted batches have holes.
    """
    end = pos + header.size
    if end > len(buf):
        raise DecodeError(
            f"batch at offset {header.base_offset} takes {header.size} bytes, {len(buf) - pos} are there"
        )
    payload = decompress(header.codec, memoryview(buf)[pos + HEADER_SIZE : end], limit)
    records = _records(payload, header)
    try:
        yield from records
    except IndexError:
        raise DecodeError(f"batch at offset {header.base_offset}: a record ends after the batch") from None


def decode_batches(buf: Buffer, *, limit: int = DEFAULT_LIMIT) -> Iterator[Record]:
    """Records of every complete batch, control batches left out; a torn last batch is ignored."""
    for pos, header in iter_headers(buf):
        if not header.is_control:
            yield from read_records(buf, pos, header, limit=limit)


def _records(data: bytes, header: BatchHeader) -> Iterator[Record]:  # noqa: C901 (hot: kept in one function)
    base_offset = header.base_offset
    base_timestamp = header.base_timestamp
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
    last_delta = header.last_offset_delta
    previous = -1
    total = len(data)
    pos = 0
    for _ in range(header.record_count):
        # Length, zigzag: an even number is positive.
        size = data[pos]
        pos += 1
        if size > 127:
            more = data[pos]
            if more < 128:
                size = size & 127 | more << 7
                pos += 1
            else:
                size, pos = _unsigned(data, pos - 1, 5)
        end = pos + (size >> 1)
        if size & 1 or end > total:
            raise _damage(header, f"record of impossible size at byte {pos}")
        pos += 1  # attributes of a record: unused

        delta = data[pos]
        pos += 1
        if delta > 127:
            more = data[pos]
            pos += 1
            if more < 128:
                delta = delta & 127 | more << 7
            else:
                third = data[pos]
                pos += 1
                delta = delta & 127 | (more & 127) << 7 | (third & 127) << 14
                if third > 127:
                    delta, pos = _unsigned(data, pos - 3, 10)
        timestamp = base_timestamp + (delta >> 1 ^ -(delta & 1))
        if not _I64_MIN <= timestamp <= _I64_MAX:
            raise _damage(header, f"timestamp {timestamp} does not fit 64 bits")

        delta = data[pos]
        pos += 1
        if delta > 127:
            more = data[pos]
            pos += 1
            if more < 128:
                delta = delta & 127 | more << 7
            else:
                third = data[pos]
                pos += 1
                delta = delta & 127 | (more & 127) << 7 | (third & 127) << 14
                if third > 127:
                    delta, pos = _unsigned(data, pos - 3, 5)
        at = delta >> 1
        if delta & 1 or not previous < at <= last_delta:
            raise _damage(header, f"offset deltas do not ascend within 0..{last_delta}")
        previous = at

        size = data[pos]
        pos += 1
        if size > 127:
            more = data[pos]
            if more < 128:
                size = size & 127 | more << 7
                pos += 1
            else:
                size, pos = _unsigned(data, pos - 1, 5)
        if size & 1:
            if size != 1:
                raise _damage(header, f"key of negative size at byte {pos}")
            key = None
        else:
            size >>= 1
            key = data[pos : pos + size]
            pos += size

        size = data[pos]
        pos += 1
        if size > 127:
            more = data[pos]
            if more < 128:
                size = size & 127 | more << 7
                pos += 1
            else:
                size, pos = _unsigned(data, pos - 1, 5)
        if size & 1:
            if size != 1:
                raise _damage(header, f"value of negative size at byte {pos}")
            value = None
        else:
            size >>= 1
            value = data[pos : pos + size]
            pos += size

        headers: list[Header] = []
        count = data[pos]
        pos += 1
        if count:
            pos = _headers(data, pos - 1, end, headers, header)
        if pos != end:
            raise _damage(header, f"record ends at byte {pos}, its size says {end}")
        yield Record(base_offset + at, timestamp if append_time is None else append_time, key, value, headers)
    if pos != total:
        raise _damage(header, f"{total - pos} bytes after the last of {header.record_count} records")


def _headers(data: bytes, pos: int, end: int, into: list[Header], header: BatchHeader) -> int:
    count, pos = _unsigned(data, pos, 5)
    if count & 1 or count >> 1 > (end - pos) // 2:  # a header takes at least two bytes
        raise _damage(header, f"impossible number of record headers at byte {pos}")
    for _ in range(count >> 1):
        size = data[pos]
        pos += 1
        if size > 127:
            size, pos = _unsigned(data, pos - 1, 5)
        if size & 1:
            raise _damage(header, f"header key without a name at byte {pos}")
        stop = pos + (size >> 1)
        name = data[pos:stop].decode(errors=NAME_ERRORS)
        size = data[stop]
        pos = stop + 1
        if size > 127:
            size, pos = _unsigned(data, stop, 5)
        if not size & 1:
            stop = pos + (size >> 1)
            into.append((name, data[pos:stop]))
            pos = stop
        elif size == 1:
            into.append((name, None))
        else:
            raise _damage(header, f"header value of negative size at byte {pos}")
    return pos


def _unsigned(data: bytes, pos: int, longest: int) -> tuple[int, int]:
    """Base-128 number of at most `longest` bytes: (number, position after it)."""
    number = shift = 0
    for at in range(pos, pos + longest):
        byte = data[at]
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at + 1
        shift += 7
    raise DecodeError(f"number of more than {longest} bytes in a record at byte {pos}")


def _damage(header: BatchHeader, what: str) -> DecodeError:
    return DecodeError(f"batch at offset {header.base_offset}: {what}")
