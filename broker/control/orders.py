"""The controller's messages to brokers, built from its state: LeaderAndIsr, UpdateMetadata, StopReplica.

Pure. Every message carries the controller's epoch and the receiving broker's epoch, so that late ones are
refused (KIP-380). (Kafka: `ControllerBrokerRequestBatch`.)
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from broker.config import Endpoint
from broker.config.listeners import SECURITY_PROTOCOLS
from broker.control.last_replica import PreviousEnd
from broker.control.metadata_cache import LEADER_DURING_DELETE
from broker.control.nodes import PartitionState, TopicNode
from broker.control.offline_replicas import OfflineReplicas
from broker.control.shared_body import SharedBody
from protocol.messages.leader_and_isr_request import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from protocol.messages.leader_and_isr_response import LeaderAndIsrResponse
from protocol.messages.stop_replica_request import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from protocol.messages.update_metadata_request import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from protocol.types import ZERO_UUID, Buffer, TopicPartition

EPOCH_DURING_DELETE = -2

Request = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest


class LiveBroker(NamedTuple):
    """A registered broker. `epoch` is the creation zxid of its registration."""

    broker_id: int
    epoch: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    previous_end: PreviousEnd = PreviousEnd.CLEAN

    def address(self, listener: str) -> Endpoint:
        """Where this broker is for other brokers: on the listener of that name, else on its first."""
        return next((item for item in self.endpoints if item.name == listener), self.endpoints[0])


class StoredState(NamedTuple):
    """A partition's state and the version of the node that holds it."""

    state: PartitionState
    version: int


class Order(NamedTuple):
    """One message for one broker. `shared` is what it has in common with those for other brokers."""

    broker_id: int
    request: Request
    shared: SharedBody | None = None

    def encoded(self, version: int) -> list[Buffer] | None:
        """The message's bytes, where they are shared; else None."""
        if self.shared is None or not isinstance(self.request, UpdateMetadataRequest):
            return None
        return self.shared.segments(self.request, version)


class Sender(NamedTuple):
    """Who gives orders."""

    controller_id: int
    epoch: int
    listener: str


ByTopic = dict[str, list[LeaderAndIsrPartitionState]]


class Lists(dict[tuple[int, ...], list[int]]):
    """Replicas as messages have them, one list for all partitions with the same ones. Nobody changes them."""

    def __missing__(self, key: tuple[int, ...]) -> list[int]:
        made = self[key] = list(key)
        return made


class PartitionStates:
    """Partitions' states as LeaderAndIsr has them, each made once however many brokers hear of it."""

    def __init__(
        self, topics: Mapping[str, TopicNode], states: Mapping[TopicPartition, StoredState], lists: Lists
    ) -> None:
        self._topics = topics
        self._states = states
        self._lists = lists
        self._made: dict[TopicPartition, LeaderAndIsrPartitionState] = {}

    def by_broker(
        self,
        partitions: Iterable[TopicPartition],
        receivers: Collection[int],
        for_leaders: Collection[TopicPartition] = (),
    ) -> dict[int, ByTopic]:
        """What each receiver that has replicas must be told. All partitions must have a state.

        Of partitions in `for_leaders` the leader alone is told.
        """
        found: dict[int, ByTopic] = {}
        topic: str | None = None
        for partition in partitions:
            name, index = partition
            if name != topic:  # they mostly come topic by topic
                topic, assignment = name, self._topics[name].assignment
                lists: dict[int, list[LeaderAndIsrPartitionState]] = {}
            replicas = assignment[index]
            state = self._made.get(partition) or self._make(partition, replicas)
            for number in (state.leader,) if partition in for_leaders else replicas:
                items = lists.get(number)
                if items is None:
                    if number not in receivers:
                        continue
                    items = lists[number] = found.setdefault(number, {}).setdefault(name, [])
                items.append(state)
        return found

    def _make(self, partition: TopicPartition, replicas: tuple[int, ...]) -> LeaderAndIsrPartitionState:
        state, version = self._states[partition]
        made = self._made[partition] = LeaderAndIsrPartitionState(
            partition_index=partition.partition,
            controller_epoch=state.controller_epoch,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=self._lists[state.isr],
            partition_epoch=version,
            replicas=self._lists[replicas],
            adding_replicas=self._lists[()],
            removing_replicas=self._lists[()],
            is_new=version == 0,
        )
        return made


def leader_and_isr(
    sender: Sender,
    receiver: LiveBroker,
    kind: int,
    partitions: ByTopic,
    topics: Mapping[str, TopicNode],
    brokers: Mapping[int, LiveBroker],
    not_told: Iterable[str] = (),
) -> LeaderAndIsrRequest:
    """What the receiver must host, lead and follow.

    `not_told` are topics of which not all is told: they are named without partitions, and what the receiver
    has of them stays.
    """
    leaders = {item.leader for items in partitions.values() for item in items}
    topic_states = [
        LeaderAndIsrTopicState(topic_name=name, topic_id=topics[name].topic_id, partition_states=items)
        for name, items in partitions.items()
    ]
    topic_states += [LeaderAndIsrTopicState(topic_name=name) for name in not_told]
    return LeaderAndIsrRequest(
        controller_id=sender.controller_id,
        controller_epoch=sender.epoch,
        broker_epoch=receiver.epoch,
        type=kind,
        topic_states=topic_states,
        live_leaders=[_live_leader(brokers[item], sender) for item in sorted(leaders) if item in brokers],
    )


def codes_by_partition(request: Request, answer: LeaderAndIsrResponse) -> dict[TopicPartition, int]:
    """What a broker answered to LeaderAndIsr; answers name topics by id only."""
    assert isinstance(request, LeaderAndIsrRequest)
    names = {topic.topic_id: topic.topic_name for topic in request.topic_states}
    return {
        TopicPartition(names[topic.topic_id], error.partition_index): error.error_code
        for topic in answer.topics
        if topic.topic_id in names
        for error in topic.partition_errors
    }


def metadata_topics(
    partitions: Iterable[TopicPartition],
    topics: Mapping[str, TopicNode],
    states: Mapping[TopicPartition, StoredState],
    living: Collection[int],
    offline: OfflineReplicas,
    lists: Lists,
) -> list[UpdateMetadataTopicState]:
    """What all brokers shall know of these partitions. All must have a state."""
    by_topic: dict[str, list[UpdateMetadataPartitionState]] = {}
    away: dict[tuple[int, ...], tuple[int, ...]] = {}
    topic: str | None = None
    for partition in partitions:
        name, index = partition
        if name != topic:  # they mostly come topic by topic
            topic, assignment = name, topics[name].assignment
            items = by_topic.setdefault(name, [])
        state, version = states[partition]
        replicas = assignment[index]
        gone = away.get(replicas)
        if gone is None:
            gone = away[replicas] = tuple([each for each in replicas if each not in living])
        if offline and (failed := offline.of(partition)):
            gone = tuple([each for each in replicas if each in gone or each in failed])
        items.append(
            UpdateMetadataPartitionState(
                partition_index=index,
                controller_epoch=state.controller_epoch,
                leader=state.leader,
                leader_epoch=state.leader_epoch,
                isr=lists[state.isr],
                zk_version=version,
                replicas=lists[replicas],
                offline_replicas=lists[gone],
            )
        )
    return [
        UpdateMetadataTopicState(topic_name=name, topic_id=topics[name].topic_id, partition_states=items)
        for name, items in by_topic.items()
    ]


def metadata_of_deleted(deleted: Mapping[str, TopicNode]) -> list[UpdateMetadataTopicState]:
    """Tells all brokers to forget topics."""
    return [
        UpdateMetadataTopicState(
            topic_name=name,
            topic_id=node.topic_id,
            partition_states=[
                UpdateMetadataPartitionState(
                    partition_index=index,
                    leader=LEADER_DURING_DELETE,
                    leader_epoch=EPOCH_DURING_DELETE,
                    replicas=list(replicas),
                )
                for index, replicas in node.assignment.items()
            ],
        )
        for name, node in deleted.items()
    ]


def metadata_of_unclear(
    names: Iterable[str], topics: Mapping[str, TopicNode]
) -> list[UpdateMetadataTopicState]:
    """Topics that are there, and of which not everything can be told: named without partitions."""
    return [
        UpdateMetadataTopicState(
            topic_name=name, topic_id=topics[name].topic_id if name in topics else ZERO_UUID
        )
        for name in names
    ]


def live_brokers(brokers: Iterable[LiveBroker]) -> list[UpdateMetadataBroker]:
    return [
        UpdateMetadataBroker(
            id=broker.broker_id,
            rack=broker.rack,
            endpoints=[
                UpdateMetadataEndpoint(
                    host=item.host,
                    port=item.port,
                    listener=item.name,
                    security_protocol=SECURITY_PROTOCOLS.index(item.protocol),
                )
                for item in broker.endpoints
            ],
        )
        for broker in brokers
    ]


def update_metadata(
    sender: Sender,
    receiver: LiveBroker,
    kind: int,
    topic_states: Sequence[UpdateMetadataTopicState],
    brokers: Sequence[UpdateMetadataBroker],
) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(
        type=kind,
        controller_id=sender.controller_id,
        controller_epoch=sender.epoch,
        broker_epoch=receiver.epoch,
        topic_states=list(topic_states),
        live_brokers=list(brokers),
    )


def stop_replicas(
    sender: Sender, receiver: LiveBroker, partitions: Iterable[TopicPartition], *, delete: bool
) -> StopReplicaRequest:
    by_topic: dict[str, list[StopReplicaPartitionState]] = defaultdict(list)
    for topic, index in partitions:
        by_topic[topic].append(
            StopReplicaPartitionState(
                partition_index=index, leader_epoch=EPOCH_DURING_DELETE, delete_partition=delete
            )
        )
    return StopReplicaRequest(
        controller_id=sender.controller_id,
        controller_epoch=sender.epoch,
        broker_epoch=receiver.epoch,
        topic_states=[
            StopReplicaTopicState(topic_name=name, partition_states=items) for name, items in by_topic.items()
        ],
    )


def _live_leader(broker: LiveBroker, sender: Sender) -> LeaderAndIsrLiveLeader:
    address = broker.address(sender.listener)
    return LeaderAndIsrLiveLeader(broker_id=broker.broker_id, host_name=address.host, port=address.port)
