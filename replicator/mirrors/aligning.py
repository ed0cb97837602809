"""Finding out where a partition stands at both sides before anything is copied.

Owns the questions, the raising of the mirror's term above the source's, and what a difference means: a source
that has lost what the mirror has (an unclean election, a restored disk) stops the partition, or cuts the
mirror where the link is told to. Nothing is cut without a word, and gaps are noted (I7, I9).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from protocol.client import EARLIEST, LATEST, NO_RETRIES, ClusterClient
from protocol.client.mirror_calls import EpochEnd, MirrorBatches, MirrorStand
from protocol.types import TopicPartition, uuid_to_text
from replicator.acknowledgements import Kind
from replicator.mirrors.groups import take_back
from replicator.mirrors.lineage import HEADROOM, is_of_a_switch
from replicator.mirrors.parting import common_end
from replicator.mirrors.partition import MirrorPartition
from replicator.mirrors.terms import raised
from replicator.mirrors.topics import compacted

_log = logging.getLogger("isthmus.replicator")

Note = Callable[[MirrorPartition, Kind, int, int, str], Awaitable[bool]]
"""Puts on record that offsets `start ≤ offset < end` are missing, or are cut off, and why; returns whether
the mirror may go on."""


class Aligner:
    """`cuts`: whether the mirror is cut back to what its source still has. `note` is awaited before the
    mirror passes over a gap, or is cut.
    """

    def __init__(self, source: ClusterClient, target: ClusterClient, *, cuts: bool, note: Note) -> None:
        self._note = note
        self._source = source
        self._target = target
        self._cuts = cuts

    async def align(self, parts: Sequence[MirrorPartition], now_ms: int) -> None:
        """Makes them ready to be copied, or stops them. Raises ProtocolError when one cannot be asked now;
        any of them may be ready or stopped then."""
        texts = {part.tp: part.source_text for part in parts}
        stands = await self._target.mirror_stands(texts)
        for tp in texts:
            self._source.forget_leader(tp)
        await self._source.learn_leaders(texts)
        leaders = {tp: await self._source.leader(tp) for tp in texts}
        same = [part for part in parts if await self._is_same(part)]
        low = {
            part.tp: leaders[part.tp].epoch + HEADROOM
            for part in same
            if leaders[part.tp].epoch >= stands[part.tp].leader_epoch
        }
        if low:
            stands |= await raised(self._target, texts, low)
        epochs = {part.tp: epoch for part in same if (epoch := stands[part.tp].last_epoch) >= 0}
        ends = await self._source.epoch_ends(epochs, retry=NO_RETRIES) if epochs else {}
        agreed = {
            part: stand
            for part in same
            if not self._is_ended(part, stands[part.tp], leaders[part.tp].epoch)
            if (stand := await self._agreed(part, stands[part.tp], ends.get(part.tp))) is not None
        }
        wanted = [part.tp for part in agreed]
        firsts = await self._source.list_offsets(dict.fromkeys(wanted, EARLIEST), retry=NO_RETRIES)
        lasts = await self._source.list_offsets(dict.fromkeys(wanted, LATEST), retry=NO_RETRIES)
        for part, stand in agreed.items():
            first, last = firsts[part.tp].offset, lasts[part.tp].offset
            part.end = stand.end
            part.heard(first, last, now_ms)
            end = await self._begin(part, stand, first)
            if end is None:
                continue
            part.aligned(stand.start, end, leaders[part.tp].epoch)
            part.heard(first, last, now_ms)

    async def _is_same(self, part: MirrorPartition) -> bool:
        if await is_same_topic(self._source, part):
            return True
        part.stop(
            "the source topic was created again: delete the mirror to copy the new one, or isthmus"
            " mirrors failover to keep the old one"
        )
        return False

    def _is_ended(self, part: MirrorPartition, stand: MirrorStand, source_epoch: int) -> bool:
        """Whether a promotion or failover has written to it. It is looked at again later: it may be under
        way, run again, or given up."""
        if not is_of_a_switch(stand.last_epoch, source_epoch):
            return False
        part.realign(
            asyncio.get_running_loop().time(),
            "a promotion or failover has begun here: nothing is copied. Where it broke off, isthmus mirrors"
            " promote or failover goes on with it, and unfence gives a promotion up",
        )
        return True

    async def _agreed(
        self, part: MirrorPartition, stand: MirrorStand, asked: EpochEnd | None
    ) -> MirrorStand | None:
        """How the mirror stands as a part of the source's log, cut if need be; None: it was stopped. `asked`:
        what the source says of its last epoch."""

        async def owner(epoch: int) -> EpochEnd:
            if asked is not None and epoch == stand.last_epoch:
                return asked
            return await epoch_end(self._source, part.tp, epoch)

        common = await common_end(
            stand.last_epoch, stand.end, owner, partial(epoch_end, self._target, part.tp)
        )
        if common is None:
            part.stop(
                f"the source knows nothing of leader epoch {stand.last_epoch}, in which the mirror ends at"
                f" offset {stand.end}: it is another log. Delete the mirror to copy it anew"
            )
            return None
        if common == stand.end:
            return stand
        if not self._cuts:
            part.stop(
                f"the source has lost or replaced what the mirror has at offsets {common} to {stand.end}"
                " (unclean election?): nothing is copied. `on_truncation: cut` cuts the mirror back to"
                " the source; isthmus mirrors failover keeps what is here"
            )
            return None
        return await self._cut(part, stand, common)

    async def _cut(self, part: MirrorPartition, stand: MirrorStand, common: int) -> MirrorStand:
        text = f"offsets {common} to {stand.end} were cut off: the source has lost or replaced them"
        _log.error("%s: %s", part.tp, text)
        await self._note(  # it goes on in any case
            part, Kind.SUPERSEDED, common, stand.end, "cut off: the source has lost or replaced it"
        )
        part.notes.append(text)
        await self._take_back(part.tp, common)
        cut_to = common
        if await compacted(self._target, [part.tp.topic]):  # by what is cut off, perhaps
            cut_to = min(common, (await self._source.list_offsets({part.tp: EARLIEST}))[part.tp].offset)
        await self._target.settle_mirror(part.tp, part.source_text, stand.leader_epoch, cut_to=cut_to)
        await self._take_back(part.tp, common)  # members may have joined again and read the same meanwhile
        return await self._target.mirror_stand(part.tp, part.source_text)

    async def _take_back(self, tp: TopicPartition, end: int) -> None:
        for group, moved in (await take_back(self._target, {tp: end})).items():
            _log.warning("group %s %s", group, moved)

    async def _begin(self, part: MirrorPartition, stand: MirrorStand, source_start: int) -> int | None:
        """Where the mirror goes on: behind its end, or where the source begins if that is later. There it
        lets go of all that it had, as the source has nothing of it any more. None: not before somebody has
        acknowledged that."""
        if source_start <= stand.end:
            return stand.end
        if stand.end > 0:
            reason = "retention passed at the source"
            lost, before = f"source offsets {stand.end} to {source_start} are gone", stand.end - stand.start
            _log.error("%s: %s: %s", part.tp, lost, reason)
            if not await self._note(part, Kind.GAP, stand.end, source_start, reason):
                part.hold(
                    f"{lost}: it goes on behind them once that gap is acknowledged (isthmus links"
                    f" acknowledge-gap), and drops the {before} records then that it has before them"
                )
                _log.error("%s: %s", part.tp, part.problem)
                return None
            _log.error(
                "%s: the %d records before them are dropped: the source has none of them", part.tp, before
            )
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
