"""Gauges of the log cleaner under the names that the Kafka JMX exporter's users know; read at scrape time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from broker.log.cleaner.statistics import CleanerStatistics

if TYPE_CHECKING:
    from broker.server.metrics import BrokerMetrics

Samples = Iterator[tuple[tuple[str, ...], float]]
Value = Callable[[CleanerStatistics], float]

_CLEANER: Final = "kafka_log_logcleaner"
_MANAGER: Final = "kafka_log_logcleanermanager"
_GAUGES: Final[tuple[tuple[str, str, Value], ...]] = (
    (f"{_CLEANER}_cleaner_recopy_percent", "Written of read by the last cleaning, in percent",
     lambda of: of.recopy_percent),
    (f"{_CLEANER}_max_clean_time_secs", "Seconds that the last cleaning took", lambda of: of.last_seconds),
    (f"{_CLEANER}_max_buffer_utilization_percent", "How full the last cleaning's map of keys was",
     lambda of: of.map_filled_percent),
    (f"{_CLEANER}_max_compaction_delay_secs", "Longest wait past max.compaction.lag.ms",
     lambda of: of.max_delay_ms / 1000),
    (f"{_MANAGER}_max_dirty_percent", "Share of the dirtiest compacted log that is not compacted",
     lambda of: of.max_dirty_percent),
    (f"{_MANAGER}_time_since_last_run_ms", "Since logs were last looked through for some to clean",
     lambda of: of.idle_ms),
)  # fmt: skip
_COUNTERS: Final[tuple[tuple[str, str, Value], ...]] = (
    ("isthmus_log_cleaner_runs", "Partitions cleaned", lambda of: of.runs),
    ("isthmus_log_cleaner_failures", "Cleanings that failed", lambda of: of.failures),
    ("isthmus_log_cleaner_read_bytes", "Bytes read by cleanings", lambda of: of.read),
    ("isthmus_log_cleaner_written_bytes", "Bytes kept by cleanings", lambda of: of.written),
)


def add_cleaner_metrics(metrics: BrokerMetrics, statistics: CleanerStatistics) -> None:
    for name, text, value in _GAUGES:
        metrics.gauge(name, text, (), partial(_single, statistics, value))
    for name, text, value in _COUNTERS:
        metrics.counter(name, text, (), partial(_single, statistics, value))
    for name, text, at in (
        (f"{_MANAGER}_uncleanable_partitions_count", "Partitions that cannot be compacted", 0),
        (f"{_MANAGER}_uncleanable_bytes", "Bytes of these", 1),
    ):
        metrics.gauge(name, text, ("logDirectory",), partial(_by_directory, statistics, at))
    for name, text, attribute in (
        ("isthmus_log_cleaner_running_read_bytes", "Bytes read by the cleaning that runs", "read"),
        ("isthmus_log_cleaner_running_to_read_bytes", "Bytes that it has to read in all", "to_read"),
    ):
        metrics.gauge(name, text, ("topic", "partition"), partial(_by_partition, statistics, attribute))


def _single(statistics: CleanerStatistics, value: Value) -> Samples:
    yield (), float(value(statistics))


def _by_directory(statistics: CleanerStatistics, at: int) -> Samples:
    for path, numbers in statistics.uncleanable.items():
        yield (path,), numbers[at]


def _by_partition(statistics: CleanerStatistics, attribute: str) -> Samples:
    for tp, running in list(statistics.running.items()):
        yield (tp.topic, str(tp.partition)), getattr(running, attribute)
