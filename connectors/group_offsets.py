"""Group offsets in a backup and back: snapshot, translation, commit, reading back.

Owns the rules of DESIGN §4 I4 for restores: an offset is translated by the restore's ledger, never lies past
the restored data, is committed to groups without members only, and counts as restored once it was read back.
Every group is asked for at its own coordinator; one that cannot be read is named, never left out silently.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from connectors.manifest import GroupBackup, GroupOffset
from connectors.settings import matches
from protocol.client import ClusterClient, Committed, ListedGroup
from protocol.errors import ErrorCode, KafkaError, ProtocolError
from protocol.types import TopicPartition
from transfer.ledger import PartitionLedger

_AT_ONCE = 16
_WITHOUT_MEMBERS = {"Empty", "Dead", ""}
_LIVE = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS}


async def snapshot_groups(
    client: ClusterClient, patterns: tuple[str, ...], topics: Collection[str]
) -> tuple[list[GroupBackup], list[str]]:
    """(groups with offsets on `topics`, problems); taken before the end of the data is fixed."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(group: ListedGroup) -> GroupBackup | str:
        async with gate:
            try:
                committed = await client.committed(group.group_id)
            except ProtocolError as error:
                return f"offsets of group {group.group_id} could not be read: {error}"
        offsets = tuple(
            GroupOffset(
                topic=tp.topic,
                partition=tp.partition,
                offset=found.offset,
                leader_epoch=found.leader_epoch,
                metadata=found.metadata,
            )
            for tp, found in sorted(committed.items())
            if tp.topic in topics
        )
        return GroupBackup(
            group=group.group_id, state=group.state, protocol_type=group.protocol_type, offsets=offsets
        )

    wanted = [group for group in await client.list_groups() if matches(group.group_id, patterns)]
    found = await asyncio.gather(*map(one, wanted))
    groups = [item for item in found if isinstance(item, GroupBackup) and item.offsets]
    return groups, [item for item in found if isinstance(item, str)]


class GroupStatus(StrEnum):
    COMMITTED = "committed"
    CLAMPED = "clamped"
    """Committed, but some offset lay past the restored data and was taken back to its end."""
    ACTIVE = "active"
    """Left alone: the group has members on the target."""
    FAILED = "failed"


class RestoredOffset(BaseModel):
    model_config = ConfigDict(frozen=True)

    topic: str
    partition: int
    source_offset: int
    offset: int
    """What was to be committed on the target."""
    clamped: bool
    replaced: int | None = None
    """What the group had there before."""
    read_back: int | None = None


class RestoredGroup(BaseModel):
    model_config = ConfigDict(frozen=True)

    group: str
    target_group: str
    status: GroupStatus
    offsets: tuple[RestoredOffset, ...]
    reason: str = ""

    @property
    def problem(self) -> str:
        """One sentence when this group needs attention."""
        if self.status is GroupStatus.COMMITTED:
            return ""
        if self.status is GroupStatus.CLAMPED:
            taken = [offset for offset in self.offsets if offset.clamped]
            first = taken[0]
            return (
                f"group {self.target_group}: {len(taken)} offsets lay past the restored data and were taken "
                f"back, e.g. {first.topic}-{first.partition} to {first.offset} "
                f"(source offset {first.source_offset})"
            )
        return f"group {self.target_group}: {self.reason}"


@dataclass(frozen=True, slots=True)
class TranslationTable:
    """Where restored partitions went: by the backup's topic and partition."""

    topics: Mapping[str, str]
    ledgers: Mapping[TopicPartition, PartitionLedger]

    def translate(self, offset: GroupOffset) -> RestoredOffset | None:
        """None when the partition was not restored."""
        ledger = self.ledgers.get(TopicPartition(offset.topic, offset.partition))
        if ledger is None:
            return None
        found = ledger.runs.to_target(offset.offset)
        return RestoredOffset(
            topic=self.topics[offset.topic],
            partition=offset.partition,
            source_offset=offset.offset,
            offset=found.offset,
            clamped=not found.exact,
        )


async def restore_group(
    client: ClusterClient, group: GroupBackup, target_group: str, table: TranslationTable
) -> RestoredGroup | None:
    """Translates, commits and reads back one group; None when none of its partitions was restored."""
    offsets = tuple(made for offset in group.offsets if (made := table.translate(offset)) is not None)
    if not offsets:
        return None
    metadata = {
        (table.topics[o.topic], o.partition): o.metadata for o in group.offsets if o.topic in table.topics
    }

    def result(status: GroupStatus, reason: str = "") -> RestoredGroup:
        return RestoredGroup(
            group=group.group, target_group=target_group, status=status, offsets=offsets, reason=reason
        )

    try:
        described = (await client.describe_groups([target_group]))[target_group]
        if described.members or described.state not in _WITHOUT_MEMBERS:
            members = f"{len(described.members)} members" if described.members else f"state {described.state}"
            return result(GroupStatus.ACTIVE, f"left alone, it is active on the target ({members})")
        before = await client.committed(target_group)
        wanted = {
            TopicPartition(o.topic, o.partition): Committed(o.offset, -1, metadata[o.topic, o.partition])
            for o in offsets
        }
        await client.commit(target_group, wanted)
        after = await client.committed(target_group, list(wanted))
    except KafkaError as error:
        if error.code in _LIVE:
            return result(GroupStatus.ACTIVE, "left alone, it became active on the target")
        return result(GroupStatus.FAILED, str(error))
    except ProtocolError as error:
        return result(GroupStatus.FAILED, str(error))
    offsets = tuple(_with_reading(offset, before, after) for offset in offsets)
    wrong = [offset for offset in offsets if offset.read_back != offset.offset]
    if wrong:
        first = wrong[0]
        where = f"{first.topic}-{first.partition}"
        return result(GroupStatus.FAILED, f"{where}: committed {first.offset}, read back {first.read_back}")
    clamped = any(offset.clamped for offset in offsets)
    return result(GroupStatus.CLAMPED if clamped else GroupStatus.COMMITTED)


def _with_reading(
    offset: RestoredOffset,
    before: Mapping[TopicPartition, Committed],
    after: Mapping[TopicPartition, Committed],
) -> RestoredOffset:
    tp = TopicPartition(offset.topic, offset.partition)
    return offset.model_copy(
        update={
            "replaced": before[tp].offset if tp in before else None,
            "read_back": after[tp].offset if tp in after else None,
        }
    )
