"""What a backup format must offer, and what is counted of every object whatever its format.

Owns the vocabulary between the sink (which cuts ranges into objects) and the encoders. Encoders are plain
state: batches in, bytes out; they must not know S3 or offsets of other objects.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from protocol.records.header import DELETE_HORIZON, BatchHeader
from protocol.records.reading import read_records
from protocol.types import Buffer


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """One data batch of a chunk, at `pos` of `data`; records before `first_offset` are not wanted."""

    data: memoryview
    pos: int
    header: BatchHeader
    first_offset: int

    @property
    def view(self) -> memoryview:
        return self.data[self.pos : self.pos + self.header.size]

    def count(self) -> int:
        """Records that are wanted; decodes only where the first ones are not."""
        if self.header.base_offset >= self.first_offset:
            return self.header.record_count
        wanted = read_records(self.data, self.pos, self.header)
        return sum(record.offset >= self.first_offset for record in wanted)


class Encoder(Protocol):
    """Turns the batches of one object into its bytes."""

    def add(self, batch: StoredBatch) -> Buffer:
        """The bytes to append for `batch`; may be empty while the encoder gathers."""

    def finish(self) -> Buffer:
        """The last bytes of the object."""

    def index(self) -> bytes | None:
        """The object's index, written beside it, if the format has one."""


@dataclass(slots=True)
class ObjectFacts:
    """Counts and ranges of one object while it is written."""

    records: int = 0
    batches: int = 0
    first_offset: int = -1
    last_offset: int = -1
    first_timestamp: int = -1
    max_timestamp: int = -1
    max_batch_bytes: int = 0

    def add(self, batch: StoredBatch, records: int) -> None:
        header = batch.header
        if not self.batches:
            self.first_offset = max(header.base_offset, batch.first_offset)
            self.first_timestamp = first_timestamp(header)
        self.records += records
        self.batches += 1
        self.last_offset = header.last_offset
        self.max_timestamp = max(self.max_timestamp, header.max_timestamp)
        self.max_batch_bytes = max(self.max_batch_bytes, header.size)


def first_timestamp(header: BatchHeader) -> int:
    """Timestamp (ms) near the beginning of the batch, from the header alone."""
    if header.timestamp_type or header.attributes & DELETE_HORIZON:
        return header.max_timestamp
    return header.base_timestamp
