"""How each partition's batches go, and how far the copy is behind: what status and metrics say of it.

Owns the words for lanes and the lags in time. Lanes are chosen where batches are moved (`transfer.rewrite`,
`transfer.merge`) and by the settings (records are decoded for origin headers); here it is only told which.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from protocol.types import TopicPartition
from replicator.latency import Behind
from replicator.metrics import UNKNOWN, Lags, LinkMetrics, PartitionMetrics, known
from transfer.ledger import Copied

if TYPE_CHECKING:
    from replicator.book import Account

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
    lags: Lags = UNKNOWN
    """As last looked at."""
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

    def look(self, now: float, wall: float, account: Account) -> Lags:
        """Brings the lags up to date."""
        lag, size, entry = account.lag, account.lag_bytes, account.entry
        if lag is None or entry is None:
            self.lags = UNKNOWN
            return UNKNOWN
        seconds = self.behind.seconds(now, account.source_end, entry.ledger.next_source_offset)
        late = max(wall - self._last_timestamp / 1000, 0.0) if self._last_timestamp > 0 else math.nan
        self.lags = Lags(lag, math.nan if size is None else size, seconds, late if lag else 0.0)
        return self.lags

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
            "lag_seconds": known(self.lags.seconds),
            "lag_record_time_seconds": known(self.lags.record_seconds),
            "retries": self.retries,
        }


def observe(
    metrics: LinkMetrics, accounts: Iterable[Account], retries: Callable[[TopicPartition], int]
) -> None:
    """Brings the gauges of partitions up to date. `retries` of a partition of the target."""
    now, wall = time.monotonic(), time.time()
    lanes: Counter[str] = Counter()
    found: list[tuple[PartitionMetrics, Lags]] = []
    for account in accounts:
        way, series = account.way, account.metrics
        lanes[way.lane] += 1
        found.append((series, way.look(now, wall, account).heard(now - account.heard_at)))
        new = way.retried(retries(account.target))
        if new:
            series.retries.inc(new)
    metrics.behind(found)
    for lane in LANES:
        metrics.lanes.labels(metrics.name, lane).set(lanes[lane])
    metrics.observe()
