"""What the broker asks of the cleaner's process, and what comes back: one JSON text a line.

Plain data, the same on both sides. (Kafka's `LogToClean`, `CleanerStats`.)
"""

import dataclasses
import json
from dataclasses import dataclass
from typing import Final

BYTES_PER_KEY: Final = 36
"""What a key takes in the cleaner's map: 20 of an entry, and the rest while what waits is sorted in. Here,
because the broker works out `map_capacity` and must not pay for importing the map's arrays.
"""


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """A segment that may be cleaned, as it was when the job was made."""

    base_offset: int
    size: int
    next_base: int
    """Where the next segment starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Clean one partition. Offsets below `first_dirty` were compacted before; `segments` are all below the
    first offset that must not be cleaned.
    """

    directory: str
    segments: tuple[SegmentFile, ...]
    aborted_in: tuple[int, ...]
    """Base offsets of all segments, whose indexes of aborted transactions count."""
    first_dirty: int
    map_capacity: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    delete_retention_ms: int
    now_ms: int
    bytes_per_second: float
    """Of reading and writing together."""
    producers: dict[int, tuple[int, int]]
    """Active producers: epoch, and last offset of their data or -1."""

    def encode(self) -> bytes:
        return json.dumps(dataclasses.asdict(self)).encode() + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> "Job":
        fields = json.loads(line)
        fields["segments"] = tuple(SegmentFile(**each) for each in fields["segments"])
        fields["aborted_in"] = tuple(fields["aborted_in"])
        fields["producers"] = {int(k): (e, o) for k, (e, o) in fields["producers"].items()}
        return cls(**fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Bytes so far in this job."""

    read: int
    written: int
    map_filled: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCleaned:
    """`.cleaned` files with the name of the first of `bases` hold what is left of these segments."""

    bases: tuple[int, ...]
    size: int
    largest_timestamp: int
    largest_timestamp_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """All groups were cleaned; the log is compacted below `end`."""

    end: int
    read: int
    written: int
    records_read: int
    records_kept: int
    keyless: int
    """Records without a key that were dropped, as Kafka does."""
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The partition cannot be cleaned; nothing of it was changed since the last `GroupCleaned`."""

    message: str
    transient: bool = False
    """Not the partition's fault: try again later."""
    errno: int = 0
    """What the disk answered, where that is the reason."""


Event = Progress | GroupCleaned | Done | Failed
_EVENTS: dict[str, type[Event]] = {cls.__name__: cls for cls in (Progress, GroupCleaned, Done, Failed)}


def encode_event(event: Event) -> bytes:
    return json.dumps([type(event).__name__, dataclasses.asdict(event)]).encode() + b"\n"


def decode_event(line: bytes) -> Event:
    name, fields = json.loads(line)
    if "bases" in fields:
        fields["bases"] = tuple(fields["bases"])
    return _EVENTS[name](**fields)
