"""What an audit found: totals, each partition, first examples, and the exit code that follows.

Owns the classes of differences; `README.md` of this package defines each in a sentence.
"""

from __future__ import annotations

import json
from enum import StrEnum

from pydantic import BaseModel, ConfigDict


class DifferenceClass(StrEnum):
    LOST = "lost"
    DUPLICATE = "duplicate"
    CORRUPT = "corrupt"
    REORDERED = "reordered"
    MISALIGNED = "misaligned"
    FOREIGN = "foreign"
    DIVERGENT = "divergent"


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True)


class Counts(_Model):
    """Records, except where offsets are named."""

    compared: int = 0
    """Records of the source in the compared range, each of which was judged."""
    matched: int = 0
    lost: int = 0
    duplicate: int = 0
    corrupt: int = 0
    reordered: int = 0
    misaligned: int = 0
    foreign: int = 0
    divergent: int = 0
    """Records at the target whose originals the source has lost since (truncation)."""
    expired_source: int = 0
    expired_target: int = 0
    gap_records: int = 0
    """Still readable at the source, but recorded as a gap by whoever copied."""
    gap_offsets: int = 0
    gap_expired: int = 0
    """Offsets recorded as gaps that the source has not either any more: lost to the copy for good."""
    gaps_unknown: int = 0
    """Gaps on record of which nobody knows how much they are: a topic was created again unseen."""
    compacted: int = 0
    """On compacted topics: on one side only, which compaction alone can explain."""
    left_out: int = 0
    """Of a link with origin headers: records at the source that came from the target, and such at the target
    that did not come over this link."""
    pending_source: int = 0
    """Offsets behind the cut at the source: not copied yet when the audit began."""
    pending_target: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(**{name: getattr(self, name) + getattr(other, name) for name in Counts.model_fields})

    def of(self, kind: DifferenceClass) -> int:
        count: int = getattr(self, kind.value)
        return count


class PartitionResult(_Model):
    source_topic: str
    target_topic: str
    partition: int
    source_range: tuple[int, int]
    """Offsets compared: first, and behind the last."""
    target_range: tuple[int, int]
    counts: Counts
    complete: bool
    problem: str = ""
    notes: tuple[str, ...] = ()


class Difference(_Model):
    """One example. An offset is None on the side that has no such record."""

    kind: DifferenceClass
    source_topic: str
    target_topic: str
    partition: int
    source_offset: int | None
    target_offset: int | None
    timestamp: int
    """Of the record (ms)."""


class AuditResult(_Model):
    source: str
    target: str
    alignment: str
    totals: Counts
    partitions: tuple[PartitionResult, ...]
    differences: tuple[Difference, ...]
    incomplete: tuple[str, ...]
    """What could not be read or decided; no statement is made on its content."""
    missing_topics: tuple[str, ...]
    """Topics that exist on one side only, asked for until that was sure."""
    tolerated: tuple[DifferenceClass, ...]
    notes: tuple[str, ...]
    phases: dict[str, float]
    """Seconds of each phase."""

    @property
    def clean(self) -> bool:
        counted = [kind for kind in DifferenceClass if kind not in self.tolerated]
        found = self.totals
        gaps = found.gap_records or found.gap_offsets or found.gap_expired or found.gaps_unknown
        return not (self.missing_topics or gaps or any(found.of(kind) for kind in counted))

    @property
    def exit_code(self) -> int:
        """1 = incomplete, whatever else was found; 3 = differences; 0 = clean."""
        if self.incomplete:
            return 1
        return 0 if self.clean else 3

    def to_json(self) -> str:
        """All fields, `clean` and `exit_code`."""
        data = self.model_dump(mode="json") | {"clean": self.clean, "exit_code": self.exit_code}
        return json.dumps(data, indent=1)
