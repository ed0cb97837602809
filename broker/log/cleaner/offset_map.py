"""The newest offset of each key in the dirty section of a log (Kafka's SkimpyOffsetMap), in little memory.

Keys are there as two hashes (see `record_scan`), 20 bytes an entry, in sorted arrays: records come in bulk,
and are looked up in bulk. When two keys of the map share the first hash, neither is in the map: their records
are kept, which is always right. Must not know batches or files.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]
UInt32 = npt.NDArray[np.uint32]

_CHUNK: Final = 1 << 18
_LOAD: Final = 0.9
"""Share of the capacity that may be taken: closer to it, merging would be all that happens."""


class OffsetMap:
    def __init__(self, capacity: int) -> None:
        """Holds `capacity` keys at least, and never many more."""
        self.capacity = max(1, capacity)
        self.latest_offset = -1
        """Records up to here were looked at; what comes later is not superseded by anything in this map."""
        self._hashes: Int64 = np.empty(0, np.int64)
        self._checks: UInt32 = np.empty(0, np.uint32)
        self._offsets: Int64 = np.empty(0, np.int64)
        self._new: list[tuple[Int64, UInt32, Int64]] = []
        self._waiting = 0
        self._ambiguous: Int64 = np.empty(0, np.int64)

    def __len__(self) -> int:
        """Keys known, those of records that wait to be sorted in counted once for each record."""
        return len(self._hashes) + self._waiting

    @property
    def full(self) -> bool:
        if len(self) < self.capacity:
            return False
        self._merge()
        return len(self) >= self.capacity * _LOAD

    def put(self, hashes: Sequence[int], checks: Sequence[int], offsets: Sequence[int]) -> None:
        """Take in keys with their offsets, which rise from call to call."""
        if offsets:
            self._new.append(
                (np.array(hashes, np.int64), np.array(checks, np.uint32), np.array(offsets, np.int64))
            )
            self._waiting += len(offsets)
            if self._waiting >= max(_CHUNK, len(self._hashes) // 2):
                self._merge()

    def _merge(self) -> None:
        if not self._new:
            return
        hashes = np.concatenate([self._hashes, *(part[0] for part in self._new)])
        checks = np.concatenate([self._checks, *(part[1] for part in self._new)])
        offsets = np.concatenate([self._offsets, *(part[2] for part in self._new)])
        self._new, self._waiting = [], 0
        order = np.argsort(hashes, kind="stable")  # offsets rise: the last of equal keys is the newest
        if _collide(hashes[order], checks[order]):
            order = np.lexsort((checks, hashes))
        hashes, checks, offsets = hashes[order], checks[order], offsets[order]
        last = np.ones(len(hashes), np.bool_)
        last[:-1] = (hashes[1:] != hashes[:-1]) | (checks[1:] != checks[:-1])
        self._hashes, self._checks, self._offsets = hashes[last], checks[last], offsets[last]
        twice = self._hashes[1:][self._hashes[1:] == self._hashes[:-1]]
        if len(twice):
            self._ambiguous = np.union1d(self._ambiguous, twice)

    def newer(
        self, hashes: Sequence[int], checks: Sequence[int], offsets: Sequence[int]
    ) -> npt.NDArray[np.bool_]:
        """Of each record, whether the map has a later one of the same key."""
        self._merge()
        wanted = np.array(hashes, np.int64)
        if not len(self._hashes):
            return np.zeros(len(wanted), np.bool_)
        at = np.searchsorted(self._hashes, wanted)
        np.minimum(at, len(self._hashes) - 1, out=at)
        found: npt.NDArray[np.bool_] = (
            (self._hashes[at] == wanted)
            & (self._checks[at] == np.array(checks, np.uint32))
            & (self._offsets[at] > np.array(offsets, np.int64))
        )
        if len(self._ambiguous):
            found &= ~np.isin(wanted, self._ambiguous)
        return found


def _collide(hashes: Int64, checks: UInt32) -> bool:
    """Whether two keys have the same first hash."""
    return bool(np.any((hashes[1:] == hashes[:-1]) & (checks[1:] != checks[:-1])))
