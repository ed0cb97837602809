"""Partitions that do not get on although they are tried again and again (a full disk of the target): when to
say so. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from protocol.types import TopicPartition
from replicator.mirrors.partition import MirrorPartition, State

_TRIES: Final = 6
"""Some three seconds: another leader, or a broker that starts, is no standstill."""


class Standstill:
    """Of all partitions of a link: said once for all that stand still at a time, and once when none does."""

    def __init__(self) -> None:
        self._still: set[TopicPartition] = set()

    def look(self, parts: Mapping[TopicPartition, MirrorPartition]) -> str | None:
        """What is new, to be said; None: nothing."""
        before = bool(self._still)
        for tp in list(self._still):
            part = parts.get(tp)
            if part is None or part.attempts == 0 or (part.state is State.COPYING and part.level):
                self._still.remove(tp)
        found = {
            tp: part.problem
            for tp, part in parts.items()
            if part.problem is not None and part.attempts >= _TRIES and not part.needs_a_person
        }
        self._still |= found.keys()
        if found and not before:
            tp = min(found)
            return f"{len(found)} partitions stand still, and are tried again; {tp}: {found[tp]}"
        return "no partition stands still any more" if before and not self._still else None
