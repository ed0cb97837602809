"""Where the processes of a topology listen: ports chosen once, kept over restarts, readable by every command.

One JSON file in the data directory (`runtime.json`), written by the supervisor by rename, so that a reader
never sees half of it. It also tells which supervisor is running. Must not start anything.
"""

from __future__ import annotations

import json
import os
import random
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from topology.ensembles import zookeeper_members
from topology.models import Topology
from topology.sites import Reached, broker_name, broker_site, seen_port, simulated_ports

if TYPE_CHECKING:
    from protocol.client.access import Access

HOST = "127.0.0.1"
PORT_RANGE = 16_000
"""Free ports are looked for in so many below the kernel's own range."""


_STORED = ("ports", "metrics_ports", "supervisor_pid")


class NotRunning(Exception):
    """The topology has to be started first; the message says how."""


class DirectoryUnusable(Exception):
    """This user cannot read or write the data directory; the message says which and why."""

    def __init__(self, directory: Path, error: OSError) -> None:
        super().__init__(f"data directory {directory} cannot be used: {error.strerror}")


@dataclass
class Runtime:
    """Ports by process name (`east-zookeeper`, `east-broker-1`, `vault-store`) and the supervisor's pid."""

    directory: Path
    ports: dict[str, int] = field(default_factory=dict)
    metrics_ports: dict[str, int] = field(default_factory=dict)
    supervisor_pid: int | None = None

    @property
    def file(self) -> Path:
        return self.directory / "runtime.json"

    @property
    def socket(self) -> Path:
        return self.directory / "supervisor.sock"

    @classmethod
    def load(cls, directory: Path) -> Runtime:
        """What the last start chose; an empty runtime when the topology was never started.

        A file that a power cut left unreadable counts as none: the next start chooses again. Raises
        DirectoryUnusable.
        """
        runtime = cls(directory)
        try:
            stored: dict[str, Any] = json.loads(runtime.file.read_text(encoding="utf-8"))
            return cls(directory, **{name: stored[name] for name in _STORED})
        except OSError as error:
            if not isinstance(error, FileNotFoundError):
                raise DirectoryUnusable(directory, error) from None
        except (ValueError, KeyError, TypeError):
            pass
        return runtime

    def save(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        content = {name: getattr(self, name) for name in _STORED}
        fresh = self.file.with_suffix(".tmp")
        fresh.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        os.replace(fresh, self.file)

    def choose_ports(self, topology: Topology) -> None:
        """Settle every port: as declared, else the one of the last start if it is free, else a new one."""
        fixed = (*_declared(topology).values(), *_declared_metrics(topology).values())
        taken = {port for port in fixed if port}
        ports = {**_declared(topology), **dict.fromkeys(simulated_ports(topology), 0)}
        for name, declared in ports.items():
            self.ports[name] = declared or _keep_or_choose(self.ports.get(name), taken)
            taken.add(self.ports[name])
        for name, declared in _declared_metrics(topology).items():
            self.metrics_ports[name] = declared or _keep_or_choose(self.metrics_ports.get(name), taken)
            taken.add(self.metrics_ports[name])

    def taken_ports(self, topology: Topology, *, declared: bool) -> list[tuple[str, int]]:
        """Name and port, where somebody listens now: those that the file declares, or those chosen here.

        A broker has two ports under one name: what it serves at, and its metrics'.
        """
        kinds = ((self.ports, _declared(topology)), (self.metrics_ports, _declared_metrics(topology)))
        return [
            (name, port)
            for ports, fixed in kinds
            for name, port in ports.items()
            if (fixed.get(name, 0) == port) == declared and not _is_free(port)
        ]

    def access(self, topology: Topology, cluster: str, site: str | None = None) -> Access:
        """Where a cluster is and how to be let in; `site` as in `bootstrap_servers`. Raises NotRunning."""
        from protocol.client.access import Access  # a command that needs no client starts faster

        properties = {name: str(value) for name, value in topology.clusters[cluster].client.items()}
        return Access(self.bootstrap_servers(topology, cluster, site), properties, cluster)

    def bootstrap_servers(self, topology: Topology, cluster: str, site: str | None = None) -> str:
        """`host:port,…` of a cluster, wherever it runs. Raises NotRunning before the first start.

        With a simulated network, as clients in `site` reach it; None: past all links, for the operator.
        """
        spec = topology.clusters[cluster]
        if spec.bootstrap_servers is not None:
            return spec.bootstrap_servers
        brokers = [
            Reached(broker_name(cluster, broker.id), broker_site(spec, broker), is_broker=True)
            for broker in spec.brokers
        ]
        brokers.sort(key=lambda broker: broker.site != site)  # its own site's first
        return self._addresses(topology, brokers, site)

    def zookeeper_connect(self, topology: Topology, cluster: str, site: str | None = None) -> str:
        """As `bootstrap_servers`, of the cluster's ZooKeeper."""
        spec = topology.clusters[cluster]
        if spec.zookeeper.connect is not None:
            return spec.zookeeper.connect
        servers = [Reached(server.name, server.site) for server in zookeeper_members(cluster, spec)]
        servers.sort(key=lambda server: server.site != site)  # its own site's first
        return self._addresses(topology, servers, site)

    def zookeeper_preferred(self, topology: Topology, cluster: str, site: str) -> str:
        """Those of `zookeeper_connect` that are in the site; empty where that says nothing."""
        spec = topology.clusters[cluster]
        servers = [Reached(server.name, server.site) for server in zookeeper_members(cluster, spec)]
        own = [server for server in servers if server.site == site]
        return self._addresses(topology, own, site) if len(own) < len(servers) else ""

    def store_endpoint(self, topology: Topology, store: str) -> str | None:
        """URL of the S3 API; None means the provider's own (AWS)."""
        spec = topology.object_stores[store]
        if spec.kind == "s3":
            return spec.endpoint
        return f"http://{HOST}:{self._port(topology, store_name(store))}"

    def _addresses(self, topology: Topology, processes: list[Reached], site: str | None) -> str:
        seen = site if topology.network is not None else None
        return ",".join(f"{HOST}:{self._port(topology, seen_port(item, seen))}" for item in processes)

    def _port(self, topology: Topology, name: str) -> int:
        if name not in self.ports:
            raise NotRunning(
                f"{name} has no address yet: start topology '{topology.name}' first (isthmus up FILE)"
            )
        return self.ports[name]


def link_process_name(link: str) -> str:
    return f"link-{link.replace('->', '-to-')}"


def store_name(store: str) -> str:
    return f"{store}-store"


def _declared(topology: Topology) -> dict[str, int]:
    ports: dict[str, int] = {}
    for alias, cluster in topology.clusters.items():
        for server in zookeeper_members(alias, cluster):
            ports[server.name] = server.declared_port
            ports |= dict.fromkeys(server.peer_ports, 0)
        for broker in cluster.brokers:
            ports[broker_name(alias, broker.id)] = broker.port
    for alias, store in topology.object_stores.items():
        if store.kind == "local":
            ports[store_name(alias)] = store.port
    return ports


def _declared_metrics(topology: Topology) -> dict[str, int]:
    ports: dict[str, int] = {}
    for alias, cluster in topology.clusters.items():
        for broker in cluster.brokers:
            ports[broker_name(alias, broker.id)] = broker.metrics_port
    for name, link in topology.links.items():
        ports[link_process_name(name)] = link.metrics_port
    return ports


def _keep_or_choose(port: int | None, taken: set[int]) -> int:
    if port is not None and port not in taken and _is_free(port):
        return port
    while True:
        chosen = free_port()
        if chosen not in taken:
            return chosen


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def free_port() -> int:
    """A port that the kernel does not hand out by itself.

    One of the kernel's own (bind to 0) may be taken by an outgoing connection before our process binds
    it, or while the process is down in a drill. No seed decides which: two processes with one would choose
    alike.
    """
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """As many different ones."""
    lowest = _lowest_ephemeral_port()
    chance = random.SystemRandom()
    found: list[int] = []
    while len(found) < count:
        port = chance.randrange(max(lowest - PORT_RANGE, 1024), lowest)
        if port not in found and _is_free(port):
            found.append(port)
    return found


def _lowest_ephemeral_port() -> int:
    try:
        words = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()
        return max(int(words[0]), 2048)
    except (OSError, ValueError, IndexError):
        return 32768
