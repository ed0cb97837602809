"""A whole control plane in memory: the real controller core, a dictionary for ZooKeeper, caches for brokers.

What the core wants written is written, what it wants sent travels through the codec and is applied
to each broker's real MetadataCache and to a record of what it hosts.
"""

from collections.abc import Sequence

from broker.config import Endpoint
from broker.control.controller_core import ControllerCore, StateWrite
from broker.control.metadata_cache import MetadataCache
from broker.control.nodes import PartitionState, TopicNode
from broker.control.orders import LiveBroker, Sender, StoredState
from protocol.codec import decode, dumps
from protocol.errors import ErrorCode
from protocol.messages.leader_and_isr_request import LeaderAndIsrRequest
from protocol.messages.stop_replica_request import StopReplicaRequest
from protocol.messages.update_metadata_request import UpdateMetadataRequest
from protocol.types import TopicPartition, new_topic_id


def live(broker_id: int, epoch: int = 1, rack: str | None = None) -> LiveBroker:
    endpoint = Endpoint("PLAINTEXT", f"host{broker_id}", 9092, "PLAINTEXT")
    return LiveBroker(broker_id, epoch, (endpoint,), rack)


class FakeBroker:
    """What one broker has been told."""

    def __init__(self) -> None:
        self.cache = MetadataCache()
        self.hosted: dict[TopicPartition, tuple[int, int]] = {}
        """Partition -> leader, leader epoch."""
        self.failed: set[TopicPartition] = set()
        """What is on a log directory that failed: answered with KAFKA_STORAGE_ERROR."""


class World:
    """`brokers_are`, `create`, `delete` … are events; orders are carried out at once."""

    def __init__(self, brokers: dict[int, LiveBroker], *, epoch: int = 1, unclean: bool = False) -> None:
        self.stored: dict[TopicPartition, StoredState] = {}
        self.zxids: dict[TopicPartition, int] = {}
        """Of the stored states, where a test wants the next controller to see them."""
        self.topics: dict[str, TopicNode] = {}
        self.told: dict[int, FakeBroker] = {number: FakeBroker() for number in brokers}
        self.sent: list[tuple[int, str]] = []
        self.silent: set[int] = set()
        """Brokers that are registered still, and dead: they answer nothing."""
        self._unclean = unclean
        self.unclean: list[tuple[TopicPartition, int]] = []
        """Leaders that may lack acknowledged records, as they were elected."""
        self.core = self.elect(brokers, epoch)

    def elect(
        self, brokers: dict[int, LiveBroker], epoch: int, *, unread: Sequence[str] = ()
    ) -> ControllerCore:
        """A new controller starts from what is stored; it cannot read the nodes of topics in `unread`."""
        self.core = ControllerCore(
            Sender(1, epoch, "PLAINTEXT"),
            lambda topic: self._unclean,
            on_unclean=lambda partition, leader: self.unclean.append((partition, leader)),
        )
        self.core.cannot_read(topics=unread)
        self._follow(self.core.start(brokers, self.topics, self.stored, self.zxids))
        return self.core

    def brokers_are(self, brokers: dict[int, LiveBroker]) -> None:
        for number in brokers:
            self.told.setdefault(number, FakeBroker())
        self._follow(self.core.brokers_are(brokers))

    def create(self, name: str, assignment: dict[int, tuple[int, ...]]) -> None:
        self.topics[name] = TopicNode(new_topic_id(), assignment)
        self._follow(self.core.topics_are({name: self.topics[name]}))

    def grow(self, name: str, assignment: dict[int, tuple[int, ...]]) -> None:
        self.topics[name] = TopicNode(self.topics[name].topic_id, assignment)
        self._follow(self.core.topics_are({name: self.topics[name]}))

    def delete(self, name: str) -> list[str]:
        begun = self.core.delete([name])
        self._send()
        return begun

    def vanish(self, name: str) -> None:
        """The topic's nodes are gone from ZooKeeper."""
        del self.topics[name]
        self.stored = {key: value for key, value in self.stored.items() if key.topic != name}
        self._follow(self.core.topics_are({}, [name]))

    def leave(self, broker_id: int) -> list[TopicPartition]:
        self._follow(self.core.leave(broker_id))
        return self.core.led_by(broker_id)

    def isr_stored(self, write: StateWrite) -> None:
        """A leader's proposal was written to ZooKeeper."""
        assert write.version is not None
        assert write.version == self.stored[write.partition].version
        self.stored[write.partition] = StoredState(write.state, write.version + 1)
        self.core.isr_written(write.partition, *self.stored[write.partition])
        self._send()

    def in_sync(self, topic: str, index: int, *isr: int) -> None:
        """The leader has had these stored as in sync."""
        partition = TopicPartition(topic, index)
        state, version = self.stored[partition]
        self.isr_stored(StateWrite(partition, state._replace(isr=isr), version))

    def led(self, topic: str, index: int, leader: int) -> None:
        """Another replica has become the leader."""
        partition = TopicPartition(topic, index)
        state, version = self.stored[partition]
        self._follow([StateWrite(partition, state._replace(leader=leader), version)])

    def change(self, name: str, node: TopicNode) -> None:
        """The topic's node was changed."""
        self.topics[name] = node
        self._follow(self.core.topics_are({name: node}))

    def state(self, topic: str, partition: int) -> PartitionState:
        return self.stored[TopicPartition(topic, partition)].state

    def leaders(self, topic: str) -> list[int]:
        return [self.state(topic, index).leader for index in sorted(self.topics[topic].assignment)]

    def _follow(self, writes: list[StateWrite]) -> None:
        for partition, state, version in writes:
            known = self.stored.get(partition)
            assert (None if known is None else known.version) == version
            new = 0 if version is None else version + 1
            self.stored[partition] = StoredState(state, new)
            self.core.written(partition, state, new)
        self._send()

    def lose(self, number: int, *partitions: TopicPartition) -> None:
        """A log directory with these partitions fails on a living broker, which says only that one did."""
        self.told[number].failed.update(partitions)
        self.core.log_dirs_failed([number])
        self._send()

    def _send(self) -> None:
        answers: list[tuple[int, int, dict[TopicPartition, int]]] = []
        for number, request, _ in self.core.take_orders():
            self.sent.append((number, type(request).__name__))
            broker = self.told[number]
            # Through the codec, in the newest version, as it travels.
            received = decode(
                type(request), request.VALID_VERSIONS[1], dumps(request, request.VALID_VERSIONS[1])
            )
            if isinstance(received, UpdateMetadataRequest):
                broker.cache.update(received)
            elif isinstance(received, LeaderAndIsrRequest):
                codes: dict[TopicPartition, int] = {}
                for topic in received.topic_states:
                    for item in topic.partition_states:
                        key = TopicPartition(topic.topic_name, item.partition_index)
                        broker.hosted[key] = (item.leader, item.leader_epoch)
                        codes[key] = ErrorCode.KAFKA_STORAGE_ERROR if key in broker.failed else 0
                if number not in self.silent:
                    self.core.heard(number, codes)
                    answers.append((number, received.broker_epoch, codes))
            elif isinstance(received, StopReplicaRequest):
                for stopped in received.topic_states:
                    for stop in stopped.partition_states:
                        broker.hosted.pop(TopicPartition(stopped.topic_name, stop.partition_index), None)
        for answer in answers:
            self._follow(self.core.answered(*answer))
