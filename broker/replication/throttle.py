"""How fast replicas that are not in sync may be copied (Kafka's replication quotas, KIP-73).

One `Throttle` for each direction: the leader's side holds back what it serves, the follower's what it asks
for. A limit concerns replicas that their topic names (`…replication.throttled.replicas`), and never members
of the ISR, for they would fall out of it. What goes beyond the limit is a debt that is waited for, so one
batch larger than the limit still passes. Pure: time is passed in. (Kafka: `ReplicationQuotaManager`.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

UNLIMITED = 2**63 - 1
_SAVED_S = 1.0
"""A pause of this long may be made up for; more would be a burst."""
_NEVER_S = 1.0
"""With a rate of 0 one looks again after this time."""
_ALL = "*"


class Throttle:
    """`named(topic)` gives what the topic's setting lists: `partition:broker`, or `*`."""

    def __init__(self, broker_id: int, named: Callable[[str], Sequence[str]]) -> None:
        self.limited = False
        """Ask this first: usually nothing is."""
        self._broker = str(broker_id)
        self._named = named
        self._rate = UNLIMITED
        self._free_at = 0.0

    def set_rate(self, bytes_per_s: int, now: float) -> None:
        """What is owed is paid at the new rate."""
        owed = max(0.0, self._free_at - now) * self._rate if self.limited else 0.0
        self._rate = bytes_per_s
        self.limited = bytes_per_s < UNLIMITED
        if self.limited:
            self._free_at = now + owed / bytes_per_s if bytes_per_s > 0 else now

    def concerns(self, topic: str, partition: int) -> bool:
        """Whether this broker's replica is one of those that are limited."""
        if not self.limited:
            return False
        named = self._named(topic)
        return bool(named) and (_ALL in named or f"{partition}:{self._broker}" in named)

    def free_at(self, now: float) -> float:
        """When the next bytes may move; not after `now` if they may at once."""
        if self._rate <= 0:
            return now + _NEVER_S
        return self._free_at

    def spend(self, size: int, now: float) -> None:
        """So many bytes of limited replicas have been moved."""
        if self.limited and self._rate > 0:
            self._free_at = max(self._free_at, now - _SAVED_S) + size / self._rate
