"""Where leader epochs of a log began, as far as it was read or written: how far a leader with another history
goes along with that.

A leader that does not know the epoch of what was read last names the latest one before that, and where that
ends in its log (KIP-320, KIP-595). Behind two unclean elections in a row that may be further on than where
what was read left that epoch: replicas compare their own epochs then (KIP-101), and so do we. Nobody tells
the epoch of what is written: it is the one that the leader was known by, or a later one. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

_KEPT = 16


class Epochs:
    """The latest epochs in offset order, each with an offset at which it had not begun, or just began: where
    the read or write in which it was seen first began."""

    __slots__ = ("_starts",)

    def __init__(self, starts: Iterable[tuple[int, int]] = ()) -> None:
        self._starts = list(starts)

    def reached(self, epoch: int, position: int) -> None:
        """What was read from `position` on ends in `epoch`; -1: not known."""
        if epoch < 0 or (self._starts and self._starts[-1][0] == epoch):
            return
        if self._starts and self._starts[-1][0] > epoch:  # another log: what was known of this one is void
            self._starts.clear()
        if self._starts and self._starts[-1][1] == position:  # nothing is of that one
            self._starts.pop()
        self._starts.append((epoch, position))
        if len(self._starts) > _KEPT:  # the later of the two begins no later than the earlier did
            (_, first), (second, _) = self._starts[:2]
            self._starts[:2] = [(second, first)]

    def cut(self, position: int) -> None:
        """Reading goes back to there."""
        while self._starts and self._starts[-1][1] >= position:
            self._starts.pop()

    @property
    def last(self) -> int:
        """-1 without any."""
        return self._starts[-1][0] if self._starts else -1

    def floor(self, epoch: int) -> int:
        """The last of them that is not behind this one; -1: none is known."""
        return max((known for known, _ in self._starts if known <= epoch), default=-1)

    def common_end(self, epoch: int, end: int) -> int:
        """Up to where what was read is a part of a log that has no epoch of it behind `epoch`, and in which
        that ends at `end`. Of an epoch between two of them that says too much: what it replaced of the one
        before, only a question for that one tells (KIP-279, see `floor`)."""
        return min([end, *(start for later, start in self._starts if later > epoch)])

    def before(self, position: int) -> Epochs:
        """Those that had begun before it, as an object of its own."""
        return Epochs((epoch, start) for epoch, start in self._starts if start < position)

    def copy(self) -> Epochs:
        return Epochs(self._starts)

    def to_json(self) -> list[list[int]]:
        """Rows of epoch and offset."""
        return [[epoch, start] for epoch, start in self._starts]

    @classmethod
    def from_json(cls, rows: Iterable[Iterable[int]]) -> Epochs:
        """Raises TypeError and ValueError."""
        return cls((int(epoch), int(start)) for epoch, start in rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Epochs) and self._starts == other._starts

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Epochs({self._starts})"
