"""The newest offset of each key in the dirty section of a log (Kafka's SkimpyOffsetMap), in little memory.

Keys are there as two hashes (see `record_scan`), 20 bytes an entry, in arrays sorted by the first: records
come in bulk, and are looked up in bulk. When two keys of the map share the first hash, neither counts as
known: their records are kept, which is always right. Must not know batches or files.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]
UInt32 = npt.NDArray[np.uint32]

_CHUNK: Final = 1 << 16
_SHARE: Final = 8
"""Records wait until they are this part of the keys: sorting them in costs memory for both, time for all."""
_LOAD: Final = 0.9
"""Share of the capacity that may be taken: closer to it, merging would be all that happens."""


class OffsetMap:
    def __init__(self, capacity: int) -> None:
        """Holds `capacity` keys at least, and never many more."""
        self.capacity = max(1, capacity)
        self.latest_offset = -1
        """Records up to here were looked at; what comes later is not superseded by anything in this map."""
        self._hashes: Int64 = np.empty(0, np.int64)
        """Sorted, each once; the other two go with it."""
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
            if self._waiting >= max(_CHUNK, len(self._hashes) // _SHARE):
                self._merge()

    def _merge(self) -> None:
        if not self._new:
            return
        hashes, checks, offsets = self._newest_waiting()
        at = np.searchsorted(self._hashes, hashes)
        known = np.zeros(len(hashes), np.bool_)
        if len(self._hashes):
            inside = np.minimum(at, len(self._hashes) - 1)
            known = self._hashes[inside] == hashes
            known_at = at[known]
            self._note_ambiguous(hashes[known][self._checks[known_at] != checks[known]])
            self._offsets[known_at] = offsets[known]
        new = ~known
        at = at[new]
        # One array after the other, so that only one of them is there twice at any time.
        self._hashes = np.insert(self._hashes, at, hashes[new])
        self._checks = np.insert(self._checks, at, checks[new])
        self._offsets = np.insert(self._offsets, at, offsets[new])

    def _newest_waiting(self) -> tuple[Int64, UInt32, Int64]:
        """What waits, sorted by hash, the last of each; nothing waits any more."""
        waiting, self._new, self._waiting = self._new, [], 0
        hashes = np.concatenate([part[0] for part in waiting])
        checks = np.concatenate([part[1] for part in waiting])
        order = np.argsort(hashes, kind="stable")  # offsets rise: the last of equal keys is the newest
        hashes, checks = hashes[order], checks[order]
        same = hashes[1:] == hashes[:-1]
        self._note_ambiguous(hashes[1:][same & (checks[1:] != checks[:-1])])
        last = np.append(~same, True)
        offsets = np.concatenate([part[2] for part in waiting])[order[last]]
        return hashes[last], checks[last], offsets

    def _note_ambiguous(self, hashes: Int64) -> None:
        if len(hashes):
            self._ambiguous = np.union1d(self._ambiguous, hashes)

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
