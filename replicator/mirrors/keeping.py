"""What is kept for mirrors beside their logs: settings in step with the source, gaps that somebody knows of.

Owns these jobs and the store of both: the rows that links with ledgers keep in their progress topic, so
`links drift` and `acknowledge-gap` read one thing. Copying needs none of it and goes on without. ACLs are not
here: mirrors are on clusters of isthmus, whose brokers have none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from protocol.client import ClusterClient
from protocol.types import TopicPartition
from replicator.acknowledgements import Difference, Kind
from replicator.discovery import Wanted
from replicator.mirrors.standing import Witness
from replicator.progress import ProgressStore
from replicator.settings import LinkSettings
from replicator.target_topics import TargetTopics

MirrorGap = tuple[int, int, str]


class Keeping:
    """Of one link. `wanted` are the topics that are its mirrors now."""

    def __init__(
        self,
        settings: LinkSettings,
        source: ClusterClient,
        target: ClusterClient,
        wanted: Callable[[], Mapping[str, Wanted]],
    ) -> None:
        self._wanted = wanted
        self._store = ProgressStore(target, settings.progress_topic, settings.internal_replication_factor)
        self._topics = TargetTopics(
            source,
            target,
            exclude=settings.config_properties_exclude,
            replication_factor=settings.replication_factor,
            source_defaults=settings.use_defaults_from == "source",
        )
        self._loaded = False

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

    async def look(self) -> None:
        """Who took note of which gaps. Raises ProtocolError."""
        await self._store.refresh()

    def unknown(self, tp: TopicPartition, gaps: Iterable[MirrorGap]) -> list[MirrorGap]:
        """Gaps that nobody has acknowledged."""
        return [gap for gap in gaps if difference(tp, gap) not in self._store.acknowledged]


def difference(tp: TopicPartition, gap: MirrorGap) -> Difference:
    """A gap of a mirror, as acknowledgements name it; when it was found is not kept."""
    return Difference(tp, Kind.GAP, *gap, 0)


async def gaps_on_record(target: ClusterClient, settings: LinkSettings) -> list[Difference]:
    """Of all mirrors that the link has had, whether it runs or not. Raises ProtocolError."""
    found = await Witness(target, settings.name).gaps()
    return [difference(tp, gap) for tp, gaps in sorted(found.items()) for gap in gaps]
