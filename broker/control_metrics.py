"""What the controller and the ZooKeeper session have to show, under the names the Kafka JMX exporter gives.

A collector that reads state when it is scraped. Counts of the whole cluster come from the reigning
controller alone; other brokers show 0, as Kafka's do.
"""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from broker.control.metadata_cache import NO_LEADER
from broker.control.plane import ControlPlane


class ControlMetrics(Collector):
    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane

    def collect(self) -> Iterator[Metric]:
        core = self._plane.controller.core
        states = [] if core is None else list(core.states.values())
        offline = sum(stored.state.leader == NO_LEADER for stored in states)
        waiting = sum(bool(stored.state.suspects) for stored in states)
        counts = {
            "kafka_controller_kafkacontroller_activebrokercount": (
                0 if core is None else len(core.brokers),
                "Living brokers",
            ),
            "kafka_controller_kafkacontroller_globaltopiccount": (
                0 if core is None else len(core.topics),
                "Topics of the cluster",
            ),
            "kafka_controller_kafkacontroller_globalpartitioncount": (
                len(states),
                "Partitions of the cluster",
            ),
            "kafka_controller_kafkacontroller_offlinepartitionscount": (
                offline,
                "Partitions without a leader",
            ),
            "isthmus_controller_partitions_waiting_for_election": (
                waiting,
                "Partitions whose last in-sync replica came back from an unclean end: `isthmus elect`",
            ),
            "kafka_controller_kafkacontroller_topicstodeletecount": (
                0 if core is None else len(core.deleting),
                "Topics being deleted",
            ),
            "kafka_server_zookeeperclientmetrics_connected": (
                int(self._plane.zookeeper.connected),
                "1 while the ZooKeeper session is connected",
            ),
            "isthmus_broker_may_lead": (
                int(self._plane.may_lead),
                "0 while ZooKeeper has not heard from this broker for most of a session: what it leads takes"
                " no writes, unless it is the only in-sync replica",
            ),
        }
        for name, (value, text) in counts.items():
            yield GaugeMetricFamily(name, text, value=value)
        yield CounterMetricFamily(
            "kafka_controller_controllerstats_uncleanleaderelections",
            "Elections of leaders that may lack acknowledged records, while this broker was the controller",
            value=self._plane.controller.unclean_elections,
        )
