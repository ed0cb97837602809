"""Until when this broker may take itself for the leader that it was told to be (I3).

A broker that ZooKeeper does not hear from loses its registration when its session is over, and the controller
elects others. It must have stopped acknowledging before that, by its own clock, also after it was stopped and
woke up: so the time is compared at each append, and no timer is trusted. What extends the lease is
`control/session_lease`. A leader that is the whole ISR needs none: nobody else may be elected, unless unclean
elections are allowed.
"""

from __future__ import annotations

import math
from collections.abc import Callable


class Lease:
    """Holds for ever until somebody sets `until` (seconds of `monotonic`)."""

    __slots__ = ("monotonic", "until")

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.monotonic = monotonic
        self.until = math.inf

    @property
    def over(self) -> bool:
        return self.monotonic() > self.until
