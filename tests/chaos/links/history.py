"""What clients of a link run did and saw, while it happens, by many threads. Small: an hour fits in memory.

A value is `side/client/number` and padding, so each is there once. Times are monotonic seconds.
"""

from __future__ import annotations

import threading
import time
import zlib
from dataclasses import dataclass, field

Place = tuple[str, str, int]
"""(side, topic, partition)."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A position of a group: at its source the commit that was tried (`at`: before), or what its target
    side showed (`at`: after)."""

    at: float
    group: str
    place: Place
    offset: int


@dataclass(slots=True)
class History:
    acknowledged: dict[bytes, Place] = field(default_factory=dict)
    """By the value's name; of transactions only what was committed for certain."""
    offsets: dict[bytes, int] = field(default_factory=dict)
    """Where the source has put what was delivered to it, by the value's name."""
    keys: dict[bytes, bytes] = field(default_factory=dict)
    """Of what was written to compacted topics, by the value's name."""
    aborted: set[bytes] = field(default_factory=set)
    tried: list[Moment] = field(default_factory=list)
    """Commits of groups where they read."""
    shown: list[Moment] = field(default_factory=list)
    """Positions that a link gave groups at its target."""
    seen: dict[tuple[Place, int], int] = field(default_factory=dict)
    """Checksum of the value by place and offset, as readers of mirrors saw it."""
    changed: list[str] = field(default_factory=list)
    """A second value seen at one offset, or offsets that went back without a reason."""
    transactions: int = 0
    sent: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def saw(self, place: Place, offset: int, value: bytes) -> None:
        """A record of a mirror; a second look must see the same."""
        sum_ = zlib.crc32(value)
        before = self.seen.setdefault((place, offset), sum_)
        if before != sum_:
            self.changed.append(f"{place} offset {offset}: two values")

    def commit_tried(self, group: str, place: Place, offset: int) -> None:
        with self.lock:
            self.tried.append(Moment(time.monotonic(), group, place, offset))

    def position_shown(self, group: str, place: Place, offset: int) -> None:
        with self.lock:
            self.shown.append(Moment(time.monotonic(), group, place, offset))


def name_of(value: bytes) -> bytes:
    """What tells a value from all others."""
    return value.partition(b" ")[0]
