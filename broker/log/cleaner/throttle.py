"""Holds bytes below `log.cleaner.io.max.bytes.per.second` by sleeping (Kafka's `utils.Throttler`)."""

import time
from collections.abc import Callable
from typing import Final

_CHECK_S: Final = 0.3


class Throttle:
    """`sleep` and `now` are seconds."""

    def __init__(
        self,
        bytes_per_second: float,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._limit = bytes_per_second
        self._now = now
        self._sleep = sleep
        self._since = now()
        self._spent = 0

    def spend(self, count: int) -> None:
        """Account for bytes that were moved; sleeps when they came too fast."""
        self._spent += count
        if self._spent < self._limit * _CHECK_S:
            return
        ahead = self._spent / self._limit - (self._now() - self._since)
        if ahead > 0:
            self._sleep(ahead)
        self._since = self._now()
        self._spent = 0
