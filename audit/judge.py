"""The judgement on one lane's left-overs: every record that does not match goes into one class. Pure.

Owns the meaning of the classes. In this order: records found elsewhere by content, the n-th occurrence with
the n-th; of those, the fewest that break the order are reordered, the others misaligned. What then is left at
the target is a duplicate when the source has that content, foreign otherwise. What is left at the source is
corrupt when a foreign record stands in its place, lost otherwise.

Records that match where the ledger expects them are not here. They stand as `Piece`s between the left-overs:
order is judged against them, and a place is "behind the same piece or pair".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from audit.order import out_of_order
from audit.result import DifferenceClass
from transfer.offset_map import Run

Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Rows:
    """Left-over records of one side, in offset order."""

    offsets: Longs
    positions: Longs
    """Where the ledger expects the record; below zero for nowhere. At the target: its offset."""
    high: Longs
    low: Longs
    timestamps: Longs
    known: Flags
    """Only at the target: whether the source holds this content anywhere."""
    removable: Flags
    """Whether compaction alone explains that the other side has none in its place."""

    def __len__(self) -> int:
        return len(self.offsets)

    def take(self, which: Longs | Flags) -> Rows:
        return Rows(*(getattr(self, name)[which] for name in self.__slots__))


class Verdict(NamedTuple):
    """Records of one class. Offsets are -1 on the side that has no such record."""

    kind: DifferenceClass
    source_offsets: Longs
    target_offsets: Longs
    timestamps: Longs
    at_head: Flags
    """Before everything that was found in order: it may have expired."""
    at_tail: Flags
    """Behind everything that was found in order: it may be on its way."""
    removable: Flags
    """See `Rows`."""


@dataclass(slots=True)
class _Judged:
    verdicts: list[Verdict] = field(default_factory=list)

    def add(
        self,
        kind: DifferenceClass,
        source: Longs | None,
        target: Longs | None,
        timestamps: Longs,
        head: Flags | None = None,
        tail: Flags | None = None,
        removable: Flags | None = None,
    ) -> None:
        count = len(timestamps)
        none, never = np.full(count, -1, np.int64), np.zeros(count, bool)
        self.verdicts.append(
            Verdict(
                kind,
                none if source is None else source,
                none if target is None else target,
                timestamps,
                never if head is None else head,
                never if tail is None else tail,
                never if removable is None else removable,
            )
        )


def judge(source: Rows, target: Rows, runs: Iterable[Run]) -> list[Verdict]:
    """Verdicts on all rows. `runs` is the ledger's map of the compared range; empty when content decides."""
    judged = _Judged()
    pieces_source, pieces_target = _pieces(runs, source, target)
    s_found, t_found = _pair(source, target)
    order = np.argsort(source.offsets[s_found], kind="stable")
    s_found, t_found = s_found[order], t_found[order]
    moved = _moved(source.offsets[s_found], target.offsets[t_found], pieces_source, pieces_target)
    for kind, which in ((DifferenceClass.REORDERED, moved), (DifferenceClass.MISALIGNED, ~moved)):
        s, t = s_found[which], t_found[which]
        judged.add(kind, source.offsets[s], target.offsets[t], source.timestamps[s])

    anchors_source = np.sort(np.concatenate([pieces_source, source.offsets[s_found[~moved]]]))
    anchors_target = np.sort(np.concatenate([pieces_target, target.offsets[t_found[~moved]]]))
    s_left, t_left = _without(source, s_found), _without(target, t_found)
    again = t_left.take(t_left.known)
    head = np.searchsorted(anchors_target, again.offsets) == 0
    judged.add(
        DifferenceClass.DUPLICATE, None, again.offsets, again.timestamps, head, removable=again.removable
    )

    strange = t_left.take(~t_left.known)
    s_place, t_place = _in_place(s_left, strange)
    s_place, t_place = _between(s_left, strange, s_place, t_place, anchors_source, anchors_target)
    judged.add(
        DifferenceClass.CORRUPT, s_left.offsets[s_place], strange.offsets[t_place], s_left.timestamps[s_place]
    )
    lost, foreign = _without(s_left, s_place), _without(strange, t_place)
    at = np.searchsorted(anchors_source, lost.offsets)
    head, tail = at == 0, at == len(anchors_source)
    judged.add(DifferenceClass.LOST, lost.offsets, None, lost.timestamps, head, tail, lost.removable)
    head = np.searchsorted(anchors_target, foreign.offsets) == 0
    judged.add(
        DifferenceClass.FOREIGN, None, foreign.offsets, foreign.timestamps, head, removable=foreign.removable
    )
    return judged.verdicts


def _pieces(runs: Iterable[Run], source: Rows, target: Rows) -> tuple[Longs, Longs]:
    """Beginnings of the stretches that match, at both sides: runs cut where something is left over."""
    gone = np.union1d(source.positions[source.positions >= 0], target.offsets)
    starts_source: list[Longs] = []
    starts_target: list[Longs] = []
    for run in runs:
        low, high = np.searchsorted(gone, [run.target, run.target + run.length])
        inside = gone[low:high]
        begins = np.concatenate([np.array([run.target], np.int64), inside + 1])
        ends = np.concatenate([inside, np.array([run.target + run.length], np.int64)])
        begins = begins[begins < ends]
        starts_target.append(begins)
        starts_source.append(begins - run.target + run.source)
    empty = np.empty(0, np.int64)
    return np.concatenate([empty, *starts_source]), np.concatenate([empty, *starts_target])


def _pair(source: Rows, target: Rows) -> tuple[Longs, Longs]:
    """Indexes of equal records: for each content the n-th of one side with the n-th of the other."""
    high = np.concatenate([source.high, target.high])
    low = np.concatenate([source.low, target.low])
    side = np.concatenate([np.zeros(len(source), np.int8), np.ones(len(target), np.int8)])
    index = np.concatenate([np.arange(len(source)), np.arange(len(target))])
    order = np.lexsort((index, side, low, high))
    if not len(order):
        return index[:0], index[:0]
    high, low, side, index = high[order], low[order], side[order], index[order]
    new = np.ones(len(order), bool)
    new[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
    begins = np.flatnonzero(new)
    sizes = np.diff(np.append(begins, len(order)))
    of_target = np.add.reduceat(side, begins, dtype=np.int64)
    of_source = sizes - of_target
    both = np.minimum(of_source, of_target)
    nth = np.arange(both.sum()) - np.repeat(np.cumsum(both) - both, both)
    s = index[np.repeat(begins, both) + nth]
    t = index[np.repeat(begins + of_source, both) + nth]
    return s, t


def _moved(s_off: Longs, t_off: Longs, pieces_source: Longs, pieces_target: Longs) -> Flags:
    """Which found records stand out of order, against the pieces and then among themselves."""
    before_source = np.searchsorted(pieces_source, s_off, side="right")
    moved: Flags = before_source != np.searchsorted(pieces_target, t_off, side="right")
    in_line = np.flatnonzero(~moved)
    if len(in_line) < 2:
        return moved
    positions = t_off[in_line]
    highest = np.maximum.accumulate(positions)
    lowest = np.minimum.accumulate(positions[::-1])[::-1]
    inverted = np.zeros(len(in_line), bool)
    inverted[1:] |= highest[:-1] > positions[1:]
    inverted[:-1] |= lowest[1:] < positions[:-1]
    suspects = in_line[inverted]
    moved[suspects[out_of_order(t_off[suspects].tolist())]] = True
    return moved


def _in_place(source: Rows, strange: Rows) -> tuple[Longs, Longs]:
    """Foreign records at the very offset where a source record is expected."""
    _, s, t = np.intersect1d(source.positions, strange.offsets, assume_unique=True, return_indices=True)
    return s, t


def _between(
    source: Rows, strange: Rows, s_done: Longs, t_done: Longs, anchors_source: Longs, anchors_target: Longs
) -> tuple[Longs, Longs]:
    """Adds the n-th left record with the n-th foreign one behind the same ordered record or piece; none that
    compaction explains."""
    s_free = np.setdiff1d(np.flatnonzero(~source.removable), s_done)
    t_free = np.setdiff1d(np.flatnonzero(~strange.removable), t_done)
    s_keys = _numbered(np.searchsorted(anchors_source, source.offsets[s_free]))
    t_keys = _numbered(np.searchsorted(anchors_target, strange.offsets[t_free]))
    t_at = dict(zip(t_keys, t_free.tolist(), strict=True))
    pairs = [(s, t_at[key]) for key, s in zip(s_keys, s_free.tolist(), strict=True) if key in t_at]
    added = np.array(pairs, np.int64).reshape(-1, 2)
    return np.concatenate([s_done, added[:, 0]]), np.concatenate([t_done, added[:, 1]])


def _numbered(anchors: Longs) -> Sequence[tuple[int, int]]:
    """(anchor, number among the records behind it), for ascending offsets."""
    keys: list[tuple[int, int]] = []
    last, number = -1, 0
    for anchor in anchors.tolist():
        number = number + 1 if anchor == last else 0
        last = anchor
        keys.append((anchor, number))
    return keys


def _without(rows: Rows, gone: Longs) -> Rows:
    keep = np.ones(len(rows), bool)
    keep[gone] = False
    return rows.take(keep)
