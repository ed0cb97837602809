"""How the clusters of a running topology stand, for `isthmus status`: every broker is asked by itself.

Owns the requests (Metadata of every broker that runs, min ISR of topics, moves under way, whether a
ZooKeeper server serves) and waiting a moment for elections. What the answers mean: `partition_health`.
Clusters that run elsewhere are not looked at. Never changes anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from broker.control.embedded_zookeeper import four_letter_word
from protocol.client import NO_RETRIES, ClusterClient, Connection, Metadata
from protocol.client.metadata import read_metadata
from protocol.errors import ProtocolError
from protocol.messages.metadata_request import MetadataRequest
from protocol.types import TopicPartition
from topology.ensembles import zookeeper_members
from topology.models import Topology
from topology.moves import Move, moves_under_way
from topology.partition_health import MIN_ISR, PartitionHealth, assess, newest
from topology.runtime import HOST, Runtime
from topology.sites import broker_name

_CLIENT = "isthmus-status"
_ANSWER_S = 10.0
_SECOND_LOOK_S = 1.0


class ClusterSilent(Exception):
    """No broker of the cluster answers; the message says what was tried."""


async def cluster_health(
    topology: Topology, runtime: Runtime, rows: Sequence[Mapping[str, Any]]
) -> dict[str, PartitionHealth | ClusterSilent]:
    """By alias, of every cluster with a broker that is ready; `rows` are the supervisor's."""
    ready = {row["name"] for row in rows if row["state"] == "ready"}
    asked = {
        alias: {
            broker.id: runtime.ports[broker_name(alias, broker.id)]
            for broker in cluster.brokers
            if broker_name(alias, broker.id) in ready
        }
        for alias, cluster in topology.clusters.items()
    }
    servers = {
        alias: [runtime.ports[server.name] for server in zookeeper_members(alias, cluster)]
        for alias, cluster in topology.clusters.items()
    }
    found = await asyncio.gather(*(_health(ports, servers[alias]) for alias, ports in asked.items() if ports))
    return dict(zip((alias for alias, ports in asked.items() if ports), found, strict=True))


async def _health(ports: Mapping[int, int], servers: Sequence[int]) -> PartitionHealth | ClusterSilent:
    """What waits for a person is told only if it still does after a moment: elections take one, too, those of
    ZooKeeper as well. `servers` are the ports of those that are started here.
    """
    try:
        health, serves = await asyncio.gather(_look(ports), _serves(servers))
        if health.waiting_for_election or serves is False:
            await asyncio.sleep(_SECOND_LOOK_S)
            health, serves = await asyncio.gather(_look(ports), _serves(servers))
    except ClusterSilent as silent:
        return silent
    return replace(health, zookeeper_serves=serves)


async def _serves(servers: Sequence[int]) -> bool | None:
    """Whether any server has a quorum, or needs none; None if there is none to ask."""
    if not servers:
        return None
    answers = await asyncio.gather(
        *(asyncio.to_thread(four_letter_word, HOST, port, "srvr") for port in servers)
    )
    return any("\nMode: " in answer for answer in answers)


async def _look(ports: Mapping[int, int]) -> PartitionHealth:
    answers = await asyncio.gather(*map(_view, ports.values()), return_exceptions=True)
    views: dict[int, Metadata] = {}
    reasons = []
    for number, answer in zip(ports, answers, strict=True):
        if isinstance(answer, Metadata):
            views[number] = answer
        elif isinstance(answer, ProtocolError | OSError | TimeoutError):
            reasons.append(f"broker {number}: {answer or 'no answer in time'}")
        else:
            raise answer
    if not views:
        raise ClusterSilent("; ".join(reasons))
    metadata = newest(views)
    return assess(metadata, *await _asked(metadata, [ports[number] for number in views]))


async def _view(port: int) -> Metadata:
    async with asyncio.timeout(_ANSWER_S):
        connection = await Connection.open(HOST, port, client_id=_CLIENT)
        try:
            return read_metadata(
                await connection.send(MetadataRequest(topics=None, allow_auto_topic_creation=False))
            )
        finally:
            await connection.close()


async def _asked(
    metadata: Metadata, ports: Sequence[int]
) -> tuple[dict[str, int] | None, dict[TopicPartition, Move]]:
    """Min ISR by topic, None if no broker tells it in time; and what is being moved, as far as it is told."""
    bootstrap = ",".join(f"{HOST}:{port}" for port in ports)
    min_isr: dict[str, int] | None = None
    try:
        async with asyncio.timeout(_ANSWER_S), ClusterClient(bootstrap, client_id=_CLIENT) as client:
            described = await client.describe_configs(list(metadata.topics), keys=[MIN_ISR], retry=NO_RETRIES)
            min_isr = {
                topic: int(entries[MIN_ISR].value or "1")
                for topic, entries in described.items()
                if MIN_ISR in entries
            }
            return min_isr, await moves_under_way(client)
    except (ProtocolError, OSError, TimeoutError):
        return min_isr, {}
