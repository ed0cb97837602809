"""The families of series of one link: names, kinds, labels and what they say.

`docs/metrics.md` is generated from `METRICS`. Values are in `metrics` and `latency_series`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from prometheus_client import Counter, Gauge, Histogram

_LINK: Final = ("link",)
PARTITION: Final = ("link", "topic", "partition")
OTHER: Final = "other"
QUANTILES: Final = (0.5, 0.9, 0.99, 0.999, 1.0)
PARTITION_QUANTILES: Final = (0.5, 0.99, 1.0)
"""Of single partitions, which may be many: median, 99 % and the greatest."""
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


LATENCIES: Final = (
    Metric(
        "latency_quantile_seconds",
        Gauge,
        ("link", "quantile"),
        "The same by record, of the last one to two minutes, at most 6 % too high",
    ),
    Metric("topic_latency_quantile_seconds", Gauge, ("link", "topic", "quantile"), "The same by topic"),
    Metric(
        "partition_latency_quantile_seconds",
        Gauge,
        (*PARTITION, "quantile"),
        "The same by partition: median, 99 % and the greatest",
    ),
)
"""Computed when they are asked for. In this order: of the link, of its topics, of its partitions."""

METRICS: Final = (
    Metric("records", Counter, PARTITION, "Records acknowledged by the target"),
    Metric("bytes", Counter, PARTITION, "Bytes of source batches acknowledged by the target"),
    Metric(
        "left_out_records",
        Counter,
        PARTITION,
        "Records not copied because they have been in the target topic",
    ),
    Metric("retries", Counter, PARTITION, "Times that batches had to be sent to the target again"),
    Metric("lag_records", Gauge, PARTITION, "Source offsets readable and not yet acknowledged"),
    Metric(
        "lag_bytes",
        Gauge,
        PARTITION,
        "The same in bytes, estimated by the size of the records copied so far",
    ),
    Metric(
        "lag_seconds",
        Gauge,
        PARTITION,
        "Age of the first record that is not copied, from when the link heard of it (no record times)",
    ),
    Metric(
        "lag_record_time_seconds",
        Gauge,
        PARTITION,
        "Age of the last copied record by its own timestamp while more is to be copied, else 0",
    ),
    Metric("gap_offsets", Gauge, PARTITION, "Source offsets that could not be copied"),
    Metric(
        "lost_offsets",
        Gauge,
        PARTITION,
        "Source offsets that are gone there before a partition that stands still could copy them",
    ),
    Metric("gaps", Counter, ("link", "reason"), "Gaps found, by reason"),
    Metric(
        "mirrors_made_again",
        Counter,
        _LINK,
        "Mirrors with identical offsets that somebody deleted at the target, and that are filled anew",
    ),
    Metric(
        "disorders",
        Counter,
        _LINK,
        "Writes that did not begin where the last one ended: refused, and read again (a fault of isthmus)",
    ),
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
    *LATENCIES,
)
