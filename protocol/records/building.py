"""A batch out of records (Kafka's MemoryRecordsBuilder)."""

import struct
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final

from crc32c import crc32c

from protocol.errors import EncodeError
from protocol.records.compression import Codec, compress
from protocol.records.header import (
    CONTROL,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    LOG_APPEND_TIME,
    MAGIC,
    NO_TIMESTAMP,
    TRANSACTIONAL,
)
from protocol.records.record import NAME_ERRORS, Header, Record

_HEAD: Final = Struct(">qiib")
_BODY: Final = Struct(">hiqqqhii")
_U32: Final = Struct(">I")
_I64_MAX: Final = (1 << 63) - 1

_NULL: Final = b"\x01"
_ONE_BYTE: Final = tuple(bytes((n,)) for n in range(128))


def build_batch(
    records: Sequence[Record],
    *,
    codec: int = Codec.NONE,
    level: int | None = None,
    base_offset: int | None = None,
    last_offset: int | None = None,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    timestamp_type: int = 0,
    preserve_offsets: bool = False,
) -> bytes:
    """One batch of `records`, ready to send or to append.

    Offsets are numbered from `base_offset` (default 0); with `preserve_offsets` each record keeps its own,
    ascending, `base_offset` defaults to the first one, and `last_offset` may lie past the last record, as in
    a compacted batch. With `timestamp_type` 1 all records read back with the greatest of their timestamps.
    Raises `EncodeError`.
    """
    first, last = _range(records, base_offset, last_offset, preserve_offsets)
    timestamps = [record.timestamp for record in records] or [NO_TIMESTAMP]
    base_timestamp, max_timestamp = timestamps[0], max(timestamps)
    if max_timestamp - min(timestamps) > _I64_MAX:
        raise EncodeError("timestamps of one batch lie more than 63 bits apart")
    offsets = [record.offset - first for record in records] if preserve_offsets else range(len(records))
    payload = b"".join(_encoded(records, offsets, base_timestamp))
    packed = compress(codec, payload, level) if records else payload
    attributes = (
        codec
        | (LOG_APPEND_TIME if timestamp_type else 0)
        | (TRANSACTIONAL if transactional else 0)
        | (CONTROL if control else 0)
    )
    try:
        body = _BODY.pack(
            attributes,
            last - first,
            base_timestamp,
            max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            len(records),
        )
        head = _HEAD.pack(first, HEADER_SIZE - LENGTH_OVERHEAD + len(packed), leader_epoch, MAGIC)
    except struct.error as error:
        raise EncodeError(f"batch at offset {first}: a header field is out of range: {error}") from error
    return b"".join((head, _U32.pack(crc32c(packed, crc32c(body))), body, packed))


def _range(
    records: Sequence[Record], base_offset: int | None, last_offset: int | None, preserve: bool
) -> tuple[int, int]:
    """First and last offset that the batch covers."""
    if not records and (base_offset is None or last_offset is None):
        raise EncodeError("a batch without records needs base_offset and last_offset")
    if preserve and records:
        first = records[0].offset if base_offset is None else base_offset
        least = records[-1].offset
        previous = first - 1
        for record in records:
            if record.offset <= previous:
                raise EncodeError(f"record offset {record.offset} does not ascend after {previous}")
            previous = record.offset
    else:
        first = base_offset or 0
        least = first + len(records) - 1
    last = least if last_offset is None else last_offset
    if not least <= last <= first + 0x7FFF_FFFF:
        raise EncodeError(f"last offset {last} does not fit records {first}..{least}")
    return first, last


def _encoded(records: Sequence[Record], offset_deltas: Sequence[int], base_timestamp: int) -> Iterator[bytes]:
    """Each record's bytes. Hot for links that decode and encode again, hence the local names."""
    number, join = _signed, b"".join
    for record, offset_delta in zip(records, offset_deltas, strict=True):
        key, value = record.key, record.value
        body = join(
            (
                b"\x00",
                number(record.timestamp - base_timestamp),
                number(offset_delta),
                _NULL if key is None else number(len(key)) + key,
                _NULL if value is None else number(len(value)),
                b"" if value is None else value,
                _headers(record.headers) if record.headers else b"\x00",
            )
        )
        yield number(len(body)) + body


def _headers(headers: Sequence[Header]) -> bytes:
    parts = [_signed(len(headers))]
    for name, value in headers:
        raw = name.encode(errors=NAME_ERRORS)
        parts += (_signed(len(raw)), raw)
        parts += (_NULL,) if value is None else (_signed(len(value)), value)
    return b"".join(parts)


def _signed(number: int) -> bytes:
    """Zigzag base-128: VARINT and VARLONG have the same bytes."""
    rest = number << 1 ^ number >> 63
    if rest < 128:
        return _ONE_BYTE[rest]
    if rest < 16384:
        return bytes((rest & 127 | 128, rest >> 7))
    out = bytearray()
    while rest > 127:
        out.append(rest & 127 | 128)
        rest >>= 7
    out.append(rest)
    return bytes(out)
