"""Write docs/metrics.md from the table of a link's metrics, or check it with --check (exit 1 when behind).

python -m tools.generate_metrics_docs [--check]
"""

import sys
from pathlib import Path

from replicator.metric_table import MAX_SERIES, METRICS, PARTITION_QUANTILES, QUANTILES, Metric
from tools.generated_page import write_or_check

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "metrics.md"

HEAD = f"""# Metrics of links

Generated from `replicator/metric_table.py` by `python -m tools.generate_metrics_docs`; do not edit. Served as
Prometheus text by `isthmus replicate FILE --metrics-port PORT`. `link` is `source->target`; `topic` and
`partition` are those of the source. Throughput is `rate(isthmus_link_bytes_total[1m])`.

A link has at most `metrics_max_series` series for single partitions ({MAX_SERIES:,} unless it is set): the
partitions beyond share those with `topic="other", partition="other"`, as sums, and of seconds the greatest.
A tenth of that many may be latencies of single topics, and another tenth those of single partitions; what is
beyond shares those with `topic="other"`. Latencies of all partitions, whatever their number, are in
`isthmus links status LINK --partitions` and REST.

| metric | kind | labels | what it says |
| --- | --- | --- | --- |
"""

_SHARES, _FEWER = (", ".join(f"{share:g}" for share in some) for some in (QUANTILES, PARTITION_QUANTILES))
TAIL = f"""
`quantile` is one of {_SHARES} (the greatest), of partitions {_FEWER}. Without a record in the last
minutes there is no percentile. Latency goes by the records' own timestamps, so it is
only counted for records that are not older than an hour and not from the future: while a link catches up, the
lags tell more.

Lags are `NaN` while they are not known: where the source was not heard for 15 s and all that it had said
before is copied, or was never heard; where its topic is gone; in bytes and by record time also where nothing
was copied here yet to tell by. What is known to be left stays told. `isthmus_link_lag_records !=
isthmus_link_lag_records` finds such partitions; in the series of "other" they are left out.

Links with `offsets: identical` have records, bytes, lags, latencies, gaps, partitions by state (aligning,
copying, held, stopped), and which clusters answer; no lanes. Their latencies count offsets, and go by the
time of the last batch of each write, be it data or the marker of a transaction.
"""


def row(metric: Metric) -> str:
    kind = metric.kind.__name__.lower()
    return f"| `{metric.full_name}` | {kind} | {', '.join(metric.labels)} | {metric.text} |\n"


def document() -> str:
    """The text of docs/metrics.md."""
    return HEAD + "".join(map(row, METRICS)) + TAIL


if __name__ == "__main__":
    sys.exit(write_or_check(DOCUMENT, document(), "tools.generate_metrics_docs"))
