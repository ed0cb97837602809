"""The replicas this broker hosts, and the controller's orders about them.

Owns the table of partitions, the highest controller epoch seen, and what LeaderAndIsr and StopReplica mean:
old controllers and old leader epochs are refused (I3); a directory that belongs to another topic id is set
aside before the new topic's replica is made (a topic deleted and re-created while this broker was away).
Knows neither ZooKeeper nor the network: requests come in as protocol messages and answers go back as such.
(Kafka: `kafka.server.ReplicaManager`.)
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol

from broker.log.errors import LogError, StorageFailed
from broker.replication.lease import Lease
from broker.replication.partition import Partition, Proposer
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.leader_and_isr_request import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from protocol.messages.leader_and_isr_response import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
)
from protocol.messages.stop_replica_request import StopReplicaRequest
from protocol.messages.stop_replica_response import StopReplicaPartitionError, StopReplicaResponse
from protocol.types import ZERO_UUID, TopicPartition

if TYPE_CHECKING:
    from broker.clock import Clock
    from broker.log import LogConfig, LogManager

logger = logging.getLogger("isthmus.broker")

# StopReplica's leader epochs with a meaning of their own (Kafka: LeaderAndIsr.EpochDuringDelete, NoEpoch).
EPOCH_DURING_DELETE = -2
NO_EPOCH = -1
# Type of a LeaderAndIsr that lists everything (KIP-516): what it names was made before this broker started.
_FULL = 2

LeadershipCallback = Callable[[Partition, bool], None]


class Leader(NamedTuple):
    """Where a follower fetches from."""

    broker_id: int
    host: str
    port: int


class Fetchers(Protocol):
    """What copies partitions from their leaders (`fetchers.ReplicaFetchers`)."""

    def follow(self, partition: Partition, leader: Leader) -> None: ...

    def relocate(self, leader: Leader) -> None: ...

    def unfollow(self, partition: Partition) -> None: ...


class ReplicaManager:
    """`topic_config` gives the log settings of a topic; `knows` says whether a partition exists at all."""

    def __init__(
        self,
        broker_id: int,
        logs: LogManager,
        clock: Clock,
        *,
        topic_config: Callable[[str], LogConfig],
        knows: Callable[[str, int], bool] = lambda topic, partition: False,
    ) -> None:
        self.broker_id = broker_id
        self.controller_epoch = 0
        self.state_change = asyncio.Lock()
        """Held while an order is carried out that gives others their turn in between."""
        self.lease = Lease(clock.monotonic)
        """Of all that is led here."""
        self._logs = logs
        self._clock = clock
        self._topic_config = topic_config
        self._knows = knows
        self._partitions: dict[tuple[str, int], Partition] = {}
        self.find = self._partitions.get
        """`get` for those who have a pair of topic and partition already."""
        self._callbacks: list[LeadershipCallback] = []
        self._addresses: dict[int, Leader] = {}  # of leaders, as the controller last named them
        self.fetchers: Fetchers | None = None
        """Copies what others lead; without it followers stand still."""
        self.proposer: Proposer | None = None
        """Tells the controller of other in-sync replicas; without it the ISR stays."""
        logs.on_offline(self._take_offline)

    def on_leadership_change(self, callback: LeadershipCallback) -> None:
        """`callback(partition, is_leader)` runs after this broker began or stopped leading it."""
        self._callbacks.append(callback)

    # -- look-up

    def __iter__(self) -> Iterator[Partition]:
        return iter(list(self._partitions.values()))

    def __len__(self) -> int:
        return len(self._partitions)

    def get(self, topic: str, partition: int) -> Partition | None:
        return self._partitions.get((topic, partition))

    def leader(self, topic: str, partition: int, current_leader_epoch: int = -1) -> Partition:
        """The partition, if this broker leads it. Raises KafkaError with the code for the client."""
        hosted = self._partitions.get((topic, partition))
        if hosted is None:
            raise self._not_here(topic, partition)
        if hosted.leader != self.broker_id or current_leader_epoch != -1:
            hosted.check_leader(current_leader_epoch)
        return hosted

    def readable(self, topic: str, partition: int, current_leader_epoch: int = -1) -> Partition:
        """The partition, if consumers may read it here: its leader, or a follower that has one (KIP-392).

        Raises KafkaError with the code for the client.
        """
        hosted = self._partitions.get((topic, partition))
        if hosted is None:
            raise self._not_here(topic, partition)
        hosted.check_epoch(current_leader_epoch)
        if hosted.leader < 0:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{hosted} has no leader")
        return hosted

    def hosted(self, topic: str, partition: int) -> Partition:
        """The replica, whoever leads. Raises KafkaError with the code for who asks."""
        found = self._partitions.get((topic, partition))
        if found is None:
            raise self._not_here(topic, partition)
        return found

    def _take_offline(self, partitions: list[TopicPartition]) -> None:
        """Their disk has failed: who waits or leads here hears of it."""
        for tp in partitions:
            partition = self._partitions.get((tp.topic, tp.partition))
            if partition is not None:
                self._forget(partition)

    def _not_here(self, topic: str, partition: int) -> KafkaError:
        if self._logs.is_offline(TopicPartition(topic, partition)):
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic}-{partition}: its disk has failed")
        if self._knows(topic, partition):
            return KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic}-{partition} is not on broker {self.broker_id}"
            )
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{partition} is not known here")

    # -- LeaderAndIsr

    def prepare(self, topics: Iterable[LeaderAndIsrTopicState], *, is_new: bool) -> None:
        """Make the logs of replicas that are not hosted yet, so that `apply_leader_and_isr` finds them.

        Waits for the disk: call it from a thread, with `state_change` held. What fails here fails again, and
        is answered, when the order is applied.
        """
        for topic in topics:
            config = self._topic_config(topic.topic_name)
            for state in topic.partition_states:
                tp = TopicPartition(topic.topic_name, state.partition_index)
                if (tp.topic, tp.partition) in self._partitions:
                    continue
                with contextlib.suppress(LogError, OSError):
                    log = self._logs.get_or_create(tp, topic.topic_id, config, is_new=is_new)
                    if state.leader == self.broker_id and log.epochs.latest < state.leader_epoch:
                        log.assign_epoch(state.leader_epoch)

    def apply_leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        """Make, lead, follow. One bad partition never stops the others (I10)."""
        if request.controller_epoch < self.controller_epoch:
            self._log_stale(request.controller_id, request.controller_epoch)
            return LeaderAndIsrResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH)
        self.controller_epoch = request.controller_epoch
        for live in request.live_leaders:
            leader = Leader(live.broker_id, live.host_name, live.port)
            if self._addresses.get(live.broker_id) != leader:
                self._addresses[live.broker_id] = leader
                if self.fetchers is not None:
                    self.fetchers.relocate(leader)
        response = LeaderAndIsrResponse()
        for topic_id, topic, states in _states_by_topic(request):
            errors = [
                LeaderAndIsrPartitionError(
                    topic_name=topic,
                    partition_index=state.partition_index,
                    error_code=self._apply_state(topic_id, topic, state, is_new=request.type != _FULL),
                )
                for state in states
            ]
            response.partition_errors += errors
            response.topics.append(LeaderAndIsrTopicError(topic_id=topic_id, partition_errors=errors))
        return response

    def _apply_state(
        self, topic_id: bytes, topic: str, state: LeaderAndIsrPartitionState, *, is_new: bool
    ) -> ErrorCode:
        try:
            partition = self._host(topic_id, topic, state, is_new=is_new)
        except StorageFailed as error:
            logger.warning("%s", error)
            return ErrorCode.KAFKA_STORAGE_ERROR
        except Exception:
            logger.exception("cannot open a replica of %s-%d", topic, state.partition_index)
            return ErrorCode.KAFKA_STORAGE_ERROR
        if state.leader_epoch < partition.leader_epoch:
            logger.warning(
                "%s: leader epoch %d from controller epoch %d is older than %d, ignored",
                partition, state.leader_epoch, self.controller_epoch, partition.leader_epoch,
            )  # fmt: skip
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if (
            state.leader_epoch == partition.leader_epoch
            and state.partition_epoch <= partition.partition_epoch
        ):
            return ErrorCode.NONE  # a new controller repeats what is already so
        changed = partition.lead(
            state.leader,
            state.leader_epoch,
            state.isr,
            state.replicas,
            state.partition_epoch,
            self._clock.monotonic(),
        )
        self._copy(partition)
        if changed:
            self._announce(partition)
        return ErrorCode.NONE

    def _copy(self, partition: Partition) -> None:
        """Follow the partition's leader, or follow nobody."""
        if self.fetchers is None:
            return
        leader = self._addresses.get(partition.leader)
        if partition.is_leader or leader is None:
            self.fetchers.unfollow(partition)
        else:
            self.fetchers.follow(partition, leader)

    def shrink(self, max_lag_s: float) -> None:
        """Propose to take followers that have fallen behind out of their ISR (`replica.lag.time.max.ms`)."""
        now = self._clock.monotonic()
        for partition in self._partitions.values():
            partition.shrink(now, max_lag_s)

    def _host(
        self, topic_id: bytes, topic: str, state: LeaderAndIsrPartitionState, *, is_new: bool
    ) -> Partition:
        """The partition object for this topic id, made or replaced where needed."""
        key = (topic, state.partition_index)
        partition = self._partitions.get(key)
        if partition is not None and topic_id in (ZERO_UUID, partition.topic_id):
            return partition
        if partition is not None and partition.topic_id != ZERO_UUID:
            logger.warning("%s was re-created with another topic id, its old replica is set aside", partition)
            self._forget(partition)
            partition = None
        # Sets a directory with another id aside, and gives one without an id this one.
        config = self._topic_config(topic)
        log = self._logs.get_or_create(TopicPartition(*key), topic_id, config, is_new=is_new)
        if partition is None:
            partition = Partition(topic, topic_id, state.partition_index, self.broker_id, log)
            partition.proposer = self.proposer
            partition.lease = self.lease
            self._partitions[key] = partition
        partition.topic_id = topic_id
        return partition

    # -- StopReplica

    def stop_replicas(self, request: StopReplicaRequest) -> StopReplicaResponse:
        """Stop hosting partitions, and delete their directories where asked."""
        if request.controller_epoch < self.controller_epoch:
            self._log_stale(request.controller_id, request.controller_epoch)
            return StopReplicaResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH)
        self.controller_epoch = request.controller_epoch
        return StopReplicaResponse(
            partition_errors=[
                StopReplicaPartitionError(
                    topic_name=topic,
                    partition_index=index,
                    error_code=self._stop(topic, index, epoch, delete),
                )
                for topic, index, epoch, delete in _stops(request)
            ]
        )

    def _stop(self, topic: str, index: int, leader_epoch: int, delete: bool) -> ErrorCode:
        partition = self._partitions.get((topic, index))
        if partition is not None:
            if 0 <= leader_epoch < partition.leader_epoch:
                return ErrorCode.FENCED_LEADER_EPOCH
            self._forget(partition)
        if delete:
            try:
                self._logs.delete(TopicPartition(topic, index))
            except Exception:
                logger.exception("cannot delete the replica of %s-%d", topic, index)
                return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    def _forget(self, partition: Partition) -> None:
        """Out of the table; those who wait on it look again and find it gone."""
        del self._partitions[partition.topic, partition.index]
        was_leader = partition.is_leader
        partition.stop_leading()
        if self.fetchers is not None:
            self.fetchers.unfollow(partition)
        if was_leader:
            self._announce(partition)

    def _announce(self, partition: Partition) -> None:
        for callback in self._callbacks:
            try:
                callback(partition, partition.is_leader)
            except Exception:
                logger.exception("%s: a leadership callback failed", partition)

    def _log_stale(self, controller_id: int, epoch: int) -> None:
        logger.warning(
            "order of controller %d with epoch %d refused: epoch %d was seen", controller_id, epoch,
            self.controller_epoch,
        )  # fmt: skip


def _states_by_topic(
    request: LeaderAndIsrRequest,
) -> Iterable[tuple[bytes, str, list[LeaderAndIsrPartitionState]]]:
    """(topic id, topic, states), whichever version the controller spoke."""
    for topic in request.topic_states:
        yield topic.topic_id, topic.topic_name, topic.partition_states
    for state in request.ungrouped_partition_states:
        yield ZERO_UUID, state.topic_name, [state]


def _stops(request: StopReplicaRequest) -> Iterable[tuple[str, int, int, bool]]:
    """(topic, partition, leader epoch, delete), whichever version the controller spoke."""
    for topic in request.topic_states:
        for state in topic.partition_states:
            yield topic.topic_name, state.partition_index, state.leader_epoch, state.delete_partition
    for older in request.topics:
        for index in older.partition_indexes:
            yield older.name, index, NO_EPOCH, request.delete_partitions
    for oldest in request.ungrouped_partitions:
        yield oldest.topic_name, oldest.partition_index, NO_EPOCH, request.delete_partitions
