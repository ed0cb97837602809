"""The 61-byte header of a record batch, format v2 (KIP-98; Kafka's DefaultRecordBatch).

Owns reading the header, walking a buffer batch by batch, the checksum, and the few fields that a broker
or a link changes in place. It never looks at the records behind the header. The checksum starts at
byte 21, so base offset and leader epoch may be patched without touching it; every other change here
recomputes it. Formats v0 and v1 are refused as `UnsupportedMagicError` and never converted (KIP-724).
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from protocol.errors import DecodeError
from protocol.types import Buffer

HEADER_SIZE: Final = 61
LENGTH_OVERHEAD: Final = 12
"""Bytes before the part that `batch_length` counts: the base offset and the length itself."""
CRC_START: Final = 21
MAGIC: Final = 2
MAGIC_AT: Final = 16
"""In messages of the older formats too."""

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40
"""KIP-534: `base_timestamp` of such a batch is the delete horizon, written by the log cleaner."""

NO_TIMESTAMP: Final = -1

_MIN_BATCH_LENGTH: Final = HEADER_SIZE - LENGTH_OVERHEAD
_HEADER: Final = Struct(">qiibIhiqqqhii")
_LENGTH_AND_MAGIC: Final = Struct(">8xi4xb")
_I32: Final = Struct(">i")
_U32: Final = Struct(">I")
_I64: Final = Struct(">q")
_CRC_AND_ATTRIBUTES: Final = Struct(">Ih")
_PRODUCER: Final = Struct(">qhi")


class UnsupportedMagicError(DecodeError):
    """Message format v0 or v1, or one from the future; `magic` says which."""

    def __init__(self, magic: int) -> None:
        super().__init__(
            f"record batch has magic {magic}; only format v2 (Kafka 0.11 and later) is supported"
        )
        self.magic = magic


class ImpossibleCountError(DecodeError):
    """A negative number of records or of offsets; `header` is what says so."""

    def __init__(self, where: str, header: "BatchHeader") -> None:
        super().__init__(
            f"{where}: {header.record_count} records up to offset delta {header.last_offset_delta}"
        )
        self.header = header


class BatchHeader(NamedTuple):
    """All fields of a batch header in wire order; offsets and timestamps (ms) are absolute."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def last_offset(self) -> int:
        """Last offset the batch covers; after compaction there may be no record at it."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Where the next batch may start; readers advance to this, never to "last record + 1"."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.batch_length + LENGTH_OVERHEAD

    @property
    def codec(self) -> int:
        """Number of the compression codec, see `protocol.records.compression.Codec`."""
        return self.attributes & CODEC_MASK

    @property
    def timestamp_type(self) -> int:
        """0 = CreateTime, 1 = LogAppendTime."""
        return (self.attributes & LOG_APPEND_TIME) >> 3

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record; wraps to 0 after 2^31-1. -1 without a producer id."""
        if self.base_sequence < 0:
            return self.base_sequence
        return (self.base_sequence + self.last_offset_delta) & 0x7FFF_FFFF


def read_header(buf: Buffer, pos: int = 0) -> BatchHeader:
    """Header of the batch at `pos`; the batch itself may reach past the end of `buf`.

    Raises `UnsupportedMagicError` for old formats, `ImpossibleCountError` for negative counts, `DecodeError`
    for less than 61 bytes or an impossible length.
    """
    have = len(buf) - pos
    if have < HEADER_SIZE:
        if have > MAGIC_AT and buf[pos + MAGIC_AT] != MAGIC:
            raise UnsupportedMagicError(buf[pos + MAGIC_AT])
        raise DecodeError(f"record batch at byte {pos}: {have} bytes left, a header takes {HEADER_SIZE}")
    header = BatchHeader._make(_HEADER.unpack_from(buf, pos))
    if header.magic != MAGIC:
        raise UnsupportedMagicError(header.magic)
    if header.batch_length < _MIN_BATCH_LENGTH:
        raise DecodeError(
            f"record batch at byte {pos}: length {header.batch_length} is below {_MIN_BATCH_LENGTH}"
        )
    if header.last_offset_delta < 0 or header.record_count < 0:
        raise ImpossibleCountError(f"record batch at byte {pos}", header)
    return header


def iter_headers(buf: Buffer, pos: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of every complete batch from `pos` on.

    Ends quietly before a torn tail: a Fetch answer may cut its last batch. Anything else wrong raises.
    """
    end = len(buf)
    while end - pos >= HEADER_SIZE:
        header = read_header(buf, pos)
        size = header.batch_length + LENGTH_OVERHEAD
        if size > end - pos:
            return
        yield pos, header
        pos += size
    if end - pos >= _LENGTH_AND_MAGIC.size:
        length, magic = _LENGTH_AND_MAGIC.unpack_from(buf, pos)
        if magic != MAGIC and 0 <= length <= end - pos - LENGTH_OVERHEAD:
            raise UnsupportedMagicError(magic)  # an old message may be shorter than a v2 header


def complete_end(buf: Buffer, pos: int = 0) -> int:
    """Position after the last complete batch; what follows is a torn tail."""
    for at, header in iter_headers(buf, pos):
        pos = at + header.size
    return pos


def check_crc(buf: Buffer, pos: int, header: BatchHeader) -> bool:
    """Whether the batch at `pos` is whole and its CRC32C holds."""
    end = pos + header.batch_length + LENGTH_OVERHEAD
    return end <= len(buf) and crc32c(memoryview(buf)[pos + CRC_START : end]) == header.crc


def assign_offsets(buf: bytearray | memoryview, pos: int, base_offset: int, leader_epoch: int) -> None:
    """Patch base offset and leader epoch in place; the checksum does not cover them."""
    _I64.pack_into(buf, pos, base_offset)
    _I32.pack_into(buf, pos + 12, leader_epoch)


def set_log_append_time(buf: bytearray | memoryview, pos: int, header: BatchHeader, now_ms: int) -> None:
    """Mark the batch LogAppendTime with `now_ms`; all its records then read as having that timestamp.

    The base timestamp stays: record timestamps remain stored as the producer sent them.
    """
    _I64.pack_into(buf, pos + 35, now_ms)
    _seal(buf, pos, header.batch_length, header.attributes | LOG_APPEND_TIME)


def set_producer(
    buf: bytearray | memoryview,
    pos: int,
    header: BatchHeader,
    *,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    transactional: bool = False,
) -> None:
    """Give the batch another producer, as a link does with what it copies; base offset 0 and leader epoch -1
    are what a Kafka broker wants in a Produce request, so they are set too."""
    assign_offsets(buf, pos, 0, -1)
    _PRODUCER.pack_into(buf, pos + 43, producer_id, producer_epoch, base_sequence)
    kept = header.attributes & ~TRANSACTIONAL
    _seal(buf, pos, header.batch_length, kept | TRANSACTIONAL if transactional else kept)


def _seal(buf: bytearray | memoryview, pos: int, batch_length: int, attributes: int) -> None:
    """Write the attributes and the checksum of everything from them on."""
    _CRC_AND_ATTRIBUTES.pack_into(buf, pos + 17, 0, attributes)
    end = pos + batch_length + LENGTH_OVERHEAD
    _U32.pack_into(buf, pos + 17, crc32c(memoryview(buf)[pos + CRC_START : end]))
