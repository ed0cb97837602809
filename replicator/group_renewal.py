"""When positions of a group that rests are written again, as they are.

Owns the times, pure. The target drops each offset of a group without members `offsets.retention.minutes` (7
days) after it was written (KIP-211). What is dropped a link writes again within seconds; not while its source
is away, and then it may be all that a consumer has.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection
from typing import Final

RENEW_S: Final = 3600.0


class Renewal:
    """Of the groups of one link. The first time comes within an hour, for each group at another moment: a
    start makes no burst of writes."""

    def __init__(self) -> None:
        self._renewed: dict[str, float] = {}

    def is_due(self, group: str, now: float) -> bool:
        """`now`: seconds of a clock that only goes on."""
        first = now - zlib.crc32(group.encode()) % int(RENEW_S)
        return now - self._renewed.setdefault(group, first) >= RENEW_S

    def done(self, group: str, now: float) -> None:
        self._renewed[group] = now

    def keep(self, groups: Collection[str]) -> None:
        """Forgets all others."""
        for gone in self._renewed.keys() - set(groups):
            del self._renewed[gone]
