"""What a valid topology will mean: no mistakes, but consequences that are better known before.

Collects the checks, which live beside what they are about, for `isthmus topology validate` and `isthmus up`.
"""

from __future__ import annotations

from topology.latency import latency_warnings
from topology.models import Topology
from topology.quorums import quorum_warnings
from topology.rest_access import rest_warnings
from topology.site_loss import never_written_warnings, site_loss_warnings


def topology_warnings(topology: Topology) -> list[str]:
    return [
        *never_written_warnings(topology),
        *latency_warnings(topology),
        *site_loss_warnings(topology),
        *quorum_warnings(topology),
        *rest_warnings(topology),
    ]
