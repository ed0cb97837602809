"""One replica of one partition on this broker: who leads it, up to where it is readable, who waits for it.

Owns leadership as told by the controller (leader, leader epoch, ISR) and the rules that follow from it: only
the leader appends (I3), readers see up to the high watermark, acks=all needs `min.insync.replicas` before
the append and before the answer. Which replicas are in sync is `in_sync`'s to say; with this broker as the
only one the high watermark is the log's end. Storage is `broker.log`; nothing here knows requests or
connections. (Kafka: `kafka.cluster.Partition`.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from broker.log import Origin
from broker.replication.acknowledging import Acknowledgements, Unacknowledged
from broker.replication.awaited_deletions import AwaitedDeletions
from broker.replication.in_sync import InSyncReplicas
from broker.replication.watched import Watched
from protocol.errors import ErrorCode, KafkaError
from protocol.types import TopicPartition

if TYPE_CHECKING:
    import asyncio

    from broker.log import AppendResult, Log
    from broker.replication.lease import Lease

NO_LEADER = -1
# The high watermark has moved over appends of which nobody has kept the sizes: enough for any reader to look.
_UNKNOWN_SIZE = 1 << 40
# Where a leader's proposal for another ISR goes; the controller's answer comes to `Partition.settle_isr`.
Proposer = Callable[["Partition"], None]


class Partition(Watched):
    """A hosted replica. `leader` is -1 before the controller has spoken and after the replica was stopped."""

    __slots__ = (
        "_deletions", "_unacknowledged", "flushing", "in_sync", "index", "leader", "leader_epoch", "lease",
        "local_id", "log", "proposer", "replicas", "topic", "topic_id",
    )  # fmt: skip

    def __init__(self, topic: str, topic_id: bytes, index: int, local_id: int, log: Log) -> None:
        super().__init__()
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.local_id = local_id
        self.log = log
        self.leader = NO_LEADER
        self.leader_epoch = -1
        self.replicas: tuple[int, ...] = ()
        self.in_sync = InSyncReplicas(local_id)
        self.proposer: Proposer | None = None
        self.lease: Lease | None = None
        """For how long the controller's word is good here; None: for ever."""
        self._unacknowledged = Unacknowledged()
        self._deletions = AwaitedDeletions()
        self.flushing: asyncio.Task[None] | None = None
        """See `flushing.on_disk`."""

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
    def alone(self) -> bool:
        """Whether no other replica has to have what is appended before it counts as stored."""
        return self._alone

    @property
    def isr(self) -> tuple[int, ...]:
        """As the controller last told or stored it."""
        return self.in_sync.members

    @property
    def partition_epoch(self) -> int:
        """Version of what the controller has stored of this partition; -1 before it has spoken."""
        return self.in_sync.version

    @property
    def high_watermark(self) -> int:
        return self.log.high_watermark

    @property
    def knows_its_end(self) -> bool:
        """Whether the high watermark has reached this term: before, readers may know more (KIP-207)."""
        return self.log.high_watermark >= self.in_sync.epoch_start

    # -- leadership

    def lead(
        self,
        leader: int,
        leader_epoch: int,
        isr: Sequence[int],
        replicas: Sequence[int],
        partition_epoch: int = 0,
        now: float = 0.0,
    ) -> bool:
        """Take the controller's word; the caller has fenced old epochs. True if leading began or ended."""
        was_leader, old_epoch = self.is_leader, self.leader_epoch
        self.leader, self.leader_epoch, self.replicas = leader, leader_epoch, tuple(replicas)
        new_term = leader_epoch != old_epoch
        if self.is_leader:
            if new_term or not was_leader:
                self.log.assign_epoch(leader_epoch)
                self.in_sync.begin(isr, partition_epoch, replicas, self.log.end_offset, now)
            else:
                self.in_sync.update(isr, partition_epoch, replicas, now)
        else:
            self.in_sync.settle(isr, partition_epoch)
        self._isr_changed()
        if not (self.is_leader and was_leader and leader_epoch - old_epoch <= 1):
            self._give_up(ErrorCode.NOT_LEADER_OR_FOLLOWER)  # somebody else may have led in between
        self.wake(0)
        return was_leader != self.is_leader or (self.is_leader and new_term)

    def _isr_changed(self) -> None:
        self._alone = self.is_leader and self.in_sync.maximal == {self.local_id}
        if self._at_rest:
            self._end_rests(None)
        if self.is_leader:
            self._advance()
            self._look_at_deletions()

    def stop_leading(self) -> None:
        """No replica here any more: whoever waits looks again and finds it gone."""
        self.leader = NO_LEADER
        self._alone = False
        self._give_up(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.wake(0)

    def check_leader(self, current_leader_epoch: int = -1) -> None:
        """Raise unless this broker leads, in the epoch that the client knows (-1: not said), KIP-320."""
        self.check_epoch(current_leader_epoch)
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self}: leader is broker {self.leader}")

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Raise unless the client knows the same leader epoch as this replica (-1: it has not said)."""
        if current_leader_epoch >= 0 and current_leader_epoch != self.leader_epoch:
            older = current_leader_epoch < self.leader_epoch
            raise KafkaError(
                ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH,
                f"{self}: epoch {current_leader_epoch}, {'now' if older else 'here'} {self.leader_epoch}",
            )

    # -- data

    def append(
        self,
        batches: memoryview,
        *,
        all_replicas: bool = False,
        origin: Origin = Origin.CLIENT,
        flush_later: bool = False,
    ) -> AppendResult:
        """Append as leader and wake readers; offsets and epoch are written into `batches`.

        With `flush_later` what `flush.messages` wants on disk may not be acknowledged before
        `flushing.on_disk` was awaited, and is not readable on a sole replica. Raises KafkaError or
        `broker.log.AppendRefused`.
        """
        if self.leader != self.local_id:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self}: leader is broker {self.leader}")
        log = self.log
        if self.may_be_deposed():
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"{self}: ZooKeeper has not heard from this broker, another one may lead by now",
            )
        if all_replicas and len(self.in_sync.members) < log.config.min_insync_replicas:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self}: {len(self.in_sync.members)} in sync,"
                f" min.insync.replicas is {log.config.min_insync_replicas}",
            )
        result = log.append(batches, self.leader_epoch, origin, flush_later=flush_later)
        if self._alone:
            if flush_later and log.flush_due:
                return result
            log.high_watermark = log.end_offset
            if self._watchers or self._end_watchers or self._at_rest:
                self.wake(len(batches))
        elif self._end_watchers or self._at_rest:
            self._wake_followers(len(batches))
        return result

    def append_ordinary(self, batch: memoryview, now_ms: int, all_replicas: bool) -> tuple[int, int] | None:
        """`append` for what makes up the load: a plain batch.

        Base offset and new log end; None when it takes `append`, and nothing has changed.
        """
        if self.leader != self.local_id or (
            all_replicas and len(self.in_sync.members) < self.log.config.min_insync_replicas
        ):
            return None
        alone = self._alone
        if self.may_be_deposed():
            return None
        placed = self.log.append_ordinary(batch, self.leader_epoch, now_ms, sole=alone)
        if placed is None:
            return None
        if self._watchers or self._end_watchers or self._at_rest:
            self.log.keep_last(batch, *placed)
            if alone:
                self.wake(len(batch))
            else:
                self._wake_followers(len(batch))
        return placed

    def may_be_deposed(self) -> bool:
        """Whether another broker may have been elected without this one knowing. What is said of the log's
        end, to somebody who may have read further there, is not true then."""
        if self._alone and not self.log.config.unclean_leader_election_enable:
            return False
        return self.lease is not None and self.lease.over

    def flushed(self) -> None:
        """The log was forced to disk: what waited for that is readable."""
        log = self.log
        if self._alone and log.recovery_point > log.high_watermark:
            log.high_watermark = log.recovery_point
            self._acknowledge()
            self.wake(_UNKNOWN_SIZE)

    def append_copies(self, batches: memoryview) -> None:
        """Append what the leader sent to this follower. Raises `broker.log.AppendRefused`.

        What `flush.messages` wants on disk has to be there before the next fetch says that it is here.
        """
        self.log.append(batches, self.leader_epoch, Origin.REPLICATION, flush_later=True)

    def follow_high_watermark(self, leaders: int) -> None:
        """What the leader says is readable, of what is here.

        A new leader may know less than this follower does, until its own followers have fetched.
        """
        log = self.log
        before = log.high_watermark
        if leaders <= before:
            return
        log.high_watermark = leaders
        if self._watchers and log.high_watermark > before:
            self.wake(_UNKNOWN_SIZE)

    # -- followers

    def followed(
        self, replica: int, offset: int, start_offset: int, now: float, broker_epoch: int = -1
    ) -> None:
        """A follower has everything below `offset`.

        Raises KafkaError if that broker holds no replica, or has been started anew since (KIP-903).
        """
        in_sync = self.in_sync
        follower = in_sync.followers.get(replica)
        if follower is None:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self}: broker {replica} is not one of {self.replicas}"
            )
        if 0 <= broker_epoch < follower.broker_epoch:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"{self}: broker {replica} fetched in epoch {broker_epoch}, it is in {follower.broker_epoch}",
            )
        follower.fetched(offset, start_offset, self.log.end_offset, now)
        follower.broker_epoch = broker_epoch
        self._look_at_deletions()
        if replica in in_sync.maximal:
            if offset > self.log.high_watermark:
                self._advance()
        elif in_sync.proposed is None and in_sync.may_join(replica, self.log.high_watermark):
            in_sync.propose_joining(replica)
            self._isr_changed()
            self._propose()

    def shrink(self, now: float, max_lag_s: float) -> None:
        """Propose an ISR without those that have been behind for too long.

        A proposal that is open for so long already is told again: until it is settled nothing else can be.
        """
        in_sync = self.in_sync
        if not self.is_leader:
            return
        if in_sync.proposed is not None:
            self._propose()
            return
        lagging = in_sync.lagging(self.log.end_offset, now, max_lag_s)
        if lagging:
            in_sync.propose_leaving(lagging)
            self._propose()

    def _propose(self) -> None:
        if self.proposer is not None:
            self.proposer(self)

    def settle_isr(self, isr: Sequence[int], partition_epoch: int) -> None:
        """The controller has stored this ISR, of the present leader epoch, or knows of a newer one."""
        if partition_epoch >= self.partition_epoch:
            self.in_sync.settle(isr, partition_epoch)
            self._isr_changed()

    def isr_refused(self) -> None:
        """The controller has turned the proposal down, and will not store it."""
        self._end_rests(None)  # when did it fetch last?
        self.in_sync.refuse()
        self._isr_changed()

    def _advance(self) -> None:
        """Move the high watermark to what every in-sync replica has, and tell those who wait for it."""
        log = self.log
        before = log.high_watermark
        reached = self.in_sync.high_watermark(log.end_offset)
        if reached <= before:
            return
        log.high_watermark = reached
        self._acknowledge()
        if self._at_rest:
            self._end_rests(None)
        if self._watchers:
            self.wake(_UNKNOWN_SIZE)

    # -- acknowledgement

    def acknowledged(self, last_offset: int) -> bool:
        """Whether every in-sync replica has the record at `last_offset` (acks=all)."""
        return self.log.high_watermark > last_offset

    async def wait_acknowledged(self, last_offset: int, leader_epoch: int, timeout_s: float) -> ErrorCode:
        """Wait until every in-sync replica has what this leader appended up to `last_offset` (I3).

        `leader_epoch` is that of the append. NONE; NOT_ENOUGH_REPLICAS_AFTER_APPEND when fewer than
        `min.insync.replicas` have it; NOT_LEADER_OR_FOLLOWER when another term has begun;
        REQUEST_TIMED_OUT.
        """
        if not self.is_leader or self.leader_epoch != leader_epoch:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        answers = Acknowledgements()
        self.line_up(last_offset, answers)
        return (await answers.wait(timeout_s))[0]

    def line_up(self, last_offset: int, answers: Acknowledgements) -> None:
        """One more answer to wait for: about what this leader has just appended, up to `last_offset`.

        The codes are those of `wait_acknowledged`.
        """
        number = answers.expect()
        if self.log.high_watermark > last_offset:
            answers.settle(number, self._acknowledgement())
            return
        self._unacknowledged.add(last_offset, answers, number)

    def _acknowledge(self) -> None:
        """Answer those whose records the high watermark has passed."""
        if self._unacknowledged:
            self._unacknowledged.settle_below(self.log.high_watermark, self._acknowledgement())

    def _acknowledgement(self) -> ErrorCode:
        if len(self.in_sync.maximal) < self.log.config.min_insync_replicas:
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE

    def _give_up(self, code: ErrorCode) -> None:
        self._unacknowledged.settle_all(code)
        self._deletions.settle_all(code)

    # -- deletion

    @property
    def low_watermark(self) -> int:
        """Every replica that may be elected begins here or behind (KIP-107)."""
        return self.in_sync.low_watermark(self.log.start_offset)

    async def wait_deleted(self, offset: int, timeout_s: float) -> ErrorCode:
        """Wait until no in-sync replica has anything below `offset`: else it would be back with a new leader.

        NONE, NOT_LEADER_OR_FOLLOWER, REQUEST_TIMED_OUT.
        """
        if not self.is_leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.low_watermark >= offset:
            return ErrorCode.NONE
        answer = self._deletions.add(offset)
        self.wake(0)  # followers that wait hear of the new start at once
        return await self._deletions.wait(answer, timeout_s)

    def _look_at_deletions(self) -> None:
        if self._deletions:
            self._deletions.settle_up_to(self.low_watermark)
