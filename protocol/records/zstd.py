"""Zstandard frames (RFC 8878, KIP-110), with output that is bounded before it is allocated.

A context costs forty times what a small batch does, so each thread keeps one. What is not one plain frame
goes the slower way: frames behind each other, skippable ones.
"""

from __future__ import annotations

import threading
from typing import Final

import cramjam
import zstandard

from protocol.types import Buffer

_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_MAX_BLOCK: Final = 128 * 1024
_KAFKAS_LEVEL: Final = 3


class _Contexts(threading.local):
    """Of one thread: a context serves one call at a time, and calls let other threads run."""

    def __init__(self) -> None:
        self.unpacking = zstandard.ZstdDecompressor()
        self.packing: dict[int, zstandard.ZstdCompressor] = {}


_contexts: Final = _Contexts()


def compress(data: Buffer, level: int | None = None) -> bytes:
    """One frame that names its size."""
    chosen = _KAFKAS_LEVEL if level is None else level
    packing = _contexts.packing.get(chosen)
    if packing is None:
        packing = _contexts.packing[chosen] = zstandard.ZstdCompressor(level=chosen)
    return packing.compress(data)


def decompress(data: Buffer, limit: int) -> bytes | None:
    """What the frames hold; None where that passes `limit` bytes. Raises cramjam.DecompressionError."""
    view = memoryview(data)
    try:
        size = zstandard.frame_content_size(data)
        if size < 0:  # not named, as by streams of Java; what stands behind such a frame is passed over then
            end, size = _frame(view, 0)
            size = size if end == len(view) else limit + 1
        if size <= limit:
            return _contexts.unpacking.decompress(data, max_output_size=size, allow_extra_data=False)
    except zstandard.ZstdError:
        pass  # not one whole frame
    if bound(view) <= limit:
        return bytes(cramjam.zstd.decompress(data))
    # Many blocks, each possibly far from full: find out within a buffer of the limit's size.
    room = bytearray(limit)
    try:
        size = cramjam.zstd.decompress_into(data, room)
    except cramjam.DecompressionError as error:
        if "whole buffer" in str(error):
            return None
        raise
    return bytes(memoryview(room)[:size])


def bound(view: memoryview) -> int:
    """Upper bound of the output, from block headers alone (RFC 8878 §3.1.1); damage is for the library."""
    total, pos, end = 0, 0, len(view)
    while end - pos >= 5:
        magic = bytes(view[pos : pos + 4])
        if magic[0] >> 4 == 5 and magic[1:] == b"\x2a\x4d\x18":  # a skippable frame
            pos += 8 + int.from_bytes(view[pos + 4 : pos + 8], "little")
            continue
        if magic != _MAGIC:
            break
        pos, size = _frame(view, pos)
        total += size
    return total


def _frame(view: memoryview, pos: int) -> tuple[int, int]:
    """Where the frame at `pos` ends, and what it holds at most."""
    total, end = 0, len(view)
    flags = view[pos + 4]
    single_segment = flags >> 5 & 1
    content_size = (single_segment, 2, 4, 8)[flags >> 6]
    pos += 5 + (1 - single_segment) + (0, 1, 2, 4)[flags & 3] + content_size
    last = 0
    while not last and end - pos >= 3:
        block = int.from_bytes(view[pos : pos + 3], "little")
        last, kind, size = block & 1, block >> 1 & 3, block >> 3
        total += _MAX_BLOCK if kind == 2 else size
        pos += 3 + (1 if kind == 1 else size)
    return pos + 4 * (flags >> 2 & 1), total
