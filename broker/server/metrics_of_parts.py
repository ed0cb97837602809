"""Gauges and counters of the broker's parts, read at scrape time; nothing here runs between scrapes.

Names are those that the usual rules of the Kafka JMX exporter make; what Kafka does not have begins with
`isthmus_`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from broker.coordinator.groups.states import GroupState

if TYPE_CHECKING:
    from broker.server.app import Broker

Samples = Iterator[tuple[tuple[str, ...], float]]

_LISTENER_COUNTERS = (
    ("isthmus_broker_connections_accepted", "accepted", "Connections accepted since the start"),
    ("isthmus_broker_connections_refused", "refused_count", "Connections closed for what they sent"),
    ("isthmus_broker_connections_idle_closed", "idle_closed", "Connections closed for silence"),
    ("isthmus_broker_connections_throttled", "throttled", "Connections that waited for their turn (KIP-612)"),
)
_SOCKET = "kafka_server_socketservermetrics"
_GATE_COUNTERS = (
    (f"{_SOCKET}_successful_authentication", "authenticated", "Clients that proved who they are"),
    (f"{_SOCKET}_failed_authentication", "failed", "Clients that were refused"),
    (f"{_SOCKET}_successful_reauthentication", "reauthenticated", "Sessions that were renewed (KIP-368)"),
    (f"{_SOCKET}_expired_connections_killed", "expired", "Connections closed for a session that had ended"),
)
_LOG_GAUGES = (
    ("kafka_log_log_logendoffset", "end_offset", "End offset of the log"),
    ("kafka_log_log_logstartoffset", "start_offset", "Start offset of the log"),
    ("kafka_log_log_size", "size", "Bytes of record batches"),
)

_GROUPS = "kafka_coordinator_group_groupmetadatamanager"


def add_part_metrics(broker: Broker) -> None:
    metrics, dispatcher = broker.metrics, broker.dispatcher
    for name, counts, text in (
        ("kafka_network_requestmetrics_requests", dispatcher.requests, "Requests taken"),
        ("kafka_network_requestmetrics_errors", dispatcher.failures, "Requests that failed in the broker"),
    ):
        metrics.counter(name, text, ("request",), partial(_by_api, broker, counts))
    for name, attribute, text in _LISTENER_COUNTERS:
        metrics.counter(name, text, ("listener",), partial(_by_listener, broker, attribute))
    for name, attribute, text in _GATE_COUNTERS:
        metrics.counter(name, text, ("listener",), partial(_by_gate, broker, attribute))
    metrics.gauge(
        "kafka_server_socketservermetrics_connection_count",
        "Open connections",
        ("listener",),
        partial(_connections, broker),
    )
    for name, single, text in (
        ("isthmus_broker_tasks", _tasks, "Work in flight: tasks of the event loop"),
        ("kafka_server_replicamanager_partitioncount", _partition_count, "Replicas on this broker"),
        ("kafka_server_replicamanager_leadercount", _leader_count, "Partitions led by this broker"),
        ("kafka_controller_kafkacontroller_activecontrollercount", _controller_count, "1 on the controller"),
        (
            "kafka_server_replicamanager_underreplicatedpartitions",
            _under_replicated,
            "Partitions led here whose replicas are not all in sync",
        ),
        (
            "kafka_server_replicamanager_underminisrpartitioncount",
            _under_min_isr,
            "Partitions led here with fewer replicas in sync than min.insync.replicas",
        ),
    ):
        metrics.gauge(name, text, (), partial(single, broker))
    for name, attribute, text in (
        ("kafka_server_replicamanager_isrshrinks", "shrunk", "Times that a replica left an ISR led here"),
        ("kafka_server_replicamanager_isrexpands", "expanded", "Times that a replica joined an ISR led here"),
    ):
        metrics.counter(name, text, (), partial(_isr_changes, broker, attribute))
    metrics.gauge(
        "kafka_server_fetcherlagmetrics_consumerlag",
        "Readable records of the leader that this follower does not have yet",
        ("topic", "partition"),
        partial(_follower_lags, broker),
    )
    for name, attribute, text in _LOG_GAUGES:
        metrics.gauge(name, text, ("topic", "partition"), partial(_by_partition, broker, attribute))
    for state in GroupState:
        if state is not GroupState.DEAD:
            name = f"{_GROUPS}_numgroups{state.value.lower()}"
            metrics.gauge(name, f"Groups in state {state.value}", (), partial(_groups_in, broker, state))
    metrics.gauge(f"{_GROUPS}_numgroups", "Groups coordinated here", (), partial(_groups, broker))
    metrics.gauge(f"{_GROUPS}_numoffsets", "Committed offsets of these groups", (), partial(_offsets, broker))


def _by_api(broker: Broker, counts: dict[int, int]) -> Samples:
    for entry in broker.registry:
        yield (entry.name,), counts.get(entry.key, 0)


def _by_listener(broker: Broker, attribute: str) -> Samples:
    for name, listener in broker.listeners.items():
        yield (name,), getattr(listener, attribute)


def _by_gate(broker: Broker, attribute: str) -> Samples:
    for name, listener in broker.listeners.items():
        if listener.gate is not None:
            yield (name,), getattr(listener.gate, attribute)


def _connections(broker: Broker) -> Samples:
    for name, listener in broker.listeners.items():
        yield (name,), len(listener.connections)


def _tasks(broker: Broker) -> Samples:
    yield (), len(asyncio.all_tasks())


def _partition_count(broker: Broker) -> Samples:
    yield (), len(broker.replicas)


def _leader_count(broker: Broker) -> Samples:
    yield (), sum(partition.is_leader for partition in broker.replicas)


def _under_replicated(broker: Broker) -> Samples:
    yield (), sum(each.is_leader and len(each.isr) < len(each.replicas) for each in broker.replicas)


def _under_min_isr(broker: Broker) -> Samples:
    wanting = (
        each.is_leader and len(each.isr) < each.log.config.min_insync_replicas for each in broker.replicas
    )
    yield (), sum(wanting)


def _isr_changes(broker: Broker, attribute: str) -> Samples:
    yield (), getattr(broker.replicating.isr_updates, attribute)


def _follower_lags(broker: Broker) -> Samples:
    for (topic, partition), lag in broker.replicating.fetchers.lags().items():
        yield (topic, str(partition)), lag


def _controller_count(broker: Broker) -> Samples:
    yield (), float(broker.controller is not None and broker.controller.active)


def _by_partition(broker: Broker, attribute: str) -> Samples:
    for tp in broker.logs:
        log = broker.logs.get(tp)
        if log is not None:
            yield (tp.topic, str(tp.partition)), getattr(log, attribute)


def _groups(broker: Broker) -> Samples:
    yield (), len(broker.groups.all_groups())


def _groups_in(broker: Broker, state: GroupState) -> Samples:
    yield (), sum(group.state is state for group in broker.groups.all_groups())


def _offsets(broker: Broker) -> Samples:
    yield (), broker.groups.offsets.count()
