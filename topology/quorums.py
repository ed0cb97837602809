"""What the loss of a site, or a cut between sites, leaves of a cluster's ZooKeeper ensemble.

Pure. Without a quorum nothing is elected and no in-sync replica is left out; brokers stop taking writes when
their sessions are over. Two quorums always share a server, so two sides never believe by themselves; a person
who writes a lost group or site out of the configuration takes that away, and is told so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations

from broker.control.zookeeper_ensemble import Quorums
from topology.ensembles import quorums, zookeeper_members
from topology.models import Cluster, Topology
from topology.sites import broker_site


def quorum_warnings(topology: Topology) -> list[str]:
    return [
        warning
        for alias, cluster in topology.clusters.items()
        if cluster.zookeeper.servers and zookeeper_members(alias, cluster)
        for warning in _of_cluster(alias, cluster)
    ]


def _of_cluster(alias: str, cluster: Cluster) -> Iterator[str]:
    what, rules = f"cluster {alias}, ZooKeeper", quorums(cluster.zookeeper)
    sites: dict[str, set[int]] = {}
    for member in zookeeper_members(alias, cluster):
        sites.setdefault(member.site, set()).add(member.id)
    if len(sites) == 1:
        [site] = sites
        if {broker_site(cluster, broker) for broker in cluster.brokers} != {site}:
            yield f"{what}: all its servers are in {site}; when that is lost, nothing can be written anywhere"
        return
    for site, servers in sites.items():
        if not rules.holds(set(rules.servers) - servers):
            yield (
                f"{what}: when {site} is lost, the rest has no quorum: no leader is elected and nothing can"
                " be written until a person changes the ensemble; a server in a third site (a tie-breaker),"
                " or groups in three sites, prevent that"
            )
    for side, other in _cuts(sites):
        if not rules.holds(_servers(sites, side)) and not rules.holds(_servers(sites, other)):
            yield (
                f"{what}: a cut between {' + '.join(side)} and {' + '.join(other)} LEAVES NO WRITER:"
                " neither side has a quorum. Whoever then takes the other side out of the configuration must"
                " do it on ONE side only and know that the other one is down: done on both, TWO SIDES BELIEVE"
                " and their records differ for ever"
            )
    yield from _without_gain(what, rules)


def _without_gain(what: str, rules: Quorums) -> Iterator[str]:
    count = len(rules.counted_groups or rules.servers)
    if count % 2 == 0:
        kind = "groups" if rules.groups else "servers"
        yield (
            f"{what}: {count} {kind} survive the loss of {count // 2 - 1}, as {count - 1} do:"
            " use an odd number"
        )


def _cuts(sites: Mapping[str, set[int]]) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Every way to cut the sites in two."""
    first, *rest = sites
    return [
        ((first, *side), tuple(site for site in rest if site not in side))
        for size in range(len(rest))
        for side in combinations(rest, size)
    ]


def _servers(sites: Mapping[str, set[int]], side: tuple[str, ...]) -> set[int]:
    return set().union(*(sites[site] for site in side))
