"""What is cut in the simulated network of a running topology, for `isthmus status`."""

from __future__ import annotations

from topology.models import Topology
from topology.network.control import NetworkNotRunning, NetworkRefused, ask
from topology.processes import NETWORK
from topology.routes import network_socket
from topology.runtime import Runtime


async def network_problems(topology: Topology, runtime: Runtime) -> dict[str, str]:
    """By process name (there is one), the links that are cut; empty when all are up or none is simulated."""
    if topology.network is None:
        return {}
    try:
        links = await ask(network_socket(runtime), {"do": "show"})
    except (NetworkNotRunning, NetworkRefused) as error:
        return {NETWORK: str(error)}
    cut = [f"{link['from']}->{link['to']}" for link in links if not link["up"]]
    return {NETWORK: f"links cut: {', '.join(cut)}"} if cut else {}
