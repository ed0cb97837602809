"""Finding offsets by time, exact to the record (ListOffsets with a timestamp, and -3 for the largest;
KIP-734).

A time index leads to a batch whose header says that it reaches the time; only that one batch is decoded.
With LogAppendTime all records of a batch have one time, so the first record is the answer.
"""

from collections.abc import Iterable
from typing import NamedTuple

from broker.log.errors import CorruptLog
from broker.log.segment import Segment
from broker.log.time_index import NO_TIMESTAMP
from protocol.errors import DecodeError
from protocol.records import BatchHeader, read_records


class FoundOffset(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


def first_at_or_after(segments: Iterable[Segment], timestamp: int, start_offset: int) -> FoundOffset | None:
    """First record from `start_offset` on whose timestamp is `timestamp` or later."""
    for segment in segments:
        if segment.largest_timestamp < timestamp:
            continue
        begin = max(segment.time_index.lookup(timestamp), start_offset)
        for position, header in segment.batches_from(begin):
            if header.max_timestamp >= timestamp:
                found = _record_in(segment, position, header, timestamp, start_offset)
                if found is not None:
                    return found
    return None


def latest(segments: Iterable[Segment], start_offset: int) -> FoundOffset | None:
    """First of the records that have the largest timestamp of all; None when the log holds none."""
    best: Segment | None = None
    for segment in segments:
        if segment.size and (best is None or segment.largest_timestamp > best.largest_timestamp):
            best = segment
    if best is None or best.max_timestamp == NO_TIMESTAMP:
        return None
    for position, header in best.batches_from(max(best.max_timestamp_offset, start_offset)):
        found = _record_in(best, position, header, header.max_timestamp, start_offset)
        if found is not None:
            return found
    return None


def _record_in(
    segment: Segment, position: int, header: BatchHeader, timestamp: int, start_offset: int
) -> FoundOffset | None:
    batch = segment.file.read(position, header.size)
    try:
        for record in read_records(batch, 0, header):
            if record.timestamp >= timestamp and record.offset >= start_offset:
                return FoundOffset(record.timestamp, record.offset, header.leader_epoch)
    except DecodeError as error:
        raise CorruptLog(f"{segment.path('log')} at byte {position}: {error}") from None
    return None
