"""Log lines about what a coordinator could not write: groups, positions, transactions.

Clients ask again at once, hundreds of times a second each, for as long as it lasts (ZooKeeper away, too few
replicas in sync): a line for each would fill the disk on a bad day.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from broker.line_limit import LineLimit
from protocol.errors import KafkaError

logger = logging.getLogger("isthmus.broker.coordinator")

PER_SECOND = 50


class Unstored:
    """One line a second for each of them. `now` is monotonic seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._limit = LineLimit(now, per_key=1, per_second=PER_SECOND)

    def say(self, what: str, error: KafkaError) -> None:
        """`what` was not stored: its kind and its name."""
        if self._limit.allows(what):
            logger.warning("not stored: %s: %s%s", what, error, self._limit.left_out(what))
