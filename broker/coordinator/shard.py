"""The groups of one partition of `__consumer_offsets`: what its leader holds in memory.

Plain state: the groups, their committed offsets, their deadlines. It exists from the moment this broker leads
the partition, is of use once it is ACTIVE, and is thrown away when leadership ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from enum import Enum

from broker.coordinator.deadlines import Deadlines
from broker.coordinator.groups.departing import kill
from broker.coordinator.groups.group import Group
from broker.coordinator.groups.limits import GroupLimits, TimerKey
from broker.coordinator.groups.restoring import resume
from broker.coordinator.groups.states import GroupState
from broker.coordinator.instant import Instant
from broker.coordinator.offsets.committed import CommittedOffset
from broker.coordinator.offsets.expiry import expired_offsets
from protocol.errors import ErrorCode
from protocol.types import TopicPartition

OffsetOf = tuple[str, TopicPartition]


class ShardState(Enum):
    """Whether a shard can be asked."""

    LOADING = "loading"
    ACTIVE = "active"
    CLOSED = "closed"


class Shard:
    """State of offsets partition `index`, led in `leader_epoch`."""

    def __init__(self, index: int, leader_epoch: int, limits: GroupLimits) -> None:
        self.index = index
        self.leader_epoch = leader_epoch
        self.limits = limits
        self.state = ShardState.LOADING
        self.deadlines: Deadlines[TimerKey] = Deadlines()
        self.groups: dict[str, Group] = {}
        self.offsets: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        #: Commits that are written and not yet replicated, by group: nothing may be forgotten behind them.
        self.commits_under_way: Counter[str] = Counter()
        #: Partitions that were deleted while the shard was loading.
        self.deleted_meanwhile: set[TopicPartition] = set()
        #: Ends of transactions that came while the shard was loading.
        self.ended_meanwhile: list[tuple[int, bool]] = []
        #: Offsets committed in open transactions, by producer id, and the log offsets of their records.
        self.pending: dict[int, dict[OffsetOf, tuple[CommittedOffset, int]]] = {}
        self._written_at: dict[OffsetOf, int] = {}

    def activate(self, now: Instant) -> None:
        """Loading is complete: the sessions of restored members start."""
        self.state = ShardState.ACTIVE
        for producer_id, commit in self.ended_meanwhile:
            self.end_transaction(producer_id, commit)
        self.ended_meanwhile.clear()
        for group in self.groups.values():
            resume(group, now)

    def close(self, error: ErrorCode) -> list[Group]:
        """End every group; whoever waits gets `error`. Returns the groups, whose effects are to be done."""
        self.state = ShardState.CLOSED
        groups = list(self.groups.values())
        for group in groups:
            kill(group, error)
        self.groups.clear()
        self.offsets.clear()
        return groups

    # -- groups ----------------------------------------------------------------------------------------

    def group_or_new(self, group_id: str) -> Group:
        """Return the group, made empty if it is not known."""
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = Group(group_id, self.limits, self.deadlines)
        return group

    def forget_group(self, group_id: str) -> Group | None:
        """Remove an empty group and its offsets."""
        self.forget_offsets(group_id, list(self.offsets.get(group_id, ())))
        for offsets in self.pending.values():
            for key in [key for key in offsets if key[0] == group_id]:
                del offsets[key]
        group = self.groups.pop(group_id, None)
        if group is not None:
            kill(group, ErrorCode.UNKNOWN_MEMBER_ID)
        return group

    # -- offsets ---------------------------------------------------------------------------------------

    def set_offset(
        self, group_id: str, partition: TopicPartition, committed: CommittedOffset, written_at: int
    ) -> None:
        """Note what the record at log offset `written_at` says, unless a later one has been noted."""
        key = (group_id, partition)
        if written_at >= self._written_at.get(key, -1):
            self._written_at[key] = written_at
            self.offsets.setdefault(group_id, {})[partition] = committed

    def add_pending(
        self, producer_id: int, group_id: str, partition: TopicPartition, committed: CommittedOffset, at: int
    ) -> None:
        """Keep an offset of an open transaction aside; `at` is the offset of its record."""
        self.pending.setdefault(producer_id, {})[group_id, partition] = (committed, at)

    def end_transaction(self, producer_id: int, commit: bool) -> None:
        """A marker came: what the producer has committed counts, or never happened (KIP-98)."""
        if self.state is ShardState.LOADING:
            self.ended_meanwhile.append((producer_id, commit))
            return
        for (group_id, partition), (committed, at) in self.pending.pop(producer_id, {}).items():
            if commit:
                self.set_offset(group_id, partition, committed, at)
                self.group_or_new(group_id)

    def pending_of(self, group_id: str) -> set[TopicPartition]:
        """Where open transactions commit offsets of the group (KIP-447)."""
        return {key[1] for offsets in self.pending.values() for key in offsets if key[0] == group_id}

    def has_pending(self, group_id: str) -> bool:
        """Whether an open transaction commits some offset of the group."""
        return any(name == group_id for offsets in self.pending.values() for name, _ in offsets)

    def partitions_of(self, group_id: str) -> list[TopicPartition]:
        """Where the group has offsets, also those of open transactions."""
        return list(dict.fromkeys([*self.offsets.get(group_id, ()), *self.pending_of(group_id)]))

    def forget_offsets(self, group_id: str, partitions: Collection[TopicPartition]) -> None:
        """Forget offsets whose tombstones are written."""
        for offsets in self.pending.values():
            for partition in partitions:
                offsets.pop((group_id, partition), None)
        known = self.offsets.get(group_id)
        if known is None:
            return
        for partition in partitions:
            known.pop(partition, None)
            self._written_at.pop((group_id, partition), None)
        if not known:
            del self.offsets[group_id]

    def expired(self, now_ms: int, retention_ms: int) -> Iterator[tuple[Group, list[TopicPartition], bool]]:
        """Yield (group, offsets to forget, whether the group goes too) where there is something to forget."""
        for group in list(self.groups.values()):
            if self.groups.get(group.group_id) is not group or self.commits_under_way[group.group_id]:
                continue
            if self.pending and self.has_pending(group.group_id):
                continue
            offsets = self.offsets.get(group.group_id, {})
            over = expired_offsets(group, offsets, now_ms, retention_ms)
            gone = group.state is GroupState.EMPTY and not group.pending and len(over) == len(offsets)
            if over or gone:
                yield group, over, gone

    def offsets_of(
        self, partitions: Collection[TopicPartition]
    ) -> Iterator[tuple[str, list[TopicPartition]]]:
        """(group id, its offsets among `partitions`) for each group that has some."""
        for group_id, offsets in list(self.offsets.items()):
            hit = [partition for partition in partitions if partition in offsets]
            if hit:
                yield group_id, hit
