"""Where a group that read the source continues at the target, from committed offsets and ledgers.

Owns the decision, pure: exact by the offset map in both directions, never past what has been copied (DESIGN
§4, I4 and I5), with a reason for every partition that cannot be translated. Knows nothing of brokers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from protocol.types import TopicPartition
from transfer.ledger import PartitionLedger


class Direction(Enum):
    """Failover goes to the target, failback to the source."""

    TO_TARGET = "to the target"
    TO_SOURCE = "to the source"


class Position(NamedTuple):
    """A translated position; not `exact`: the group has read more than is copied, and is held back."""

    offset: int
    exact: bool
    committed: int
    """The committed offset it was translated from."""
    metadata: str = ""
    """What was committed with it, if it is exact: it may not hold for a position further back."""


@dataclass(slots=True)
class GroupTranslation:
    """Positions by partition of the other cluster, and why the other partitions have none."""

    positions: dict[TopicPartition, Position] = field(default_factory=dict)
    skipped: dict[TopicPartition, str] = field(default_factory=dict)
    _offsets: dict[TopicPartition, int] | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def offsets(self) -> Mapping[TopicPartition, int]:
        """Of the positions, which nobody changes after it was asked for."""
        if self._offsets is None:
            self._offsets = {tp: at.offset for tp, at in self.positions.items()}
        return self._offsets


def translate_group(
    committed: Mapping[TopicPartition, int],
    ledgers: Mapping[TopicPartition, PartitionLedger],
    direction: Direction = Direction.TO_TARGET,
    topic_ids: Mapping[str, str] | None = None,
    metadata: Mapping[TopicPartition, str] | None = None,
    there_ids: Mapping[str, str] | None = None,
    nothing_behind: Collection[TopicPartition] = (),
) -> GroupTranslation:
    """Translates committed offsets of one group.

    `ledgers` are keyed by source partition (see `read_ledgers`). `topic_ids` (topic to id as text) are those
    of the cluster where the offsets were committed: a ledger of another lineage is not used. `metadata` was
    committed with them. `there_ids` are those of the other cluster, if it was asked: all topics that it has
    (empty text: it knows no ids). `nothing_behind`: partitions of the target that hold no record between what
    the link wrote last and the committed offset: only markers of transactions, so that it is at the end.
    """
    backwards = direction is Direction.TO_SOURCE
    by_partition = by_target(ledgers) if backwards else ledgers
    result = GroupTranslation()
    for tp, offset in committed.items():
        ledger = by_partition.get(tp)
        if ledger is None:
            result.skipped[tp] = "this link has copied nothing of the partition"
            continue
        here = ledger.target if backwards else ledger.source
        if topic_ids is not None and topic_ids.get(tp.topic, here.topic_id) != here.topic_id:
            result.skipped[tp] = "the topic was created again; its new records are not in the ledger yet"
            continue
        if offset < 0:
            result.skipped[tp] = "no valid offset is committed"
            continue
        there = ledger.source if backwards else ledger.target
        if there_ids is not None and there_ids.get(there.topic) not in (there.topic_id, ""):
            gone = there.topic not in there_ids
            result.skipped[tp] = (
                f"{there.topic} is not there any more"
                if gone
                else f"{there.topic} was created again there; what it holds now is not in the ledger yet"
            )
            continue
        if backwards:
            found = ledger.runs.to_source(ledger.runs.target_end if tp in nothing_behind else offset)
        else:
            found = ledger.runs.to_target(offset)
        said = metadata.get(tp, "") if metadata is not None and found.exact else ""
        result.positions[TopicPartition(there.topic, there.partition)] = Position(
            found.offset, found.exact, offset, said
        )
    return result


def by_target(ledgers: Mapping[TopicPartition, PartitionLedger]) -> dict[TopicPartition, PartitionLedger]:
    """By the target's partition."""
    return {TopicPartition(one.target.topic, one.target.partition): one for one in ledgers.values()}
