"""A broker with one safety rule switched off, to show that the harness finds what the rule is for.

    python -m tests.chaos.broken RULE broker …      # the rest is the command line of `isthmus`

Patches the real code in the process of this broker alone; production has no such switch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from broker.log import Log
from broker.replication import Partition, fetchers, truncation
from broker.replication.in_sync import InSyncReplicas
from isthmus.cli import main


def _high_watermark() -> None:
    """A leader counts what it alone has as replicated."""

    def alone(self: Partition) -> None:
        self._alone = self.is_leader

    def own_end(self: InSyncReplicas, leader_end: int) -> int:
        return leader_end

    Partition._isr_changed = alone  # type: ignore[method-assign]
    InSyncReplicas.high_watermark = own_end  # type: ignore[method-assign]


def _truncation() -> None:
    """A follower keeps what its leader does not have, and a leader does not look."""

    def keep(log: Log, *_: int) -> truncation.Cut:
        return truncation.Cut(log.end_offset, True)

    fetchers.where_to_cut = keep  # type: ignore[assignment]

    def anything(self: Log, epoch: int) -> tuple[int, int]:
        return epoch, 1 << 62

    Log.epoch_end_offset = anything  # type: ignore[method-assign]


RULES: dict[str, Callable[[], None]] = {"high_watermark": _high_watermark, "truncation": _truncation}

if __name__ == "__main__":
    RULES[sys.argv.pop(1)]()
    main()
