"""How many bytes one Fetch asks for: more over a long way, where a partition moves one request a round trip.

Owns the rule, pure. What counts is how long a full answer took: long and not too long means that the way is
the limit, and twice as much costs little more. Over a narrow way an answer takes as long as it is large, so
it stays small: others wait behind it, and it has to come before requests run into their time limit.
"""

from __future__ import annotations

from typing import Final

MOST: Final = 4
_SHORT_S: Final = 0.02
_LONG_S: Final = 0.04
_ENOUGH_S: Final = 1.0
_TOO_LONG_S: Final = 2.0


class FetchSize:
    """`factor`: how many times the settings' bytes the next request asks for."""

    def __init__(self, partition_max_bytes: int) -> None:
        self.factor = 1
        self._full = partition_max_bytes // 2

    def answered(self, size: int, took_s: float) -> None:
        """An answer of `size` bytes came so long after its request."""
        is_full = size >= self._full * self.factor
        if took_s > _TOO_LONG_S or (is_full and took_s < _SHORT_S):
            self.factor = max(1, self.factor // 2)
        elif is_full and _LONG_S < took_s < _ENOUGH_S:
            self.factor = min(MOST, self.factor * 2)
