"""How a link begins: its stored progress, or where partitions begin that it has never seen.

Owns the first start (where the source's logs begin and end then, what MirrorMaker 2 has copied already), what
that has copied before a later start, the same for topics that it is told later to copy too, and handing
what was stored to the parts that go on with it. Asks both clusters; decides nothing about single partitions
(`opening`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from protocol.client import NO_RETRIES, ClientError, ClusterClient, NotSupportedError
from protocol.types import TopicPartition, uuid_to_text
from replicator.acl_sync import AclSync
from replicator.discovery import Wanted, discover
from replicator.ends import ANSWER_S, Ends, source_ends
from replicator.entry_rows import Entry
from replicator.filters import TopicFilter
from replicator.link_rows import NOT_KNOWN_YET, First, Seen
from replicator.mirrormaker.returning import go_on_behind
from replicator.mirrormaker.takeover import Taken, take_over
from replicator.parts import Parts
from replicator.phase import TAKE_OVER
from replicator.piecemeal import piecemeal
from replicator.progress import Progress

_log = logging.getLogger("isthmus.replicator")


class Start:
    """Of one link."""

    def __init__(self, parts: Parts, acls: AclSync) -> None:
        self._parts = parts
        self._acls = acls
        self._noting = asyncio.Lock()

    async def load(self, *, leading: bool) -> None:
        """Reads what is stored, notes (as the leader) where the first start begins, hands it on.

        Raises ProtocolError, also while the leader has not noted that yet.
        """
        parts = self._parts
        await parts.fence()
        progress = await self.take_lead()
        await self._return(progress, leading=leading)
        if leading:
            await self.take_in()
        elif progress.initial is None:
            error = ClientError("the worker that leads this link has not begun it yet")
            error.to_do = "look at what that one waits for"
            raise error
        parts.partitions.stored = progress.entries()

    async def take_in(self) -> None:
        """As the leader: notes where partitions begin that are there and were not asked for before, at the
        link's first start or since its filters have changed. Raises ProtocolError."""
        store, settings = self._parts.store, self._parts.settings
        asked = store.progress.asked
        now = [list(settings.topics), list(settings.topics_exclude)]
        if store.progress.initial is None or now not in asked:
            async with self._noting:
                await self._begin(store.progress, now)
                await store.refresh()

    @property
    def waits(self) -> bool:
        """Whether it is not known of a partition yet where it begins."""
        initial = self._parts.store.progress.initial or {}
        return any(first.offset == NOT_KNOWN_YET for first in initial.values())

    async def learn(self) -> None:
        """As the leader: notes where partitions ended at the link's first start whose leaders could not tell
        that then: where the epoch of then ended. Raises ProtocolError."""
        if not self.waits:
            return
        store, source = self._parts.store, self._parts.source_client
        async with self._noting:
            known = dict(store.progress.initial or {})
            waiting = {tp: first for tp, first in known.items() if first.offset == NOT_KNOWN_YET}
            ends = await self._ends({tp: first.topic_id for tp, first in waiting.items()})
            told = {tp: end.offset for tp, end in ends.items() if end.offset is not None}
            terms = await _ends_of_terms(source, {tp: waiting[tp].epoch for tp in told})
            for tp, end in terms.items():
                offset = told[tp] if end < 0 else min(told[tp], end)
                known[tp] = First(offset, waiting[tp].topic_id)
                _log.info("%s begins at %d, where it ended when the link began", tp, offset)
            if terms:
                await store.save_initial(known, store.progress.asked)
                await store.refresh()

    async def take_lead(self) -> Progress:
        """Reads what the leader before us had set at the target."""
        progress = await self._parts.store.refresh()  # also what the owner before us wrote last
        topics = self._parts.topics
        topics.ours = {**progress.settings, **{name: topics.ours[name] for name in topics.not_stored}}
        self._acls.owned = progress.acls()
        self._acls.withheld = progress.withheld()
        return progress

    async def _begin(self, progress: Progress, now: list[list[str]]) -> None:
        """Notes where partitions begin that are not known yet: all of them at the link's first start."""
        known = progress.initial or {}
        entries = progress.entries()
        if progress.initial is None and not entries and self._parts.settings.take_over is not None:
            entries = await self._take_over()
        first = await self._first_partitions()
        topics = {tp.topic for tp in (*known, *entries)}
        asked = progress.asked
        if progress.initial is not None and not asked and not self._parts.settings.widens:
            asked = [now]  # begun by a version that noted none: what is new was born since, for all we know
        filters = [TopicFilter(self._parts.naming, *one, heartbeats=False) for one in asked]

        def born(topic: str) -> bool:
            """Since an earlier start, which would have taken it or its partition, had it been there."""
            return topic in topics or any(one.accepts(topic) for one in filters)

        new = {tp: at for tp, at in first.items() if not born(tp.topic)}
        asked = asked if now in asked else [*asked, now]
        await self._parts.store.save_initial({**known, **new}, asked)

    async def _take_over(self) -> dict[TopicPartition, Entry]:
        """Stores what MirrorMaker 2 has copied as the link's own progress."""
        parts = self._parts
        parts.phase.enter(TAKE_OVER)
        source, target = parts.source_client, parts.target_client
        taken = await take_over(source, target, parts.settings, await self._wanted())
        await self._store(taken)
        return {entry.tp: entry for entry in taken.entries}

    async def _return(self, progress: Progress, *, leading: bool) -> None:
        """Has the link go on behind what MirrorMaker 2 has copied since it ended. Raises ProtocolError."""
        parts = self._parts
        if parts.settings.take_over is None or progress.initial is None:
            return
        parts.phase.enter(TAKE_OVER)
        taken = await go_on_behind(
            *(parts.source_client, parts.target_client, parts.settings, parts.store),
            self._wanted,
            leading=leading,
        )
        if taken is not None and leading:
            await self._store(taken)
            await parts.store.refresh()

    async def _wanted(self) -> Mapping[str, Wanted]:
        parts = self._parts
        here, there = await parts.source_client.metadata(None), await parts.target_client.metadata(None)
        return discover(here.topics, there.topics, parts.topic_filter, parts.naming).wanted

    async def _store(self, taken: Taken) -> None:
        """Entries first: who is ended between the two finds the same once more. One of a topic that the link
        does not copy into now is kept for when it does."""
        store, progress = self._parts.store, self._parts.store.progress
        aside = []
        for entry in taken.entries:
            head = progress.ledger(entry.tp)
            if head is not None and head.target.topic != entry.ledger.target.topic:
                aside.append(entry)
        await store.save([entry for entry in taken.entries if entry not in aside])
        for entry in aside:
            await store.set_aside(entry)
        await store.save_seen(Seen(taken.positions))

    async def _first_partitions(self) -> dict[TopicPartition, First]:
        """What is there now, and where it begins; whatever is born from now on is copied from its first
        record."""
        parts = self._parts
        here = (await parts.source_client.metadata(None)).topics
        found = discover(here, {}, parts.topic_filter, parts.naming)
        ids: dict[TopicPartition, str] = {}
        epochs: dict[TopicPartition, int] = {}
        for name, one in found.wanted.items():
            for n, at in one.source.partitions.items():
                ids[tp := TopicPartition(name, n)] = uuid_to_text(one.source.topic_id)
                epochs[tp] = at.leader_epoch
        ends = await self._ends(ids)
        if parts.settings.start == "latest":
            lasts = {tp: ends[tp].offset for tp in ids}
            return {
                tp: First(last, ids[tp]) if last is not None else First(NOT_KNOWN_YET, ids[tp], epochs[tp])
                for tp, last in lasts.items()
            }
        firsts = {tp: ends[tp].first for tp in ids}  # one that is not told now begins where it does then
        return {tp: First(-1 if first is None else first, ids[tp]) for tp, first in firsts.items()}

    async def _ends(self, topic_ids: Mapping[TopicPartition, str]) -> Ends:
        """What is told within seconds."""
        ends: Ends = {}
        deadline = asyncio.get_running_loop().time() + ANSWER_S
        await source_ends(self._parts.source_client, topic_ids, ends, deadline)
        return ends


async def _ends_of_terms(
    client: ClusterClient, epochs: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Of partitions whose leaders answer: where these epochs ended, or have come to; none where that is not
    known any more, or never was (-1). Raises ClientError."""

    async def ask(tps: list[TopicPartition]) -> dict[TopicPartition, int]:
        ends = await client.epoch_ends({tp: epochs[tp] for tp in tps}, retry=NO_RETRIES)
        return {tp: end.end for tp, end in ends.items()}

    try:
        return (await piecemeal(ask, list(epochs)))[0]
    except NotSupportedError:  # by brokers before 0.11
        return dict.fromkeys(epochs, -1)
