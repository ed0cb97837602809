"""How each partition's batches go, and how far the copy is behind: what status and metrics say of it.

Owns the words for lanes and the lags in time. Lanes are chosen where batches are moved (`transfer.rewrite`,
`transfer.merge`) and by the settings (records are decoded for origin headers); here it is only told which.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from protocol.types import TopicPartition
from replicator.latency import Behind
from transfer.ledger import Copied

if TYPE_CHECKING:
    from replicator.book import Account
    from replicator.metrics import LinkMetrics

RAW: Final = "raw"
MERGE: Final = "merge"
RECORDS: Final = "records"
LANES: Final = (RAW, MERGE, RECORDS)


@dataclass(slots=True)
class Way:
    """Of one partition. `records` says why each record is decoded, if it is."""

    records: str = ""
    lane: str = RAW
    reason: str = ""
    seconds: float = 0.0
    """Since when the first record that is not copied has been at the source, as far as the link knows."""
    record_seconds: float = 0.0
    """Age of the last copied record while there are more."""
    retries: int = 0
    behind: Behind = field(default_factory=Behind)
    _last_timestamp: int = -1
    _retries_told: int = 0

    def __post_init__(self) -> None:
        if self.records:
            self.lane, self.reason = RECORDS, self.records

    def copied(self, copied: Copied) -> None:
        """A write was acknowledged."""
        if copied.last_timestamp >= 0:
            self._last_timestamp = copied.last_timestamp
        if self.records or not copied.written:
            return
        if copied.written < len(copied.crcs):
            self.lane = MERGE
            self.reason = f"small batches: the last {len(copied.crcs)} became {copied.written}"
        else:
            self.lane, self.reason = RAW, ""

    def look(self, now: float, wall: float, end: int, position: int) -> None:
        """Brings the lags up to date."""
        self.seconds = self.behind.seconds(now, end, position)
        late = end > position and self._last_timestamp > 0
        self.record_seconds = max(wall - self._last_timestamp / 1000, 0.0) if late else 0.0

    def retried(self, retries: int) -> int:
        """How many more there are than at the last call; a writer that was opened anew counts from 0."""
        new = retries - self._retries_told if retries >= self._retries_told else retries
        self._retries_told = retries
        self.retries += new
        return new

    def to_json(self) -> dict[str, Any]:
        """For the status."""
        return {
            "lane": self.lane,
            "lane_reason": self.reason,
            "lag_seconds": round(self.seconds, 3),
            "lag_record_time_seconds": round(self.record_seconds, 3),
            "retries": self.retries,
        }


def observe(
    metrics: LinkMetrics, accounts: Iterable[Account], retries: Callable[[TopicPartition], int]
) -> None:
    """Brings the gauges of partitions up to date. `retries` of a partition of the target."""
    now, wall = time.monotonic(), time.time()
    lanes: Counter[str] = Counter()
    seconds = record_seconds = 0.0
    for account in accounts:
        way, series = account.way, account.metrics
        lanes[way.lane] += 1
        series.lag.set(account.lag)
        series.lag_bytes.set(account.lag_bytes)
        if account.entry is not None:
            way.look(now, wall, account.source_end, account.entry.ledger.next_source_offset)
        if series.own:
            series.seconds.set(way.seconds)
            series.record_seconds.set(way.record_seconds)
        else:
            seconds = max(seconds, way.seconds)
            record_seconds = max(record_seconds, way.record_seconds)
        new = way.retried(retries(account.target))
        if new:
            series.retries.inc(new)
    metrics.others_behind(seconds, record_seconds)
    for lane in LANES:
        metrics.lanes.labels(metrics.name, lane).set(lanes[lane])
    metrics.observe()
