"""Sparse map from timestamps to offsets of one segment (Kafka's TimeIndex, `.timeindex`).

An entry is 12 bytes: the largest timestamp so far and the last offset, relative to the segment's base, of
the batch that has it. Timestamps rise strictly from entry to entry. Kept in file form, because look-ups by
time are rare. The last entry of a closed segment is its largest timestamp, which retention goes by.
"""

import os
from bisect import bisect_right
from struct import Struct
from typing import Final

from broker.log.files import read_if_exists, write_tail

ENTRY: Final = Struct(">qI")
ENTRY_SIZE: Final = 12
NO_TIMESTAMP: Final = -1


def read_last(path: str, base_offset: int) -> tuple[int, int] | None:
    """(timestamp, offset) of the last entry without loading the rest; None where only `TimeIndex.load` can
    tell.
    """
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - ENTRY_SIZE))
            data = file.read(ENTRY_SIZE)
    except FileNotFoundError:
        return None
    if size % ENTRY_SIZE or not any(data):
        return None
    timestamp, relative = ENTRY.unpack(data)
    return timestamp, relative + base_offset


class TimeIndex:
    __slots__ = ("_newest", "base_offset", "entries", "saved")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self.entries = bytearray()
        self.saved = 0
        """Bytes known to be in the file."""
        self._newest = NO_TIMESTAMP
        """Timestamp of the last entry."""

    def __len__(self) -> int:
        return len(self.entries) // ENTRY_SIZE

    @classmethod
    def load(cls, path: str, base_offset: int) -> "TimeIndex | None":
        """What the file holds, without trailing zeros; None when it is missing or out of order."""
        data = read_if_exists(path)
        if data is None:
            return None
        index = cls(base_offset)
        end = len(data) // ENTRY_SIZE * ENTRY_SIZE
        if data[max(0, end - ENTRY_SIZE) : end] == bytes(ENTRY_SIZE):
            end = -(-len(data[:end].rstrip(b"\0")) // ENTRY_SIZE) * ENTRY_SIZE
        index.entries += data[:end]
        previous = (NO_TIMESTAMP, -1)
        for entry in ENTRY.iter_unpack(index.entries):
            if entry[0] <= previous[0] or entry[1] < previous[1]:
                return None
            previous = entry
        index.saved = end
        index._newest = previous[0]
        return index

    def last(self) -> tuple[int, int]:
        """(timestamp, offset) of the newest entry; (-1, base offset) when there is none."""
        if not self.entries:
            return NO_TIMESTAMP, self.base_offset
        timestamp, relative = ENTRY.unpack_from(self.entries, len(self.entries) - ENTRY_SIZE)
        return timestamp, relative + self.base_offset

    def append(self, timestamp: int, offset: int) -> None:
        """Note the largest timestamp so far; nothing happens when it is not larger than the last entry's."""
        if timestamp > self._newest:
            self.entries += ENTRY.pack(timestamp, offset - self.base_offset)
            self._newest = timestamp

    def lookup(self, timestamp: int) -> int:
        """An offset at or before the first batch whose largest timestamp reaches `timestamp`."""
        entries = self.entries
        at = bisect_right(
            range(len(self)), timestamp, key=lambda i: int(ENTRY.unpack_from(entries, i * ENTRY_SIZE)[0])
        )
        return self.base_offset + (ENTRY.unpack_from(entries, (at - 1) * ENTRY_SIZE)[1] if at else 0)

    def truncate(self, end_offset: int) -> None:
        """Forget entries at or after `end_offset`."""
        entries = self.entries
        relative = end_offset - self.base_offset
        keep = len(entries)
        while keep and ENTRY.unpack_from(entries, keep - ENTRY_SIZE)[1] >= relative:
            keep -= ENTRY_SIZE
        if keep < len(entries):
            del entries[keep:]
            self._newest = self.last()[0]
            if self.saved > keep:
                self.saved = -1

    def save(self, path: str) -> None:
        """Bring the file up to date; cheap when nothing is new."""
        end = len(self.entries)  # an append may come beside a flush
        if self.saved != end:
            self.saved = write_tail(path, bytes(self.entries[max(0, self.saved) : end]), max(0, self.saved))
