"""Whole batches of a Fetch answer, as mirrors take them: they pass as they are, headers are read. Pure."""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

_OFFSET_AND_LENGTH: Final = Struct(">qi")
_LAST_DELTA: Final = Struct(">i")
_LAST_DELTA_AT: Final = 23
_MAX_TIMESTAMP: Final = Struct(">q")
_MAX_TIMESTAMP_AT: Final = 35
_BEFORE_LENGTH: Final = 12
_HEADER: Final = 61


class Whole(NamedTuple):
    """`stop` is where the last whole batch ends (0: there is none), `next_offset` the offset behind it,
    `newest_ms` the greatest time in it."""

    stop: int
    next_offset: int
    newest_ms: int


def whole(batches: memoryview) -> Whole:
    """What a Fetch has cut off in the end is left."""
    pos, last, total = 0, -1, batches.nbytes
    while total - pos >= _HEADER:
        _, length = _OFFSET_AND_LENGTH.unpack_from(batches, pos)
        if length < 0 or pos + _BEFORE_LENGTH + length > total:
            break
        last = pos
        pos += _BEFORE_LENGTH + length
    if last < 0:
        return Whole(0, 0, -1)
    (base, _), (delta,) = (
        _OFFSET_AND_LENGTH.unpack_from(batches, last),
        _LAST_DELTA.unpack_from(batches, last + _LAST_DELTA_AT),
    )
    (newest_ms,) = _MAX_TIMESTAMP.unpack_from(batches, last + _MAX_TIMESTAMP_AT)
    return Whole(pos, base + delta + 1, newest_ms)
