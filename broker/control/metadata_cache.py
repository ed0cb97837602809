"""What this broker knows of the whole cluster: brokers, topics, ids, leaders. Filled by UpdateMetadata alone.

Plain state without I/O: it answers Metadata requests and look-ups on hot paths, and wakes those who wait for
a change (CreateTopics waits until leaders are known). It may be behind the controller, never ahead of it.
Must not know ZooKeeper. (Kafka: `ZkMetadataCache`.)
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping
from typing import NamedTuple

from protocol.client import ClientSecurity
from protocol.client.security import PLAINTEXT
from protocol.messages.update_metadata_request import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from protocol.types import ZERO_UUID

NO_LEADER = -1
LEADER_DURING_DELETE = -2
"""Leader of a partition that is being deleted (Kafka: LeaderAndIsr.LeaderDuringDelete)."""

FULL = 2
INCREMENTAL = 1
"""Types of LeaderAndIsr (KIP-516) and UpdateMetadata (KIP-866): all that there is, or some."""

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})


class BrokerEndpoint(NamedTuple):
    host: str
    port: int
    security_protocol: int


class BrokerInfo(NamedTuple):
    """A living broker. `endpoints` by listener name."""

    broker_id: int
    rack: str | None
    endpoints: Mapping[str, BrokerEndpoint]


class PartitionInfo(NamedTuple):
    """State of one partition; leader -1 while there is none."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]

    def offline(self, living: Container[int]) -> list[int]:
        """Replicas that nobody serves: their brokers are gone, or the directories that hold them."""
        return [item for item in self.replicas if item not in living or item in self.offline_replicas]


class TopicInfo:
    """One topic; `partitions` by index. `encoded` keeps what was made of it for answers, until it changes."""

    __slots__ = ("encoded", "name", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: bytes) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions: dict[int, PartitionInfo] = {}
        self.encoded: dict[tuple[int, int, str, bool], bytes] = {}

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS

    def __repr__(self) -> str:
        return f"TopicInfo({self.name!r}, {len(self.partitions)} partitions)"


class MetadataCache:
    """`generation` grows with every change; `broker_epoch` is our own registration's, -1 without one.

    `peer_security` is how this broker speaks to the others at their addresses.
    """

    def __init__(
        self, cluster_id: str = "", broker_id: int = -1, peer_security: ClientSecurity = PLAINTEXT
    ) -> None:
        self.cluster_id = cluster_id
        self.broker_id = broker_id
        self.peer_security = peer_security
        self.broker_epoch = -1
        self.told_epoch = -1
        """Registration of this broker that the controller knew when it last spoke."""
        self.controller_id = -1
        self.controller_epoch = -1
        self.brokers: dict[int, BrokerInfo] = {}
        self.topics: dict[str, TopicInfo] = {}
        self.generation = 0
        self.brokers_generation = 0
        """Grows when the living brokers or their addresses change: leaders may be gone or back."""
        self._names: dict[bytes, str] = {}
        self._waiters: set[asyncio.Future[None]] = set()
        self._listeners: list[Callable[[], None]] = []
        self._deletion_listeners: list[Callable[[list[tuple[str, int]]], None]] = []

    # -- look-up

    def topic(self, name: str) -> TopicInfo | None:
        return self.topics.get(name)

    def topic_name(self, topic_id: bytes) -> str | None:
        return self._names.get(topic_id)

    def topic_id(self, name: str) -> bytes:
        """Id of a topic; ZERO_UUID when it is not known."""
        topic = self.topics.get(name)
        return ZERO_UUID if topic is None else topic.topic_id

    def partition(self, topic: str, index: int) -> PartitionInfo | None:
        known = self.topics.get(topic)
        return None if known is None else known.partitions.get(index)

    def has_partition(self, topic: str, index: int) -> bool:
        return self.partition(topic, index) is not None

    def leader(self, topic: str, index: int) -> int:
        """Broker id of the leader, or -1."""
        info = self.partition(topic, index)
        return NO_LEADER if info is None else info.leader

    def endpoint(self, broker_id: int, listener: str) -> BrokerEndpoint | None:
        """Address of a living broker on a listener, or None."""
        broker = self.brokers.get(broker_id)
        return None if broker is None else broker.endpoints.get(listener)

    def rack_on(self, listener: str, broker_id: int) -> str | None:
        """Where a living broker stands that has the listener; None if it has no rack or is away."""
        broker = self.brokers.get(broker_id)
        return None if broker is None or listener not in broker.endpoints else broker.rack

    def alive(self, listener: str) -> list[BrokerInfo]:
        """Living brokers that have the listener, by id."""
        return [
            self.brokers[number]
            for number in sorted(self.brokers)
            if listener in self.brokers[number].endpoints
        ]

    # -- change

    def update(self, request: UpdateMetadataRequest) -> list[tuple[str, int]]:
        """Apply the controller's word; returns the partitions that were deleted.

        The caller has refused stale controller epochs. Brokers are replaced whole, partitions one by one.
        What a full update does not name is gone: this broker was away, and heard of no deletion. Topics that
        it names without partitions are not known well enough: what is known of them here stays.
        """
        self.controller_id = request.controller_id
        self.controller_epoch = request.controller_epoch
        self.told_epoch = max(self.told_epoch, request.broker_epoch)
        before = self.brokers
        self.brokers = {
            broker.id: BrokerInfo(
                broker.id,
                broker.rack,
                {
                    endpoint.listener: BrokerEndpoint(
                        endpoint.host, endpoint.port, endpoint.security_protocol
                    )
                    for endpoint in broker.endpoints
                },
            )
            for broker in request.live_brokers
        }
        self.brokers_generation += self.brokers != before
        deleted = self._forget_unnamed(request.topic_states) if request.type == FULL else []
        for topic in request.topic_states:
            if topic.partition_states or topic.topic_id != ZERO_UUID:
                deleted += self._update_topic(topic.topic_name, topic.topic_id, topic.partition_states)
        for state in request.ungrouped_partition_states:
            deleted += self._update_topic(state.topic_name, ZERO_UUID, [state])
        self._changed()
        if deleted:
            for callback in self._deletion_listeners:
                callback(deleted)
        return deleted

    def _forget_unnamed(self, named: Iterable[UpdateMetadataTopicState]) -> list[tuple[str, int]]:
        """Returns the partitions that are gone."""
        states: dict[str, set[int]] = defaultdict(set)
        unclear = set()
        for topic in named:
            states[topic.topic_name].update(state.partition_index for state in topic.partition_states)
            if not topic.partition_states:
                unclear.add(topic.topic_name)
        deleted: list[tuple[str, int]] = []
        for name, known in list(self.topics.items()):
            gone = [index for index in known.partitions if index not in states[name]]
            if not gone or name in unclear:
                continue
            deleted += ((name, index) for index in gone)
            known.encoded = {}
            for index in gone:
                del known.partitions[index]
            if not known.partitions:
                self._forget(known)
        return deleted

    def _update_topic(
        self, name: str, topic_id: bytes, states: Iterable[UpdateMetadataPartitionState]
    ) -> list[tuple[str, int]]:
        topic = self.topics.get(name)
        deleted: list[tuple[str, int]] = []
        if topic is not None and topic.topic_id != topic_id:
            deleted += ((name, index) for index in topic.partitions)
            self._forget(topic)  # deleted and created again while nobody told us
            topic = None
        if topic is not None:
            topic.encoded = {}
        for state in states:
            if state.leader == LEADER_DURING_DELETE:
                deleted.append((name, state.partition_index))
                if topic is not None:
                    topic.partitions.pop(state.partition_index, None)
                continue
            if topic is None:
                topic = self.topics[name] = TopicInfo(name, topic_id)
                self._names[topic_id] = name
            topic.partitions[state.partition_index] = PartitionInfo(
                state.partition_index,
                state.leader,
                state.leader_epoch,
                tuple(state.replicas),
                tuple(state.isr),
                tuple(state.offline_replicas),
            )
        if topic is not None and not topic.partitions:
            self._forget(topic)
        return deleted

    def _forget(self, topic: TopicInfo) -> None:
        del self.topics[topic.name]
        if self._names.get(topic.topic_id) == topic.name:
            del self._names[topic.topic_id]

    # -- waiting

    def on_change(self, callback: Callable[[], None]) -> None:
        """`callback()` runs after every change."""
        self._listeners.append(callback)

    def on_deletion(self, callback: Callable[[list[tuple[str, int]]], None]) -> None:
        """`callback(partitions)` runs when partitions are gone, also when their topic was made anew."""
        self._deletion_listeners.append(callback)

    async def wait_until(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Whether `condition()` became true within the timeout; looked at after every change."""
        try:
            async with asyncio.timeout(timeout_s):
                while not condition():
                    waiter = asyncio.get_running_loop().create_future()
                    self._waiters.add(waiter)
                    try:
                        await waiter
                    finally:
                        self._waiters.discard(waiter)
        except TimeoutError:
            return condition()
        return True

    def _changed(self) -> None:
        self.generation += 1
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()
        for callback in self._listeners:
            callback()
