"""How much may be on the way in all: memory does not grow with the number of partitions.

Owns the bound and how it is shared: each target broker has its part, so that one that hangs holds up what it
leads, and not all that the link copies (I10). A fetch that is under way comes on top. Plain state.
"""

from __future__ import annotations


class Room:
    """`limit` in bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._queued: dict[int, int] = {}

    def holds(self, node: int, size: int) -> None:
        """So many bytes are queued for a partition that `node` leads at the target."""
        self._queued[node] = self._queued.get(node, 0) + size

    def is_full(self, node: int) -> bool:
        """Whether nothing more should be fetched for partitions that `node` leads."""
        return self._queued.get(node, 0) >= self._limit // max(len(self._queued), 1)


def alone(records: memoryview) -> memoryview:
    """The same bytes; a small part of an answer is copied, as it would keep all of it in memory."""
    whole = memoryview(records.obj).nbytes
    return records if 2 * records.nbytes >= whole else memoryview(bytes(records))
