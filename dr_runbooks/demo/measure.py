"""The demonstration's figures, from histories alone: recovery point, and what the group missed or saw twice.

Pure functions. RPO and RTO as in DESIGN §1: what was acknowledged and is not on the surviving side when the
readers move, in records and in seconds; and the time until the group works again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple


class RecoveryPoint(NamedTuple):
    records: int
    seconds: float
    """Age, at the moment of the loss, of the oldest acknowledged record that is not on the other side."""


class Consumed(NamedTuple):
    missing: int
    duplicates: int
    foreign: int
    """Records that nobody produced: never expected."""


def recovery_point(
    partitions: Sequence[int],
    offsets: Sequence[int],
    times: Sequence[float],
    copied_until: Mapping[int, int],
    lost_at: float,
) -> RecoveryPoint:
    """The i-th acknowledgement is (partitions[i], offsets[i], times[i] in epoch seconds).

    `copied_until` has, per partition, the first source offset that the other side does not hold. What was
    acknowledged after `lost_at` belongs to the time after the return and does not count.
    """
    oldest = lost_at
    count = 0
    for partition, offset, at in zip(partitions, offsets, times, strict=True):
        if at <= lost_at and offset >= copied_until.get(partition, 0):
            count += 1
            oldest = min(oldest, at)
    return RecoveryPoint(count, max(0.0, lost_at - oldest))


def compare_consumed(produced: Iterable[int], consumed: Iterable[int]) -> Consumed:
    """Fingerprints against fingerprints, as multisets."""
    sent, read = Counter(produced), Counter(consumed)
    return Consumed(
        missing=(sent - read).total(),
        duplicates=sum(count - sent[value] for value, count in read.items() if 0 < sent[value] < count),
        foreign=sum(count for value, count in read.items() if value not in sent),
    )
