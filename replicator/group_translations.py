"""Translations of all groups, made anew where something has changed.

Owns what is kept between two looks: the offsets that groups had committed, how the ledgers were, of which
topics the offsets are. A link of a thousand groups at rest translates none of them each second.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from protocol.client import ClusterClient
from protocol.types import TopicPartition
from replicator.group_topics import GroupTopics, Offsets
from replicator.translate import GroupTranslation, translate_group
from transfer.ledger import Lineage, PartitionLedger
from transfer.offset_map import OffsetMap

Ledgers = Mapping[TopicPartition, PartitionLedger]


class _Shape(NamedTuple):
    """Of a ledger, as far as translating goes."""

    runs: OffsetMap
    changes: int
    source: Lineage
    target: Lineage


class GroupTranslations:
    """Of one link."""

    def __init__(self, source: ClusterClient) -> None:
        self._topics = GroupTopics(source)
        self._topic_ids: dict[str, str] = {}
        self._offsets: Offsets = {}
        self._copied: Offsets = {}
        """Those of the link's partitions."""
        self._shapes: dict[TopicPartition, _Shape] = {}
        self._changed: set[TopicPartition] = set()
        """Partitions whose ledgers were looked at since all translations were made."""
        self._made: dict[str, GroupTranslation] = {}

    async def of(self, offsets: Offsets, ledgers: Ledgers) -> dict[str, GroupTranslation]:
        """By group, without those that have committed nothing of what is copied. What is the same object as
        at the last call has not changed. Raises ProtocolError."""
        self._look(ledgers)
        same = {
            group
            for group, found in offsets.items()
            if found is self._offsets.get(group) and not (self._changed and self._changed & found.keys())
        }
        copied = {
            group: self._copied[group]
            if group in same
            else {tp: at for tp, at in found.items() if tp in ledgers}
            for group, found in offsets.items()
        }
        ids = await self._topics.ids(copied, lambda tp: ledgers[tp].source.topic_id, same)
        others = {topic for topic, _ in ids.items() ^ self._topic_ids.items()}
        made = {
            group: self._made[group]
            if group in same and (not others or others.isdisjoint(tp.topic for tp in found))
            else translate_group(
                {tp: at.offset for tp, at in found.items()},
                ledgers,
                topic_ids=ids,
                metadata={tp: at.metadata or "" for tp, at in found.items()},
            )
            for group, found in copied.items()
        }
        self._topic_ids, self._offsets, self._copied, self._made = dict(ids), offsets, copied, made
        self._changed = set()
        return {group: translation for group, translation in made.items() if copied[group]}

    def _look(self, ledgers: Ledgers) -> None:
        """Notes whose ledgers translate otherwise than at the last look, or came, or went."""
        before = self._shapes
        gone = before.keys() - ledgers.keys()
        for tp in gone:
            del before[tp]
        self._changed |= gone
        for tp, ledger in ledgers.items():
            shape = before.get(tp)
            if (
                shape is None
                or shape.runs is not ledger.runs
                or shape.changes != ledger.runs.changes
                or shape.source != ledger.source
                or shape.target != ledger.target
            ):
                self._changed.add(tp)
                before[tp] = _Shape(ledger.runs, ledger.runs.changes, ledger.source, ledger.target)
