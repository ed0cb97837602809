"""The metrics of one link, in a registry that the process hands in.

Owns names and labels. Per-partition series carry topic and partition of the source. Latency is the time
from a record's own timestamp to its acknowledgement at the target; it is only observed where that can be
true (records not older than an hour and not from the future), because old or wrong record times would make
it a lie.
"""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from protocol.types import TopicPartition
from transfer.ledger import Copied

_LATENCY_BUCKETS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 3600)
_SANE_LATENCY_S = 3600.0
_PARTITION = ("link", "topic", "partition")


class PartitionMetrics:
    """Resolved series of one partition, so that the way of each chunk looks nothing up."""

    __slots__ = ("bytes", "gap_offsets", "lag", "left_out", "records")

    def __init__(self, link: LinkMetrics, tp: TopicPartition) -> None:
        labels = (link.name, tp.topic, str(tp.partition))
        self.records = link.records.labels(*labels)
        self.bytes = link.bytes.labels(*labels)
        self.left_out = link.left_out.labels(*labels)
        self.lag = link.lag.labels(*labels)
        self.gap_offsets = link.gap_offsets.labels(*labels)


class LinkMetrics:
    """All series of a link."""

    def __init__(self, name: str, registry: CollectorRegistry) -> None:
        self.name = name

        def counter(metric: str, text: str, labels: tuple[str, ...] = ("link",)) -> Counter:
            return Counter(f"isthmus_link_{metric}", text, labels, registry=registry)

        def gauge(metric: str, text: str, labels: tuple[str, ...] = ("link",)) -> Gauge:
            return Gauge(f"isthmus_link_{metric}", text, labels, registry=registry)

        self.records = counter("records", "Records acknowledged by the target", _PARTITION)
        self.bytes = counter("bytes", "Bytes of source batches acknowledged by the target", _PARTITION)
        self.left_out = counter(
            "left_out_records", "Records not copied because they have been in the target topic", _PARTITION
        )
        self.lag = gauge("lag_records", "Source offsets readable and not yet acknowledged", _PARTITION)
        self.gap_offsets = gauge("gap_offsets", "Source offsets that could not be copied", _PARTITION)
        self.gaps = counter("gaps", "Gaps found, by reason", ("link", "reason"))
        self.partitions = gauge("partitions", "Partitions by state", ("link", "state"))
        self.cluster_up = gauge("cluster_up", "1 while the link's cluster answers", ("link", "cluster"))
        self.errors = counter("errors", "Failed attempts, by what was tried", ("link", "what"))
        self.recognised = counter(
            "recognised_records", "Records found at the target after a restart and not copied again"
        ).labels(name)
        self.unrecognised = counter(
            "unrecognised_batches", "Batches behind the recorded end of the target that are not the link's"
        ).labels(name)
        self.progress_age = gauge("progress_age_seconds", "Age of the oldest progress not stored").labels(
            name
        )
        self.transactions = counter(
            "transactions", "Transactions ended (links with exactly_once)", ("link", "outcome")
        )
        self.last_commit = gauge(
            "last_commit_timestamp_seconds", "When a transaction was committed last (links with exactly_once)"
        )
        self.groups = gauge("groups", "Groups by how they stand", ("link", "standing"))
        self._latency = Histogram(
            "isthmus_link_latency_seconds",
            "From a record's timestamp to its acknowledgement at the target",
            ("link",),
            buckets=_LATENCY_BUCKETS,
            registry=registry,
        ).labels(name)

    def transaction(self, *, committed: bool) -> None:
        """Counts one that has ended."""
        self.transactions.labels(self.name, "committed" if committed else "aborted").inc()
        if committed:
            self.last_commit.labels(self.name).set_to_current_time()

    def drop(self, tp: TopicPartition) -> None:
        """What is another worker's now is told by that one; what was counted here stays counted."""
        for gauge in (self.lag, self.gap_offsets):
            gauge.remove(self.name, tp.topic, str(tp.partition))

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
