"""What was acknowledged, and whether it is still there: the memory of the soak.

Owns the record of every acknowledgement and the comparison with what is read. Knows nothing of brokers.
Thread-safe by the interpreter's lock: each partition's offsets are written by delivery callbacks, one dict
entry at a time, and read by others.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field


@dataclass
class Ledger:
    acknowledged: dict[tuple[str, int], dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))
    """(topic, partition) -> offset -> value."""
    latest: dict[tuple[str, bytes], bytes] = field(default_factory=dict)
    """(compacted topic, key) -> the last acknowledged value."""
    refused: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    wrong: list[str] = field(default_factory=list)

    def note(self, topic: str, partition: int, offset: int, value: bytes) -> None:
        other = self.acknowledged[topic, partition].setdefault(offset, value)
        if other != value:
            self.wrong.append(f"{topic}-{partition}@{offset} was acknowledged twice: {other!r}, {value!r}")

    def note_key(self, topic: str, key: bytes, value: bytes) -> None:
        self.latest[topic, key] = value

    def check(self, topic: str, partition: int, offset: int, value: bytes | None) -> None:
        """Something was read."""
        known = self.acknowledged[topic, partition].get(offset)
        if known is not None and known != value:
            self.wrong.append(f"{topic}-{partition}@{offset}: {known!r} was acknowledged, {value!r} is read")

    @property
    def count(self) -> int:
        return sum(map(len, self.acknowledged.values()))
