"""Where one site reaches the processes of another: what brokers tell clients, and the relays behind that.

Owns turning a topology with a `network` section and its settled ports into what the simulated network has to
carry. Without that section everything is reached at its own port. The network itself: `topology/network`.
"""

from __future__ import annotations

from pathlib import Path

from topology.ensembles import EnsembleMember, ensemble_arguments
from topology.models import Broker, Cluster, SiteLink, Topology
from topology.network.line import LineSettings
from topology.network.process import NetworkPlan
from topology.network.relay import Route
from topology.runtime import HOST, Runtime
from topology.sites import (
    PLAIN_LISTENER,
    Reached,
    broker_name,
    broker_site,
    listener_name,
    listener_port,
    reached_processes,
    relay_port,
    seen_port,
    simulated_sites,
    site_links,
)
from topology.sockets import short_socket_path


def network_plan(topology: Topology, runtime: Runtime) -> NetworkPlan:
    """What the process `isthmus net run` has to carry. Only for a topology with simulated sites."""
    routes = []
    for process in reached_processes(topology):
        for site in simulated_sites(topology):
            if site == process.site:
                continue
            target = listener_port(process.port_name, site) if process.is_broker else process.port_name
            port = runtime.ports[relay_port(process.port_name, site)]
            routes.append(Route(process.port_name, site, process.site, port, runtime.ports[target]))
    return NetworkPlan(
        sites=simulated_sites(topology),
        declared={pair: line_settings(link) for pair, link in site_links(topology).items()},
        routes=tuple(routes),
        socket=network_socket(runtime),
        state_file=runtime.directory / "network.json",
        session=runtime.supervisor_pid or 0,
    )


def network_socket(runtime: Runtime) -> Path:
    return short_socket_path(runtime.directory / "network.sock")


def line_settings(link: SiteLink) -> LineSettings:
    return LineSettings(link.delay, link.jitter, link.loss, link.bandwidth, link.up)


def listener_arguments(
    topology: Topology, runtime: Runtime, alias: str, cluster: Cluster, broker: Broker
) -> tuple[str, ...]:
    """The part of a broker's command line that says where it listens and what it tells whom."""
    name, home = broker_name(alias, broker.id), broker_site(cluster, broker)
    plain = f"{PLAIN_LISTENER}://{HOST}:{runtime.ports[name]}"
    sites = simulated_sites(topology)
    if not sites:
        return ("--listener", plain)
    arguments = ["--listener", plain, "--advertised-listener", plain]
    for site in sites:
        own = runtime.ports[listener_port(name, site)]
        told = own if site == home else runtime.ports[relay_port(name, site)]
        arguments += ["--listener", f"{listener_name(site)}://{HOST}:{own}"]
        arguments += ["--advertised-listener", f"{listener_name(site)}://{HOST}:{told}"]
    protocols = [f"{item}:PLAINTEXT" for item in (PLAIN_LISTENER, *map(listener_name, sites))]
    arguments += ["--set", f"listener.security.protocol.map={','.join(protocols)}"]
    arguments += ["--set", f"inter.broker.listener.name={listener_name(home)}"]
    return tuple(arguments)


def ensemble_addresses(
    topology: Topology, runtime: Runtime, alias: str, cluster: Cluster, own: EnsembleMember
) -> tuple[str, ...]:
    """The part of a ZooKeeper server's command line that says where it reaches the others of its ensemble."""
    simulated = topology.network is not None

    def address(port_name: str, server: EnsembleMember) -> tuple[str, int]:
        seen_from = own.site if simulated else None
        return HOST, runtime.ports[seen_port(Reached(port_name, server.site), seen_from)]

    return tuple(ensemble_arguments(alias, cluster, own, address, relayed=simulated))
