"""Finding out where a partition stands at both sides before anything is copied.

Owns the questions, the raising of the mirror's term above the source's, and what a difference means: a source
that has lost what the mirror has (an unclean election, a restored disk) stops the partition, or cuts the
mirror where the link is told to. Nothing is cut without a word, and gaps are noted (I7, I9).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial

from protocol.client import EARLIEST, LATEST, NO_RETRIES, ClusterClient, RetryPolicy
from protocol.client.mirror_calls import EpochEnd, MirrorBatches, MirrorStand
from protocol.client.retry import retrying
from protocol.errors import ErrorCode, KafkaError
from protocol.types import TopicPartition, uuid_to_text
from replicator.acknowledgements import Kind
from replicator.mirrors.lineage import HEADROOM
from replicator.mirrors.parting import common_end
from replicator.mirrors.partition import MirrorPartition

_log = logging.getLogger("isthmus.replicator")

TERM_SEEN = RetryPolicy(total_s=15)
Note = Callable[[MirrorPartition, Kind, int, int, str], Awaitable[None]]
"""Puts on record that offsets `start ≤ offset < end` are missing, or are cut off, and why."""


class Aligner:
    """`cuts`: whether the mirror is cut back to what its source still has. `note` is awaited before the
    mirror passes over a gap, or is cut.
    """

    def __init__(self, source: ClusterClient, target: ClusterClient, *, cuts: bool, note: Note) -> None:
        self._note = note
        self._source = source
        self._target = target
        self._cuts = cuts

    async def align(self, part: MirrorPartition, now_ms: int) -> None:
        """Makes it ready to be copied, or stops it. Raises ProtocolError when a side cannot be asked now."""
        tp = part.tp
        stand = await self._target.mirror_stand(tp, part.source_text)
        self._source.forget_leader(tp)
        leader = await self._source.leader(tp)
        if not await is_same_topic(self._source, part):
            part.stop(
                "the source topic was created again: delete the mirror to copy the new one, or isthmus"
                " mirrors failover to keep the old one"
            )
            return
        if leader.epoch >= stand.leader_epoch:
            stand = await raised(self._target, tp, part.source_text, leader.epoch + HEADROOM)
        common = await common_end(
            stand.last_epoch,
            stand.end,
            partial(epoch_end, self._source, tp),
            partial(epoch_end, self._target, tp),
        )
        if common is None:
            part.stop(
                f"the source knows nothing of leader epoch {stand.last_epoch}, in which the mirror ends at"
                f" offset {stand.end}: it is another log. Delete the mirror to copy it anew"
            )
            return
        if common < stand.end:
            if not self._cuts:
                part.stop(
                    f"the source has lost or replaced what the mirror has at offsets {common} to {stand.end}"
                    " (unclean election?): nothing is copied. `on_truncation: cut` cuts the mirror back to"
                    " the source; isthmus mirrors failover keeps what is here"
                )
                return
            stand = await self._cut(part, stand, common)
        first = (await self._source.list_offsets({tp: EARLIEST}, retry=NO_RETRIES))[tp].offset
        last = (await self._source.list_offsets({tp: LATEST}, retry=NO_RETRIES))[tp].offset
        part.end = stand.end
        part.heard(first, last, now_ms)
        end = await self._begin(part, stand, first)
        part.aligned(max(stand.start, min(first, end)), end, leader.epoch)
        part.heard(first, last, now_ms)

    async def _cut(self, part: MirrorPartition, stand: MirrorStand, common: int) -> MirrorStand:
        text = f"offsets {common} to {stand.end} were cut off: the source has lost or replaced them"
        _log.error("%s: %s", part.tp, text)
        await self._note(
            part, Kind.SUPERSEDED, common, stand.end, "cut off: the source has lost or replaced it"
        )
        part.notes.append(text)
        await self._target.settle_mirror(part.tp, part.source_text, stand.leader_epoch, cut_to=common)
        return await self._target.mirror_stand(part.tp, part.source_text)

    async def _begin(self, part: MirrorPartition, stand: MirrorStand, source_start: int) -> int:
        """Where the mirror goes on: behind its end, or where the source begins if that is later."""
        if source_start <= stand.end:
            return stand.end
        if stand.end > 0:
            reason = "retention passed at the source"
            _log.error("%s: source offsets %d to %d are gone: %s", part.tp, stand.end, source_start, reason)
            await self._note(part, Kind.GAP, stand.end, source_start, reason)
        node = (await self._target.leader(part.tp)).node
        move = {part.tp: MirrorBatches(stand.end, None, source_start)}
        answer = (await self._target.mirror_append(node, {part.tp.topic: part.source_text}, move))[part.tp]
        if answer.error is not None:
            raise self._target.moved(part.tp, answer.error)
        return stand.end if answer.stand is None else answer.stand.end


async def is_same_topic(source: ClusterClient, part: MirrorPartition) -> bool:
    """Whether the source's topic is the one that is mirrored, by what the client knows. Raises KafkaError."""
    return uuid_to_text((await source.topic(part.tp.topic)).topic_id) == part.topic_id


async def epoch_end(client: ClusterClient, tp: TopicPartition, epoch: int) -> EpochEnd:
    return (await client.epoch_ends({tp: epoch}))[tp]


async def raised(target: ClusterClient, tp: TopicPartition, source_text: str, least: int) -> MirrorStand:
    """The mirror, once its leader is in a term of at least that epoch."""
    await target.alter_mirror(tp.topic, {tp.partition: least})

    async def seen() -> MirrorStand:
        stand = await target.mirror_stand(tp, source_text)
        if stand.leader_epoch < least:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"{tp}: term {least} has not begun yet")
        return stand

    return await retrying(seen, TERM_SEEN)
