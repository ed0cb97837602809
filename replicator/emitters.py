"""What a link writes for MirrorMaker 2's tools: heartbeats, offset syncs, checkpoints.

Owns when which record is written; layouts are in `layouts`. All three are derived from the ledger and are
never read back by the link. Heartbeats go to both sides, as MM2's pair of herders does: those at the source
are what the link then carries to the target as `<source>.heartbeats`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from protocol.errors import KafkaError
from protocol.types import TopicPartition
from replicator.internal_topics import InternalTopic, is_gone
from replicator.layouts import LONGEST_TEXT, Checkpoint, Heartbeat, OffsetSync
from replicator.open_transactions import Row
from replicator.translate import GroupTranslation
from transfer.ledger import PartitionLedger


class Heartbeats:
    """A record per interval on both sides."""

    def __init__(self, source: str, target: str, at_source: InternalTopic, at_target: InternalTopic) -> None:
        self._source = source
        self._target = target
        self._at_source = at_source
        self._at_target = at_target

    async def emit(self) -> None:
        """Writes both; the topics are created when they are not there."""
        now = time.time_ns() // 1_000_000
        flows = (
            (self._at_target, Heartbeat(self._source, self._target, now)),
            (self._at_source, Heartbeat(self._target, self._source, now)),
        )
        for topic, beat in flows:
            await topic.ensure_once()
            await topic.append([(beat.key(), beat.value())])


async def _write(topic: InternalTopic, rows: Sequence[Row], emitted: dict[Any, Any]) -> None:
    """A topic that somebody has deleted is made again at the next attempt, and gets all."""
    await topic.ensure_once()
    try:
        await topic.append(rows)
    except KafkaError as error:
        if is_gone(error):
            emitted.clear()
        raise


class OffsetSyncs:
    """The newest pair of each partition that moved, and the first one, so that MM2 can take over."""

    def __init__(self, topic: InternalTopic) -> None:
        self._topic = topic
        self._emitted: dict[TopicPartition, OffsetSync] = {}

    async def emit(self, ledgers: Mapping[TopicPartition, PartitionLedger]) -> int:
        """Writes what is new; returns how many records."""
        new: list[OffsetSync] = []
        for tp, ledger in ledgers.items():
            if not len(ledger.runs):
                continue
            last = ledger.runs[len(ledger.runs) - 1]
            step = last.length - 1
            sync = OffsetSync(tp.topic, tp.partition, last.source + step, last.target + step)
            before = self._emitted.get(tp)
            if before is None:
                first = ledger.runs[0]
                new.append(OffsetSync(tp.topic, tp.partition, first.source, first.target))
            elif before == sync:
                continue
            new.append(sync)
        if new:
            await _write(self._topic, [(sync.key(), sync.value()) for sync in new], self._emitted)
            self._emitted.update({TopicPartition(sync.topic, sync.partition): sync for sync in new})
        return len(new)


class Checkpoints:
    """Positions of groups. As they are exact they go back where the group did, or where its records do not
    stand any more where they stood: MM2, which only comes close, keeps what it said (its checkpoints of a
    mirror that was made again point behind the end)."""

    def __init__(self, topic: InternalTopic) -> None:
        self._topic = topic
        self._emitted: dict[tuple[str, TopicPartition], tuple[int, int]] = {}
        self._done: Mapping[str, GroupTranslation] = {}
        """What was written, or had been before."""

    async def emit(self, translations: Mapping[str, GroupTranslation]) -> int:
        """Writes what is new; returns how many records. A translation that is the same object has not
        changed."""
        new: list[Checkpoint] = []
        done, self._done = self._done, {}
        for group, translation in translations.items():
            if translation is done.get(group):
                continue
            for tp, position in translation.positions.items():
                before = self._emitted.get((group, tp))
                now = (position.committed, position.offset)
                if before == now:
                    continue
                said = position.metadata if len(position.metadata.encode()) <= LONGEST_TEXT else ""
                new.append(Checkpoint(group, tp.topic, tp.partition, *now, said))
        if new:
            await _write(self._topic, [(point.key(), point.value()) for point in new], self._emitted)
            for point in new:
                tp = TopicPartition(point.topic, point.partition)
                self._emitted[point.group, tp] = (point.upstream, point.downstream)
        self._done = dict(translations)
        return len(new)
