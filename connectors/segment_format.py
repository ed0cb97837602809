"""Format `segment`: the batches exactly as the source cluster stores them, one behind the other.

Owns encoding, the sparse index beside each object, and cutting what was read back into whole batches. An
object is a valid piece of a Kafka log: producer ids, leader epochs, compression and timestamps stay.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from dataclasses import dataclass

from connectors.errors import DamagedBackup
from connectors.formats import StoredBatch
from protocol.records.header import iter_headers
from protocol.types import Buffer

SUFFIX = "segment"
INDEX_SUFFIX = "index"
INDEX_INTERVAL_BYTES = 64 * 1024


class SegmentEncoder:
    """Copies nothing: what it returns are views of what it was given."""

    def __init__(self) -> None:
        self._position = 0
        self._indexed_to = 0
        self._entries: list[tuple[int, int, int]] = []
        self._max_timestamp = -1

    def add(self, batch: StoredBatch) -> Buffer:
        header = batch.header
        if not self._entries or self._position - self._indexed_to >= INDEX_INTERVAL_BYTES:
            self._entries.append((header.base_offset, self._position, self._max_timestamp))
            self._indexed_to = self._position
        self._position += header.size
        self._max_timestamp = max(self._max_timestamp, header.max_timestamp)
        return batch.view

    def finish(self) -> Buffer:
        return b""

    def index(self) -> bytes:
        fields = ["offset", "position", "max_timestamp_before"]
        return json.dumps({"version": 1, "fields": fields, "entries": self._entries}).encode()


@dataclass(frozen=True, slots=True)
class SegmentIndex:
    """Where to begin reading an object."""

    offsets: list[int]
    positions: list[int]

    @classmethod
    def decode(cls, data: bytes, where: str) -> SegmentIndex:
        try:
            stored = json.loads(data)
            if stored["version"] != 1:
                raise DamagedBackup(f"{where}: index version {stored['version']}; this code reads 1")
            entries = stored["entries"]
            return cls([int(entry[0]) for entry in entries], [int(entry[1]) for entry in entries])
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise DamagedBackup(f"{where}: not an index: {error!r}") from error

    def position(self, offset: int) -> int:
        """Where the batch that holds `offset` begins, or one before it."""
        at = bisect_right(self.offsets, offset) - 1
        return self.positions[at] if at >= 0 else 0


class BatchCutter:
    """Puts ranges of an object together and hands out whole batches."""

    def __init__(self) -> None:
        self._rest: Buffer = b""

    def feed(self, data: bytes) -> tuple[memoryview, int]:
        """All batches that are complete now, and the offset behind them; (empty, -1) while there are none."""
        joined = memoryview(bytes(self._rest) + data) if self._rest else memoryview(data)
        end, next_offset = 0, -1
        for pos, header in iter_headers(joined):
            end, next_offset = pos + header.size, header.next_offset
        self._rest = bytes(joined[end:])
        return joined[:end], next_offset

    @property
    def left(self) -> int:
        """Bytes of a batch that is not complete."""
        return len(self._rest)
