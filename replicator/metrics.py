"""The metrics of one link, in a registry that the process hands in.

Owns their values, and how many series there may be: partitions beyond `metrics_max_series` share those of
the partition "other" of the topic "other" (sums; of seconds the greatest). Which there are is in
`metric_table`, percentiles of latencies are `latency_series`'s. Latency is the time from a record's own
timestamp to its acknowledgement at the target; it is only observed where that can be true (not older than an
hour and not from the future), because old or wrong record times would make it a lie.
"""

from __future__ import annotations

import time
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from protocol.types import TopicPartition
from replicator.latency_series import LatencySeries, in_json
from replicator.metric_table import LATENCIES, LATENCY_BUCKETS, MAX_SERIES, METRICS, OTHER, PARTITION, Metric
from transfer.ledger import Copied

_SANE_LATENCY_S = 3600.0


_OF_PARTITIONS: Final = tuple(metric.name for metric in METRICS if metric.labels == PARTITION)


class _Share:
    """A partition's part of a sum."""

    def __init__(self, total: Gauge) -> None:
        self._total = total
        self._value = 0.0

    def set(self, value: float) -> None:
        self._total.inc(value - self._value)
        self._value = value


class PartitionMetrics:
    """Resolved series of one partition, so that the way of each chunk looks nothing up."""

    def __init__(self, link: LinkMetrics, tp: TopicPartition, *, own: bool = True) -> None:
        """`own`: it has series of its own; else it adds to those of the others."""
        self.own = own
        self.labels = (link.name, tp.topic, str(tp.partition)) if own else (link.name, OTHER, OTHER)

        def gauge(name: str) -> Gauge | _Share:
            child = link.gauge(name).labels(*self.labels)
            return child if own else _Share(child)

        self.tp = tp
        self._latencies = link.latencies
        self.records = link.counter("records").labels(*self.labels)
        self.bytes = link.counter("bytes").labels(*self.labels)
        self.left_out = link.counter("left_out_records").labels(*self.labels)
        self.retries = link.counter("retries").labels(*self.labels)
        self.lag = gauge("lag_records")
        self.lag_bytes = gauge("lag_bytes")
        self.gap_offsets = gauge("gap_offsets")
        self.lost_offsets = gauge("lost_offsets")
        self.seconds = link.gauge("lag_seconds").labels(*self.labels)
        self.record_seconds = link.gauge("lag_record_time_seconds").labels(*self.labels)

    @property
    def latency(self) -> dict[str, float] | None:
        """Percentiles of the last minutes in seconds; None without records in them."""
        found = self._latencies.of(self.tp)
        return in_json(found) if found is not None else None


class LinkMetrics:
    """All series of a link, at most `max_series` of them for single partitions."""

    def __init__(self, name: str, registry: CollectorRegistry, max_series: int = MAX_SERIES) -> None:
        self.name = name
        self._families = {
            metric.name: _family(metric, registry) for metric in METRICS if metric not in LATENCIES
        }
        self.latencies = LatencySeries(name, max_series // 10, time.monotonic())
        registry.register(self.latencies)
        self._room = max_series // len(_OF_PARTITIONS)
        self._own = 0
        """Partitions with series of their own."""
        self._partitions: dict[TopicPartition, PartitionMetrics] = {}
        self.gaps = self.counter("gaps")
        self.disorders = self.counter("disorders").labels(name)
        self.partitions = self.gauge("partitions")
        self.lanes = self.gauge("lane_partitions")
        self.cluster_up = self.gauge("cluster_up")
        self.errors = self.counter("errors")
        self.recognised = self.counter("recognised_records").labels(name)
        self.unrecognised = self.counter("unrecognised_batches").labels(name)
        self.progress_age = self.gauge("progress_age_seconds").labels(name)
        self.groups = self.gauge("groups")
        histogram = self._families["latency_seconds"]
        assert isinstance(histogram, Histogram)
        self._latency = histogram.labels(name)

    def counter(self, name: str) -> Counter:
        """The family of a counter."""
        family = self._families[name]
        assert isinstance(family, Counter)
        return family

    def gauge(self, name: str) -> Gauge:
        """The family of a gauge."""
        family = self._families[name]
        assert isinstance(family, Gauge)
        return family

    def of(self, tp: TopicPartition) -> PartitionMetrics:
        """The series of a partition: its own while there is room."""
        found = self._partitions.get(tp)
        if found is None:
            own = self._own < self._room
            self._own += own
            found = self._partitions[tp] = PartitionMetrics(self, tp, own=own)
        return found

    def drop(self, tp: TopicPartition) -> None:
        """What is another worker's now is told by that one; what was counted here stays counted."""
        series = self._partitions.pop(tp, None)
        if series is None:
            return
        self.latencies.drop(tp)
        for gauge in (series.lag, series.lag_bytes, series.gap_offsets, series.lost_offsets):
            gauge.set(0)
        if series.own:
            self._own -= 1
            for metric in METRICS:
                if metric.labels == PARTITION and metric.kind is Gauge:
                    self.gauge(metric.name).remove(*series.labels)

    def copied(self, partition: PartitionMetrics, copied: Copied) -> None:
        """Counts an acknowledged write."""
        partition.records.inc(copied.records)
        partition.bytes.inc(copied.bytes)
        if copied.left_out:
            partition.left_out.inc(copied.left_out)
        self.late(partition, copied.last_timestamp, copied.records)

    def late(self, partition: PartitionMetrics, timestamp_ms: int, records: int) -> None:
        """So many records, the newest of that time, are at the target now."""
        if timestamp_ms > 0:
            latency = time.time() - timestamp_ms / 1000
            if 0 <= latency <= _SANE_LATENCY_S:
                self._latency.observe(latency)
                self.latencies.add(partition.tp, latency, records)

    def transaction(self, *, committed: bool) -> None:
        """Counts one that has ended."""
        self.counter("transactions").labels(self.name, "committed" if committed else "aborted").inc()
        if committed:
            self.gauge("last_commit_timestamp_seconds").labels(self.name).set_to_current_time()

    def checkpointed(self) -> None:
        """Checkpoints are written, or there was nothing new to write."""
        self.gauge("last_checkpoint_timestamp_seconds").labels(self.name).set_to_current_time()

    def others_behind(self, seconds: float, record_seconds: float) -> None:
        """The greatest lags of the partitions without series of their own."""
        for name, value in (("lag_seconds", seconds), ("lag_record_time_seconds", record_seconds)):
            self.gauge(name).labels(self.name, OTHER, OTHER).set(value)

    def observe(self) -> None:
        """Lets go of latencies that are too old."""
        self.latencies.turn(time.monotonic())


def _family(metric: Metric, registry: CollectorRegistry) -> Counter | Gauge | Histogram:
    name = f"isthmus_link_{metric.name}"
    if metric.kind is Histogram:
        return Histogram(name, metric.text, metric.labels, buckets=LATENCY_BUCKETS, registry=registry)
    if metric.kind is Counter:
        return Counter(name, metric.text, metric.labels, registry=registry)
    return Gauge(name, metric.text, metric.labels, registry=registry)
