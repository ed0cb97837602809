"""What the leader of a partition knows of its followers, and the rules about the in-sync replicas.

Pure state: positions come in with the clock's time, changes of the ISR come out as proposals. A proposal
counts at once where it makes the leader more careful and only after the controller has stored it where it
makes it less so: the high watermark waits for every replica that is, or may already be, in the ISR, so that
whoever can be elected has every acknowledged record (I1). Must not know logs, sockets or ZooKeeper.
(Kafka: `Partition.PartitionState`, `Replica`, KIP-497, KIP-903.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

UNKNOWN_OFFSET = -1
NO_BROKER_EPOCH = -1
_PROPOSE_AGAIN_S = 1.0
_LEAVES_S = 10.0
_NO_EPOCH_IS_NEWER = 1 << 63


class Follower:
    """How far one follower has come, as its fetches tell. Times are seconds of a monotonic clock."""

    __slots__ = (
        "_fetched_at", "_leader_end", "_refused_epoch", "_refused_until", "broker_epoch", "caught_up_at",
        "end_offset", "replica_id", "start_offset",
    )  # fmt: skip

    def __init__(self, replica_id: int, caught_up_at: float) -> None:
        self.replica_id = replica_id
        self.end_offset = UNKNOWN_OFFSET
        self.start_offset = UNKNOWN_OFFSET
        self.broker_epoch = NO_BROKER_EPOCH
        self.caught_up_at = caught_up_at
        self._fetched_at = caught_up_at
        self._leader_end = UNKNOWN_OFFSET
        self._refused_until = caught_up_at
        self._refused_epoch = _NO_EPOCH_IS_NEWER

    @property
    def may_be_proposed(self) -> bool:
        return self._fetched_at >= self._refused_until or self.broker_epoch > self._refused_epoch

    def refused(self) -> None:
        """The controller does not want it in the ISR now; it fetches on, and is proposed again in a while."""
        self._refused_until = self._fetched_at + _PROPOSE_AGAIN_S
        self._refused_epoch = _NO_EPOCH_IS_NEWER

    def taken_out(self, now: float) -> None:
        """The controller has taken it out: it is gone, or about to stop and fetching still."""
        self._refused_until = now + _LEAVES_S
        self._refused_epoch = self.broker_epoch

    def fetched(self, offset: int, start_offset: int, leader_end: int, now: float) -> None:
        """It has asked for `offset`: everything below is in its log.

        It counts as caught up at the time of an earlier fetch when it now has all that was there then.
        """
        if offset >= leader_end:
            self.caught_up_at = max(self.caught_up_at, now)
        elif offset >= self._leader_end >= 0:
            self.caught_up_at = max(self.caught_up_at, self._fetched_at)
        self.end_offset = offset
        self.start_offset = start_offset
        self._fetched_at = now
        self._leader_end = leader_end

    def still_there(self, leader_end: int, now: float) -> bool:
        """It has asked for the end once more. Always true."""
        if now > self.caught_up_at:
            self.caught_up_at = now
        self._fetched_at = now
        self._leader_end = leader_end
        return True

    def was_there(self, at: float) -> None:
        """After `stands_still` it has asked for the same end again and again until then."""
        self.caught_up_at = max(self.caught_up_at, at)
        self._fetched_at = max(self._fetched_at, at)

    def is_behind(self, leader_end: int, now: float, max_lag_s: float) -> bool:
        return self.end_offset < leader_end and now - self.caught_up_at > max_lag_s


class InSyncReplicas:
    """One term of one leader. `members` is what the controller has stored, `version` its partition epoch."""

    __slots__ = ("_local_id", "epoch_start", "followers", "maximal", "members", "proposed", "version")

    def __init__(self, local_id: int) -> None:
        self._local_id = local_id
        self.epoch_start = 0
        self.followers: dict[int, Follower] = {}
        self.members: tuple[int, ...] = ()
        self.maximal: frozenset[int] = frozenset()
        """Every replica that is in the ISR or that a proposal on its way would put there."""
        self.proposed: tuple[int, ...] | None = None
        self.version = -1

    def begin(
        self, members: Iterable[int], version: int, replicas: Iterable[int], epoch_start: int, now: float
    ) -> None:
        """A term of leadership begins with the log's end at `epoch_start`; nothing is known of followers."""
        self.epoch_start = epoch_start
        self.followers = {}
        self._assign(replicas, now)
        self.settle(members, version)

    def update(self, members: Iterable[int], version: int, replicas: Iterable[int], now: float) -> None:
        """The same term, as the controller now has it.

        Whom it has taken out is not proposed again soon, unless it was started anew.
        """
        for replica in set(self.members).difference(members):
            if replica in self.followers:
                self.followers[replica].taken_out(now)
        self._assign(replicas, now)
        self.settle(members, version)

    def cut(self, replicas: Iterable[int], log_end: int, now: float) -> None:
        """The leader's own log was cut back: what was known of the followers' logs does not count."""
        self.epoch_start = min(self.epoch_start, log_end)
        self.followers = {}
        self._assign(replicas, now)

    def _assign(self, replicas: Iterable[int], now: float) -> None:
        known = self.followers
        self.followers = {
            replica: known.get(replica) or Follower(replica, now)
            for replica in replicas
            if replica != self._local_id
        }

    def settle(self, members: Iterable[int], version: int) -> None:
        """What the controller has stored; a proposal that was on its way is over."""
        self.members = tuple(members)
        self.version = version
        self.proposed = None
        self.maximal = frozenset(self.members)

    # -- positions

    def stands_still(
        self, replica: int, leader_end: int, start_offset: int, now: float, broker_epoch: int
    ) -> bool:
        """Note the fetch of a member that has told before, in this life of its, that it has all there is.

        False for whoever else asks; nothing is noted of that then.
        """
        follower = self.followers.get(replica)
        return (
            follower is not None
            and follower.end_offset == leader_end
            and follower.start_offset == start_offset
            and follower.broker_epoch == broker_epoch
            and replica in self.maximal
            and follower.still_there(leader_end, now)
        )

    def high_watermark(self, leader_end: int) -> int:
        """Largest offset below which every replica that may be elected has everything."""
        end = leader_end
        for replica in self.maximal:
            follower = self.followers.get(replica)
            if follower is not None and follower.end_offset < end:
                end = follower.end_offset
        return end

    def low_watermark(self, leader_start: int) -> int:
        """Largest offset at or before which the log of every replica that may be elected begins."""
        starts = (
            self.followers[replica].start_offset for replica in self.maximal if replica in self.followers
        )
        return min((leader_start, *starts))

    def lagging(self, leader_end: int, now: float, max_lag_s: float) -> list[int]:
        """Members of the ISR that have been behind for too long (`replica.lag.time.max.ms`)."""
        return [
            member
            for member in self.members
            if (follower := self.followers.get(member)) is not None
            and follower.is_behind(leader_end, now, max_lag_s)
        ]

    def may_join(self, replica: int, high_watermark: int) -> bool:
        """Whether a follower outside the ISR has caught up: with what is acknowledged, and in this term."""
        follower = self.followers.get(replica)
        return (
            follower is not None
            and replica not in self.maximal
            and follower.may_be_proposed
            and follower.end_offset >= high_watermark
            and follower.end_offset >= self.epoch_start
        )

    # -- proposals

    def propose_joining(self, replica: int) -> None:
        """One more member: from now on the high watermark waits for it."""
        self.proposed = (*self.members, replica)
        self.maximal = frozenset(self.proposed)

    def refuse(self) -> None:
        """The proposal on its way was turned down: whoever should have joined waits a while."""
        for replica in set(self.proposed or ()) - set(self.members):
            if replica in self.followers:
                self.followers[replica].refused()
        self.settle(self.members, self.version)

    def propose_leaving(self, replicas: Collection[int]) -> None:
        """Fewer members: until that is stored the high watermark waits for them all the same."""
        self.proposed = tuple(member for member in self.members if member not in replicas)
