"""ZooKeeper servers of a topology: who they are, where they stand, what each is told of the others.

Owns turning `zookeeper.servers` of a cluster into processes, ports and command lines; without that list a
cluster has one stand-alone server. The configuration itself: `broker/control/zookeeper_ensemble`.
Must not know how sites reach each other: addresses are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from broker.control.zookeeper_ensemble import WILDCARD, EnsembleServer, Quorums
from topology.models import Cluster, ZooKeeper

Address = tuple[str, int]


@dataclass(frozen=True)
class EnsembleMember:
    """A ZooKeeper server that is started here. `id` is 0 for one that stands alone."""

    name: str
    """Of the process, and of its client port in `Runtime.ports`."""
    id: int
    site: str
    declared_port: int = 0

    @property
    def quorum_port(self) -> str:
        """Name of the port where the leader takes in followers."""
        return f"{self.name} quorum"

    @property
    def election_port(self) -> str:
        return f"{self.name} election"

    @property
    def peer_ports(self) -> tuple[str, ...]:
        """Names of the ports for the other servers."""
        return (self.quorum_port, self.election_port) if self.id else ()


def zookeeper_members(alias: str, cluster: Cluster) -> tuple[EnsembleMember, ...]:
    """The servers that are started here for a cluster; none where the operator has an ensemble."""
    spec = cluster.zookeeper
    if not cluster.brokers or spec.connect is not None:
        return ()
    name = f"{alias}-zookeeper"
    if not spec.servers:
        return (EnsembleMember(name, 0, cluster.datacenter, spec.port),)
    return tuple(
        EnsembleMember(f"{name}-{each.id}", each.id, each.datacenter or cluster.datacenter, each.port)
        for each in spec.servers
    )


def quorums(spec: ZooKeeper) -> Quorums:
    """Which servers of an ensemble may decide together."""
    return Quorums(
        tuple(server.id for server in spec.servers),
        tuple(server_groups(spec).values()),
        {server.id: server.weight for server in spec.servers},
    )


def server_groups(spec: ZooKeeper) -> dict[str, tuple[int, ...]]:
    """Ids by name of the group, as they come in the file; empty without hierarchical quorums."""
    groups: dict[str, list[int]] = {}
    for server in spec.servers:
        if server.group is not None:
            groups.setdefault(server.group, []).append(server.id)
    return {name: tuple(members) for name, members in groups.items()}


def ensemble_arguments(
    alias: str,
    cluster: Cluster,
    own: EnsembleMember,
    address: Callable[[str, EnsembleMember], Address],
    *,
    relayed: bool,
) -> Iterator[str]:
    """The part of a server's command line that tells of its ensemble; nothing for one that stands alone.

    `address(port name, server)` is where the server `own` reaches that port of another. With `relayed`
    addresses its own is the wildcard: ZooKeeper servers would tell each other their own address in elections,
    and dial past the relays.
    """
    if not own.id:
        return
    yield from ("--id", str(own.id))
    for member in zookeeper_members(alias, cluster):
        host, quorum = address(member.quorum_port, member)
        election = address(member.election_port, member)[1]
        host = WILDCARD if relayed and member == own else host
        yield from ("--server", str(EnsembleServer(member.id, host, quorum, election)))
    for group in server_groups(cluster.zookeeper).values():
        yield from ("--group", ":".join(map(str, group)))
    for server in cluster.zookeeper.servers:
        if server.weight != 1:
            yield from ("--weight", f"{server.id}={server.weight}")
