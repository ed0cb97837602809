"""Which of the oldest segments may go: by time, by size, or because the log start has moved past them.

Pure decisions over sizes and timestamps (Kafka's `deleteRetentionMsBreachedSegments` and its siblings).
Time retention goes by a segment's largest record timestamp, so one record from the future keeps its
segment, and all behind it, alive; `held_by_future` finds that case for the operator.
"""

from collections.abc import Sequence
from itertools import takewhile
from typing import Final, Protocol

from broker.log.config import LogConfig

_ORDINARY_SKEW_MS: Final = 3_600_000
"""Clocks may be off by this much without anybody being told; Kafka's default limit for producers."""


class Measured(Protocol):
    base_offset: int
    size: int

    @property
    def largest_timestamp(self) -> int: ...


def expired_count(
    segments: Sequence[Measured],
    config: LogConfig,
    now_ms: int,
    *,
    start_offset: int,
    end_offset: int,
    limit: int,
) -> int:
    """How many of the oldest segments may go; none that reaches past `limit`, the high watermark.

    First what lies below the log start, then of the rest what is too much, then what is too old: a segment
    that time cannot delete does not protect others once the log start has passed it. A mirror follows its
    source's log start and nothing else: once the source is lost it may be the only copy.
    """
    ends = [segment.base_offset for segment in segments[1:]] + [end_offset]
    below = list(takewhile(lambda pair: pair[1] <= limit, zip(segments, ends, strict=True)))
    count = sum(1 for _ in takewhile(lambda pair: pair[1] <= start_offset, below[: len(segments) - 1]))
    if not config.deletes or config.is_mirror:
        return count
    count += _by_size([segment for segment, _ in below[count:]], segments[count:], config)
    return count + _by_time([segment for segment, _ in below[count:]], config, now_ms)


def _by_size(below: Sequence[Measured], left: Sequence[Measured], config: LogConfig) -> int:
    if config.retention_bytes < 0:
        return 0
    excess = sum(segment.size for segment in left) - config.retention_bytes
    count = 0
    for segment in below:
        excess -= segment.size
        if excess < 0 or not segment.size:
            break
        count += 1
    return count


def _by_time(below: Sequence[Measured], config: LogConfig, now_ms: int) -> int:
    if config.retention_ms < 0:
        return 0
    oldest = now_ms - config.retention_ms
    return sum(
        1 for _ in takewhile(lambda segment: segment.size and segment.largest_timestamp < oldest, below)
    )


def held_by_future(segments: Sequence[Measured], config: LogConfig, now_ms: int) -> Measured | None:
    """The oldest segment when a timestamp from the future, let in by the topic's settings, keeps it from
    ageing.
    """
    if not config.deletes or config.retention_ms < 0 or len(segments) < 2:
        return None
    ahead = min(config.message_timestamp_after_max_ms, _ORDINARY_SKEW_MS)
    return segments[0] if segments[0].largest_timestamp > now_ms + ahead else None
