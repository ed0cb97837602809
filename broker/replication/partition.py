"""One replica of one partition on this broker: who leads it, up to where it is readable, who waits for it.

Owns leadership as told by the controller (leader, leader epoch, ISR) and the rules that follow from it: only
the leader appends (I3), readers see up to the high watermark, acks=all needs `min.insync.replicas`. With
this broker as the only member of the ISR the high watermark is the log's end. Storage is `broker.log`;
nothing here knows requests or connections. (Kafka: `kafka.cluster.Partition`.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.log import Origin
from protocol.errors import ErrorCode, KafkaError
from protocol.types import TopicPartition

if TYPE_CHECKING:
    from broker.log import AppendResult, Log

NO_LEADER = -1
# Called with the number of bytes that became readable; 0 says that leadership changed: look again.
Watcher = Callable[[int], None]


class Partition:
    """A hosted replica. `leader` is -1 before the controller has spoken and after the replica was stopped."""

    __slots__ = (
        "_alone", "_watchers", "index", "isr", "leader", "leader_epoch", "local_id", "log", "partition_epoch",
        "replicas", "topic", "topic_id",
    )  # fmt: skip

    def __init__(self, topic: str, topic_id: bytes, index: int, local_id: int, log: Log) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.local_id = local_id
        self.log = log
        self.leader = NO_LEADER
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.isr: tuple[int, ...] = ()
        self.replicas: tuple[int, ...] = ()
        self._alone = False  # this broker is the whole ISR
        self._watchers: dict[Watcher, None] = {}

    def __repr__(self) -> str:
        return f"Partition({self}, leader={self.leader}, epoch={self.leader_epoch})"

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.index)

    @property
    def is_leader(self) -> bool:
        return self.leader == self.local_id

    @property
    def high_watermark(self) -> int:
        return self.log.high_watermark

    # -- leadership

    def lead(self, leader: int, leader_epoch: int, isr: tuple[int, ...], replicas: tuple[int, ...]) -> bool:
        """Take the controller's word; the caller has fenced old epochs. True if leading began or ended."""
        was_leader, old_epoch = self.is_leader, self.leader_epoch
        self.leader, self.leader_epoch, self.isr, self.replicas = leader, leader_epoch, isr, replicas
        self._alone = isr == (self.local_id,)
        if self.is_leader:
            if leader_epoch != old_epoch:
                self.log.assign_epoch(leader_epoch)
            if self._alone:
                self.log.high_watermark = self.log.end_offset
        self.wake(0)
        return was_leader != self.is_leader or (self.is_leader and leader_epoch != old_epoch)

    def check_leader(self, current_leader_epoch: int = -1) -> None:
        """Raise unless this broker leads, in the epoch that the client knows (-1: not said), KIP-320."""
        if current_leader_epoch >= 0 and current_leader_epoch != self.leader_epoch:
            if current_leader_epoch < self.leader_epoch:
                raise KafkaError(
                    ErrorCode.FENCED_LEADER_EPOCH,
                    f"{self}: epoch {current_leader_epoch}, now {self.leader_epoch}",
                )
            raise KafkaError(
                ErrorCode.UNKNOWN_LEADER_EPOCH,
                f"{self}: epoch {current_leader_epoch}, here {self.leader_epoch}",
            )
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self}: leader is broker {self.leader}")

    # -- data

    def append(
        self, batches: memoryview, *, all_replicas: bool = False, origin: Origin = Origin.CLIENT
    ) -> AppendResult:
        """Append as leader and wake readers; offsets and epoch are written into `batches`.

        Raises KafkaError or `broker.log.AppendRefused`.
        """
        if self.leader != self.local_id:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self}: leader is broker {self.leader}")
        log = self.log
        if all_replicas and len(self.isr) < log.config.min_insync_replicas:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self}: {len(self.isr)} in sync, min.insync.replicas is {log.config.min_insync_replicas}",
            )
        result = log.append(batches, self.leader_epoch, origin)
        if self._alone:
            log.high_watermark = log.end_offset
            if self._watchers:
                self.wake(len(batches))
        return result

    def acknowledged(self, last_offset: int) -> bool:
        """Whether every in-sync replica has the record at `last_offset` (acks=all)."""
        return self.log.high_watermark > last_offset

    # -- waiting

    def watch(self, watcher: Watcher) -> None:
        self._watchers[watcher] = None

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers.pop(watcher, None)

    def wake(self, size: int) -> None:
        for watcher in list(self._watchers):
            watcher(size)
