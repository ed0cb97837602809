"""Lag of consumer groups: what is read from a cluster, and how it is counted.

Committed offsets are read before end offsets, so that a moving end never shows as an offset ahead of the
data. An offset that is ahead (a group synced past its data) is a signal of its own, never folded into zero.
Unknown (no leader, no commit) is absent, not zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from protocol.client import EARLIEST, LATEST, ClusterClient
from protocol.types import TopicPartition


@dataclass(frozen=True)
class GroupLag:
    group: str
    state: str
    members: int
    lag: Mapping[TopicPartition, int]
    """Records between the committed offset and the end; only partitions with a commit."""
    ahead: Mapping[TopicPartition, int]
    """Records by which a committed offset is beyond the end."""
    behind_start: Mapping[TopicPartition, int]
    """Records that retention removed before the group read them."""

    @property
    def total(self) -> int:
        return sum(self.lag.values())


async def read_group_lag(client: ClusterClient) -> list[GroupLag]:
    """Every group of the cluster. Raises ProtocolError when the cluster does not answer."""
    listed = [group.group_id for group in await client.list_groups()]
    described = await client.describe_groups(listed)
    committed = {
        group: {tp: found.offset for tp, found in (await client.committed(group)).items()} for group in listed
    }
    spots = sorted({tp for offsets in committed.values() for tp in offsets})
    existing = await client.metadata({tp.topic for tp in spots})
    spots = [
        tp
        for tp in spots
        if tp.topic in existing.topics and tp.partition in existing.topics[tp.topic].partitions
    ]
    starts = {tp: o.offset for tp, o in (await client.list_offsets(dict.fromkeys(spots, EARLIEST))).items()}
    ends = {tp: o.offset for tp, o in (await client.list_offsets(dict.fromkeys(spots, LATEST))).items()}
    return [
        group_lag(
            group, described[group].state, len(described[group].members), committed[group], starts, ends
        )
        for group in listed
    ]


def group_lag(
    group: str,
    state: str,
    members: int,
    committed: Mapping[TopicPartition, int],
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> GroupLag:
    known = {tp: offset for tp, offset in committed.items() if tp in ends}
    return GroupLag(
        group=group,
        state=state,
        members=members,
        lag={tp: max(ends[tp] - offset, 0) for tp, offset in known.items()},
        ahead={tp: offset - ends[tp] for tp, offset in known.items() if offset > ends[tp]},
        behind_start={
            tp: starts[tp] - offset for tp, offset in known.items() if tp in starts and offset < starts[tp]
        },
    )
