"""What a client knows of a cluster: brokers, topics, leaders.

Owns the shapes and reading them from a Metadata response. Plain data, no requests.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from protocol.errors import ErrorCode
from protocol.messages.metadata_response import MetadataResponse, MetadataResponseTopic
from protocol.types import TopicPartition


class Broker(NamedTuple):
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """`leader` is -1 while there is none, `leader_epoch` -1 if the broker does not tell."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """`topic_id` is all zero if the broker does not tell. With an `error` there may be no partitions."""

    name: str
    topic_id: bytes
    error: ErrorCode
    is_internal: bool
    partitions: Mapping[int, PartitionMetadata]


@dataclass(frozen=True, slots=True)
class Metadata:
    """An answer of one broker at one moment."""

    cluster_id: str | None
    controller_id: int
    brokers: Mapping[int, Broker] = field(default_factory=dict)
    topics: Mapping[str, TopicMetadata] = field(default_factory=dict)


def read_metadata(answer: MetadataResponse) -> Metadata:
    return Metadata(
        answer.cluster_id,
        answer.controller_id,
        {row.node_id: Broker(row.host, row.port, row.rack) for row in answer.brokers},
        {row.name: _topic(row) for row in answer.topics if row.name is not None},
    )


def _topic(row: MetadataResponseTopic) -> TopicMetadata:
    return TopicMetadata(
        row.name or "",
        row.topic_id,
        ErrorCode.of(row.error_code),
        row.is_internal,
        {
            partition.partition_index: PartitionMetadata(
                partition.leader_id,
                partition.leader_epoch,
                tuple(partition.replica_nodes),
                tuple(partition.isr_nodes),
                ErrorCode.of(partition.error_code),
            )
            for partition in row.partitions
        },
    )


class Leader(NamedTuple):
    node: int
    epoch: int


class LeaderCache:
    """Last known leaders. An answer with an older leader epoch than known does not undo the newer one."""

    def __init__(self) -> None:
        self._leaders: dict[TopicPartition, Leader] = {}
        self.topics: dict[str, TopicMetadata] = {}
        self.refused: dict[str, ErrorCode] = {}
        """Topics that the last answer about them had no partitions for, and why."""

    def learn(self, metadata: Metadata) -> None:
        for name, topic in metadata.topics.items():
            known = self.topics.get(name)
            if topic.error:
                self.topics.pop(name, None)
                self.refused[name] = topic.error
                continue
            self.topics[name] = topic
            self.refused.pop(name, None)
            same_topic = known is not None and known.topic_id == topic.topic_id
            for index, partition in topic.partitions.items():
                tp = TopicPartition(name, index)
                before = self._leaders.get(tp)
                if same_topic and before is not None and -1 < partition.leader_epoch < before.epoch:
                    continue
                self._leaders[tp] = Leader(partition.leader, partition.leader_epoch)

    def leader(self, tp: TopicPartition) -> Leader | None:
        """None if it has to be looked up."""
        leader = self._leaders.get(tp)
        return None if leader is None or leader.node < 0 else leader

    def forget(self, tp: TopicPartition) -> None:
        """The leader turned out to be wrong. Its epoch stays known."""
        leader = self._leaders.get(tp)
        if leader is not None:
            self._leaders[tp] = Leader(-1, leader.epoch)

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        return [tp for tp in self._leaders if tp.topic == topic]
