"""What the loss of one site means for topics of a stretched cluster: are records kept, can they be written.

Pure. Replicas are spread evenly over the sites (rack-aware assignment), so of RF replicas over S sites the
fullest holds ceil(RF / S). Two things may go wrong, and each is said before it happens:

- an acknowledged record was in the lost site only: min.insync.replicas is not above what one site holds;
- nothing can be written any more: fewer replicas than min.insync.replicas are left, until somebody lowers it.

Group positions and transactions live in topics of their own, with settings of their own, and are counted too.
Where unclean elections are allowed none of this holds, which is said as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil

from broker.config.cluster_settings import CoordinatorSettings
from topology.broker_settings import text_of
from topology.models import Cluster, Topology
from topology.sites import broker_site, is_stretched

_MIN_ISR = "min.insync.replicas"
_UNCLEAN = "unclean.leader.election.enable"
_OFFSETS_REPLICAS = "offsets.topic.replication.factor"
_TRANSACTIONS_REPLICAS = "transaction.state.log.replication.factor"
_TRANSACTIONS_MIN_ISR = "transaction.state.log.min.isr"


def never_written_warnings(topology: Topology) -> list[str]:
    """Topics of which no record with acks=all is ever taken, in clusters of any shape."""
    return [
        f"cluster {alias}, {name}: {_MIN_ISR} {minimum} is above its replication factor {replicas}:"
        " every write with acks=all is refused"
        for alias, cluster in topology.clusters.items()
        if cluster.brokers
        for name, replicas, minimum in (*_topics(cluster), *_internal(cluster))
        if minimum > replicas
    ]


def site_loss_warnings(topology: Topology) -> list[str]:
    return [
        warning
        for alias, cluster in topology.clusters.items()
        if is_stretched(cluster)
        for warning in _of_cluster(alias, cluster)
    ]


def _of_cluster(alias: str, cluster: Cluster) -> Iterator[str]:
    yield from _unclean(alias, cluster)
    sites = len({broker_site(cluster, broker) for broker in cluster.brokers})
    for name, replicas, minimum in (*_topics(cluster), *_internal(cluster)):
        if minimum > replicas:
            continue  # never written at all: said by itself
        in_one = ceil(replicas / sites)
        where = (
            f"cluster {alias}, {name} (replication factor {replicas}, {_MIN_ISR} {minimum}, {sites} sites)"
        )
        if minimum <= in_one:
            yield (
                f"{where}: a record may be acknowledged while only one site has it, and is lost with it;"
                f" {_MIN_ISR} above {in_one} and a replication factor of at least {in_one + 1} prevent that"
            )
        elif replicas - in_one < minimum:
            yield (
                f"{where}: when a site is lost nothing is, but writes with acks=all stop until"
                f" isthmus configs min-isr lower --to {replicas - in_one} --cluster {alias}"
            )


def _topics(cluster: Cluster) -> Iterator[tuple[str, int, int]]:
    """Name, replication factor and min ISR of the declared topics, and of those made by default."""
    default = int(cluster.settings.get(_MIN_ISR, 1))
    for name, topic in cluster.topics.items():
        yield f"topic {name}", topic.replication_factor, int(topic.configs.get(_MIN_ISR, default))
    yield "topics by default", int(cluster.settings.get("default.replication.factor", 1)), default


def _internal(cluster: Cluster) -> Iterator[tuple[str, int, int]]:
    settings = cluster.settings
    yield (
        f"group positions ({_OFFSETS_REPLICAS})",
        int(settings.get(_OFFSETS_REPLICAS, CoordinatorSettings.offsets_topic_replication_factor)),
        int(settings.get(_MIN_ISR, 1)),
    )
    yield (
        f"transactions ({_TRANSACTIONS_REPLICAS}, {_TRANSACTIONS_MIN_ISR})",
        int(
            settings.get(_TRANSACTIONS_REPLICAS, CoordinatorSettings.transaction_state_log_replication_factor)
        ),
        int(settings.get(_TRANSACTIONS_MIN_ISR, CoordinatorSettings.transaction_state_log_min_isr)),
    )


def _unclean(alias: str, cluster: Cluster) -> Iterator[str]:
    allowed = [
        f"topic {name}"
        for name, topic in cluster.topics.items()
        if text_of(topic.configs.get(_UNCLEAN, "")) == "true"
    ]
    if text_of(cluster.settings.get(_UNCLEAN, "")) == "true":
        allowed.insert(0, "all topics that do not say otherwise")
    if allowed:
        yield (
            f"cluster {alias}, {', '.join(allowed)}: {_UNCLEAN} lets a replica that lacks acknowledged"
            " records lead when a site is lost or cut off: they are gone without a word to their producers;"
            " leave it off and elect by hand (isthmus elect), which shows what would be lost"
        )
