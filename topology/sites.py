"""Sites of a topology (its datacenters), who is where, and what their ports are called in `Runtime.ports`.

With a simulated network a broker has one listener for each site, `FROM_<SITE>`, beside the plain one that
only the operator's own commands use (no link slows or cuts it). Who connects from another site does so at a
relay's port; the listener advertises that port, so all that a client learns there leads over the same link.
Brokers speak to each other on the listener of their own site. Names only; ports are chosen in `runtime`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from topology.ensembles import zookeeper_members
from topology.models import SITE_PAIR, Broker, Cluster, SiteLink, Topology

PLAIN_LISTENER = "PLAINTEXT"


def broker_site(cluster: Cluster, broker: Broker) -> str:
    return broker.datacenter or cluster.datacenter


def is_stretched(cluster: Cluster) -> bool:
    return len({broker_site(cluster, broker) for broker in cluster.brokers}) > 1


def simulated_sites(topology: Topology) -> tuple[str, ...]:
    """The sites between which the network is simulated; none without a `network` section."""
    return () if topology.network is None else tuple(topology.datacenters)


def site_links(topology: Topology) -> dict[tuple[str, str], SiteLink]:
    """Every direction between two sites, as declared."""
    sites = simulated_sites(topology)
    if topology.network is None:
        return {}
    found = {(a, b): topology.network.default for a in sites for b in sites if a != b}
    for name, link in topology.network.links.items():
        for pair in directions(name):
            found[pair] = link
    return found


def directions(name: str) -> list[tuple[str, str]]:
    """The one or two directions that `a->b` or `a<->b` names."""
    match = SITE_PAIR.fullmatch(name)
    if match is None:
        raise ValueError(f"'{name}' names no two sites")
    there = (match["source"], match["target"])
    return [there, there[::-1]] if match["arrow"] == "<->" else [there]


def listener_name(site: str) -> str:
    return f"FROM_{site.upper()}"


def listener_port(process: str, site: str) -> str:
    """Of the port where a broker listens for `site`."""
    return f"{process} for {site}"


def relay_port(process: str, site: str) -> str:
    """Of the port where `site` reaches a process of another site."""
    return f"{site} -> {process}"


@dataclass(frozen=True)
class Reached:
    """A port of a process that other sites connect to."""

    port_name: str
    site: str
    is_broker: bool = False


def reached_processes(topology: Topology) -> Iterator[Reached]:
    """Every port that the simulated network leads to; none without a `network` section."""
    if topology.network is None:
        return
    for alias, cluster in topology.clusters.items():
        for server in zookeeper_members(alias, cluster):
            for port in (server.name, *server.peer_ports):
                yield Reached(port, server.site)
        for broker in cluster.brokers:
            yield Reached(broker_name(alias, broker.id), broker_site(cluster, broker), is_broker=True)


def simulated_ports(topology: Topology) -> Iterator[str]:
    """All port names that the simulated network adds."""
    for process in reached_processes(topology):
        for site in simulated_sites(topology):
            if process.is_broker:
                yield listener_port(process.port_name, site)
            if site != process.site:
                yield relay_port(process.port_name, site)


def seen_port(process: Reached, site: str | None) -> str:
    """Name of the port where a client in `site` reaches the process; None: the operator's way, no link."""
    if site is None:
        return process.port_name
    if site != process.site:
        return relay_port(process.port_name, site)
    return listener_port(process.port_name, site) if process.is_broker else process.port_name


def broker_name(cluster: str, broker: int) -> str:
    return f"{cluster}-broker-{broker}"
