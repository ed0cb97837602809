"""A link with one safety rule switched off, to show that the harness finds what the rule is for.

    python -m tests.chaos.links.broken RULE replicate …      # the rest is the command line of `isthmus`

Patches the real code in the process of this link alone; production has no such switch.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from isthmus.cli import main
from protocol.types import TopicPartition
from replicator.book import Book
from replicator.entry_rows import Entry
from replicator.opening import Opener
from transfer.endpoint import Chunk
from transfer.kafka.lane import Pending, ProduceLane
from transfer.kafka.written import Written
from transfer.ledger import Copied, PartitionLedger


def replace_rule(owner: object, name: str, broken: object) -> None:
    """Raises AttributeError where the real code has moved: a rule that stays on would prove nothing."""
    getattr(owner, name)
    setattr(owner, name, broken)


def _tail_matching() -> None:
    """A restarted link does not look at what is at the target behind its stored progress, and forgets its
    producer, whose sequence numbers would still tell some repetitions. It stores progress every five seconds.
    """

    async def nothing(self: Opener, entry: Entry, *_: object) -> list[Any]:
        entry.producer = None
        return []

    take, stored_at = Book.take_dirty, [0.0]

    def rarely(self: Book) -> dict[TopicPartition, Entry]:
        """Which tail matching makes good."""
        if time.monotonic() < stored_at[0] + 5.0:
            return {}
        stored_at[0] = time.monotonic()
        return take(self)

    replace_rule(Book, "take_dirty", rarely)
    replace_rule(Opener, "_match_tail", nothing)


def _progress_after_acknowledgement() -> None:
    """Progress is stored as far as was read, not as far as was acknowledged."""
    read: dict[TopicPartition, int] = {}
    seen, take = Book.seen, Book.take_dirty

    def note(self: Book, chunk: Chunk) -> None:
        seen(self, chunk)
        read[chunk.tp] = chunk.next_offset
        self.mark(chunk.tp)

    def ahead(self: Book) -> dict[TopicPartition, Entry]:
        found = take(self)
        for tp, entry in found.items():
            position = read.get(tp, -1)
            if position > entry.ledger.next_source_offset:
                ledger = PartitionLedger.from_json(entry.ledger.to_json())
                ledger.add(Copied((), position, 0, 0, ()))
                found[tp] = replace(entry, ledger=ledger)
        return found

    replace_rule(Book, "seen", note)
    replace_rule(Book, "take_dirty", ahead)


_CONTENT = ("payload", "attributes", "last_offset_delta", "base_timestamp", "max_timestamp")


def _lane_order() -> None:
    """Of two batches that wait the younger goes first, and is taken for the older one where both have as many
    records: the ledger of the link sees nothing. (It refuses one that knows of the exchange, and the link
    ends.)
    """
    take = ProduceLane.take

    def younger(self: ProduceLane, now: float) -> Pending | None:
        queue = self._queue
        if len(queue) > 1 and not self._failed:
            one, other = queue[0], queue[1]
            if one.segments is other.segments is None and one.out.record_count == other.out.record_count:
                for name in _CONTENT:
                    mine, its = getattr(one.out, name), getattr(other.out, name)
                    setattr(one.out, name, its)
                    setattr(other.out, name, mine)
        return take(self, now)

    replace_rule(ProduceLane, "take", younger)


def _gaps_on_record() -> None:
    """What the source has let go of before it was read is passed over in silence."""
    whole = PartitionLedger.to_json

    def silent(self: PartitionLedger) -> dict[str, Any]:
        return {**whole(self), "gaps": []}

    replace_rule(PartitionLedger, "to_json", silent)


def _leaders_are_asked() -> None:
    """A new leader of the target is believed to have all that was acknowledged."""
    replace_rule(Written, "doubts", lambda self, epoch: False)


@dataclass(frozen=True, slots=True)
class Rule:
    switch_off: Callable[[], None]
    shows: str
    """The anomaly that it has to be missed by."""
    faults: tuple[str, ...]
    """Which bring it about."""
    mode: str = ""
    """Of the run, where it has to be one (see `run`)."""


RULES: dict[str, Rule] = {
    "gaps_on_record": Rule(_gaps_on_record, "lost", ("delete_records", "kill_worker"), "letting_go"),
    "lane_order": Rule(_lane_order, "reordered", ("slow_path", "cut_path")),
    "leaders_are_asked": Rule(_leaders_are_asked, "lost", ("lose_mirrors",), "losing"),
    "progress_after_acknowledgement": Rule(
        _progress_after_acknowledgement, "lost", ("kill_worker", "cut_path", "pause_broker")
    ),
    "tail_matching": Rule(_tail_matching, "duplicate", ("kill_worker",)),
}

if __name__ == "__main__":
    RULES[sys.argv.pop(1)].switch_off()
    main()
