"""How the partitions of a cluster stand: which lack replicas, a leader, or a person's word.

Pure. Owns `PartitionHealth`, in the terms of Kafka's `kafka-topics --describe` (under-replicated, under and
at min ISR) and of KIP-966: a partition without a leader although a member of its ISR is running waits for a
person (`isthmus elect`). Replicas that a move is adding are no lack. Asking the brokers: `cluster_health`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from protocol.client import Metadata, PartitionMetadata, TopicMetadata
from protocol.counted import counted
from protocol.types import TopicPartition
from topology.moves import Move

MIN_ISR = "min.insync.replicas"
_NAMED = 5
"""So many partitions are named in a line for people; all of them in JSON."""


@dataclass(frozen=True)
class PartitionHealth:
    """Partitions of one cluster, by what is wrong with them; one may be in several lists."""

    topics: int
    partitions: int
    under_replicated: tuple[TopicPartition, ...]
    at_min_isr: tuple[TopicPartition, ...]
    under_min_isr: tuple[TopicPartition, ...]
    offline: tuple[TopicPartition, ...]
    waiting_for_election: tuple[TopicPartition, ...]
    leader_away: tuple[TopicPartition, ...] = ()
    """Led by a broker that takes no writes: it does not answer, or may have lost its leadership."""
    min_isr_known: bool = True
    """Without it nobody can say what is under or at min ISR."""

    @property
    def healthy(self) -> bool:
        return self.min_isr_known and not (self.under_replicated or self.unwritable)

    @property
    def unwritable(self) -> tuple[TopicPartition, ...]:
        """Where no write with acks=all is acknowledged."""
        return tuple(sorted({*self.offline, *self.leader_away, *self.under_min_isr}))

    def as_json(self) -> dict[str, Any]:
        """Counts, and the names beside them; null is what nobody knows."""
        lists = {
            "under_replicated": self.under_replicated,
            "at_min_isr": self.at_min_isr if self.min_isr_known else None,
            "under_min_isr": self.under_min_isr if self.min_isr_known else None,
            "offline": self.offline,
            "waiting_for_election": self.waiting_for_election,
            "leader_away": self.leader_away,
            "unwritable": self.unwritable,
        }
        counts = {name: None if found is None else len(found) for name, found in lists.items()}
        names = {name: None if found is None else list(map(str, found)) for name, found in lists.items()}
        return {
            "topics": self.topics,
            "partitions": {"total": self.partitions, **counts},
            **names,
        }

    def sentences(self, alias: str, file: str, *, known: bool = True) -> Iterator[str]:
        """What a person has to know; `file` is the topology's YAML. That nothing works comes first. Without
        `known` nobody can be expected to tell more than what was in sync last.
        """
        if 0 < self.partitions == len(self.unwritable):
            yield "no partition acknowledges a write with acks=all"
        elif self.unwritable:
            yield f"{_some(self.unwritable)}: no write with acks=all is acknowledged"
        size = f"{counted(self.partitions, 'partition')} of {counted(self.topics, 'topic')}"
        found = [
            f"{len(names)} {what}"
            for names, what in (
                (self.under_replicated, "under-replicated"),
                (self.under_min_isr, f"under {MIN_ISR}: acks=all is refused"),
                (self.offline, "offline: without a leader"),
                (self.leader_away, "whose leader takes no writes now"),
            )
            if names
        ]
        yield f"{size}: {'; '.join(found) if found else 'all in sync'}"
        if known and not self.min_isr_known:
            yield f"no broker tells {MIN_ISR}: whether acks=all is refused somewhere is not known"
        if self.waiting_for_election:
            yield (
                f"{_some(self.waiting_for_election)}: no leader until a person says so, though a replica that"
                f" was in sync is running; isthmus elect --cluster {alias} -f {file} shows what is at stake"
            )


def assess(
    metadata: Metadata,
    min_isr: Mapping[str, int] | None,
    moves: Mapping[TopicPartition, Move] | None = None,
    silent: Collection[int] = (),
    unheard: Collection[int] = (),
) -> PartitionHealth:
    """`min_isr` by topic (one that is made meanwhile counts as 1), None if nobody tells; `silent` are brokers
    that do not answer, `unheard` those that ZooKeeper does not hear from.
    """
    adding = {partition: move.adding for partition, move in (moves or {}).items()}
    found = {
        TopicPartition(name, index): each
        for name, topic in sorted(metadata.topics.items())
        for index, each in sorted(topic.partitions.items())
    }
    wanted = min_isr or {}
    spare = {partition: len(each.isr) - wanted.get(partition.topic, 1) for partition, each in found.items()}
    if min_isr is None:
        spare = {}
    offline = tuple(partition for partition, each in found.items() if each.leader < 0)
    return PartitionHealth(
        len(metadata.topics),
        len(found),
        tuple(
            partition
            for partition, each in found.items()
            if set(each.replicas) - set(each.isr) - adding.get(partition, frozenset())
        ),
        tuple(partition for partition, more in spare.items() if more == 0),
        tuple(partition for partition, more in spare.items() if more < 0),
        offline,
        tuple(partition for partition in offline if metadata.brokers.keys() & set(found[partition].isr)),
        tuple(partition for partition, each in found.items() if _leader_away(each, silent, unheard)),
        min_isr is not None,
    )


def _leader_away(partition: PartitionMetadata, silent: Collection[int], unheard: Collection[int]) -> bool:
    """A leader that is the whole ISR takes writes also unheard: nobody else may be elected."""
    return partition.leader in silent or (partition.leader in unheard and len(partition.isr) > 1)


def newest(views: Mapping[int, Metadata]) -> Metadata:
    """One answer out of those of several brokers (at least one), because one that is cut off knows the past.

    Of each partition the highest leader epoch counts, and among equal ones what its leader says. Topics and
    living brokers are those of the view with the newest epochs, then of the controller that most name, then
    with the most topics: new ones, whose epochs are 0, may not be known everywhere.
    """
    named = [view.controller_id for view in views.values()]
    base = max(
        views.values(),
        key=lambda view: (_epochs(view), named.count(view.controller_id), len(view.topics)),
    )
    topics = {name: _newest_of(topic, views) for name, topic in base.topics.items()}
    return replace(base, topics=topics)


def _newest_of(topic: TopicMetadata, views: Mapping[int, Metadata]) -> TopicMetadata:
    partitions = dict(topic.partitions)
    ranks = {index: (each.leader_epoch, False) for index, each in partitions.items()}
    for broker, view in views.items():
        other = view.topics.get(topic.name)
        if other is None or other.topic_id != topic.topic_id:
            continue
        for index, each in other.partitions.items():
            rank = (each.leader_epoch, each.leader == broker)
            if rank > ranks.get(index, (-1, False)):
                partitions[index], ranks[index] = each, rank
    return replace(topic, partitions=partitions)


def _epochs(view: Metadata) -> int:
    return sum(each.leader_epoch for topic in view.topics.values() for each in topic.partitions.values())


def _some(partitions: tuple[TopicPartition, ...]) -> str:
    more = len(partitions) - _NAMED
    return ", ".join(map(str, partitions[:_NAMED])) + (f" and {more} more" if more > 0 else "")
