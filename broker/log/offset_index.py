"""Sparse map from offsets to file positions of one segment (Kafka's OffsetIndex, `.index`).

An entry is 8 bytes: last offset of a batch, relative to the segment's base, and where that batch starts.
Kept as two arrays so that a look-up is one C bisect; the file is only written when the segment is rolled,
flushed or closed, because recovery can always make it again. Holds no open descriptor.
"""

import sys
from array import array
from bisect import bisect_left, bisect_right
from operator import lt
from typing import Final

from broker.log.files import read_if_exists, write_tail

ENTRY_SIZE: Final = 8


class OffsetIndex:
    __slots__ = ("base_offset", "offsets", "positions", "saved")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.offsets = array("I")
        self.positions = array("I")
        self.saved = 0
        """Entries known to be in the file."""

    def __len__(self) -> int:
        return len(self.positions)

    @classmethod
    def load(cls, path: str, base_offset: int, log_size: int) -> "OffsetIndex | None":
        """What the file holds, without the zeros Kafka leaves in an index it has not trimmed.

        None when it is missing or cannot be the index of a log of this size: rebuild it.
        """
        data = read_if_exists(path)
        if data is None:
            return None
        index = cls(base_offset)
        words = array("I")
        words.frombytes(data[: len(data) // ENTRY_SIZE * ENTRY_SIZE])
        _big_endian(words)
        offsets, positions = words[0::2], words[1::2]
        if positions and not positions[-1]:  # pre-sized: zeros after the last entry
            used = len(offsets)
            while used and not positions[used - 1]:
                used -= 1
            if not used and offsets[0]:
                used = 1  # the one entry of a segment may be its first batch
            del offsets[used:], positions[used:]
        if not (_rises(offsets) and _rises(positions)) or (positions and positions[-1] >= log_size):
            return None
        index.offsets, index.positions = offsets, positions
        index.saved = len(offsets)
        return index

    def append(self, last_offset: int, position: int) -> None:
        self.offsets.append(last_offset - self.base_offset)
        self.positions.append(position)

    def lookup(self, offset: int) -> int:
        """Position at or before the first batch that reaches `offset`."""
        at = bisect_right(self.offsets, offset - self.base_offset) if offset >= self.base_offset else 0
        return self.positions[at - 1] if at else 0

    def floor_position(self, position: int) -> int:
        """The last indexed batch start that is not after `position`."""
        at = bisect_right(self.positions, position)
        return self.positions[at - 1] if at else 0

    def truncate(self, log_size: int) -> None:
        """Forget batches that start at or after `log_size`."""
        keep = bisect_left(self.positions, log_size)
        del self.offsets[keep:], self.positions[keep:]
        if self.saved > keep:
            self.saved = -1  # the file has too much: write it anew

    def save(self, path: str) -> None:
        """Bring the file up to date; cheap when nothing is new."""
        count = min(len(self.offsets), len(self.positions))  # an append may come beside a flush
        if self.saved == count:
            return
        done = max(0, self.saved)
        words = array("I", bytes((count - done) * ENTRY_SIZE))
        words[0::2] = self.offsets[done:count]
        words[1::2] = self.positions[done:count]
        _big_endian(words)
        write_tail(path, words.tobytes(), done * ENTRY_SIZE)
        self.saved = count


def _big_endian(words: "array[int]") -> None:
    if sys.byteorder == "little":
        words.byteswap()


def _rises(values: "array[int]") -> bool:
    return all(map(lt, values, values[1:]))
