"""What clients of a run of mirrors did and saw, while it happens, by many threads.

A partition is the same on both sides, so a place is (topic, partition); sides are named only where it counts.
"""

from __future__ import annotations

import threading
import zlib
from collections import defaultdict
from dataclasses import dataclass, field

Place = tuple[str, int]
"""(topic, partition)."""


@dataclass(slots=True)
class History:
    acknowledged: dict[bytes, Place] = field(default_factory=dict)
    """By the value's name; of transactions only what was committed for certain."""
    aborted: set[bytes] = field(default_factory=set)
    """By their client: nobody may ever read them."""
    transactional: set[bytes] = field(default_factory=set)
    """Acknowledged within transactions."""
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

    def saw(self, side: str, place: Place, offset: int, name: bytes) -> None:
        sums = self.seen.setdefault((side, place, offset), [])
        if checksum(name) not in sums:
            sums.append(checksum(name))


def checksum(name: bytes) -> int:
    return zlib.crc32(name)
