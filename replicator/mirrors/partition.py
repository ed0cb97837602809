"""One mirrored partition: where it stands at both sides, and what is on its way. Plain state, no requests.

The end of the target's log is the only progress there is: after a restart, a lost answer or another leader
the partition is aligned anew, and goes on from there.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from protocol.types import TopicPartition

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0


class State(StrEnum):
    ALIGNING = "aligning"
    """Where both sides stand has to be asked first."""
    COPYING = "copying"
    HELD = "held"
    """It has a gap, and goes on once somebody acknowledges it (`on_gap: stop`)."""
    STOPPED = "stopped"
    """It needs a person: `problem` says why."""


class Piece(NamedTuple):
    """Whole batches, as fetched. Without records: the source begins at `source_start` now."""

    offset: int
    records: memoryview | None
    next_offset: int
    source_start: int
    newest_ms: int = -1
    """The greatest time in its last batch, of a record or of a transaction's marker."""


@dataclass(slots=True, eq=False)
class MirrorPartition:
    """`source_text` is what the target's topic says of its source."""

    tp: TopicPartition
    source_text: str
    state: State = State.ALIGNING
    source_epoch: int = -1
    """Of the source's leader when it was aligned: another one has to be asked about its epochs first."""
    start: int = 0
    end: int = 0
    """Of the mirror; everything below is on all of its in-sync replicas."""
    source_start: int = 0
    source_end: int = -1
    """As last heard; -1: never."""
    position: int = 0
    """Where the next fetch goes on: behind what is queued."""
    queue: deque[Piece] = field(default_factory=deque)
    queued_bytes: int = 0
    fetched: int = 0
    appended: int = 0
    """Its last turns: who had none for longest goes first."""
    fetching: bool = False
    appending: bool = False
    heard_ms: int = 0
    """When the source last said where it ends; 0: never in this run."""
    level_ms: int = 0
    """When the mirror last had all that the source had, by what was heard; 0: never in this run."""
    records: int = 0
    bytes: int = 0
    starts: int = 0
    """How often it was aligned in this run."""
    notes: list[str] = field(default_factory=list)
    problem: str | None = None
    not_before: float = 0.0
    attempts: int = 0

    @property
    def topic_id(self) -> str:
        """Of the source's topic, as text: one that is created again is another one."""
        return self.source_text.rpartition("/")[2]

    @property
    def lag(self) -> int:
        """In offsets; 0 where the source has not been heard."""
        return max(self.source_end - self.end, 0)

    @property
    def to_let_go(self) -> int:
        """Offsets that the mirror still has, and the source has not any more."""
        return max(min(self.source_start, self.end) - self.start, 0)

    @property
    def needs_a_person(self) -> bool:
        """Nothing is asked about it again by itself."""
        return self.state in (State.HELD, State.STOPPED)

    @property
    def level(self) -> bool:
        return 0 <= self.source_end <= self.end

    def aligned(self, start: int, end: int, source_epoch: int) -> None:
        self.start, self.end, self.position, self.source_epoch = start, end, end, source_epoch
        self.drop_queue()
        self.starts += 1
        self.state, self.problem = State.COPYING, None

    def realign(self, now: float, problem: str | None = None) -> None:
        """Ask both sides again, after a while that grows."""
        if not self.needs_a_person:
            self.state = State.ALIGNING
        self.problem = problem
        self.drop_queue()
        self.not_before = now + min(_FIRST_PAUSE_S * 2**self.attempts, _LONGEST_PAUSE_S)
        self.attempts = min(self.attempts + 1, 10)

    def stop(self, problem: str) -> None:
        self.state, self.problem = State.STOPPED, problem
        self.drop_queue()

    def hold(self, problem: str) -> None:
        """Until `let_go`."""
        self.state, self.problem = State.HELD, problem
        self.drop_queue()

    def let_go(self) -> None:
        """Its gap was acknowledged."""
        self.state, self.problem, self.not_before, self.attempts = State.ALIGNING, None, 0.0, 0

    def drop_queue(self) -> None:
        self.queue.clear()
        self.queued_bytes = 0

    def put(self, piece: Piece) -> None:
        self.queue.append(piece)
        self.queued_bytes += 0 if piece.records is None else len(piece.records)
        self.position = piece.next_offset

    def done(self, piece: Piece) -> None:
        """The target has it. (A realignment meanwhile has emptied the queue, and asks for the end itself.)"""
        self.attempts = 0
        if self.queue and self.queue[0] is piece:
            self.queue.popleft()
            size = 0 if piece.records is None else len(piece.records)
            self.queued_bytes -= size
            self.bytes += size
            self.records += piece.next_offset - self.end
            self.end = piece.next_offset
            if self.level:
                self.level_ms = self.heard_ms  # what it has taken in since nobody knows

    def heard(self, source_start: int, source_end: int, now_ms: int) -> None:
        self.source_start, self.source_end, self.heard_ms = source_start, source_end, now_ms
        if self.level:
            self.level_ms = now_ms

    def to_json(self) -> dict[str, Any]:
        return {
            "state": self.state,
            "start": self.start,
            "end": self.end,
            "source_end": self.source_end,
            "lag": self.lag,
            "level_ms": self.level_ms,
            "records": self.records,
            "bytes": self.bytes,
            "notes": self.notes,
            "problem": self.problem,
        }
