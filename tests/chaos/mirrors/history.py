"""What clients of a run of mirrors did and saw, while it happens, by many threads.

A partition is the same on both sides, so a place is (topic, partition); sides are named only where it counts.
A side that is copied back to by a link that translates offsets begins another life then: `east`, `east#2`.
"""

from __future__ import annotations

import threading
import time
import zlib
from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

Place = tuple[str, int]
"""(topic, partition)."""


class Written(NamedTuple):
    """Of an acknowledged value: when it was sent, and how many had been sent in all when it was acknowledged
    (of a transaction: committed)."""

    at_ms: int
    mark: int


@dataclass(slots=True)
class History:
    acknowledged: dict[bytes, Place] = field(default_factory=dict)
    """By the value's name; of transactions only what was committed for certain."""
    written: dict[bytes, Written] = field(default_factory=dict)
    """Of those."""
    keys: dict[bytes, bytes | None] = field(default_factory=dict)
    """Of all that was sent to compacted topics."""
    aborted: set[bytes] = field(default_factory=set)
    """By their client: nobody may ever read them."""
    transactional: set[bytes] = field(default_factory=set)
    """Acknowledged within transactions."""
    set_aside: set[bytes] = field(default_factory=set)
    """In logs that were copied back and deleted then, and not readable there."""
    read: dict[str, set[bytes]] = field(default_factory=lambda: defaultdict(set))
    """By group: what it had read before it committed."""
    seen: dict[tuple[str, Place, int], list[int]] = field(default_factory=dict)
    """Checksums of names, nearly always one, by side, place and offset, as readers of both sides saw them."""
    transactions: int = 0
    sent: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def next_number(self) -> int:
        with self.lock:
            self.sent += 1
            return self.sent

    def is_acknowledged(self, name: bytes, place: Place, at_ms: int) -> None:
        self.written[name] = Written(at_ms, self.sent)
        self.acknowledged[name] = place

    def saw(self, side: str, place: Place, offset: int, name: bytes) -> None:
        sums = self.seen.setdefault((side, place, offset), [])
        if checksum(name) not in sums:
            sums.append(checksum(name))


def checksum(name: bytes) -> int:
    return zlib.crc32(name)


def now_ms() -> int:
    return time.time_ns() // 1_000_000
