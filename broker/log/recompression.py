"""Batches in the codec that the topic wants (`compression.type` other than `producer`).

Only for what clients send in another codec; records stay as they are, byte for byte, beneath the compression
(Kafka's LogValidator). Offsets and epochs are the log's business.
"""

from struct import Struct
from typing import Final

from crc32c import crc32c

from broker.log.config import LogConfig
from broker.log.errors import AppendRefused
from broker.log.incoming import Batches
from protocol.errors import DecodeError, ErrorCode
from protocol.records import HEADER_SIZE, BatchHeader, Codec, compress, decompress, read_header
from protocol.records.header import CODEC_MASK, CRC_START, LENGTH_OVERHEAD

_CODECS: Final = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
_LENGTH: Final = Struct(">i")
_CRC_AND_ATTRIBUTES: Final = Struct(">Ih")
_LZ4_DEFAULT_LEVEL: Final = 9
"""What Kafka calls lz4's level 9 is its fast way, not a high effort."""


def wanted_codec(config: LogConfig) -> int:
    """Number of the codec that batches must have, -1 when the producer chooses."""
    return int(_CODECS.get(config.compression_type, -1))


def wanted_level(config: LogConfig) -> int | None:
    """Effort of that codec; None for the library's choice."""
    if config.compression_type == "gzip":
        return None if config.compression_gzip_level < 0 else config.compression_gzip_level
    if config.compression_type == "lz4":
        level = config.compression_lz4_level
        return None if level == _LZ4_DEFAULT_LEVEL else level
    return config.compression_zstd_level if config.compression_type == "zstd" else None


def recompressed(
    where: str, view: memoryview, found: Batches, config: LogConfig
) -> tuple[memoryview, Batches]:
    """What to store instead; the same ones where the codec is right. Raises `AppendRefused`."""
    codec = wanted_codec(config)
    if codec < 0 or all(header.codec == codec for _, header in found):
        return view, found
    level, out = wanted_level(config), bytearray()
    changed: Batches = []
    for pos, header in found:
        batch = view[pos : pos + header.size]
        start = len(out)
        out += batch if header.codec == codec else _other(where, batch, header, codec, level)
        if len(out) - start > config.max_message_bytes:
            raise AppendRefused(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"{where}: with compression.type={config.compression_type} a batch takes {len(out) - start}"
                f" bytes, above max.message.bytes={config.max_message_bytes}",
            )
        changed.append((start, read_header(out, start)))
    return memoryview(out), changed


def _other(where: str, batch: memoryview, header: BatchHeader, codec: int, level: int | None) -> bytearray:
    try:
        payload = decompress(header.codec, batch[HEADER_SIZE:])
    except DecodeError as error:
        raise AppendRefused(ErrorCode.CORRUPT_MESSAGE, f"{where}: {error}") from None
    out = bytearray(batch[:HEADER_SIZE])
    out += compress(codec, payload, level)
    _LENGTH.pack_into(out, 8, len(out) - LENGTH_OVERHEAD)
    attributes = header.attributes & ~CODEC_MASK | codec
    _CRC_AND_ATTRIBUTES.pack_into(out, CRC_START - 4, 0, attributes)
    out[CRC_START - 4 : CRC_START] = crc32c(memoryview(out)[CRC_START:]).to_bytes(4, "big")
    return out
