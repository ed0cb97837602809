"""Lanes: what of one partition pair can be compared, fixed before anything is read. Pure.

Owns the cut. With a ledger only the range that it covers and that both logs still hold is compared; what lies
before has expired on a side, what lies behind is not copied yet. Neither is ever called lost. Ranges are cut
into splits, each with the runs and gaps it needs, so that a task knows expected offsets by itself.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from protocol.types import TopicPartition
from transfer.ledger import Gap, PartitionLedger, Superseded
from transfer.offset_map import OffsetMap


class Ends(NamedTuple):
    """First offset, and the offset behind the last committed record."""

    start: int
    end: int


_NOTHING = Ends(0, 0)


@dataclass(frozen=True, slots=True)
class Lane:
    """One partition of one pair of topics."""

    number: int
    source: TopicPartition
    target: TopicPartition
    source_range: Ends
    target_range: Ends
    runs: OffsetMap | None
    """None: there is no record of offsets, content decides."""
    gaps: tuple[Gap, ...] = ()
    former_gaps: tuple[Gap, ...] = ()
    superseded: tuple[Superseded, ...] = ()
    expired_source: int = 0
    expired_target: int = 0
    divergent: int = 0
    pending_source: int = 0
    pending_target: int = 0
    source_trimmed: bool = False
    target_trimmed: bool = False
    """Whether the log has lost its head: what is missing there may have expired."""
    source_behind: Ends = _NOTHING
    target_behind: Ends = _NOTHING
    """What the logs have behind the compared ranges."""
    compacted: bool = False
    with_timestamp: bool = True
    places: tuple[str, str] = ("", "")
    """See `Split.place`: of the splits of the source, and of the target."""
    notes: tuple[str, ...] = ()

    @property
    def gap_offsets(self) -> int:
        low, high = self.source_range
        return sum(max(min(end, high) - max(start, low), 0) for start, end in _merged(self.gaps))

    @property
    def gap_expired(self) -> int:
        """Offsets of gaps outside the compared range: never copied, and gone at the source since (also those
        of topics that had the name before)."""
        former = sum(max(gap.end - gap.start, 0) for gap in self.former_gaps)
        return former + sum(end - start for start, end in _merged(self.gaps)) - self.gap_offsets

    @property
    def gaps_unknown(self) -> int:
        return sum(gap.unknown for gap in (*self.gaps, *self.former_gaps))


def with_ledger(
    number: int,
    target: TopicPartition,
    ledger: PartitionLedger,
    source_ends: Ends,
    target_ends: Ends,
    *,
    written: bool = False,
) -> Lane:
    """The lane of a partition whose copying is on record.

    `target_ends` must be the older ones: where all that the source has is on record, nothing may stand behind
    it at the target, unless that is `written` by others.
    """
    runs = ledger.runs
    cut = min(runs.source_end, source_ends.end)
    start = max(runs.source_start, source_ends.start)
    target_start = max(runs.target_start, target_ends.start)
    if start > runs.source_start:
        target_start = max(target_start, runs.to_target(start).offset)
    by_target = runs.to_source(target_ends.start).offset if target_ends.start > runs.target_start else start
    expired_target = runs.between(start, max(by_target, start)).records
    start = min(max(start, by_target), max(cut, start))
    target_cut = runs.target_end if cut == runs.source_end else runs.to_target(cut).offset
    if cut == source_ends.end == runs.source_end and not written:
        target_cut = max(target_cut, target_ends.end)
    target_end = max(min(target_cut, target_ends.end), target_start)
    notes = []
    if source_ends.start < runs.source_start:
        notes.append(f"the copy begins at source offset {runs.source_start}: what is before is not compared")
    if target_ends.start < runs.target_start:
        notes.append(f"the copy begins at target offset {runs.target_start}: what is before is not compared")
    if source_ends.end < runs.source_end:
        notes.append(f"the source ends at {source_ends.end}, {runs.source_end} were copied: it was truncated")
    if target_ends.end < runs.target_end:
        notes.append(
            f"the target ends at {target_ends.end}, {runs.target_end} were written: it was truncated"
        )
    notes = [f"{target}: {text}" for text in (*notes, *(note.text for note in ledger.notes))]
    source = TopicPartition(ledger.source.topic, ledger.source.partition)
    return Lane(
        number,
        source,
        target,
        Ends(start, max(cut, start)),
        Ends(target_start, target_end),
        runs,
        gaps=tuple(ledger.gaps),
        former_gaps=tuple(ledger.former_gaps),
        superseded=tuple(ledger.superseded),
        expired_source=runs.between(runs.source_start, min(source_ends.start, runs.source_end)).records,
        expired_target=expired_target,
        divergent=runs.between(cut, runs.source_end).records,
        pending_source=max(source_ends.end - runs.source_end, 0),
        pending_target=max(target_ends.end - max(runs.target_end, target_cut), 0),
        source_behind=Ends(max(cut, start), max(source_ends.end, cut, start)),
        target_behind=Ends(target_end, max(target_ends.end, target_end)),
        notes=tuple(notes),
    )


def without_ledger(
    number: int, source: TopicPartition, target: TopicPartition, source_ends: Ends, target_ends: Ends
) -> Lane:
    """The lane of a partition that is aligned by content."""
    return Lane(
        number,
        source,
        target,
        source_ends,
        target_ends,
        None,
        source_trimmed=source_ends.start > 0,
        target_trimmed=target_ends.start > 0,
    )


@dataclass(frozen=True, slots=True)
class Split:
    """What one task reads: offsets `start ≤ offset < end` of one side of a lane."""

    number: int
    lane: int
    side: int
    """0 = source, 1 = target."""
    tp: TopicPartition
    start: int
    end: int
    with_timestamp: bool = True
    compacted: bool = False
    """Records are told with their keys."""
    behind: bool = False
    """Behind the cut: nothing of it is compared."""
    place: str = ""
    """Where records say where they have been (`origin_headers`), `cluster id/topic` of the other side. At the
    source those that were there already are left out, at the target those that did not come from there; not
    what the ledger knows."""
    runs: bytes = b""
    """The encoded map of this range; empty without one, and at the target without a place."""
    gaps: tuple[tuple[int, int], ...] = field(default=())
    """What is left out and counted apart: gaps at the source, superseded copies at the target. Ascending,
    none inside another."""


def split_lane(
    lane: Lane, first_number: int, source_cuts: Sequence[int], target_cuts: Sequence[int]
) -> list[Split]:
    """Splits of both sides. The cuts are where ranges may be divided: ascending, any offsets."""
    splits: list[Split] = []
    for side, tp, ends, cuts in (
        (0, lane.source, lane.source_range, source_cuts),
        (1, lane.target, lane.target_range, target_cuts),
    ):
        inner = [cut for cut in cuts if ends.start < cut < ends.end]
        for start, end in pairwise([ends.start, *inner, ends.end]):
            if start >= end:
                continue
            runs = lane.runs.between(start, end).encode() if side == 0 and lane.runs is not None else b""
            if side == 1 and lane.places[1] and lane.runs is not None:
                runs = lane.runs.encode()
            apart = _merged(lane.gaps if side == 0 else lane.superseded)
            gaps = tuple((first, behind) for first, behind in apart if first < end and behind > start)
            number = first_number + len(splits)
            splits.append(
                Split(
                    number,
                    lane.number,
                    side,
                    tp,
                    start,
                    end,
                    lane.with_timestamp,
                    lane.compacted,
                    place=lane.places[side],
                    runs=runs,
                    gaps=gaps,
                )
            )
        behind = lane.source_behind if side == 0 else lane.target_behind
        if lane.compacted and behind.start < behind.end:
            number = first_number + len(splits)
            splits.append(Split(number, lane.number, side, tp, *behind, compacted=True, behind=True))
    return splits


def _merged(stretches: Sequence[Gap] | Sequence[Superseded]) -> list[tuple[int, int]]:
    """As ranges, ascending, each offset in one of them: what was lost twice is on record twice."""
    found: list[tuple[int, int]] = []
    for start, end in sorted((one.start, one.end) for one in stretches if one.start < one.end):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


def even_cuts(ends: Ends, at_most: int) -> list[int]:
    """Cuts that divide a range into equal parts of at most `at_most` offsets."""
    length = ends.end - ends.start
    parts = max(-(-length // at_most), 1)
    return [ends.start + length * part // parts for part in range(1, parts)]


def bundle(splits: Sequence[Split], tasks: int) -> list[tuple[Split, ...]]:
    """Splits put together for at most `tasks` tasks of about the same size: a task costs time by itself."""
    bins: list[tuple[int, int, list[Split]]] = [(0, number, []) for number in range(min(tasks, len(splits)))]
    for split in sorted(splits, key=lambda s: s.start - s.end):
        size, number, held = bins[0]
        held.append(split)
        heapq.heapreplace(bins, (size + split.end - split.start, number, held))
    return [tuple(held) for _, _, held in sorted(bins, key=lambda b: b[1])]
