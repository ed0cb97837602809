"""Group lag as Prometheus metrics: asks the cluster at an interval, serves the last answer.

Names are those that users of the common lag exporters know (`kafka_consumergroup_…`). Series of groups and
partitions that are gone disappear with the next answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from monitor.lag import GroupLag, read_group_lag
from protocol.client.access import Access
from protocol.errors import ProtocolError

_log = logging.getLogger("isthmus.monitor")
_LABELS = ("cluster", "consumergroup", "topic", "partition")


class LagCollector(Collector):
    """Shows what `update` was given last; `kafka_up` is 0 while the cluster does not answer."""

    def __init__(self, cluster: str, registry: CollectorRegistry) -> None:
        self._cluster = cluster
        self._groups: list[GroupLag] = []
        self._up = False
        registry.register(self)

    def update(self, groups: list[GroupLag] | None) -> None:
        """None: the cluster did not answer; the old figures are not shown as if they were new."""
        self._groups = groups or []
        self._up = groups is not None

    def collect(self) -> Iterator[GaugeMetricFamily]:
        up = GaugeMetricFamily("kafka_up", "Whether the cluster answers", labels=["cluster"])
        up.add_metric([self._cluster], float(self._up))
        yield up
        families = {
            "lag": GaugeMetricFamily("kafka_consumergroup_lag", "Records not read yet", labels=_LABELS),
            "ahead": GaugeMetricFamily(
                "kafka_consumergroup_ahead", "Records by which a commit is beyond the end", labels=_LABELS
            ),
            "behind_start": GaugeMetricFamily(
                "kafka_consumergroup_expired", "Unread records that retention removed", labels=_LABELS
            ),
        }
        members = GaugeMetricFamily(
            "kafka_consumergroup_members", "Members of the group", labels=["cluster", "consumergroup"]
        )
        for group in self._groups:
            members.add_metric([self._cluster, group.group], group.members)
            for name, family in families.items():
                for tp, value in getattr(group, name).items():
                    family.add_metric([self._cluster, group.group, tp.topic, str(tp.partition)], value)
        yield members
        yield from families.values()


async def watch(access: Access, collector: LagCollector, interval_s: float, stop: asyncio.Event) -> None:
    """Keeps `collector` up to date until `stop`; a cluster that is gone is asked again."""
    while not stop.is_set():
        try:
            async with access.client("isthmus-monitor") as client:
                while not stop.is_set():
                    collector.update(await read_group_lag(client))
                    await _pause(stop, interval_s)
        except ProtocolError as error:
            collector.update(None)
            _log.warning("%s does not answer: %s", access.bootstrap, error)
            await _pause(stop, interval_s)


async def _pause(stop: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except TimeoutError:
        return
