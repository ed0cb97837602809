"""The primitives that compiled code calls: varints, tagged fields to skip, cached layouts of integer arrays.

Everything that reads gets the buffer, a position and the end it may not pass, and returns values with the
new position. Lengths are checked against the bytes that are left before anything is allocated. `Malformed`
carries only the reason; the place is added by `protocol.codec.source`.
"""

from collections.abc import Sequence
from functools import cache
from struct import Struct as Layout
from typing import Any

from protocol.codec.schema import Message, Request
from protocol.types import Buffer

MAX_STRING = 0x7FFF
MAX_ITEMS = 500_000
"""Array items in one message, all arrays together (numbers count an eighth). An item of two bytes becomes an
object of a hundred, so without a limit a frame could claim fifty times its size (invariant I11). The largest
honest messages carry the metadata of a whole cluster; this is enough for 200,000 partitions."""
MAX_PRODUCE_ITEMS = 20_000
"""Topics and partitions of one Produce request, which has to be read in one go, while its records are in
the receive buffer. A producer's request of 1 MB has room for 13,000."""
UVARINT_1 = tuple(bytes((n,)) for n in range(128))
ONE_BYTE = len(UVARINT_1)


class Malformed(Exception):
    """A value that breaks the protocol; becomes DecodeError or EncodeError with its place."""


def max_items(message: type[Message]) -> int:
    """How many array items a message may hold."""
    is_produce = issubclass(message, Request) and message.API_KEY == 0
    return MAX_PRODUCE_ITEMS if is_produce else MAX_ITEMS


def read_uvarint(buf: memoryview, pos: int) -> tuple[int, int]:
    """An unsigned varint of at most five bytes and 32 bits."""
    value = shift = 0
    while True:
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFF_FFFF:
                raise Malformed(f"varint {value} does not fit 32 bits")
            return value, pos
        shift += 7
        if shift == 35:
            raise Malformed("varint is longer than 5 bytes")


def read_string_length(buf: memoryview, pos: int) -> tuple[int, int]:
    """Length + 1 of a compact string that takes more than one byte; Kafka's strings end at 32767 bytes."""
    value, pos = read_uvarint(buf, pos)
    if value > MAX_STRING + 1:
        raise Malformed(f"string of {value - 1} bytes, at most {MAX_STRING} are allowed")
    return value, pos


def skip_tags(buf: memoryview, pos: int, end: int) -> int:
    """Steps over tagged fields, none of which is known here (KIP-482)."""
    count, pos = read_uvarint(buf, pos)
    for _ in range(count):
        _, pos = read_uvarint(buf, pos)
        size, pos = read_uvarint(buf, pos)
        if size > end - pos:
            raise Malformed(f"tagged field of {size} bytes, {end - pos} are left")
        pos += size
    return pos


def uvarint(value: int) -> bytes:
    """An unsigned varint."""
    if value < ONE_BYTE:
        return UVARINT_1[value]
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 0x20_0000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def string_length(size: int) -> bytes:
    """Length + 1 in front of a compact string."""
    if size > MAX_STRING:
        raise Malformed(f"string of {size} bytes, at most {MAX_STRING} are allowed")
    return uvarint(size + 1)


@cache
def _layout(code: str, count: int) -> Layout:
    return Layout(f">{count}{code}")


def layout(code: str, count: int) -> Layout:
    """Layout of `count` equal numbers; small ones are kept, large ones are rare and built anew."""
    return _layout(code, count) if count <= 64 else Layout(f">{count}{code}")


def record_segments(data: Any) -> tuple[int, Sequence[Buffer]]:
    """Total size and non-empty segments of a `records` value."""
    segments = [data] if isinstance(data, bytes | bytearray | memoryview) else data
    flat = [s.cast("B") if isinstance(s, memoryview) and s.format != "B" else s for s in segments if len(s)]
    return sum(map(len, flat)), flat
