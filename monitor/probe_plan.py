"""Which partitions a probe needs so that every living broker is watched, and when to change nothing.

Pure. The probe's topic has one replica of each partition, so that a partition stands and falls with one
broker: with more, a follower that hangs would count against leaders that are well. It only ever grows, and
never while a broker that it names is away: what looks like a smaller cluster then is an outage.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Coverage:
    partitions: int
    """Of the probe's topic; 0 while there is none."""
    partition_of: Mapping[int, int]
    """By broker, also one that is away, the partition that it alone holds."""
    uncovered: tuple[int, ...]
    """Living brokers without a partition."""
    away: tuple[int, ...]
    """Brokers with a partition that the cluster does not name."""

    @property
    def additions(self) -> tuple[tuple[int, ...], ...]:
        """Replicas of the partitions to add; none during an outage."""
        return () if self.away else tuple((broker,) for broker in self.uncovered)


def coverage(living: Collection[int], assignment: Sequence[Sequence[int]]) -> Coverage:
    """`assignment` has the replicas of each partition of the probe's topic, by index."""
    partition_of: dict[int, int] = {}
    for index, replicas in enumerate(assignment):
        if replicas:
            partition_of.setdefault(replicas[0], index)
    return Coverage(
        len(assignment),
        partition_of,
        tuple(sorted(set(living) - partition_of.keys())),
        tuple(sorted(partition_of.keys() - set(living))),
    )
