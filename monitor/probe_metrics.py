"""A probe's figures for Prometheus: by broker, messages by what became of them, latency, whether it fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from monitor.probe import Probe

_LABELS = ("cluster", "broker")


class ProbeCollector(Collector):
    """Reads the probe when it is asked; series of a broker stay when it is away."""

    def __init__(
        self,
        cluster: str,
        probe: Probe,
        registry: CollectorRegistry,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster, self._probe, self._clock = cluster, probe, clock
        registry.register(self)

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        messages = CounterMetricFamily(
            "isthmus_probe_messages", "Messages of the probe by outcome", labels=(*_LABELS, "outcome")
        )
        up = GaugeMetricFamily("isthmus_probe_up", "0 while the probe of this broker fails", labels=_LABELS)
        latency = GaugeMetricFamily(
            "isthmus_probe_latency_seconds", "Of the newest message that came back", labels=_LABELS
        )
        now = self._clock()
        for broker, record in sorted(dict(self._probe.ledger.brokers).items()):
            labels = [self._cluster, str(broker)]
            for outcome in ("in_time", "late", "lost"):
                messages.add_metric([*labels, outcome], getattr(record, outcome))
            up.add_metric(labels, float(not self._probe.ledger.fails(broker, now)))
            if record.latency_s is not None:
                latency.add_metric(labels, record.latency_s)
        yield from (messages, up, latency)
        covered = self._probe.covered
        if covered is not None:
            watched = GaugeMetricFamily(
                "isthmus_probe_brokers", "Brokers by whether the probe watches them", labels=("cluster", "is")
            )
            watched.add_metric([self._cluster, "watched"], len(covered.partition_of) - len(covered.away))
            watched.add_metric([self._cluster, "away"], len(covered.away))
            watched.add_metric([self._cluster, "not_watched"], len(covered.uncovered))
            yield watched
