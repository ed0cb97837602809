"""What clients did and saw: the only thing that the checker looks at.

Plain records. A value is written once in its life, by one send, so it names that send wherever it turns up.
Times are seconds of one monotonic clock: all clients live in one process.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple


class Outcome(Enum):
    """`UNKNOWN` may have happened or not: the client was not told."""

    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Place(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


Records = Sequence[tuple[int, int]]
"""(offset, value)."""


@dataclass(slots=True)
class Send:
    """One record; `offset` is what the broker acknowledged. `transaction` None: outside of any.

    `is_exact`: its producer writes nothing twice, and in order. `source` is the value that this one was made
    from, by who consumes, transforms and produces.
    """

    producer: str
    place: Place
    value: int
    outcome: Outcome = Outcome.UNKNOWN
    offset: int = -1
    transaction: int | None = None
    is_exact: bool = True
    source: int | None = None


@dataclass(slots=True)
class Poll:
    """Records of one partition that one call returned, in its order. `at` is when it returned."""

    consumer: str
    place: Place
    records: Records
    committed_only: bool
    positioned: bool = False
    """The consumer had (re)set its position before: what comes need not follow what came."""
    at: float = 0.0
    group: str | None = None


@dataclass(slots=True)
class Transaction:
    """DONE is committed, FAILED aborted. `asked_at`: when its producer asked to commit, if it did."""

    outcome: Outcome = Outcome.UNKNOWN
    asked_at: float = math.inf


@dataclass(slots=True)
class Commit:
    """A group's acknowledged position in a partition; `at` is when it was acknowledged."""

    group: str
    place: Place
    offset: int
    at: float


@dataclass(slots=True)
class Start:
    """Where a member began in a partition that it was given, as the group's committed position said.

    `at` is a time before it asked. Without any position `offset` is 0.
    """

    group: str
    member: str
    place: Place
    offset: int
    at: float


@dataclass(slots=True)
class History:
    """`sends` in each producer's order. `log` and `committed` are what a last reader found, by partition."""

    sends: list[Send] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)
    transactions: dict[int, Transaction] = field(default_factory=dict)
    commits: list[Commit] = field(default_factory=list)
    starts: list[Start] = field(default_factory=list)
    log: Mapping[Place, Records] = field(default_factory=dict)
    committed: Mapping[Place, Records] = field(default_factory=dict)
