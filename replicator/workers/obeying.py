"""Doing what people want of a link, within about a second of their saying so.

Owns noticing new wishes among the records of the progress topic and having this worker's parts follow them:
partitions paused, started again, begun anew; settings that a running link can take on.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection

from protocol.types import TopicPartition
from replicator.filters import NameFilter
from replicator.group_sync import GroupSync
from replicator.parts import Parts
from replicator.workers.control import Desired, Scope, Wish

_log = logging.getLogger("isthmus.replicator")


class Obeying:
    """Of one worker. `give_up` lets go of partitions that the link does not want any more."""

    def __init__(
        self,
        parts: Parts,
        groups: GroupSync,
        give_up: Callable[[Collection[TopicPartition]], Awaitable[None]],
    ) -> None:
        self._parts = parts
        self._groups = groups
        self._give_up = give_up
        self._file = parts.settings
        self._restarted: dict[Scope, Wish] | None = None
        self.desired = Desired()
        self.problem = ""
        parts.partitions.paused = lambda tp: self.desired.paused_because(tp)

    async def once(self) -> None:
        """Reads what is new and follows it. Raises ProtocolError."""
        progress = await self._parts.store.refresh()
        before, self.desired = self.desired, Desired.read(progress.notes)
        restarts = dict(self.desired.restarts)
        if (
            self._restarted is not None
        ):  # what was asked for before this worker began is done by its beginning
            for scope, wish in restarts.items():
                if self._restarted.get(scope) != wish:
                    self._restart(scope, wish)
        self._restarted = restarts
        if before.settings != self.desired.settings:
            await self._apply()
        if before != self.desired:
            self._parts.poke.set()

    def _restart(self, scope: Scope, wish: Wish) -> None:
        _log.info("%s: %s is restarted %s", self._file.name, scope, wish)
        for tp in list(self._parts.book.accounts):
            if scope.covers(tp):
                self._parts.partitions.restart(tp)
        self._parts.poke.set()

    async def _apply(self) -> None:
        try:
            settings = self.desired.applied_to(self._file)
        except ValueError as error:
            self.problem = f"settings changed by command are wrong and not applied: {error}"
            _log.error("%s: %s", self._file.name, self.problem)
            return
        self.problem = ""
        self._parts.apply(settings)
        self._groups.accept(NameFilter(settings.groups, settings.groups_exclude))
        names = ", ".join(sorted(self.desired.settings)) or "none"
        _log.info("%s: settings changed by command: %s", settings.name, names)
        refuses = self._parts.topic_filter.refuses
        gone = [tp for tp in self._parts.book.accounts if refuses(tp.topic) is not None]
        if gone:
            await self._give_up(gone)
