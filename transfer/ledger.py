"""The ledger: what a link, a backup or a restore has moved of one partition, in one format for all.

Owns lineage, offset map, counts, digest and gaps, and their JSON form. Link progress, backup manifests and
the audit read this and nothing else. Knows nothing about where it is stored.

A lineage names data for ever: a topic that is deleted and created again has another topic id and so another
lineage, whatever its name. A gap is never silent (DESIGN §4, I7): it stays as long as the ledger.
"""

from __future__ import annotations

import base64
import builtins
import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from transfer.digest import extend_digest
from transfer.offset_map import OffsetMap, Run

_VERSION = 1


class LedgerError(ValueError):
    """A stored ledger cannot be read."""


class DiscontinuityError(ValueError):
    """A write that does not begin where everything before it ends: taken, it would hide what lies between
    (I7), or count something twice."""

    def __init__(self, begins: int, position: int) -> None:
        super().__init__(
            f"a write begins at source offset {begins}, and what is before it ends at {position}"
        )
        self.begins = begins
        self.position = position


class BeforeTheCopyError(DiscontinuityError):
    """An acknowledged write whose place at the target lies before the whole copy. The target has taken it for
    one that it had (sequence numbers that were used before), or has lost its end: it is not there."""

    def __init__(self, place: int, copy: int) -> None:
        ValueError.__init__(
            self, f"a write is said to be at target offset {place}, and the copy begins at {copy} there"
        )
        self.begins = place
        self.position = copy


class Lineage(NamedTuple):
    """Where data lives: cluster id, topic id (Kafka's 22-character text), topic name, partition.

    An object store uses its own name as cluster id and an empty topic id.
    """

    cluster_id: str
    topic_id: str
    topic: str
    partition: int


NOT_TOLD = "A" * 22
"""The id of a topic whose cluster tells none (before Kafka 2.8), or not now (while it is upgraded)."""


def same_topic(before: str, now: str) -> bool:
    """Whether two topic ids may be those of one topic."""
    return before == now or NOT_TOLD in (before, now)


NOTHING_MISSING = "nothing is missing"
ALL_COPIED = "all of it was copied"
"""How reasons of gaps end that are there to be acknowledged and hide nothing."""


class Gap(NamedTuple):
    """Source offsets `start ≤ offset < end` that could not be copied, why, and when it was found (ms)."""

    start: int
    end: int
    reason: str
    at_ms: int = 0

    @property
    def unknown(self) -> bool:
        """Whether nobody knows how much is missing behind its start: a topic was created again meanwhile."""
        return self.end <= self.start and not self.reason.endswith((NOTHING_MISSING, ALL_COPIED))

    def __str__(self) -> str:
        return f"gap {self.start}..{self.end} ({self.reason})"


class Superseded(NamedTuple):
    """Target offsets `start ≤ offset < end` with copies of records that the source has lost or replaced since
    (it was truncated): they belong to nothing, and what the source has now is copied behind them."""

    start: int
    end: int
    reason: str
    at_ms: int = 0


class Note(NamedTuple):
    """Something that whoever reads the ledger should know and that is no difference, and when it was (ms)."""

    text: str
    at_ms: int = 0


class ProducerState(NamedTuple):
    """The idempotent producer that writes a partition, and the sequence number it uses next (KIP-98)."""

    producer_id: int
    epoch: int
    next_sequence: int


class Copied(NamedTuple):
    """What one acknowledged write adds to a ledger."""

    runs: tuple[Run, ...]
    next_source_offset: int
    records: int
    bytes: int
    crcs: tuple[int, ...]
    """CRC fields of the source batches, in order."""
    producer: ProducerState | None = None
    """Where a Kafka target's producer stands behind this write; other targets have none."""
    epoch: int = -1
    """Leader epoch of the last source batch before `next_source_offset`, if known (KIP-320)."""
    last_timestamp: int = -1
    """Greatest record time (ms) of the last batch with data."""
    left_out: int = 0
    """Records that the target is not to get, because they came from there."""
    written: int = 0
    """Batches that they are at the target (small ones may have been joined); 0: not told."""
    first_source_offset: int = -1
    """Where it begins: it accounts for all source offsets from there to `next_source_offset`, be they copied,
    markers, aborted, compacted or left out. -1: not told."""
    at_ms: int = 0
    """When that was known: a gap that it shows is the same gap in every ledger. 0: not told."""
    target_epoch: int = -1
    """Leader epoch by which the leader of the target was known that had all of it; -1: not known."""


@dataclass(slots=True)
class PartitionLedger:
    """Everything moved of one partition so far."""

    source: Lineage
    target: Lineage
    runs: OffsetMap = field(default_factory=OffsetMap)
    gaps: list[Gap] = field(default_factory=list)
    records: int = 0
    bytes: int = 0
    """Bytes of the source's batches as stored there (compressed, with headers)."""
    batches: int = 0
    digest: int = 0
    """CRC-32C over the CRC fields of all copied source batches, in order."""
    superseded: list[Superseded] = field(default_factory=list)
    left_out: int = 0
    """Records read and not copied because they have been at the target (`Copied.left_out`): no difference."""
    former_gaps: list[Gap] = field(default_factory=list)
    """Gaps of topics that had the source's name before: their offsets are not those of `source`."""
    notes: list[Note] = field(default_factory=list)
    lost_end: int = 0
    """Target offset up to where it was written once and lost since: a broker that has that may lead again."""

    @property
    def next_source_offset(self) -> int:
        """Where copying continues."""
        return self.runs.source_end

    def check(self, copied: Copied) -> None:
        """Raises DiscontinuityError where a write does not continue what is booked: it begins behind the end
        of that, or holds records of before, there or at the target."""
        position = self.runs.source_end
        if copied.first_source_offset > position:
            raise DiscontinuityError(copied.first_source_offset, position)
        if copied.runs and copied.runs[0].source < position:
            raise DiscontinuityError(copied.runs[0].source, position)
        for run in copied.runs:
            if run.target < self.runs.target_start:
                raise BeforeTheCopyError(run.target, self.runs.target_start)

    def add(self, copied: Copied) -> None:
        """Books an acknowledged write. Raises DiscontinuityError (see `check`), and nothing is booked then;
        ValueError when it goes back at the target or in itself."""
        self.check(copied)
        for run in copied.runs:
            self.runs.append(run)
            self._valid_again(run)
        self.runs.cover_to(copied.next_source_offset)
        self.records += copied.records
        self.left_out += copied.left_out
        self.bytes += copied.bytes
        self.batches += len(copied.crcs)
        self.digest = extend_digest(self.digest, copied.crcs)

    def add_gap(self, gap: Gap) -> None:
        """Books a gap; copying continues behind it. Adjacent gaps with the same reason become one."""
        if self.gaps and self.gaps[-1].end == gap.start and self.gaps[-1].reason == gap.reason:
            last = self.gaps.pop()
            gap = Gap(last.start, gap.end, gap.reason, last.at_ms)
        self.gaps.append(gap)
        self.runs.cover_to(gap.end)

    def rewind(self, source_offset: int, reason: str, at_ms: int) -> None:
        """The source lost or replaced what it had from `source_offset` on: copying goes back to there. That
        is no gap, since what stands there now is copied; copies of the old stay at the target, on record."""
        start, end = self.runs.to_target(source_offset).offset, self.runs.target_end
        if start < end:
            self.superseded.append(Superseded(start, end, reason, at_ms))
        self._read_again(source_offset, reason, at_ms)

    def target_ends(self, target_offset: int, reason: str, at_ms: int) -> None:
        """The target has lost what it held from there on: copying goes back to the source's record of it."""
        self.superseded = [
            stretch._replace(end=min(stretch.end, target_offset))
            for stretch in self.superseded
            if stretch.start < target_offset
        ]
        self.lost_end = max(self.lost_end, self.runs.target_end)
        self._read_again(self.runs.to_source(target_offset).offset, reason, at_ms)
        if not len(
            self.runs
        ):  # it may have lost more than the copy: what is written now is there all the same
            self.runs.target_start = min(self.runs.target_start, target_offset)

    def _read_again(self, source_offset: int, reason: str, at_ms: int) -> None:
        self.gaps, dropped = gaps_before(self.gaps, source_offset)
        self.notes += [Note(f"{gap} was read again: {reason}", at_ms) for gap in dropped]
        self.runs.truncate_source(source_offset)

    def target_lost(self, target_offset: int, reason: str, at_ms: int) -> Gap:
        """The target lost what it had acknowledged from `target_offset` on; copying goes on behind it."""
        gap = Gap(self.runs.to_source(target_offset).offset, self.next_source_offset, reason, at_ms)
        self.gaps.append(gap)
        self.lost_end = max(self.lost_end, self.runs.target_end)
        self.runs.truncate_source(gap.start)
        self.runs.cover_to(gap.end)
        return gap

    def _valid_again(self, run: Run) -> None:
        """A restart may recognise superseded copies: the source has the same records there again."""
        behind = run.target + run.length
        if any(stretch.start < behind and stretch.end > run.target for stretch in self.superseded):
            parts = [
                stretch._replace(start=start, end=end)
                for stretch in self.superseded
                for start, end in (
                    (stretch.start, min(stretch.end, run.target)),
                    (max(stretch.start, behind), stretch.end),
                )
                if start < end
            ]
            self.superseded = parts

    @property
    def differences(self) -> int:
        """Gaps and superseded stretches on record: a copy with any is not whole (exit code 3)."""
        return len(self.gaps) + len(self.former_gaps) + len(self.superseded)

    @property
    def missing(self) -> int:
        """Source offsets inside gaps (an upper bound of lost records: markers count too)."""
        return sum(max(gap.end - gap.start, 0) for gap in (*self.gaps, *self.former_gaps))

    def to_json(self) -> dict[str, Any]:
        """A JSON object; runs are base64 of `OffsetMap.encode`."""
        return {
            "version": _VERSION,
            "source": list(self.source),
            "target": list(self.target),
            "runs": base64.b64encode(self.runs.encode()).decode("ascii"),
            "gaps": [list(gap) for gap in self.gaps],
            "records": self.records,
            "bytes": self.bytes,
            "batches": self.batches,
            "digest": self.digest,
            "left_out": self.left_out,
            "former_gaps": [list(gap) for gap in self.former_gaps],
            "superseded": [list(stretch) for stretch in self.superseded],
            "notes": [list(note) for note in self.notes],
            "lost_end": self.lost_end,
        }

    @classmethod
    def from_json(cls, data: Any) -> PartitionLedger:
        """Reads `to_json`. Raises LedgerError when a field is missing, damaged or newer than this code."""
        try:
            if data["version"] != _VERSION:
                raise LedgerError(
                    f"ledger version {data['version']} is not known (this code writes {_VERSION})"
                )
            return cls(
                source=_lineage(data["source"]),
                target=_lineage(data["target"]),
                runs=OffsetMap.decode(base64.b64decode(data["runs"], validate=True)),
                gaps=[_gap(gap) for gap in data["gaps"]],
                records=int(data["records"]),
                bytes=int(data["bytes"]),
                batches=int(data["batches"]),
                digest=int(data["digest"]),
                left_out=int(data.get("left_out", 0)),
                former_gaps=[_gap(gap) for gap in data.get("former_gaps", ())],
                superseded=[Superseded(*_gap(row)) for row in data.get("superseded", ())],
                notes=[Note(str(text), int(at_ms)) for text, at_ms in data.get("notes", ())],
                lost_end=int(data.get("lost_end", 0)),
            )
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, LedgerError):
                raise
            raise LedgerError(f"damaged ledger: {error!r}") from error

    def encode(self) -> builtins.bytes:
        """Compact JSON bytes."""
        return json.dumps(self.to_json(), separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: builtins.bytes) -> PartitionLedger:
        """Reads `encode`. Raises LedgerError."""
        try:
            return cls.from_json(json.loads(data))
        except json.JSONDecodeError as error:
            raise LedgerError(f"damaged ledger: {error}") from error


TARGET_LOST = "target lost acknowledged records"


def book_into(ledger: PartitionLedger, copied: Copied) -> Gap | None:
    """Books a write; the (last) gap that it shows where the target appended before the end of what it had.
    Raises DiscontinuityError, and nothing is booked then."""
    ledger.check(copied)
    gap = None
    for part in _before_losses(copied):
        if part.runs and part.runs[0].target < ledger.runs.target_end:
            at_ms = copied.at_ms or time.time_ns() // 1_000_000
            gap = ledger.target_lost(part.runs[0].target, TARGET_LOST, at_ms)
        ledger.add(part)
    return gap


def _before_losses(copied: Copied) -> list[Copied]:
    """The write, cut where the target went back in the middle of it; counts go with the last part."""
    runs, parts, begun = copied.runs, [], 0
    for at in range(1, len(runs)):
        if runs[at].target < runs[at - 1].target + runs[at - 1].length:
            parts.append(Copied(runs[begun:at], runs[at].source, 0, 0, ()))
            begun = at
    if not parts:
        return [copied]
    return [*parts, copied._replace(runs=runs[begun:], first_source_offset=-1)]


def gaps_before(gaps: Iterable[Gap], source_offset: int) -> tuple[list[Gap], list[Gap]]:
    """The gaps, or parts of them, that lie before an offset, and those that reach behind it."""
    gaps = list(gaps)
    kept = [gap._replace(end=min(gap.end, source_offset)) for gap in gaps if gap.start < source_offset]
    return kept, [gap for gap in gaps if gap.end > source_offset]


def _lineage(fields: Iterable[Any]) -> Lineage:
    cluster_id, topic_id, topic, partition = fields
    return Lineage(str(cluster_id), str(topic_id), str(topic), int(partition))


def _gap(fields: Iterable[Any]) -> Gap:
    start, end, reason, at_ms = fields
    return Gap(int(start), int(end), str(reason), int(at_ms))
