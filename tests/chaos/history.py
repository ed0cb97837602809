"""What clients did and saw: the only thing that the checker looks at.

Plain records. A value is written once in its life, by one send, so it names that send wherever it turns up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum


class Outcome(Enum):
    """`UNKNOWN` may have happened or not: the client was not told."""

    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Send:
    """One record; `offset` is what the broker acknowledged. `transaction` None: outside of any."""

    producer: str
    partition: int
    value: int
    outcome: Outcome = Outcome.UNKNOWN
    offset: int = -1
    transaction: int | None = None


@dataclass(slots=True)
class Poll:
    """Records of one partition that one call returned, in its order: (offset, value)."""

    consumer: str
    partition: int
    records: Sequence[tuple[int, int]]
    committed_only: bool
    positioned: bool = False
    """The consumer had (re)set its position before: what comes need not follow what came."""


@dataclass(slots=True)
class History:
    """`sends` in each producer's order. `log` and `committed` are what a last reader found, by partition."""

    sends: list[Send] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)
    transactions: dict[int, Outcome] = field(default_factory=dict)
    """DONE is committed, FAILED aborted."""
    log: Mapping[int, Sequence[tuple[int, int]]] = field(default_factory=dict)
    committed: Mapping[int, Sequence[tuple[int, int]]] = field(default_factory=dict)
