"""What acks=all costs in a stretched cluster: produce latency predicted from round trips between its sites.

Pure. A write with acks=all is acknowledged when every in-sync replica has it (Kafka: high watermark), not the
nearest majority, so the farthest follower that keeps up counts:

    producer -> leader                     half a round trip P-L
    leader answers the follower's fetch    half a round trip L-F if a fetch waits there (idle); else the one
                                           under way has to come first: half of a round trip L-F on average,
                                           a whole one at worst
    follower's next fetch says it has it   half a round trip L-F
    leader -> producer                     half a round trip P-L

So idle RTT(P,L) + max RTT(L,F), under steady load RTT(P,L) + 1.5 max RTT(L,F) on average, at worst
RTT(P,L) + 2 max RTT(L,F). Bandwidth, loss and the work of brokers add to it. With acks=1 no follower counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from topology.models import Cluster, Topology
from topology.sites import broker_site, site_links

STRETCH_LIMIT_S = 0.030
"""Round trip up to which a stretched cluster is advised (DESIGN §1)."""

Pair = tuple[str, str]


@dataclass(frozen=True)
class ProduceLatency:
    """Seconds for a producer in one site and partitions that are led in another (or the same)."""

    producer: str
    leader: str
    follower: str
    """The farthest site with a follower."""
    to_leader: float
    to_follower: float

    @property
    def idle(self) -> float:
        return self.to_leader + self.to_follower

    @property
    def average(self) -> float:
        """Under steady load."""
        return self.to_leader + 1.5 * self.to_follower

    @property
    def worst(self) -> float:
        return self.to_leader + 2 * self.to_follower


def round_trip(one_way: Mapping[Pair, float], a: str, b: str) -> float:
    return 0.0 if a == b else one_way[a, b] + one_way[b, a]


def produce_latency(
    one_way: Mapping[Pair, float], producer: str, leader: str, followers: Iterable[str]
) -> ProduceLatency:
    """`one_way`: seconds by direction; `followers`: sites of the in-sync replicas beside the leader."""
    trips = {site: round_trip(one_way, leader, site) for site in followers}
    farthest = max(trips, key=lambda site: trips[site], default=leader)
    return ProduceLatency(
        producer, leader, farthest, round_trip(one_way, producer, leader), trips.get(farthest, 0.0)
    )


def one_way_delays(topology: Topology) -> dict[Pair, float]:
    return {pair: link.delay for pair, link in site_links(topology).items()}


def latency_warnings(topology: Topology, measured: Mapping[Pair, float] | None = None) -> list[str]:
    """One line for each stretched cluster whose sites are farther apart than is advised.

    `measured` are delays of now (seconds one way), instead of those that the topology declares.
    """
    one_way = one_way_delays(topology) if measured is None else measured
    found = []
    for alias, cluster in topology.clusters.items():
        sites = sorted({broker_site(cluster, broker) for broker in cluster.brokers})
        far = {
            (a, b): round_trip(one_way, a, b)
            for a in sites
            for b in sites
            if a < b and one_way and round_trip(one_way, a, b) > STRETCH_LIMIT_S
        }
        if far:
            found.append(_warning(alias, cluster, sites, far, one_way))
    return found


def _warning(
    alias: str, cluster: Cluster, sites: list[str], far: Mapping[Pair, float], one_way: Mapping[Pair, float]
) -> str:
    names = ", ".join(f"{a} and {b} ({_ms(trip)})" for (a, b), trip in far.items())
    replicated = max(
        [int(cluster.settings.get("default.replication.factor", 1))]
        + [topic.replication_factor for topic in cluster.topics.values()]
    )
    text = (
        f"cluster {alias} is stretched over more than {_ms(STRETCH_LIMIT_S)} there and back: {names}."
        " A stretched cluster is advised up to that; beyond it use a cluster in each datacenter and links"
    )
    if replicated < 2:
        return (
            f"{text}. (Its topics have one replica, so only producers in another site than the leader wait.)"
        )
    predicted = [
        produce_latency(one_way, producer, leader, [site for site in sites if site != leader])
        for producer in sites
        for leader in sites
    ]
    best, worst = min(predicted, key=lambda each: each.idle), max(predicted, key=lambda each: each.worst)
    return (
        f"{text}. Predicted for acks=all with replicas in all sites: from {_ms(best.idle)} (producer in"
        f" {best.producer}, leader in {best.leader}, idle) to {_ms(worst.worst)} (producer in"
        f" {worst.producer}, leader in {worst.leader}, follower in {worst.follower}, under load)"
    )


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"
