"""Moving replicas and throttling them by the protocol's own requests (KIP-455, KIP-73)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from protocol.client import Connection
from protocol.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.support.broker import Cluster
from tests.support.three_brokers import admin

KILOBYTE = os.urandom(1024)
THROTTLED = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")


def configure(cluster: Cluster, kind: ResourceType, name: str, texts: Mapping[str, str]) -> None:
    """Set settings; of a topic, or of a broker by its number."""
    entries = [
        ConfigEntry(each, text, incremental_operation=AlterConfigOpType.SET) for each, text in texts.items()
    ]
    client = admin(cluster)
    resource = ConfigResource(kind, name, incremental_configs=entries)
    for future in client.incremental_alter_configs([resource]).values():
        future.result(30)


def throttle(cluster: Cluster, bytes_per_s: int, *topics: str) -> None:
    """All replicas of these topics, at all brokers."""
    for topic in topics:
        configure(cluster, ResourceType.TOPIC, topic, dict.fromkeys(THROTTLED, "*"))
    for number in cluster.brokers:
        configure(cluster, ResourceType.BROKER, str(number), dict.fromkeys(RATES, str(bytes_per_s)))


def throttle_keys(cluster: Cluster, topic: str) -> list[str]:
    """Settings of a throttle that the topic or some broker has."""
    client = admin(cluster)
    resources = [ConfigResource(ResourceType.TOPIC, topic)]
    found: set[str] = set()
    for number in ("", *map(str, cluster.brokers)):
        if number:
            resources = [ConfigResource(ResourceType.BROKER, number)]
        for future in client.describe_configs(resources).values():
            found |= {name for name, entry in future.result(30).items() if not entry.is_default}
    return sorted(found & {*THROTTLED, *RATES})


async def reassign(cluster: Cluster, topic: str, target: Sequence[int] | None) -> None:
    """Begin to move partition 0, or cancel that (None)."""
    replicas = None if target is None else list(target)
    partitions = [ReassignablePartition(partition_index=0, replicas=replicas)]
    topics = [ReassignableTopic(name=topic, partitions=partitions)]
    controller = admin(cluster).list_topics(timeout=10).controller_id
    connection = await Connection.open("127.0.0.1", cluster.brokers[controller].port)
    try:
        response = await connection.send(AlterPartitionReassignmentsRequest(topics=topics))
    finally:
        await connection.close()
    assert (response.error_code, response.responses[0].partitions[0].error_code) == (0, 0)


def fastest(samples: Sequence[tuple[float, int]], window_s: float) -> float:
    """Most bytes a second over any stretch of at least this length; samples are (seconds, bytes)."""
    return max(
        (later[1] - sooner[1]) / (later[0] - sooner[0])
        for number, sooner in enumerate(samples)
        for later in samples[number:]
        if later[0] - sooner[0] >= window_s
    )
