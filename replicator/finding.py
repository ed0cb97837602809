"""Looking at both clusters for what there is to copy, each second or so; making topics at the target.

Owns the requests; what is wanted is decided in `discovery`. Only the worker that leads the link makes topics,
the others see what it has made at their next look.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Set

from protocol.types import TopicPartition
from replicator.discovery import Found, discover
from replicator.newcomers import Newcomers
from replicator.parts import Parts
from replicator.renewal import Renewal
from replicator.upstream import Upstream


class Finding:
    """Of one link."""

    def __init__(self, parts: Parts, note_settings: Callable[[], Awaitable[None]]) -> None:
        self._parts = parts
        self._note_settings = note_settings
        self._upstream = Upstream(parts.source_client)
        self._renewal = Renewal(
            parts.target_client,
            parts.store,
            parts.naming,
            new_mirrors=parts.settings.on_recreated == "new_mirror",
        )
        self._newcomers = (
            Newcomers(parts.source_client, parts.target_client, parts.settings, parts.store)
            if parts.settings.widens
            else None
        )
        self._at_target: Set[str] = frozenset()
        self._only: Set[str] | None = None
        """Topics that the link keeps to: those of its start, when it is told not to look for more."""

    async def look(self) -> Found:
        """What there is now; changes nothing. Raises ProtocolError."""
        parts = self._parts
        source = (await parts.source_client.metadata(None)).topics
        if self._only is not None:
            source = {name: source[name] for name in self._only & source.keys()}
        target = await parts.target_client.metadata(None)
        await self._upstream.look(source, parts.topic_filter)
        self._at_target = target.topics.keys()
        names = self._renewal.names()
        found = discover(source, target.topics, parts.topic_filter, parts.naming, names)
        if self._newcomers is not None:
            await self._newcomers.sort(found)
        if self._only is None and not parts.settings.refresh_topics:
            self._only = found.wanted.keys()
        return found

    @property
    def left_out(self) -> Mapping[str, str]:
        """Topics that appeared and cannot be copied as they are, and why."""
        return self._newcomers.problems if self._newcomers is not None else {}

    async def once(self, *, make_topics: bool) -> None:
        """Looks, makes what is missing, and has partitions started and stopped."""
        parts = self._parts
        found = await self.look()
        if make_topics:
            found = await self._make(found)
        else:
            parts.topics.forget_problems()
        parts.found = self._renewal.hold_back(found)
        parts.partitions.reconcile(found.wanted)

    async def _make(self, found: Found) -> Found:
        """New mirrors first: `ensure` would make again what was deleted on purpose, under its old name."""
        renewal, topics = self._renewal, self._parts.topics
        if await renewal.settle(found, self._at_target):
            found = await self.look()
        if await topics.ensure([*filter(renewal.may_make, found.wanted.values())]):
            found = await self.look()
            await self._note_settings()
            await renewal.settle(found, self._at_target)
        return found

    async def partitions(self) -> set[TopicPartition]:
        """All that are to be copied, by whoever. Raises ProtocolError."""
        found = self._parts.found
        if not found.wanted:
            found = await self.look()
        return partitions_of(found)


def partitions_of(found: Found) -> set[TopicPartition]:
    """All source partitions of the topics that are wanted."""
    return {TopicPartition(name, n) for name, one in found.wanted.items() for n in one.source.partitions}
