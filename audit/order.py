"""How many records stand out of order, and which: the fewest that would have to be moved.

Owns one pure function. Records that are found at the target in the source's order form an increasing
sequence; the longest one stays, everything else was reordered. So one record that came late is one, however
many it was overtaken by.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence


def out_of_order(positions: Sequence[int]) -> list[int]:
    """Indexes of `positions` (all different) outside one longest increasing subsequence."""
    tails: list[int] = []
    tail_at: list[int] = []
    before: list[int] = []
    for index, position in enumerate(positions):
        rank = bisect_left(tails, position)
        before.append(tail_at[rank - 1] if rank else -1)
        if rank == len(tails):
            tails.append(position)
            tail_at.append(index)
        else:
            tails[rank] = position
            tail_at[rank] = index
    kept = set()
    at = tail_at[-1] if tail_at else -1
    while at >= 0:
        kept.add(at)
        at = before[at]
    return [index for index in range(len(positions)) if index not in kept]
