"""What to clean: how far a log may be cleaned, which log needs it most, which segments are merged.

Pure decisions over segments and settings (Kafka's LogCleanerManager and `Cleaner.groupSegmentsBySize`).
Must not touch files.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple, Protocol

from broker.log.cleaner.job import SegmentFile
from broker.log.config import NO_LIMIT_MS, LogConfig
from broker.log.offset_index import ENTRY_SIZE as OFFSET_ENTRY
from broker.log.segment_view import MAX_RELATIVE_OFFSET
from broker.log.time_index import ENTRY_SIZE as TIME_ENTRY

MOST_MERGED: Final = 256
"""Segments that become one at once: the swap renames the files of all of them without a pause."""


class Dated(Protocol):
    base_offset: int
    size: int

    @property
    def largest_timestamp(self) -> int: ...
    @property
    def earliest_timestamp(self) -> int: ...


class Dirt(NamedTuple):
    """How much of a log is not compacted. `cleanable` bytes lie in `first_dirty..first_uncleanable`."""

    first_dirty: int
    first_uncleanable: int
    clean_bytes: int
    cleanable_bytes: int
    overdue_ms: int
    """For how long its oldest uncompacted record has been waiting past max.compaction.lag.ms."""

    @property
    def ratio(self) -> float:
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    def due(self, config: LogConfig) -> bool:
        return self.cleanable_bytes > 0 and (
            self.overdue_ms > 0 or self.ratio > config.min_cleanable_dirty_ratio
        )


def dirt(
    segments: Sequence[Dated],
    config: LogConfig,
    now_ms: int,
    *,
    checkpoint: int | None,
    start_offset: int,
    end_offset: int,
    stable_offset: int,
) -> Dirt:
    """`checkpoint` is up to where the log was compacted; one that is not in the log counts as none."""
    first_dirty = start_offset if checkpoint is None else checkpoint
    if not start_offset <= first_dirty <= end_offset:
        first_dirty = start_offset
    dirty = [segment for segment, behind in pairwise(segments) if behind.base_offset > first_dirty]
    limit = min(stable_offset, segments[-1].base_offset)
    if config.min_compaction_lag_ms > 0:
        young = now_ms - config.min_compaction_lag_ms
        limit = min([limit, *(each.base_offset for each in dirty if each.largest_timestamp > young)])
    limit = max(limit, first_dirty)
    whole = [(each, behind.base_offset) for each, behind in pairwise(segments) if behind.base_offset <= limit]
    cleanable = sum(each.size for each, end in whole if end > first_dirty)
    clean = sum(each.size for each, end in whole if end <= first_dirty)
    return Dirt(first_dirty, limit, clean, cleanable, _overdue(dirty, config, now_ms))


def _overdue(dirty: Sequence[Dated], config: LogConfig, now_ms: int) -> int:
    if config.max_compaction_lag_ms >= NO_LIMIT_MS or not dirty:
        return 0
    earliest = min((each.earliest_timestamp for each in dirty if each.earliest_timestamp > 0), default=now_ms)
    return max(0, now_ms - config.max_compaction_lag_ms - earliest)


def groups(
    segments: Sequence[SegmentFile], *, max_bytes: int, max_index_bytes: int, index_interval: int
) -> Iterator[tuple[SegmentFile, ...]]:
    """Neighbours whose remains fit one segment even if nothing is dropped."""
    group: list[SegmentFile] = []
    size = index = 0
    for segment in segments:
        entries = segment.size // (index_interval + 1) + 2
        added = entries * max(OFFSET_ENTRY, TIME_ENTRY)
        if group and (
            size + segment.size > max_bytes
            or index + added > max_index_bytes
            or segment.next_base - 1 - group[0].base_offset > MAX_RELATIVE_OFFSET
            or len(group) >= MOST_MERGED
        ):
            yield tuple(group)
            group, size, index = [], 0, 0
        group.append(segment)
        size += segment.size
        index += added
    if group:
        yield tuple(group)
