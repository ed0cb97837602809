"""The four codecs of record batches, with output that is bounded before it is allocated.

Owns what Kafka asks of each: gzip (RFC 1952), snappy in the framing of snappy-java (librdkafka and others
send plain snappy, which is read too), lz4 frames with independent blocks (KIP-57), zstd (KIP-110).
A small batch may claim or produce gigabytes; no call here takes more memory than `limit` plus its input.
"""

import zlib
from collections.abc import Callable, Iterator
from enum import IntEnum
from struct import Struct
from typing import Final

import cramjam
import lz4.frame

from protocol.errors import DecodeError
from protocol.records import zstd
from protocol.types import Buffer

DEFAULT_LIMIT: Final = 128 * 1024 * 1024
"""Bytes that one batch may take decompressed. Kafka's default for a batch is 1 MiB compressed."""

_MAX_GZIP_RATIO: Final = 1032  # deflate, zlib's technical notes
_MAX_LZ4_RATIO: Final = 255  # lz4 block format

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + Struct(">ii").pack(1, 1)
_XERIAL_BLOCK: Final = 32 * 1024
_XERIAL_LENGTH: Final = Struct(">i")

_LIBRARY_ERRORS: Final = (cramjam.DecompressionError, RuntimeError, ValueError, EOFError, zlib.error)


class Codec(IntEnum):
    """Number in the three low bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: int, data: Buffer, level: int | None = None) -> Buffer:
    """`data` as it stands after a batch header. `level` has the codec's own scale; snappy has none."""
    if codec == Codec.NONE:
        return data
    if codec == Codec.GZIP:
        return bytes(cramjam.gzip.compress(data, 6 if level is None else level))
    if codec == Codec.SNAPPY:
        return _xerial_compress(data)
    if codec == Codec.LZ4:
        # Java refuses linked blocks and expects no content size.
        packed: bytes = lz4.frame.compress(
            data, compression_level=level or 0, block_linked=False, store_size=False
        )
        return packed
    if codec == Codec.ZSTD:
        return zstd.compress(data, level)
    raise ValueError(f"unknown compression codec {codec}")


def decompress(codec: int, data: Buffer, limit: int = DEFAULT_LIMIT) -> bytes:
    """The records of a batch. Raises `DecodeError` for damaged data, or more than `limit` bytes of output."""
    if codec == Codec.NONE:
        return bytes(data)
    unpack = _DECOMPRESSORS.get(codec)
    if unpack is None:
        raise DecodeError(f"unknown compression codec {codec}")
    name = Codec(codec).name.lower()
    try:
        out = unpack(data, limit)
    except _LIBRARY_ERRORS as error:
        raise DecodeError(f"damaged {name} data of {len(data)} bytes: {error}") from error
    if out is None or len(out) > limit:
        raise DecodeError(f"{len(data)} bytes of {name} unpack to more than the limit of {limit} bytes")
    return out


# Each takes (data, limit) and returns None when the output would pass the limit.


def _gunzip(data: Buffer, limit: int) -> bytes | None:
    if len(data) * _MAX_GZIP_RATIO <= limit:
        return bytes(cramjam.gzip.decompress(data))
    parts, room = [], limit + 1
    while len(data):  # members may follow each other
        member = zlib.decompressobj(wbits=31)
        part = member.decompress(data, room)
        parts.append(part)
        room -= len(part)
        if room <= 0:
            return None
        if not member.eof:
            raise EOFError("unexpected end of data")
        data = member.unused_data
    return b"".join(parts)


def _xerial_compress(data: Buffer) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK]))
        parts.append(_XERIAL_LENGTH.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def _unsnappy(data: Buffer, limit: int) -> bytes | None:
    parts, room = [], limit
    for block in _snappy_blocks(memoryview(data)):
        room -= cramjam.snappy.decompress_raw_len(block)  # what the block claims; the library holds it to it
        if room < 0:
            return None
        parts.append(bytes(cramjam.snappy.decompress_raw(block)))
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _snappy_blocks(view: memoryview) -> Iterator[memoryview]:
    if bytes(view[:8]) != _XERIAL_MAGIC:
        yield view
        return
    pos, end = 0, len(view)
    while pos < end:
        if bytes(view[pos : pos + 8]) == _XERIAL_MAGIC:  # streams may follow each other, each with its header
            pos += 16
            if pos > end:
                raise ValueError("stream header cut short")
            continue
        if end - pos < 4:
            raise ValueError(f"{end - pos} bytes left where a block length should be")
        (size,) = _XERIAL_LENGTH.unpack_from(view, pos)
        pos += 4
        if not 0 < size <= end - pos:
            raise ValueError(f"block of {size} bytes, {end - pos} bytes left")
        yield view[pos : pos + size]
        pos += size


def _unlz4(data: Buffer, limit: int) -> bytes | None:
    if len(data) * _MAX_LZ4_RATIO <= limit:
        out: bytes
        out, used = lz4.frame.decompress(data, return_bytes_read=True)
        if used != len(data):
            raise ValueError(f"{len(data) - used} bytes after the frame")
        return out
    frame = lz4.frame.LZ4FrameDecompressor()
    out = frame.decompress(data, max_length=limit + 1)
    if len(out) > limit:
        return None
    if not frame.eof or frame.unused_data:
        raise ValueError("frame cut short" if not frame.eof else "bytes after the frame")
    return out


_DECOMPRESSORS: Final[dict[int, Callable[[Buffer, int], bytes | None]]] = {
    Codec.GZIP: _gunzip,
    Codec.SNAPPY: _unsnappy,
    Codec.LZ4: _unlz4,
    Codec.ZSTD: zstd.decompress,
}
