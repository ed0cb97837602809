"""What MirrorMaker 2's offset syncs say about the copies it made: runs of an offset map, never too far ahead.

Owns the arithmetic, pure (Kafka: OffsetSyncWriter, OffsetSyncStore). A sync is exact for its own record.
Between two syncs as far apart on both sides every record has its copy, for MirrorMaker 2 writes one at each
jump. Where they are not, what lies between is placed so that a translated position is early rather than late
(I5): holes at the source push it to the far end, strange records at the target to the near one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from protocol.records.record import Header
from transfer.offset_map import OffsetMap, Run


class Pair(NamedTuple):
    """One offset sync."""

    upstream: int
    downstream: int


class Copy(NamedTuple):
    """What is compared of a record; `time` is 0 where the target stamps its own."""

    offset: int
    time: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]

    def same_as(self, other: Copy) -> bool:
        """Whether one is the copy of the other."""
        return self[1:] == other[1:]


def chain(pairs: Iterable[Pair]) -> list[Pair]:
    """Pairs in log order without those that later ones take back (copied again, or another topic)."""
    kept: list[Pair] = []
    for pair in pairs:
        while kept and (kept[-1].upstream >= pair.upstream or kept[-1].downstream >= pair.downstream):
            kept.pop()
        kept.append(pair)
    return kept


def history(pairs: Sequence[Pair]) -> OffsetMap:
    """Runs up to before the last pair, which is where comparing records begins."""
    if not pairs:
        return OffsetMap()
    made = OffsetMap(pairs[0].upstream, pairs[0].downstream)
    for here, there in pairwise(pairs):
        for run in _between(here, there):
            made.append(run)
    made.cover_to(pairs[-1].upstream)
    return made


def _between(here: Pair, there: Pair) -> Iterable[Run]:
    sources, targets = there.upstream - here.upstream, there.downstream - here.downstream
    if targets >= sources:
        return [Run(here.upstream, here.downstream, sources)]
    first = Run(here.upstream, here.downstream, 1)
    if targets == 1:
        return [first]
    return [first, Run(there.upstream - (targets - 1), here.downstream + 1, targets - 1)]


@dataclass(slots=True)
class CopyMatcher:
    """Finds the source's next records among what stands at the target behind a sync, record by record.

    Other producers' records in between are stepped over, up to `lookahead` of them. Give it `there` as it is
    read; `here` one by one.
    """

    lookahead: int = 10_000
    waiting: deque[Copy] = field(default_factory=deque)
    runs: list[Run] = field(default_factory=list)
    matched: int = 0

    def there(self, copies: Iterable[Copy]) -> None:
        """More of the target, in order."""
        self.waiting.extend(copies)

    def here(self, record: Copy) -> bool:
        """Whether the source's next record has its copy; False ends the matching."""
        for index, copy in enumerate(self.waiting):
            if index > self.lookahead:
                return False
            if copy.same_as(record):
                for _ in range(index + 1):
                    self.waiting.popleft()
                self.runs.append(Run(record.offset, copy.offset, 1))
                self.matched += 1
                return True
        return False
