"""Which committed offsets are to be forgotten (KIP-211).

Members protect what they read. Once a group is empty its offsets live for the retention time, counted from
the later of the moment it became empty and the commit itself: Kafka counts from the former alone and so
drops at once what an administrator or a link has just committed for a group that has been empty for long.
Positions of consumers that never joined count from their commit.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker.coordinator.groups.group import Group
from broker.coordinator.groups.states import GroupState
from broker.coordinator.groups.subscription import CONSUMER
from broker.coordinator.offsets.committed import NO_EXPIRY, CommittedOffset
from protocol.types import TopicPartition


def expired_offsets(
    group: Group, offsets: Mapping[TopicPartition, CommittedOffset], now_ms: int, retention_ms: int
) -> list[TopicPartition]:
    """Return the partitions whose offsets have outlived their time at `now_ms` (wall clock)."""
    if group.state is GroupState.EMPTY:
        since = group.state_timestamp_ms if group.protocol_type else -1
        return [
            partition
            for partition, committed in offsets.items()
            if _is_over(committed, max(since, committed.commit_ms), now_ms, retention_ms)
        ]
    if group.state is not GroupState.STABLE or group.protocol_type != CONSUMER:
        return []
    return [
        partition
        for partition, committed in offsets.items()
        if not group.may_read(partition.topic)
        and _is_over(committed, committed.commit_ms, now_ms, retention_ms)
    ]


def _is_over(committed: CommittedOffset, since_ms: int, now_ms: int, retention_ms: int) -> bool:
    if committed.expire_ms != NO_EXPIRY:
        return now_ms >= committed.expire_ms
    return now_ms - since_ms >= retention_ms
