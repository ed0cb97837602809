"""How the clusters of a running topology stand, for `isthmus status`: every broker is asked by itself.

Owns the requests (Metadata of every broker that runs, whether ZooKeeper hears from it, min ISR of topics,
moves under way) and waiting a moment for elections. Each has a limit of a few seconds, and a broker that is
cut off from ZooKeeper is not asked what it would have to look up there. What the answers mean:
`cluster_health`. Clusters that run elsewhere are not looked at. Never changes anything.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Any

from protocol.client import ClusterClient, Connection, Metadata
from protocol.client.metadata import read_metadata
from protocol.client.topic_calls import ConfigKind
from protocol.errors import ErrorCode, ProtocolError
from protocol.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.metadata_request import MetadataRequest
from protocol.types import TopicPartition
from topology.cluster_health import ClusterHealth
from topology.models import Topology
from topology.moves import Move, moves_under_way
from topology.partition_health import MIN_ISR, assess, newest
from topology.runtime import HOST, Runtime
from topology.scrape import samples
from topology.sites import broker_name
from topology.zookeeper_health import ZooKeeperHealth, zookeeper_health

_CLIENT = "isthmus-status"
_ANSWER_S = 4.0
_ZOOKEEPER_S = 6.0
"""For what a broker looks up in ZooKeeper first."""
_SECOND_LOOK_S = 1.0
_FAILED = (ProtocolError, OSError, TimeoutError)


@dataclass(frozen=True)
class _Asked:
    """One cluster: its brokers that are ready, and their ports."""

    brokers: Set[int]
    """All, also those that do not run."""
    ports: Mapping[int, int]
    metrics_ports: Mapping[int, int]
    zookeeper: Callable[[], Awaitable[ZooKeeperHealth]]


async def cluster_health(
    topology: Topology, runtime: Runtime, rows: Sequence[Mapping[str, Any]]
) -> dict[str, ClusterHealth]:
    """By alias, of every cluster with a broker that is ready; `rows` are the supervisor's."""
    ready = {row["name"] for row in rows if row["state"] == "ready"}
    asked = {}
    for alias, cluster in topology.clusters.items():
        names = {broker.id: broker_name(alias, broker.id) for broker in cluster.brokers}
        running = {number: name for number, name in names.items() if name in ready}
        if running:
            asked[alias] = _Asked(
                names.keys(),
                {number: runtime.ports[name] for number, name in running.items()},
                {number: runtime.metrics_ports[name] for number, name in running.items()},
                partial(zookeeper_health, topology, runtime, alias),
            )
    found = await asyncio.gather(*map(_health, asked.values()))
    return dict(zip(asked, found, strict=True))


async def _health(asked: _Asked) -> ClusterHealth:
    """What waits for a person is told only if it still does after a moment: elections take one, too, those of
    ZooKeeper as well.
    """
    health = await _look(asked)
    partitions = health.partitions
    waiting = partitions is not None and partitions.waiting_for_election
    if waiting or health.zookeeper.serves is False:
        await asyncio.sleep(_SECOND_LOOK_S)
        health = await _look(asked)
    return health


async def _look(asked: _Asked) -> ClusterHealth:
    (views, silent), may_lead, zookeeper = await asyncio.gather(
        _views(asked.ports), _may_lead(asked.metrics_ports), asked.zookeeper()
    )
    zookeeper = zookeeper.with_brokers(may_lead)
    heard = {number: asked.ports[number] for number in views if may_lead.get(number, True)}
    unheard = tuple(views.keys() - heard.keys())
    if not views:
        return ClusterHealth(zookeeper, None, silent, unheard)
    metadata = newest({number: views[number] for number in heard} or views)
    min_isr: dict[str, int] | None = None
    moves: dict[TopicPartition, Move] = {}
    if zookeeper.serves is not False and heard:
        min_isr, moves = await asyncio.gather(
            _min_isr(metadata.topics, heard.values()), _moves(heard.values())
        )
    away = asked.brokers - views.keys()
    partitions = assess(metadata, min_isr, moves, silent=away, unheard=unheard)
    return ClusterHealth(zookeeper, partitions, silent, unheard)


async def _views(ports: Mapping[int, int]) -> tuple[dict[int, Metadata], dict[int, str]]:
    """What each broker says, and why some say nothing."""
    answers = await asyncio.gather(*map(_view, ports.values()), return_exceptions=True)
    views: dict[int, Metadata] = {}
    silent: dict[int, str] = {}
    for number, answer in zip(ports, answers, strict=True):
        if isinstance(answer, Metadata):
            views[number] = answer
        elif isinstance(answer, _FAILED):
            silent[number] = str(answer) or f"nothing within {_ANSWER_S:g} s"
        else:
            raise answer
    return views, silent


async def _view(port: int) -> Metadata:
    async with asyncio.timeout(_ANSWER_S), _connection(port) as connection:
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        return read_metadata(await connection.send(request))


@contextlib.asynccontextmanager
async def _connection(port: int) -> AsyncIterator[Connection]:
    connection = await Connection.open(HOST, port, client_id=_CLIENT)
    try:
        yield connection
    finally:
        await connection.close()


async def _may_lead(metrics_ports: Mapping[int, int]) -> dict[int, bool]:
    """By broker, whether ZooKeeper hears from it, of those that tell."""

    def ask(port: int) -> bool | None:
        try:
            return any(sample.value for sample in samples(port, "isthmus_broker_may_lead"))
        except (OSError, ValueError):
            return None

    answers = await asyncio.gather(*(asyncio.to_thread(ask, port) for port in metrics_ports.values()))
    found = zip(metrics_ports, answers, strict=True)
    return {number: answer for number, answer in found if answer is not None}


async def _min_isr(topics: Collection[str], ports: Collection[int]) -> dict[str, int] | None:
    """By topic; None if no broker tells in time. All are asked: some may have to wait for ZooKeeper."""

    async def ask(port: int) -> dict[str, int]:
        resources = [
            DescribeConfigsResource(
                resource_type=ConfigKind.TOPIC, resource_name=topic, configuration_keys=[MIN_ISR]
            )
            for topic in topics
        ]
        async with asyncio.timeout(_ZOOKEEPER_S), _connection(port) as connection:
            answer = await connection.send(DescribeConfigsRequest(resources=resources))
        if any(result.error_code == ErrorCode.REQUEST_TIMED_OUT for result in answer.results):
            raise TimeoutError
        return {
            result.resource_name: int(entry.value or "1")
            for result in answer.results
            for entry in result.configs
        }

    tasks = [asyncio.create_task(ask(port)) for port in ports]
    try:
        for first in asyncio.as_completed(tasks):
            with contextlib.suppress(*_FAILED):
                return await first
        return None
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _moves(ports: Collection[int]) -> dict[TopicPartition, Move]:
    """As far as they are told in time."""
    bootstrap = ",".join(f"{HOST}:{port}" for port in ports)
    try:
        async with asyncio.timeout(_ZOOKEEPER_S), ClusterClient(bootstrap, client_id=_CLIENT) as client:
            return await moves_under_way(client)
    except _FAILED:
        return {}
