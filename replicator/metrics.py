"""The metrics of one link, in a registry that the process hands in.

Owns names, labels, and how many series there may be: partitions beyond `metrics_max_series` share those of
the partition "other" of the topic "other" (sums; of seconds the greatest). A tenth of that many series may be
latencies of single topics; topics beyond have those of "other". `docs/metrics.md` is generated
from `METRICS`. Latency is the time from a record's own timestamp to its acknowledgement at the target; it is
only observed where that can be true (not older than an hour and not from the future), because old or wrong
record times would make it a lie.
"""

from __future__ import annotations

import contextlib
import time
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from protocol.types import TopicPartition
from replicator.latency import Latencies
from transfer.ledger import Copied

_SANE_LATENCY_S = 3600.0
_LINK: Final = ("link",)
_PARTITION: Final = ("link", "topic", "partition")
_OTHER: Final = "other"
QUANTILES: Final = (0.5, 0.9, 0.99, 0.999)
LATENCY_BUCKETS: Final = tuple(
    round(0.001 * 2**octave * (1 + quarter / 4), 5) for octave in range(22) for quarter in range(4)
)
MAX_SERIES: Final = 10_000


class Metric(NamedTuple):
    """One family of series; counters get `_total` behind their name."""

    name: str
    kind: type[Counter] | type[Gauge] | type[Histogram]
    labels: tuple[str, ...]
    text: str

    @property
    def full_name(self) -> str:
        return f"isthmus_link_{self.name}" + ("_total" if self.kind is Counter else "")


METRICS: Final = (
    Metric("records", Counter, _PARTITION, "Records acknowledged by the target"),
    Metric("bytes", Counter, _PARTITION, "Bytes of source batches acknowledged by the target"),
    Metric(
        "left_out_records",
        Counter,
        _PARTITION,
        "Records not copied because they have been in the target topic",
    ),
    Metric("retries", Counter, _PARTITION, "Times that batches had to be sent to the target again"),
    Metric("lag_records", Gauge, _PARTITION, "Source offsets readable and not yet acknowledged"),
    Metric(
        "lag_bytes",
        Gauge,
        _PARTITION,
        "The same in bytes, estimated by the size of the records copied so far",
    ),
    Metric(
        "lag_seconds",
        Gauge,
        _PARTITION,
        "Age of the first record that is not copied, from when the link heard of it (no record times)",
    ),
    Metric(
        "lag_record_time_seconds",
        Gauge,
        _PARTITION,
        "Age of the last copied record by its own timestamp while more is to be copied, else 0",
    ),
    Metric("gap_offsets", Gauge, _PARTITION, "Source offsets that could not be copied"),
    Metric("gaps", Counter, ("link", "reason"), "Gaps found, by reason"),
    Metric("partitions", Gauge, ("link", "state"), "Partitions by state"),
    Metric(
        "lane_partitions", Gauge, ("link", "lane"), "Partitions by how their batches go: raw, merge, records"
    ),
    Metric("cluster_up", Gauge, ("link", "cluster"), "1 while the link's cluster answers"),
    Metric("errors", Counter, ("link", "what"), "Failed attempts, by what was tried"),
    Metric(
        "recognised_records",
        Counter,
        _LINK,
        "Records found at the target after a restart and not copied again",
    ),
    Metric(
        "unrecognised_batches",
        Counter,
        _LINK,
        "Batches behind the recorded end of the target that are not the link's",
    ),
    Metric("progress_age_seconds", Gauge, _LINK, "Age of the oldest progress not stored"),
    Metric("transactions", Counter, ("link", "outcome"), "Transactions ended (links with exactly_once)"),
    Metric(
        "last_commit_timestamp_seconds",
        Gauge,
        _LINK,
        "When a transaction was committed last (links with exactly_once)",
    ),
    Metric(
        "last_checkpoint_timestamp_seconds",
        Gauge,
        _LINK,
        "When positions of groups were last written for MirrorMaker 2's tools (checkpoints)",
    ),
    Metric("groups", Gauge, ("link", "standing"), "Groups by how they stand"),
    Metric(
        "latency_seconds",
        Histogram,
        _LINK,
        "From the timestamp of each write's newest record to its acknowledgement at the target",
    ),
    Metric(
        "latency_quantile_seconds",
        Gauge,
        ("link", "quantile"),
        "The same by record, of the last one to two minutes, at most 6 % too high",
    ),
    Metric(
        "topic_latency_quantile_seconds",
        Gauge,
        ("link", "topic", "quantile"),
        "The same by topic",
    ),
)
_OF_PARTITIONS: Final = tuple(metric.name for metric in METRICS if metric.labels == _PARTITION)


class _Share:
    """A partition's part of a sum."""

    def __init__(self, total: Gauge) -> None:
        self._total = total
        self._value = 0.0

    def set(self, value: float) -> None:
        self._total.inc(value - self._value)
        self._value = value


class _TopicLatency:
    """Of one topic, or of all that have no series of their own."""

    def __init__(self, gauge: Gauge, link: str, topic: str) -> None:
        self.latencies = Latencies(time.monotonic())
        self.partitions = 0
        """Those that it is of; without any its series go."""
        self._gauge = gauge
        self._labels = [(link, topic, f"{share:g}") for share in QUANTILES]

    def observe(self, now: float) -> None:
        self.latencies.turn(now)
        for share, labels in zip(QUANTILES, self._labels, strict=True):
            value = self.latencies.quantile(share)
            if value is not None:
                self._gauge.labels(*labels).set(value)

    def remove(self) -> None:
        for labels in self._labels:
            with contextlib.suppress(KeyError):  # nothing was copied
                self._gauge.remove(*labels)


class PartitionMetrics:
    """Resolved series of one partition, so that the way of each chunk looks nothing up."""

    def __init__(self, link: LinkMetrics, tp: TopicPartition, *, own: bool = True) -> None:
        """`own`: it has series of its own; else it adds to those of the others."""
        self.own = own
        self.labels = (link.name, tp.topic, str(tp.partition)) if own else (link.name, _OTHER, _OTHER)

        def gauge(name: str) -> Gauge | _Share:
            child = link.gauge(name).labels(*self.labels)
            return child if own else _Share(child)

        self.topic = link.topic_latency(tp.topic)
        self.records = link.counter("records").labels(*self.labels)
        self.bytes = link.counter("bytes").labels(*self.labels)
        self.left_out = link.counter("left_out_records").labels(*self.labels)
        self.retries = link.counter("retries").labels(*self.labels)
        self.lag = gauge("lag_records")
        self.lag_bytes = gauge("lag_bytes")
        self.gap_offsets = gauge("gap_offsets")
        self.seconds = link.gauge("lag_seconds").labels(*self.labels)
        self.record_seconds = link.gauge("lag_record_time_seconds").labels(*self.labels)


class LinkMetrics:
    """All series of a link, at most `max_series` of them for single partitions."""

    def __init__(self, name: str, registry: CollectorRegistry, max_series: int = MAX_SERIES) -> None:
        self.name = name
        self._families = {metric.name: _family(metric, registry) for metric in METRICS}
        self._room = max_series // len(_OF_PARTITIONS)
        self._topics: dict[str, _TopicLatency] = {}
        self._topic_room = max_series // 10 // len(QUANTILES)
        self._own = 0
        """Partitions with series of their own."""
        self._partitions: dict[TopicPartition, PartitionMetrics] = {}
        self.gaps = self.counter("gaps")
        self.partitions = self.gauge("partitions")
        self.lanes = self.gauge("lane_partitions")
        self.cluster_up = self.gauge("cluster_up")
        self.errors = self.counter("errors")
        self.recognised = self.counter("recognised_records").labels(name)
        self.unrecognised = self.counter("unrecognised_batches").labels(name)
        self.progress_age = self.gauge("progress_age_seconds").labels(name)
        self.groups = self.gauge("groups")
        self._latencies = Latencies(time.monotonic())
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

    def topic_latency(self, topic: str) -> _TopicLatency:
        """For one more partition of the topic: its own while there is room."""
        if topic not in self._topics and len(self._topics.keys() - {_OTHER}) >= self._topic_room:
            topic = _OTHER
        found = self._topics.get(topic)
        if found is None:
            gauge = self.gauge("topic_latency_quantile_seconds")
            found = self._topics[topic] = _TopicLatency(gauge, self.name, topic)
        found.partitions += 1
        return found

    def drop(self, tp: TopicPartition) -> None:
        """What is another worker's now is told by that one; what was counted here stays counted."""
        series = self._partitions.pop(tp, None)
        if series is None:
            return
        series.topic.partitions -= 1
        if not series.topic.partitions:
            series.topic.remove()
            self._topics = {name: each for name, each in self._topics.items() if each is not series.topic}
        for gauge in (series.lag, series.lag_bytes, series.gap_offsets):
            gauge.set(0)
        if series.own:
            self._own -= 1
            for metric in METRICS:
                if metric.labels == _PARTITION and metric.kind is Gauge:
                    self.gauge(metric.name).remove(*series.labels)

    def copied(self, partition: PartitionMetrics, copied: Copied) -> None:
        """Counts an acknowledged write."""
        partition.records.inc(copied.records)
        partition.bytes.inc(copied.bytes)
        if copied.left_out:
            partition.left_out.inc(copied.left_out)
        if copied.last_timestamp > 0:
            latency = time.time() - copied.last_timestamp / 1000
            if 0 <= latency <= _SANE_LATENCY_S:
                self._latency.observe(latency)
                self._latencies.add(latency, copied.records)
                partition.topic.latencies.add(latency, copied.records)

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
            self.gauge(name).labels(self.name, _OTHER, _OTHER).set(value)

    def observe(self) -> None:
        """Brings the percentiles up to date."""
        now = time.monotonic()
        self._latencies.turn(now)
        for topic in self._topics.values():
            topic.observe(now)
        for share in QUANTILES:
            value = self._latencies.quantile(share)
            if value is not None:
                self.gauge("latency_quantile_seconds").labels(self.name, f"{share:g}").set(value)


def _family(metric: Metric, registry: CollectorRegistry) -> Counter | Gauge | Histogram:
    name = f"isthmus_link_{metric.name}"
    if metric.kind is Histogram:
        return Histogram(name, metric.text, metric.labels, buckets=LATENCY_BUCKETS, registry=registry)
    if metric.kind is Counter:
        return Counter(name, metric.text, metric.labels, registry=registry)
    return Gauge(name, metric.text, metric.labels, registry=registry)
