"""What the controller knows of its cluster: brokers, topics, partition states, and what it cannot read.

Owns looking that up, and nothing that follows from it.
"""

from collections.abc import Collection, Iterable

from broker.control.nodes import TopicNode
from broker.control.offline_replicas import OfflineReplicas
from broker.control.orders import LiveBroker, StoredState
from protocol.types import TopicPartition


class KnownCluster:
    def __init__(self) -> None:
        self.brokers: dict[int, LiveBroker] = {}
        self.topics: dict[str, TopicNode] = {}
        self.states: dict[TopicPartition, StoredState] = {}
        self.deleting: set[str] = set()
        self.leaving: set[int] = set()
        self.offline = OfflineReplicas()
        self.unread_topics: set[str] = set()
        """Topics whose node cannot be read. What was known of them before stays known."""
        self.unread: set[TopicPartition] = set()
        """Partitions whose state cannot be read: they are left alone, and so are their files."""

    def cannot_read(self, topics: Iterable[str] = (), partitions: Iterable[TopicPartition] = ()) -> None:
        """Their nodes are there, and damaged: nothing follows from that until they are mended."""
        self.unread_topics.update(topics)
        self.unread.update(partitions)

    def replicas(self, partition: TopicPartition) -> tuple[int, ...]:
        return self.topics[partition.topic].assignment[partition.partition]

    def exists(self, partition: TopicPartition) -> bool:
        topic = self.topics.get(partition.topic)
        return topic is not None and partition.partition in topic.assignment

    def partitions_of(self, name: str) -> list[TopicPartition]:
        topic = self.topics.get(name)
        return [] if topic is None else [TopicPartition(name, index) for index in topic.assignment]

    def partitions(self) -> list[TopicPartition]:
        return [partition for name in self.topics for partition in self.partitions_of(name)]

    def led_by(self, broker_id: int) -> list[TopicPartition]:
        return [
            partition
            for partition, stored in self.states.items()
            if stored.state.leader == broker_id and partition.topic not in self.deleting
        ]

    def concerned_by(self, changed: Collection[int]) -> list[TopicPartition]:
        """Partitions for which these brokers matter, and those that wait for any leader at all.

        A look at all of them costs a small part of deciding on all, and there is no index to be kept right.
        """
        numbers = frozenset(changed)
        found = [
            partition
            for partition, stored in self.states.items()
            if stored.state.leader < 0
            or not numbers.isdisjoint(self.topics[partition[0]].assignment[partition[1]])
        ]
        if len(self.states) < sum(len(node.assignment) for node in self.topics.values()):
            found += [partition for partition in self.partitions() if partition not in self.states]
        return found
