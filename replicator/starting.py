"""How a link begins: its stored progress, or where partitions begin that it has never seen.

Owns the first start (where "latest" is, what MirrorMaker 2 has copied already) and handing what was stored to
the parts that go on with it. Asks both clusters; decides nothing about single partitions (`opening`).
"""

from __future__ import annotations

from protocol.client import LATEST, ClientError, Isolation
from protocol.types import TopicPartition
from replicator.acl_sync import AclSync
from replicator.discovery import discover
from replicator.entry_rows import Entry
from replicator.filters import TopicFilter
from replicator.mirrormaker.takeover import take_over
from replicator.parts import Parts
from replicator.phase import TAKE_OVER
from replicator.progress import Progress


class Start:
    """Of one link."""

    def __init__(self, parts: Parts, acls: AclSync) -> None:
        self._parts = parts
        self._acls = acls

    async def load(self, *, leading: bool) -> None:
        """Reads what is stored, notes (as the leader) where the first start begins, hands both on.

        Raises ProtocolError, also while the leader has not noted that yet.
        """
        parts = self._parts
        await parts.fence()
        progress = await self.take_lead()
        if progress.initial is None or parts.settings.widens:
            if not leading:
                error = ClientError("the worker that leads this link has not begun it yet")
                error.to_do = "look at what that one waits for"
                raise error
            await self._begin(progress)
            progress = await parts.store.refresh()
        parts.partitions.stored = progress.entries()
        parts.partitions.initial = progress.initial or {}

    async def take_lead(self) -> Progress:
        """Reads what the leader before us had set at the target."""
        progress = await self._parts.store.refresh()  # also what the owner before us wrote last
        topics = self._parts.topics
        topics.ours = {**progress.settings, **{name: topics.ours[name] for name in topics.not_stored}}
        self._acls.owned = progress.acls()
        self._acls.withheld = progress.withheld()
        return progress

    async def _begin(self, progress: Progress) -> None:
        """Notes where partitions begin that are not known yet: all of them at the link's first start."""
        known = progress.initial or {}
        entries = progress.entries()
        if progress.initial is None and not entries and self._parts.settings.take_over is not None:
            entries = await self._take_over()
        first = await self._first_partitions()
        topics = {tp.topic for tp in (*known, *entries)}
        asked = progress.asked
        filters = [TopicFilter(self._parts.naming, *one, heartbeats=False) for one in asked]

        def born(topic: str) -> bool:
            """Since an earlier start, which would have taken it or its partition, had it been there."""
            return topic in topics or any(one.accepts(topic) for one in filters)

        new = {tp: at for tp, at in first.items() if not born(tp.topic)}
        settings = self._parts.settings
        now = [list(settings.topics), list(settings.topics_exclude)]
        if settings.widens and now not in asked:
            asked = [*asked, now]
        if progress.initial is None or new or asked != progress.asked:
            await self._parts.store.save_initial({**known, **new}, asked)

    async def _take_over(self) -> dict[TopicPartition, Entry]:
        """Stores what MirrorMaker 2 has copied as the link's own progress."""
        parts = self._parts
        parts.phase.enter(TAKE_OVER)
        source, target = parts.source_client, parts.target_client
        here, there = await source.metadata(None), await target.metadata(None)
        found = discover(here.topics, there.topics, parts.topic_filter, parts.naming)
        taken = await take_over(source, target, parts.settings, found.wanted)
        if taken:
            await parts.store.save(taken)
        return {entry.tp: entry for entry in taken}

    async def _first_partitions(self) -> dict[TopicPartition, int]:
        """Only these begin at "latest"; whatever is born from now on is copied from its first record."""
        parts = self._parts
        here = (await parts.source_client.metadata(None)).topics
        found = discover(here, {}, parts.topic_filter, parts.naming)
        spots = {
            TopicPartition(name, n): -1 for name, one in found.wanted.items() for n in one.source.partitions
        }
        if parts.settings.start == "earliest":
            return spots
        listed = await parts.source_client.list_offsets(
            dict.fromkeys(spots, LATEST), isolation=Isolation.READ_COMMITTED
        )
        return {tp: at.offset for tp, at in listed.items()}
