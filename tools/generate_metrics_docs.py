"""Write docs/metrics.md from the table of a link's metrics, or check it with --check (exit 1 when behind).

python -m tools.generate_metrics_docs [--check]
"""

import sys
from pathlib import Path

from replicator.metrics import MAX_SERIES, METRICS, QUANTILES, Metric
from tools.generated_page import write_or_check

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "metrics.md"

HEAD = f"""# Metrics of links

Generated from `replicator/metrics.py` by `python -m tools.generate_metrics_docs`; do not edit. Served as
Prometheus text by `isthmus replicate FILE --metrics-port PORT`. `link` is `source->target`; `topic` and
`partition` are those of the source. Throughput is `rate(isthmus_link_bytes_total[1m])`.

A link has at most `metrics_max_series` series for single partitions ({MAX_SERIES:,} unless it is set): the
partitions beyond share those with `topic="other", partition="other"`, as sums, and of seconds the greatest.
A tenth of that many may be latencies of single topics; topics beyond share those with `topic="other"`.

| metric | kind | labels | what it says |
| --- | --- | --- | --- |
"""

_SHARES = ", ".join(f"{share:g}" for share in QUANTILES)
TAIL = f"""
`quantile` is one of {_SHARES}. Latency goes by the records' own timestamps, so it is
only counted for records that are not older than an hour and not from the future: while a link catches up, the
lags tell more.
"""


def row(metric: Metric) -> str:
    kind = metric.kind.__name__.lower()
    return f"| `{metric.full_name}` | {kind} | {', '.join(metric.labels)} | {metric.text} |\n"


def document() -> str:
    """The text of docs/metrics.md."""
    return HEAD + "".join(map(row, METRICS)) + TAIL


if __name__ == "__main__":
    sys.exit(write_or_check(DOCUMENT, document(), "tools.generate_metrics_docs"))
