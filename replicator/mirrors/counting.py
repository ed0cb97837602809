"""What the metrics say of mirrors with identical offsets, brought up to date each second.

Owns turning the state of partitions into series; how many series there may be is `replicator.metrics`'s.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from protocol.types import TopicPartition
from replicator.acknowledgements import Kind
from replicator.latency import Behind
from replicator.latency_series import in_json
from replicator.metrics import UNKNOWN, Lags, LinkMetrics, PartitionMetrics
from replicator.mirrors.on_record import OnRecord
from replicator.mirrors.partition import MirrorPartition, Piece, State
from replicator.troubles import now_ms


@dataclass(slots=True)
class _Counted:
    """What the counters have of a partition already. A topic that leaves and comes back is another `part`."""

    part: MirrorPartition
    records: int = 0
    bytes: int = 0
    gaps: int = 0
    behind: Behind = field(default_factory=Behind)
    newest_ms: int = -1
    lags: Lags = UNKNOWN


class Counting:
    """Of one link."""

    def __init__(self, metrics: LinkMetrics, record: OnRecord) -> None:
        self._metrics = metrics
        self._record = record
        self._counted: dict[TopicPartition, _Counted] = {}
        self._began_ms = now_ms()

    def copied(self, part: MirrorPartition, piece: Piece) -> None:
        """All in-sync replicas at the target have it now."""
        if piece.records is not None:
            counted = self._counted_of(part)  # so that its series go with it
            counted.newest_ms = piece.newest_ms if piece.newest_ms > 0 else counted.newest_ms
            self._metrics.late(self._metrics.of(part.tp), piece.newest_ms, piece.next_offset - piece.offset)

    def lags(self, part: MirrorPartition) -> Lags:
        """As last looked at."""
        counted = self._counted.get(part.tp)
        return counted.lags if counted is not None and counted.part is part else UNKNOWN

    def latency(self, tp: TopicPartition) -> dict[str, float] | None:
        """Percentiles of the last minutes in seconds; None without records in them."""
        found = self._metrics.latencies.of(tp)
        return in_json(found) if found is not None else None

    def topic_latencies(self) -> dict[str, dict[int, int]]:
        """Records by topic and bucket."""
        return self._metrics.latencies.topics()

    def look(self, partitions: Mapping[TopicPartition, MirrorPartition]) -> None:
        """Partitions that are gone since the last look have no series any more."""
        for tp in self._counted.keys() - partitions.keys():
            del self._counted[tp]
            self._metrics.drop(tp)
        now, wall = time.monotonic(), time.time()
        self._metrics.behind([self._one(tp, part, now, wall) for tp, part in partitions.items()])
        self._metrics.observe()
        states = Counter(part.state for part in partitions.values())
        for state in State:
            self._metrics.partitions.labels(self._metrics.name, state).set(states[state])

    def _one(
        self, tp: TopicPartition, part: MirrorPartition, now: float, wall: float
    ) -> tuple[PartitionMetrics, Lags]:
        """Its series, and what is to be said there of its lags."""
        series, counted = self._metrics.of(tp), self._counted_of(part)
        series.records.inc(part.records - counted.records)
        series.bytes.inc(part.bytes - counted.bytes)
        counted.records, counted.bytes = part.records, part.bytes
        gaps = [each for each in self._record.of(tp) if each.kind is Kind.GAP]
        series.gap_offsets.set(sum(gap.end - gap.start for gap in gaps))
        for gap in gaps[counted.gaps :]:
            if gap.at_ms >= self._began_ms:  # else an earlier process has found it
                self._metrics.gaps.labels(self._metrics.name, gap.reason).inc()
        counted.gaps = len(gaps)
        counted.lags = _lags(counted, now, wall)
        return series, counted.lags.heard(wall - part.heard_ms / 1000)

    def _counted_of(self, part: MirrorPartition) -> _Counted:
        found = self._counted.get(part.tp)
        if found is None or found.part is not part:
            gaps = found.gaps if found is not None else 0
            found = self._counted[part.tp] = _Counted(part, gaps=gaps)
        return found


def _lags(counted: _Counted, now: float, wall: float) -> Lags:
    part = counted.part
    if part.source_end < 0:
        return UNKNOWN
    seconds = counted.behind.seconds(now, part.source_end, part.end)
    if not part.lag:
        return Lags(0, 0, seconds, 0)
    size = part.lag * part.bytes // part.records if part.records else math.nan
    late = max(wall - counted.newest_ms / 1000, 0.0) if counted.newest_ms > 0 else math.nan
    return Lags(part.lag, size, seconds, late)
