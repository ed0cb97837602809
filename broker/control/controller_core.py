"""The controller without I/O: what follows from events in the cluster that it knows (`known_cluster`).

An event method changes the state and returns the partition states that must be written to ZooKeeper; what
was written comes back through `written`; `take_orders` then gives the messages for brokers. Nothing is sent
about a state that is not in ZooKeeper. Must not know ZooKeeper, sockets or time.
(Kafka: `KafkaController`, `PartitionStateMachine`, `ReplicaStateMachine`, `TopicDeletionManager`.)
"""

import functools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from broker.control.elections import Election, LogEnds, elected, to_move_home
from broker.control.known_cluster import KnownCluster
from broker.control.last_replica import KilledTogether
from broker.control.leader_choice import (
    SameCase,
    first_state,
    handed_over,
    is_unclean,
    left_out,
    living_for,
    next_state,
)
from broker.control.metadata_cache import NO_LEADER
from broker.control.nodes import PartitionState, TopicNode
from broker.control.orders import LiveBroker, Order, Sender, StoredState
from broker.control.pending_orders import Known, PendingOrders
from broker.control.proposed_isr import IsrProposal, refusal
from broker.control.reassignment import can_finish, is_moving
from broker.control.uncollected import uncollected
from protocol.errors import ErrorCode, KafkaError
from protocol.types import TopicPartition


class StateWrite(NamedTuple):
    """A partition state to write over `version`, or to create (None)."""

    partition: TopicPartition
    state: PartitionState
    version: int | None


class ControllerCore(KnownCluster):
    """State of one controller's reign. `unclean(topic)` says whether unclean election is allowed there,
    `guarded()` whether a last replica that came back in doubt waits for a person's word. `on_unclean` hears
    of each leader that was elected though it may lack acknowledged records.
    """

    def __init__(
        self,
        sender: Sender,
        unclean: Callable[[str], bool] = lambda topic: False,
        guarded: Callable[[], bool] = lambda: True,
        on_unclean: Callable[[TopicPartition, int], None] = lambda partition, leader: None,
    ) -> None:
        super().__init__()
        self.sender = sender
        self._unclean = unclean
        self._guarded = guarded
        self._on_unclean = on_unclean
        self._together = KilledTogether()
        self._orders = PendingOrders()

    # -- events

    def start(
        self,
        brokers: Mapping[int, LiveBroker],
        topics: Mapping[str, TopicNode],
        states: Mapping[TopicPartition, StoredState],
        zxids: Mapping[TopicPartition, int] = MappingProxyType({}),
        deletions: Iterable[str] = (),
    ) -> list[StateWrite]:
        """A reign begins: everything is told to everybody, and leaders are elected where they are missing.

        The controller before may have gone in the middle: moves begin another term, so that leaders hear of
        them, and a broker that has registered since a state was written (by `zxids`) was away, though nobody
        missed it.
        """
        self.brokers = dict(brokers)
        self.topics = dict(topics)
        self.states = {key: value for key, value in states.items() if self.exists(key)}
        self._orders.started = set(brokers)
        self._orders.brokers_changed = True
        self.delete(deletions)
        partitions = self.partitions()
        moved = {each for each in partitions if is_moving(self.topics[each.topic], each.partition)}
        latest = max((broker.epoch for broker in brokers.values()), default=0)
        missed = {
            each: away
            for each, zxid in zxids.items()
            if zxid < latest
            and self.exists(each)
            and (away := [n for n in self.replicas(each) if n in brokers and brokers[n].epoch > zxid])
        }
        return self._decide(partitions, moved=moved, missed=missed)

    def brokers_are(self, brokers: Mapping[int, LiveBroker]) -> list[StateWrite]:
        """Brokers came, went or came back. A new epoch means that the broker was away in between."""
        restarted = {
            number
            for number, broker in brokers.items()
            if number in self.brokers and self.brokers[number].epoch != broker.epoch
        }
        came = set(brokers) - set(self.brokers) | restarted
        went = set(self.brokers) - set(brokers)
        if not came and not went:
            if dict(brokers) != self.brokers:
                self._orders.brokers_changed = True
            self.brokers = dict(brokers)
            return []
        self.brokers = dict(brokers)
        self.leaving -= came | went
        self.offline.forget_brokers(came | went)
        self._orders.started = (self._orders.started | came) - went
        self._orders.brokers_changed = True
        return self._decide(self.concerned_by(came | went), restarted)

    def topics_are(
        self,
        changed: Mapping[str, TopicNode],
        gone: Collection[str] = (),
        states: Mapping[TopicPartition, StoredState] = MappingProxyType({}),
    ) -> list[StateWrite]:
        """Topics were created or grew, or are `gone`; `states` are those found with new topics."""
        for name in gone:
            self.unread_topics.discard(name)
            self._drop(name)
        self.unread_topics.difference_update(changed)
        moved: set[TopicPartition] = set()
        for name, node in changed.items():
            known = self.topics.get(name)
            if known is not None and known.topic_id != node.topic_id:
                self._drop(name)
            elif known is not None:
                moved |= self._moved(name, known, node)
            self.topics[name] = node
        for partition, stored in states.items():
            self.found(partition, *stored)
        partitions = [partition for name in changed for partition in self.partitions_of(name)]
        return self._decide(partitions, moved=moved)

    def _moved(self, name: str, before: TopicNode, after: TopicNode) -> set[TopicPartition]:
        """Partitions with other replicas than before; those that are none any more stop and are deleted."""
        moved = set()
        for index, replicas in after.assignment.items():
            earlier = before.assignment.get(index)
            if earlier is None or earlier == replicas:
                continue
            partition = TopicPartition(name, index)
            moved.add(partition)
            for gone in set(earlier) - set(replicas):
                self._orders.replica_leaves(gone, partition)
        return moved

    def delete(self, names: Iterable[str]) -> list[str]:
        """Deletion was asked for; returns the topics whose deletion begins now."""
        begun = [name for name in names if name in self.topics and name not in self.deleting]
        for name in begun:
            self.deleting.add(name)
            self._orders.delete(name, self.topics[name])
        return begun

    def log_dirs_failed(self, broker_ids: Iterable[int]) -> None:
        """Log directories of these brokers failed: they are asked what they have left (KIP-112)."""
        self._orders.asked.update(broker_ids)

    def answered(self, broker_id: int, epoch: int, codes: Mapping[TopicPartition, int]) -> list[StateWrite]:
        """A broker, of this epoch, answered LeaderAndIsr with these codes."""
        broker = self.brokers.get(broker_id)
        if broker is None or broker.epoch != epoch:
            return []
        known = {
            partition: code
            for partition, code in codes.items()
            if self.exists(partition) and partition.topic not in self.deleting
        }
        news = self.offline.answered(broker_id, known)
        for partition in news:
            if partition in self.states:
                self._orders.changed(partition)
        return self._decide(news)

    def heard(self, broker_id: int, codes: Mapping[TopicPartition, int]) -> None:
        """A broker has answered LeaderAndIsr: it was there, and leads what it was told to lead."""
        self._together.heard(
            partition
            for partition in codes
            if partition in self.states and self.states[partition].state.leader == broker_id
        )

    def leave(self, broker_id: int) -> list[StateWrite]:
        """A broker is about to stop: others take over what they can, and wait for no copy of its.

        What it leads comes first: for that clients wait, for the others' ISR nobody does while it copies on.
        """
        self.leaving.add(broker_id)
        writes: list[StateWrite] = []
        cuts: list[StateWrite] = []
        for partition, stored in self.states.items():
            if partition.topic in self.deleting or partition in self.unread:
                continue
            if stored.state.leader == broker_id:
                able = [number for number in self.brokers if number not in self.offline.of(partition)]
                state = handed_over(
                    stored.state, self.replicas(partition), able, self.leaving, self.sender.epoch
                )
            else:
                state = left_out(stored.state, broker_id, self.sender.epoch)
            if state is not None:
                moves = stored.state.leader == broker_id
                (writes if moves else cuts).append(StateWrite(partition, state, stored.version))
        return [*writes, *cuts]

    def elect(self, kind: Election, partition: TopicPartition, ends: LogEnds | None = None) -> StateWrite:
        """Somebody asks for an election. Raises KafkaError when there is none."""
        stored = self.states.get(partition)
        if stored is None or partition.topic in self.deleting:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {partition}")
        if partition in self.unread:
            text = f"the state of {partition} in ZooKeeper cannot be read, the controller's log says more"
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, text)
        offline = self.offline.of(partition)
        living = [each for each in self.brokers if each not in self.leaving and each not in offline]
        state = elected(kind, stored.state, self.replicas(partition), living, self.sender.epoch, ends)
        return StateWrite(partition, state, stored.version)

    def to_move_home(self, percentage: int) -> list[TopicPartition]:
        """Partitions that preferred leaders should take back, and can."""
        living = [number for number in self.brokers if number not in self.leaving]
        led = [(key, stored.state.leader, self.replicas(key)) for key, stored in self.states.items()]
        return [
            partition
            for partition in to_move_home(led, living, percentage)
            if partition.topic not in self.deleting
            and not is_moving(self.topics[partition.topic], partition.partition)
            and self.replicas(partition)[0] in self.states[partition].state.isr
        ]

    def moves_to_finish(self) -> dict[str, list[int]]:
        """Partitions, by topic, whose new replicas are all in sync: the old ones can go."""
        found: dict[str, list[int]] = defaultdict(list)
        for name, node in self.topics.items():
            for index in {*node.adding, *node.removing} if name not in self.deleting else ():
                stored = self.states.get(TopicPartition(name, index))
                if stored is not None and can_finish(node, index, stored.state.isr):
                    found[name].append(index)
        return found

    def all_written(self, done: Iterable[tuple[TopicPartition, PartitionState, int]]) -> None:
        """As `written`, for each of them."""
        with uncollected():
            for partition, state, version in done:
                self.written(partition, state, version)

    def written(self, partition: TopicPartition, state: PartitionState, version: int) -> None:
        """We have put a state into ZooKeeper. In the same term its leader alone has to act on it."""
        if not self.exists(partition):
            return
        known = self._keep(partition, state, version)
        if known is not None and known[:2] == state[:2]:
            self._orders.isr_cut(partition)
        else:
            self._orders.changed(partition)

    def found(self, partition: TopicPartition, state: PartitionState, version: int) -> None:
        """A state was found in ZooKeeper that was not known: nobody may have been told of it."""
        if self.exists(partition):
            self._keep(partition, state, version)
            self.unread.discard(partition)
            self._orders.changed(partition)

    def _keep(self, partition: TopicPartition, state: PartitionState, version: int) -> PartitionState | None:
        """Returns what was known of it before."""
        known = self.states.get(partition)
        before = None if known is None else known.state
        if self._together or len(state.isr) == 1:
            self._together.written(partition, before, state)
        if before is not None and is_unclean(before, state):
            self._on_unclean(partition, state.leader)
        self.states[partition] = StoredState(state, version)
        return before

    def propose_isr(
        self, leader: int, partition: TopicPartition, proposal: IsrProposal
    ) -> tuple[ErrorCode, StateWrite | None]:
        """A leader proposes other in-sync replicas (KIP-497): an error for it, or what to write.

        NONE without a write: that is what is stored. Errors as Kafka's controller gives them.
        """
        stored = self.states.get(partition)
        if stored is None or partition.topic in self.deleting:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
        if partition in self.unread:
            return ErrorCode.INVALID_UPDATE_VERSION, None
        unable = {*self.offline.of(partition), *(self.leaving - {leader})}
        code = refusal(leader, proposal, stored, self.replicas(partition), self.brokers, unable)
        if code is not None:
            return code, None
        isr = tuple(member for member, _ in proposal.isr)
        state = PartitionState(leader, stored.state.leader_epoch, isr, self.sender.epoch)
        return ErrorCode.NONE, StateWrite(partition, state, stored.version)

    def isr_written(self, partition: TopicPartition, state: PartitionState, version: int) -> None:
        """A leader's own proposal is in ZooKeeper: it gets an answer, everybody else hears by metadata."""
        if self.exists(partition):
            self.states[partition] = StoredState(state, version)
            self._together.heard((partition,))
            self._orders.isr_changed(partition)

    def leaderless(self, topics: Iterable[str]) -> list[TopicPartition]:
        """Partitions of these topics that have no leader."""
        partitions = (
            TopicPartition(name, index)
            for name in topics
            if name in self.topics
            for index in self.topics[name].assignment
        )
        return [
            each
            for each in partitions
            if (stored := self.states.get(each)) is not None and stored.state.leader == NO_LEADER
        ]

    def reconsider(self, partitions: Iterable[TopicPartition]) -> list[StateWrite]:
        """Writes for partitions whose state turned out to be another one than was known."""
        return self._decide(partition for partition in partitions if self.exists(partition))

    def lost(self, partitions: Iterable[TopicPartition]) -> list[StateWrite]:
        """Somebody has removed these states: they are made again as they were known, in another term."""
        writes = []
        for partition in partitions:
            stored = self.states.get(partition)
            if stored is not None and self.exists(partition):
                state = stored.state._replace(
                    leader_epoch=stored.state.leader_epoch + 1, controller_epoch=self.sender.epoch
                )
                writes.append(StateWrite(partition, state, None))
        return writes

    # -- orders

    def take_orders(self) -> list[Order]:
        """Messages that follow from everything since the last call, in the order in which to send them."""
        hidden = {*self.unread_topics, *(each.topic for each in self.unread), *self.deleting}
        known = Known(self.brokers, self.topics, self.states, self.offline, self.deleting, hidden)
        with uncollected():
            return self._orders.take(self.sender, known)

    # -- plumbing

    def _decide(
        self,
        partitions: Iterable[TopicPartition],
        restarted: Collection[int] = (),
        moved: Collection[TopicPartition] = (),
        missed: Mapping[TopicPartition, Collection[int]] = MappingProxyType({}),
    ) -> list[StateWrite]:
        staying = frozenset(number for number in self.brokers if number not in self.leaving)
        ends = {each: self.brokers[each].previous_end for each in staying} if self._guarded() else None
        leaving = self.leaving & self.brokers.keys()
        usual = SameCase(staying, self.sender.epoch, restarted, ends, leaving)
        special = [each for each in (self.offline, self._together, moved, missed) if each]
        unclean = functools.cache(self._unclean)  # looked up once for all partitions of a topic
        writes = []
        with uncollected():
            for partition in partitions:
                name, index = partition
                if name in self.deleting or partition in self.unread:
                    continue
                stored = self.states.get(partition)
                replicas = self.topics[name].assignment[index]
                if stored is None:
                    living = staying.difference(self.offline.of(partition))
                    state = first_state(replicas, living, self.sender.epoch)
                elif special and any(partition in each for each in special):
                    state = next_state(
                        stored.state,
                        replicas,
                        living_for(stored.state.leader, staying, leaving) - {*self.offline.of(partition)},
                        self.sender.epoch,
                        restarted=missed.get(partition, restarted),
                        unclean=unclean(name),
                        moved=partition in moved,
                        ends=ends,
                        together=partition in self._together,
                    )
                else:
                    state = usual.next_state(stored.state, replicas, unclean(name))
                if state is not None:
                    writes.append(StateWrite(partition, state, None if stored is None else stored.version))
        return writes

    def _drop(self, name: str) -> None:
        """A topic is gone or replaced; unless that was our own deletion, its replicas stop."""
        if name not in self.topics:
            return
        node = self.topics[name]
        if name in self.deleting:
            self._orders.forget(name, node)
        else:
            self._orders.stop(name, node)
        partitions = self.partitions_of(name)
        self.offline.forget_partitions(partitions)
        self.unread.difference_update(partitions)
        for partition in partitions:
            self.states.pop(partition, None)
        del self.topics[name]
        self.deleting.discard(name)
