"""What brokers have not been told yet, and the messages that tell them: each partition is looked at once.

Owns what changed since the last messages. Stopping comes first: what is said of a topic made again must find
the old one gone. A partition's state is one object for all its replicas, the metadata one list for all
brokers: with thousands of partitions that is what fail-over waits for. Must not decide anything. Pure.
(Kafka: `ControllerBrokerRequestBatch`.)
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from broker.control import orders
from broker.control.metadata_cache import FULL, INCREMENTAL
from broker.control.nodes import TopicNode
from broker.control.offline_replicas import OfflineReplicas
from broker.control.orders import Lists, LiveBroker, Order, Sender, StoredState
from broker.control.shared_body import SharedBody
from protocol.messages.update_metadata_request import UpdateMetadataTopicState
from protocol.types import TopicPartition


class Known(NamedTuple):
    """What the controller knows. `hidden` are topics of which brokers are not told, or not all of it."""

    brokers: Mapping[int, LiveBroker]
    topics: Mapping[str, TopicNode]
    states: Mapping[TopicPartition, StoredState]
    offline: OfflineReplicas
    deleting: Collection[str]
    hidden: Collection[str]

    def replicas(self, partition: TopicPartition) -> tuple[int, ...]:
        topic = self.topics.get(partition.topic)
        return () if topic is None else topic.assignment.get(partition.partition, ())

    def told(self) -> list[TopicPartition]:
        """Partitions that brokers are told about: with a state, of topics that are not being deleted."""
        if not self.deleting:
            return list(self.states)
        return [partition for partition in self.states if partition.topic not in self.deleting]


class PendingOrders:
    def __init__(self) -> None:
        self.started: set[int] = set()
        """Brokers that know nothing yet: they are told everything."""
        self.asked: set[int] = set()
        """Brokers that are told what they have, so that their answer says what works."""
        self.brokers_changed = False
        self._changed: dict[TopicPartition, None] = {}
        self._isr_changed: dict[TopicPartition, None] = {}
        self._isr_cut: dict[TopicPartition, None] = {}
        self._deleted: dict[str, TopicNode] = {}
        self._vanished: dict[str, TopicNode] = {}
        self._leaving_replicas: dict[int, list[TopicPartition]] = defaultdict(list)

    def changed(self, partition: TopicPartition) -> None:
        self._changed[partition] = None

    def isr_changed(self, partition: TopicPartition) -> None:
        """By its leader: everybody else hears of it by metadata alone."""
        self._isr_changed[partition] = None

    def isr_cut(self, partition: TopicPartition) -> None:
        """By the controller, in the same term: its leader has to know, the others' work goes on."""
        self._isr_cut[partition] = None

    def replica_leaves(self, broker_id: int, partition: TopicPartition) -> None:
        self._leaving_replicas[broker_id].append(partition)

    def delete(self, name: str, node: TopicNode) -> None:
        """Brokers delete the topic: somebody has asked for that by its name."""
        self.forget(name, node)
        self._deleted[name] = node

    def stop(self, name: str, node: TopicNode) -> None:
        """The topic has vanished, or is another one now, without anybody having asked: its files stay."""
        self.forget(name, node)
        self._vanished[name] = node

    def forget(self, name: str, node: TopicNode) -> None:
        gone = [TopicPartition(name, index) for index in node.assignment]
        for each in (self._changed, self._isr_changed, self._isr_cut):
            for partition in gone:
                each.pop(partition, None)

    def take(self, sender: Sender, known: Known) -> list[Order]:
        """Messages that follow from everything since the last call, in the order in which to send them."""
        lists = Lists()
        given = [
            *_stops(sender, known, self._deleted, delete=True),
            *_stops(sender, known, self._vanished, delete=False),
            *self._leadership(sender, known, lists),
            *self._leaving(sender, known),
            *self._metadata(sender, known, lists),
        ]
        self.started.clear()
        self.asked.clear()
        self.brokers_changed = False
        self._changed.clear()
        self._isr_changed.clear()
        self._isr_cut.clear()
        self._deleted.clear()
        self._vanished.clear()
        self._leaving_replicas.clear()
        return given

    def _leadership(self, sender: Sender, known: Known, lists: Lists) -> Iterator[Order]:
        states = orders.PartitionStates(known.topics, known.states, lists)
        news = {number for number in known.brokers if number not in self.started}
        if news and (self._changed or self._isr_cut):
            for_leaders = self._isr_cut.keys() - self._changed.keys()
            by_broker = states.by_broker(self._changed | self._isr_cut, news, for_leaders)
            yield from _to_each(sender, known, INCREMENTAL, by_broker)
        asked = self.asked & news
        if asked:
            rest = [each for each in known.told() if each not in self._changed]
            yield from _to_each(sender, known, INCREMENTAL, states.by_broker(sorted(rest), asked))
        started = self.started & known.brokers.keys()
        if started:
            everything = states.by_broker(known.told(), started)
            for number in started:
                everything.setdefault(number, {})  # hears that it has nothing
            yield from _to_each(sender, known, FULL, everything)

    def _leaving(self, sender: Sender, known: Known) -> Iterator[Order]:
        """After the new leaders know of their term, those that hold a partition no more let go of it."""
        for number in sorted(self._leaving_replicas):
            partitions = [
                partition
                for partition in self._leaving_replicas[number]
                if known.replicas(partition) and number not in known.replicas(partition)  # it may be back
            ]
            if partitions and number in known.brokers:
                broker = known.brokers[number]
                yield Order(number, orders.stop_replicas(sender, broker, partitions, delete=True))

    def _metadata(self, sender: Sender, known: Known, lists: Lists) -> Iterator[Order]:
        news = self._changed | self._isr_changed | self._isr_cut
        gone = {**self._deleted, **self._vanished}
        if not (news or self.started or gone or self.brokers_changed):
            return
        forgotten = orders.metadata_of_deleted(gone)

        def told(partitions: Iterable[TopicPartition]) -> list[UpdateMetadataTopicState]:
            found = orders.metadata_topics(
                partitions, known.topics, known.states, known.brokers, known.offline, lists
            )
            return forgotten + found

        complete = told(known.told()) if self.started else []
        if self.started:
            complete += orders.metadata_of_unclear(sorted(_unclear(known, complete)), known.topics)
        changed = told(news) if len(self.started) < len(known.brokers) else []
        living = orders.live_brokers(known.brokers[number] for number in sorted(known.brokers))
        bodies = SharedBody(), SharedBody()
        for number in sorted(known.brokers):
            full = number in self.started
            request = orders.update_metadata(
                sender,
                known.brokers[number],
                FULL if full else INCREMENTAL,
                complete if full else changed,
                living,
            )
            yield Order(number, request, bodies[full])


def _unclear(known: Known, told: Iterable[UpdateMetadataTopicState]) -> set[str]:
    """Topics that are there though not all of them is told: their nodes cannot be read, or hold no state."""
    whole = {topic.topic_name: len(topic.partition_states) for topic in told}
    partly = {name for name, node in known.topics.items() if whole.get(name, 0) < len(node.assignment)}
    return (partly | set(known.hidden)) - set(known.deleting)


def _stops(sender: Sender, known: Known, topics: Mapping[str, TopicNode], *, delete: bool) -> Iterator[Order]:
    by_broker: dict[int, list[TopicPartition]] = defaultdict(list)
    for name, node in topics.items():
        for index, replicas in node.assignment.items():
            for replica in replicas:
                if replica in known.brokers:
                    by_broker[replica].append(TopicPartition(name, index))
    for number in sorted(by_broker):
        broker = known.brokers[number]
        yield Order(number, orders.stop_replicas(sender, broker, by_broker[number], delete=delete))


def _to_each(
    sender: Sender, known: Known, kind: int, by_broker: Mapping[int, orders.ByTopic]
) -> Iterator[Order]:
    not_told = sorted(known.hidden) if kind == FULL else ()
    for number in sorted(by_broker):
        yield Order(
            number,
            orders.leader_and_isr(
                sender,
                known.brokers[number],
                kind,
                by_broker[number],
                known.topics,
                known.brokers,
                not_told,
            ),
        )
