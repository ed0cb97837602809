"""Percentiles of latencies of a link, its topics and its partitions, computed when they are asked for.

Owns who has series of its own: so many series as it is given room for may be of topics, and as many of
partitions; those beyond are one, "other". Each partition counts for itself, and a topic is the sum of its
partitions here, so that workers' counts can be added too. The page of metrics is made in a thread of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from protocol.types import TopicPartition
from replicator.latency import Latencies, added, quantiles
from replicator.metric_table import LATENCIES, OTHER, PARTITION_QUANTILES, QUANTILES, Metric

K = TypeVar("K", bound=Hashable)


class LatencySeries(Collector):
    """Of one link. `room`: series for topics, and as many for partitions."""

    def __init__(self, link: str, room: int, now: float) -> None:
        self._link = link
        self._topic_room = room // len(QUANTILES)
        self._partition_room = room // len(PARTITION_QUANTILES)
        self._now = now
        self._all = Latencies(now)
        self._partitions: dict[TopicPartition, Latencies] = {}
        """From the first record on: thousands of partitions may never have one."""

    def add(self, tp: TopicPartition, seconds: float, records: int) -> None:
        """So many records were this late."""
        self._all.add(seconds, records)
        found = self._partitions.get(tp)
        if found is None:
            found = self._partitions[tp] = Latencies(self._now)
        found.add(seconds, records)

    def drop(self, tp: TopicPartition) -> None:
        """It is another worker's now; in the link's own percentiles it stays."""
        self._partitions.pop(tp, None)

    def turn(self, now: float) -> None:
        """Lets go of what is too old; call it now and then."""
        self._now = now
        self._all.turn(now)
        for each in self._partitions.values():
            each.turn(now)

    def of(self, tp: TopicPartition) -> tuple[float, ...] | None:
        """`PARTITION_QUANTILES` in seconds; None without records in the last minutes."""
        found = self._partitions.get(tp)
        return quantiles(found.counts(), PARTITION_QUANTILES) if found is not None else None

    def topics(self) -> dict[str, dict[int, int]]:
        """Records by bucket of those topics that have series of their own, where there are any."""
        counts = _by(list(self._partitions.items()), lambda tp: tp.topic)
        return {topic: of for topic, of in list(counts.items())[: self._topic_room] if of}

    def collect(self) -> Iterator[GaugeMetricFamily]:
        of_link, of_topics, of_partitions = (_family(metric) for metric in LATENCIES)
        _show(of_link, (self._link,), self._all.counts(), QUANTILES)
        each = list(self._partitions.items())
        for topic, counts in _within(_by(each, lambda tp: tp.topic), self._topic_room, OTHER):
            _show(of_topics, (self._link, topic), counts, QUANTILES)
        other = TopicPartition(OTHER, -1)
        for tp, counts in _within(_by(each, lambda tp: tp), self._partition_room, other):
            number = str(tp.partition) if tp is not other else OTHER
            _show(of_partitions, (self._link, tp.topic, number), counts, PARTITION_QUANTILES)
        yield from (of_link, of_topics, of_partitions)


def in_json(found: Sequence[float]) -> dict[str, float]:
    """`PARTITION_QUANTILES` as status and REST have them, in seconds."""
    return dict(zip(("p50", "p99", "max"), (round(value, 6) for value in found), strict=True))


def _by(
    items: Iterable[tuple[TopicPartition, Latencies]], key: Callable[[TopicPartition], K]
) -> dict[K, dict[int, int]]:
    """Sums, in the order in which they were seen first."""
    groups: dict[K, list[dict[int, int]]] = {}
    for tp, latencies in items:
        groups.setdefault(key(tp), []).append(latencies.counts())
    return {name: added(parts) for name, parts in groups.items()}


def _within(
    counts: Mapping[K, Mapping[int, int]], room: int, other: K
) -> Iterator[tuple[K, Mapping[int, int]]]:
    items = [(key, of) for key, of in counts.items() if key != other]  # a topic may be called so
    yield from items[:room]
    yield other, added([counts.get(other, {}), *(of for _, of in items[room:])])


def _family(metric: Metric) -> GaugeMetricFamily:
    return GaugeMetricFamily(metric.full_name, metric.text, labels=metric.labels)


def _show(
    family: GaugeMetricFamily, labels: tuple[str, ...], counts: Mapping[int, int], shares: tuple[float, ...]
) -> None:
    for share, value in zip(shares, quantiles(counts, shares) or (), strict=False):
        family.add_metric((*labels, f"{share:g}"), value)
