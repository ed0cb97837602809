"""How fast partitions move, in bytes per second, smoothed. Pure, with the clock passed in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from protocol.types import TopicPartition

_OVER_S: Final = 20.0


class Rates:
    """Of the partitions of one process. `known`: of those that were here long enough to tell."""

    def __init__(self) -> None:
        self.known: dict[TopicPartition, float] = {}
        self._smoothed: dict[TopicPartition, float] = {}
        self._since: dict[TopicPartition, float] = {}
        self._counted: dict[TopicPartition, int] = {}
        self._counted_at = 0.0

    def measure(self, counted: Mapping[TopicPartition, int], now: float) -> Mapping[TopicPartition, float]:
        """Takes in how many bytes of each partition have flowed until now; those left out are forgotten."""
        passed, self._counted_at = now - self._counted_at, now
        share = min(passed / _OVER_S, 1.0)
        self._smoothed = {
            tp: self._smoothed.get(tp, 0.0) * (1 - share)
            + max(size - self._counted.get(tp, size), 0) / max(passed, 0.001) * share
            for tp, size in counted.items()
        }
        self._since = {tp: self._since.get(tp, now) for tp in counted}
        self._counted = dict(counted)
        self.known = {tp: rate for tp, rate in self._smoothed.items() if now - self._since[tp] > _OVER_S}
        return self.known
