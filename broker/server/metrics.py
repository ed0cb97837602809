"""What the broker counts, under the names that users of Kafka's JMX exporter know.

Hot paths add to plain integers (`metrics.topic(name).bytes_in += n`); Prometheus asks for them through a
collector when it scrapes, so counting costs an addition. One object per broker; it is registered with the
process's own registry by whoever serves /metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

Values = Callable[[], Iterable[tuple[tuple[str, ...], float]]]


class TopicCounts:
    """Since the broker's start, for one topic. Bytes are those of record batches."""

    __slots__ = ("bytes_in", "bytes_out", "failed_fetch", "failed_produce", "messages_in")

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.messages_in = 0
        self.failed_produce = 0
        self.failed_fetch = 0


_TOPIC_COUNTERS = {
    "kafka_server_brokertopicmetrics_messagesin": ("messages_in", "Records appended by producers"),
    "kafka_server_brokertopicmetrics_bytesin": ("bytes_in", "Bytes of record batches appended by producers"),
    "kafka_server_brokertopicmetrics_bytesout": ("bytes_out", "Bytes of record batches sent to readers"),
    "kafka_server_brokertopicmetrics_failedproducerequests": ("failed_produce", "Refused appends"),
    "kafka_server_brokertopicmetrics_failedfetchrequests": ("failed_fetch", "Refused reads"),
}


class BrokerMetrics(Collector):
    """The broker's counters; other parts add gauges and counters with `gauge` and `counter`."""

    def __init__(self) -> None:
        self._topics: dict[str, TopicCounts] = {}
        self._added: list[tuple[type[Metric], str, str, tuple[str, ...], Values]] = []

    def topic(self, name: str) -> TopicCounts:
        counts = self._topics.get(name)
        if counts is None:
            counts = self._topics[name] = TopicCounts()
        return counts

    def forget_topic(self, name: str) -> None:
        self._topics.pop(name, None)

    def gauge(self, name: str, text: str, labels: tuple[str, ...], values: Values) -> None:
        """`values()` yields (label values, value) at each scrape."""
        self._added.append((GaugeMetricFamily, name, text, labels, values))

    def counter(self, name: str, text: str, labels: tuple[str, ...], values: Values) -> None:
        self._added.append((CounterMetricFamily, name, text, labels, values))

    def collect(self) -> Iterator[Metric]:
        for name, (attribute, text) in _TOPIC_COUNTERS.items():
            family = CounterMetricFamily(name, text, labels=("topic",))
            for topic, counts in sorted(self._topics.items()):
                family.add_metric((topic,), getattr(counts, attribute))
            yield family
        for kind, name, text, labels, values in self._added:
            added = kind(name, text, labels=labels)  # type: ignore[call-arg]
            for label_values, value in values():
                added.add_metric(label_values, value)  # type: ignore[attr-defined]
            yield added
