"""What operators watch about replicas, under the names of Kafka's JMX exporter."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from tests.support.lone_broker import BROKER_ID
from tests.support.served import Served


def sample(node: Served, name: str) -> float | None:
    registry = CollectorRegistry()
    registry.register(node.broker.metrics)
    return registry.get_sample_value(f"kafka_server_replicamanager_{name}")


async def test_partitions_whose_replicas_are_not_all_in_sync(node: Served) -> None:
    node.topics.create("t")
    assert sample(node, "underreplicatedpartitions") == 0
    partition = node.broker.replicas.leader("t", 0)
    partition.lead(BROKER_ID, 5, (BROKER_ID,), (BROKER_ID, 2), 7, 0.0)
    assert sample(node, "underreplicatedpartitions") == 1
    assert sample(node, "underminisrpartitioncount") == 0
    partition.lead(BROKER_ID, 5, (BROKER_ID, 2), (BROKER_ID, 2), 8, 0.0)
    assert sample(node, "underreplicatedpartitions") == 0
    assert sample(node, "isrexpands_total") == 0, "the controller's own changes are not this leader's"
