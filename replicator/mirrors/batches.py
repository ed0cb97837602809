"""Whole batches of a Fetch answer, as mirrors take them: they pass as they are, headers are read. Pure."""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from protocol.records.header import HEADER_SIZE
from transfer.kafka.positions import ends_at, last_whole

_MAX_TIMESTAMP: Final = Struct(">q")
_MAX_TIMESTAMP_AT: Final = 35


class Whole(NamedTuple):
    """`stop` is where the last whole batch ends (0: there is none), `next_offset` the offset behind it,
    `newest_ms` the greatest time in it."""

    stop: int
    next_offset: int
    newest_ms: int


def whole(batches: memoryview) -> Whole:
    """What a Fetch has cut off in the end is left."""
    last, stop = last_whole(batches)
    if not stop:
        return Whole(0, 0, -1)
    next_offset, _ = ends_at(batches, last, stop)
    newest_ms = -1
    if stop - last >= HEADER_SIZE:
        (newest_ms,) = _MAX_TIMESTAMP.unpack_from(batches, last + _MAX_TIMESTAMP_AT)
    return Whole(stop, next_offset, newest_ms)
