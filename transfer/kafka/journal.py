"""What transactions ask of whoever keeps progress, and what they tell of themselves."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from protocol.types import TopicPartition
from transfer.ledger import Copied


class Journal(Protocol):
    """Where progress is kept: one partition of the target."""

    @property
    def tp(self) -> TopicPartition:
        """The partition that takes the records of progress."""

    async def register(self, transactional_id: str) -> None:
        """Stores that this producer may have a transaction open, before it has one. Raises ProtocolError."""

    def batches(self, written: Mapping[TopicPartition, Sequence[Copied]]) -> list[bytes]:
        """Progress with what was written by target partition. Raises LookupError when it must not be, and
        DisorderError of a target partition whose writes do not continue what is stored."""

    def ended(self, *, committed: bool) -> None:
        """What became of what `batches` gave last."""

    @property
    def pending(self) -> bool:
        """Whether progress is to be written although there is no data."""


@dataclass(slots=True)
class Counts:
    """What became of transactions, and when the last one was committed (wall clock, seconds)."""

    committed: int = 0
    aborted: int = 0
    committed_at: float | None = None
    aborted_why: str = ""

    def commit(self) -> None:
        """One was committed."""
        self.committed += 1
        self.committed_at = time.time()

    def abort(self, why: str) -> None:
        """One was aborted."""
        self.aborted += 1
        self.aborted_why = why

    def to_json(self) -> dict[str, Any]:
        """For the status."""
        age = None if self.committed_at is None else round(time.time() - self.committed_at, 3)
        return {
            "committed": self.committed,
            "aborted": self.aborted,
            "last_commit_age_s": age,
            "last_abort": self.aborted_why,
        }
