"""Which processes a topology consists of, and the command line of each.

Every process is an `isthmus` command that prints one `isthmus … ready` line when it serves and ends cleanly
on SIGTERM, so that the supervisor needs to know nothing else about it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from topology.broker_settings import text_of
from topology.ensembles import zookeeper_members
from topology.models import Cluster, Scalar, Topology
from topology.routes import ensemble_addresses, listener_arguments
from topology.runtime import Runtime, link_process_name, store_name
from topology.sites import broker_name, broker_site

Kind = Literal["network", "zookeeper", "broker", "store", "link"]

START_ORDER: tuple[Kind, ...] = ("network", "zookeeper", "store", "broker", "link")

ZOOKEEPER_WAIT_MS = 50_000
"""Of brokers whose ZooKeeper is started just before them: servers of an ensemble have to find each other,
which takes longer than a session on a busy machine. Less than the supervisor waits: the broker says why."""

NETWORK = "network"
"""Name of the process that carries the simulated links."""


@dataclass(frozen=True)
class ProcessSpec:
    name: str
    kind: Kind
    datacenter: str
    owner: str
    """The cluster, link or object store that the process belongs to."""
    arguments: tuple[str, ...]
    autostart: bool

    @property
    def command(self) -> tuple[str, ...]:
        return (sys.executable, "-m", "isthmus", *self.arguments)


def process_specs(topology: Topology, runtime: Runtime, file: Path) -> dict[str, ProcessSpec]:
    """All processes by name, in start order. `file` is the topology's YAML (links read it again)."""
    specs: list[ProcessSpec] = []
    if topology.network is not None:
        specs.append(_network(topology, file))
    for alias, cluster in topology.clusters.items():
        specs.extend(_zookeeper(topology, runtime, alias, cluster))
        specs.extend(_brokers(topology, runtime, alias, cluster))
    for alias, store in topology.object_stores.items():
        if store.kind == "local":
            arguments = ("object-store", "--port", str(runtime.ports[store_name(alias)]))
            place = store.datacenter or next(iter(topology.datacenters))
            specs.append(ProcessSpec(store_name(alias), "store", place, alias, arguments, autostart=True))
    for name, link in topology.links.items():
        process = link_process_name(name)
        metrics = str(runtime.metrics_ports[process])
        command = (
            "replicate",
            str(file),
            *("--link", name),
            *("--data-directory", str(topology.data_directory)),
            *("--metrics-port", metrics),
            "--no-rest",  # one port for several processes
        )
        place = topology.link_datacenter(name)
        specs.append(ProcessSpec(process, "link", place, name, command, link.autostart))
    specs.sort(key=lambda spec: START_ORDER.index(spec.kind))
    return {spec.name: spec for spec in specs}


def _network(topology: Topology, file: Path) -> ProcessSpec:
    """The simulated links. It stands in no datacenter, so that the loss of one leaves it alone."""
    arguments = ("net", "run", str(file), "--data-directory", str(topology.data_directory))
    return ProcessSpec(NETWORK, "network", "-", NETWORK, arguments, autostart=True)


def _zookeeper(topology: Topology, runtime: Runtime, alias: str, cluster: Cluster) -> list[ProcessSpec]:
    return [
        ProcessSpec(
            server.name,
            "zookeeper",
            server.site,
            alias,
            (
                "zookeeper",
                *("--port", str(runtime.ports[server.name])),
                *("--data", str(topology.data_directory / server.name)),
                *("--heap-mb", str(cluster.zookeeper.heap_mb)),
                *ensemble_addresses(topology, runtime, alias, cluster, server),
            ),
            cluster.autostart,
        )
        for server in zookeeper_members(alias, cluster)
    ]


def _zookeeper_settings(topology: Topology, runtime: Runtime, alias: str, site: str) -> dict[str, Scalar]:
    """How a broker finds ZooKeeper, where the file does not say it."""
    settings: dict[str, Scalar] = {}
    if zookeeper_members(alias, topology.clusters[alias]):
        settings["zookeeper.connection.timeout.ms"] = ZOOKEEPER_WAIT_MS
    if near := runtime.zookeeper_preferred(topology, alias, site):
        settings["zookeeper.connect.preferred"] = near
    return settings


def _brokers(topology: Topology, runtime: Runtime, alias: str, cluster: Cluster) -> list[ProcessSpec]:
    specs = []
    for broker in cluster.brokers:
        name = broker_name(alias, broker.id)
        place = broker_site(cluster, broker)
        own = _zookeeper_settings(topology, runtime, alias, place)
        settings = {**own, **cluster.settings, **broker.settings}
        arguments = (
            "broker",
            *("--id", str(broker.id)),
            *listener_arguments(topology, runtime, alias, cluster, broker),
            *("--zookeeper", runtime.zookeeper_connect(topology, alias, place)),
            *("--data", str(topology.data_directory / name)),
            *("--rack", broker.rack or place),
            *("--metrics-port", str(runtime.metrics_ports[name])),
            *(part for key, value in settings.items() for part in ("--set", f"{key}={text_of(value)}")),
        )
        specs.append(ProcessSpec(name, "broker", place, alias, arguments, cluster.autostart))
    return specs
