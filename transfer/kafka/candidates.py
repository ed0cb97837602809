"""Which partitions are to be in the next transaction: plain state, no I/O.

Owns who has something to send, and who is left out for a while because the last transaction could not end for
it (KIP-98). It must not know what is in a transaction.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from protocol.types import TopicPartition
from transfer.kafka.lane import ProduceLane

_FIRST_ASIDE_S = 1.0
_LONGEST_ASIDE_S = 30.0
_LEAST_PATIENCE_S = 1.0
_PAUSE_PER_PATIENCE = 4

_log = logging.getLogger("isthmus.transfer")


class Aside:
    """Partitions for which a transaction could not end in time, and brokers of which nothing was heard in it:
    others do not wait for them again soon."""

    def __init__(self) -> None:
        self._until: dict[TopicPartition | int, tuple[float, float]] = {}

    def put(self, who: TopicPartition | int, now: float) -> float:
        """For longer each time; returns how long (seconds). A number is a broker: all that it leads."""
        _, before = self._until.get(who, (0.0, _FIRST_ASIDE_S / 2))
        pause = min(before * 2, _LONGEST_ASIDE_S)
        self._until[who] = (now + pause, pause)
        return pause

    def waits(self, lane: ProduceLane, now: float) -> float:
        """Seconds for which it stays out."""
        until = (self._until.get(who, (0.0, 0.0))[0] for who in (lane.tp, lane.leader))
        return max(max(until) - now, 0.0)

    def tried(self, lane: ProduceLane) -> bool:
        """Whether it was put aside before and has not been written since."""
        return lane.tp in self._until or lane.leader in self._until

    def patience_s(self, lane: ProduceLane) -> float:
        """How long its answers are waited for where it was tried before: longer each time, or who answers
        slower than one second would stay out for ever; but a small part of the time that the others had."""
        pause = max(self._until.get(who, (0.0, 0.0))[1] for who in (lane.tp, lane.leader))
        return max(pause / _PAUSE_PER_PATIENCE, _LEAST_PATIENCE_S)

    def written(self, lane: ProduceLane) -> None:
        """It can be written after all."""
        self._until.pop(lane.tp, None)
        self._until.pop(lane.leader, None)

    @property
    def holds_any(self) -> bool:
        """Whether somebody was put aside and not heard of since."""
        return bool(self._until)


class Candidates:
    """Lanes that have something to send and are in no transaction."""

    def __init__(self) -> None:
        self.aside = Aside()
        self._wanting: dict[ProduceLane, None] = {}

    def __bool__(self) -> bool:
        return bool(self._wanting)

    def add(self, lane: ProduceLane) -> None:
        """It wants to be in one."""
        self._wanting[lane] = None

    def drop(self, lane: ProduceLane) -> None:
        """It is in one, or closed."""
        self._wanting.pop(lane, None)

    def now(self, now: float) -> list[ProduceLane]:
        """Those that can be added."""
        for lane in [lane for lane in self._wanting if lane.error is not None or not lane.waiting]:
            del self._wanting[lane]
        return [lane for lane in self._wanting if lane.leader >= 0 and not self.aside.waits(lane, now)]

    def leave_out(self, late: Iterable[ProduceLane], silent: Iterable[int], now: float) -> None:
        """Those that kept a transaction from ending, and the brokers of which nothing was heard in it."""
        for lane in late:
            pause = self.aside.put(lane.tp, now)
            _log.warning("%s is left out of transactions for %.0f s", lane.tp, pause)
        for broker in silent:
            self.aside.put(broker, now)

    def wait_s(self, now: float) -> float | None:
        """Seconds until the next one may be; None: nobody waits for time to pass."""
        waits = [self.aside.waits(lane, now) for lane in self._wanting if lane.leader >= 0]
        return max(min(waits), 0.01) if waits else None
