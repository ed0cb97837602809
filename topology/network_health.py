"""What is cut in the simulated network of a running topology, for `isthmus status`."""

from __future__ import annotations

from collections.abc import Collection

from topology.models import Topology
from topology.network.control import NetworkNotRunning, NetworkRefused, ask
from topology.processes import NETWORK
from topology.routes import network_socket
from topology.runtime import Runtime

Direction = tuple[str, str]


async def network_problems(topology: Topology, runtime: Runtime, file: str) -> dict[str, str]:
    """By process name (there is one), the links that are cut; empty when all are up or none is simulated."""
    if topology.network is None:
        return {}
    try:
        links = await ask(network_socket(runtime), {"do": "show"})
    except (NetworkNotRunning, NetworkRefused) as error:
        return {NETWORK: str(error)}
    cut = [(link["from"], link["to"]) for link in links if not link["up"]]
    if not cut:
        return {}
    named = ", ".join(f"{source}->{target}" for source, target in cut)
    alone = _alone(list(topology.datacenters), cut)
    return {NETWORK: f"links cut: {named}{alone}; isthmus net heal {file} mends all links"}


def _alone(sites: Collection[str], cut: Collection[Direction]) -> str:
    """Sites that reach no other, in words: a link that is cut one way carries no connection."""
    lonely = [
        site
        for site in sites
        if all((site, other) in cut or (other, site) in cut for other in sites if other != site)
    ]
    if not lonely:
        return ""
    if len(lonely) == len(sites):
        return "; no site reaches another one"
    return f"; {' and '.join(lonely)} {'reaches' if len(lonely) == 1 else 'reach'} no other site"
