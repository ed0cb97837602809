"""How a link begins: its stored progress, or where partitions begin that it has never seen.

Owns the first start (where the source's logs begin and end then, what MirrorMaker 2 has copied already), what
that has copied before a later start, the same for topics that it is told later to copy too, and handing
what was stored to the parts that go on with it. Asks both clusters; decides nothing about single partitions
(`opening`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from protocol.client import LATEST, ClientError, Isolation
from protocol.types import TopicPartition, uuid_to_text
from replicator.acl_sync import AclSync
from replicator.discovery import Wanted, discover
from replicator.ends import ANSWER_S, Ends, source_ends
from replicator.entry_rows import Entry
from replicator.filters import TopicFilter
from replicator.link_rows import First, Seen
from replicator.mirrormaker.returning import go_on_behind
from replicator.mirrormaker.takeover import Taken, take_over
from replicator.parts import Parts
from replicator.phase import TAKE_OVER
from replicator.progress import Progress


class Start:
    """Of one link."""

    def __init__(self, parts: Parts, acls: AclSync) -> None:
        self._parts = parts
        self._acls = acls

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
            await self._begin(store.progress, now)
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
        ids = {
            TopicPartition(name, n): uuid_to_text(one.source.topic_id)
            for name, one in found.wanted.items()
            for n in one.source.partitions
        }
        if parts.settings.start == "latest":
            listed = await parts.source_client.list_offsets(
                dict.fromkeys(ids, LATEST), isolation=Isolation.READ_COMMITTED
            )
            return {tp: First(at.offset, ids[tp]) for tp, at in listed.items()}
        ends: Ends = {}
        await source_ends(parts.source_client, ids, ends, asyncio.get_running_loop().time() + ANSWER_S)
        firsts = {tp: ends[tp].first for tp in ids}  # one that is not told now begins where it does then
        return {tp: First(-1 if at is None else at, ids[tp]) for tp, at in firsts.items()}
