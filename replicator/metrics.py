"""The metrics of one link, in a registry that the process hands in.

Owns their values, and how many series there may be: partitions beyond `metrics_max_series` share those of
the partition "other" of the topic "other" (sums; of seconds the greatest). Which there are is in
`metric_table`, percentiles of latencies are `latency_series`'s. Latency is the time from a record's own
timestamp to its acknowledgement at the target; it is only observed where that can be true (not older than an
hour and not from the future), because old or wrong record times would make it a lie.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from protocol.types import TopicPartition
from replicator.latency_series import LatencySeries, in_json
from replicator.metric_table import LATENCIES, LATENCY_BUCKETS, MAX_SERIES, METRICS, OTHER, PARTITION, Metric
from transfer.ledger import Copied

_SANE_LATENCY_S = 3600.0


_SILENT_S: Final = 15.0
"""A source that has not said for so long where a partition ends may have more by now."""
_OF_PARTITIONS: Final = tuple(metric.name for metric in METRICS if metric.labels == PARTITION)


class Lags(NamedTuple):
    """How far a partition is behind: in offsets, bytes, seconds since the link heard of the first of them,
    and the age of the last copied record. NaN: not known."""

    records: float
    bytes: float
    seconds: float
    record_seconds: float

    def heard(self, ago_s: float) -> Lags:
        """What counts of them so long after the source has said where it ends: then it is not known that
        nothing is left to copy; how much is left at least, is."""
        return UNKNOWN if not self.records and ago_s > _SILENT_S else self


UNKNOWN: Final = Lags(*[math.nan] * 4)


def known(value: float) -> float | None:
    """For JSON, which has no NaN."""
    return None if math.isnan(value) else round(value, 3)


def known_count(value: float) -> int | None:
    """The same, of what has no fractions."""
    return None if math.isnan(value) else int(value)


class _Share:
    """A partition's part of a sum."""

    def __init__(self, total: Gauge) -> None:
        self._total = total
        self._value = 0.0

    def set(self, value: float) -> None:
        self._total.inc(value - self._value)
        self._value = value


_LAGS: Final = ("lag_records", "lag_bytes", "lag_seconds", "lag_record_time_seconds")


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
        self.gap_offsets = gauge("gap_offsets")
        self.lost_offsets = gauge("lost_offsets")
        self.lags = [link.gauge(name).labels(*self.labels) for name in _LAGS]
        if own:
            self.behind(UNKNOWN)

    def behind(self, lags: Lags) -> None:
        """Of series of its own."""
        for gauge, value in zip(self.lags, lags, strict=True):
            gauge.set(value)

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
        self._former: dict[TopicPartition, PartitionMetrics] = {}
        """Those that left: their counters stay while there is room."""
        self.gaps = self.counter("gaps")
        self.mirrors_made_again = self.counter("mirrors_made_again").labels(name)
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
            if own:
                self._former.pop(tp, None)
            while self._former and self._own + len(self._former) > self._room:
                self._remove(self._former.pop(next(iter(self._former))), Counter)
            found = self._partitions[tp] = PartitionMetrics(self, tp, own=own)
        return found

    def drop(self, tp: TopicPartition) -> None:
        """What is another worker's now is told by that one; what was counted here stays counted, as long as
        no other partition needs the room."""
        series = self._partitions.pop(tp, None)
        if series is None:
            return
        self.latencies.drop(tp)
        for gauge in (series.gap_offsets, series.lost_offsets):
            gauge.set(0)
        if series.own:
            self._own -= 1
            self._former[tp] = series
            self._remove(series, Gauge)

    def _remove(self, series: PartitionMetrics, kind: type[Gauge] | type[Counter]) -> None:
        for metric in METRICS:
            if metric.labels == PARTITION and metric.kind is kind:
                self._families[metric.name].remove(*series.labels)

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

    def behind(self, found: Iterable[tuple[PartitionMetrics, Lags]]) -> None:
        """Of all partitions. Those without series of their own are one: sums, of seconds the greatest, of
        what is known."""
        others: list[Lags] = []
        for series, lags in found:
            if series.own:
                series.behind(lags)
            else:
                others.append(lags)
        for index, name in enumerate(_LAGS):
            told = [lags[index] for lags in others if not math.isnan(lags[index])]
            value = (max(told) if "seconds" in name else sum(told)) if told else math.nan if others else 0.0
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
