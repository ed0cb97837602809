"""Settings of mirrors, in step with the source's.

Owns the job; what the link has set is noted as links with ledgers note it, so `links drift` reads one thing.
Copying goes on without. ACLs are not here: mirrors are on clusters of isthmus, whose brokers have none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from protocol.client import ClusterClient
from replicator.discovery import Wanted
from replicator.progress import ProgressStore
from replicator.settings import LinkSettings
from replicator.target_topics import TargetTopics


class Keeping:
    """Of one link. `wanted` are the topics that are its mirrors now."""

    def __init__(
        self,
        settings: LinkSettings,
        source: ClusterClient,
        target: ClusterClient,
        store: ProgressStore,
        wanted: Callable[[], Mapping[str, Wanted]],
    ) -> None:
        self._wanted = wanted
        self._store = store
        self._topics = TargetTopics(
            source,
            target,
            exclude=settings.config_properties_exclude,
            replication_factor=settings.replication_factor,
            source_defaults=settings.use_defaults_from == "source",
        )
        self._loaded = False

    def problems(self) -> dict[str, str]:
        """What could not be compared or set, by what it concerns."""
        return self._topics.told()

    async def sync_settings(self) -> None:
        """Brings settings of mirrors in line; what the source unset is taken back if the link had set it.
        Raises ProtocolError."""
        if not self._loaded:
            self._topics.ours = (await self._store.load()).settings
            self._loaded = True
        await self._topics.sync_settings(list(self._wanted().values()))
        names, self._topics.not_stored = self._topics.not_stored, set()
        if names:
            try:
                await self._store.save_settings({name: self._topics.ours[name] for name in names})
            except BaseException:
                self._topics.not_stored |= names
                raise
