"""Who may reach the REST of a topology's links, where that is more than this machine itself.

Pure. REST pauses links and changes their settings, so whoever reaches it may stop the copying.
"""

from __future__ import annotations

from replicator.rest.hosts import is_local
from topology.models import Topology


def rest_warnings(topology: Topology) -> list[str]:
    rest = topology.rest
    if rest is None or is_local(rest.host):
        return []
    where = f"rest: host {rest.host} is reached from other machines"
    found = []
    if rest.token_file is None and rest.client_ca is None:
        found.append(f"{where}, who could pause links: isthmus replicate wants a token_file, or a client_ca")
    if rest.keystore is None:
        found.append(f"{where} in clear, its token too: give it a keystore (key and certificate in PEM)")
    return found
