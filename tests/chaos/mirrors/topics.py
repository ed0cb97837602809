"""The topics of a run, by what their logs may let go of: all is kept, the last record of each key, what is
young, or the last bytes. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# Logs roll by time: a segment of Kafka 4 has a megabyte at least, which an hour of this load does not fill.
_ROLLS: Mapping[str, str] = {"segment.ms": "3000"}


@dataclass(frozen=True, slots=True)
class Keeps:
    partitions: int
    keys: int = 0
    """Compacted, with so many keys in each partition; 0: by no key."""
    retention_ms: int = 0
    retention_bytes: int = 0

    @property
    def is_all(self) -> bool:
        return not (self.keys or self.is_tail)

    @property
    def is_tail(self) -> bool:
        """The log loses its beginning; somebody deletes records there too."""
        return bool(self.retention_ms or self.retention_bytes)

    @property
    def settings(self) -> dict[str, str]:
        """Of the topic; what is not said is the broker's."""
        made: dict[str, str] = {} if self.is_all else dict(_ROLLS)
        if self.keys:
            made |= {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
        if self.retention_ms:
            made["retention.ms"] = str(self.retention_ms)
        if self.retention_bytes:
            made["retention.bytes"] = str(self.retention_bytes)
        return made


KEEPS: Mapping[str, Keeps] = {
    "load-a": Keeps(3),
    "load-b": Keeps(1),
    "load-keys": Keeps(2, keys=200),
    "load-young": Keeps(1, retention_ms=30_000),
    "load-last": Keeps(1, retention_bytes=300_000),
}
ALL = Keeps(2)
"""Of topics that come while it runs."""
BROKERS: Mapping[str, str] = {
    "log.cleaner.backoff.ms": "1000",
    "log.retention.check.interval.ms": "2000",
    "auto.create.topics.enable": "false",
}
"""Of brokers, so that what may go does go; and a reader makes no topic of a mirror that is deleted."""


def keeps(topic: str) -> Keeps:
    return KEEPS.get(topic, ALL)


@dataclass(frozen=True, slots=True)
class End:
    """What may have been let go of by the end of a run."""

    now_ms: int = 0
    bytes: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """Left in the logs."""
    trimmed: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """How many values had been sent in all when records were last deleted by request there."""
    deleted: frozenset[str] = frozenset()
    """Topics."""
    remade: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """How often mirrors were deleted, by the life of their side and topic. A failover may come before they
    are filled again, and then their offsets have other records."""
