"""Which topics a link mirrors, and their counterparts at the target: made, grown, or refused with a reason.

Owns the look at both clusters. A mirror is made with the source's partitions and own settings, and names
link, cluster and topic id in `isthmus.mirror.source`. A topic of that name that is not this link's mirror is
left alone, always: it is somebody's, or has been promoted.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from protocol.client import ClusterClient, ConfigEntry, NewTopic, TopicMetadata
from protocol.client.mirror_calls import MIRROR_SOURCE
from protocol.errors import ErrorCode, KafkaError
from protocol.types import TopicPartition
from replicator.discovery import Wanted, discover
from replicator.filters import PatternList
from replicator.mirrors.lineage import TURNED, MirrorSource
from replicator.settings import LinkSettings
from replicator.topic_settings import CopyRule

_log = logging.getLogger("isthmus.replicator")


@dataclass(slots=True)
class Mirrored:
    """One look: the partitions to copy with what their topic says of its source, and why others are not."""

    partitions: dict[TopicPartition, str] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    topics: dict[str, Wanted] = field(default_factory=dict)
    """This link's mirrors, by name."""
    ended: dict[str, str] = field(default_factory=dict)
    """Topics that stand by themselves at the target: promoted, or never mirrors."""
    missing: list[str] = field(default_factory=list)
    """Topics that were to be mirrored and are not at the target, where none was to be made."""


class MirrorTopics:
    """Of one link."""

    def __init__(self, settings: LinkSettings, source: ClusterClient, target: ClusterClient) -> None:
        self._settings = settings
        self._source = source
        self._target = target
        self._rule = CopyRule(
            PatternList(settings.config_properties_exclude), settings.use_defaults_from == "source"
        )

    async def look(self, *, make: bool = True) -> Mirrored:
        """`make`: mirrors that are missing are created, and grown. Raises ProtocolError."""
        here = (await self._source.metadata(None)).topics
        there = (await self._target.metadata(None)).topics
        wanted = discover(here, there, self._settings.topic_filter(), self._settings.names()).wanted
        both = [name for name, each in wanted.items() if each.target is not None]
        settings_there = await self._target.describe_configs(both) if both else {}
        result = Mirrored()
        missing = [name for name, each in wanted.items() if each.target is None]
        settings_here = await self._source.describe_configs(missing) if missing and make else {}
        for name, each in wanted.items():
            source = MirrorSource.of(self._settings.name, self._source.cluster_id, each.source.topic_id)
            try:
                if each.target is None and not make:
                    result.missing.append(name)
                    continue
                if each.target is None:
                    if not await self._create(each.source, source, settings_here[name], result):
                        continue
                elif not self._is_ours(name, source, settings_there[name], result):
                    continue
                elif make and each.missing_partitions:
                    await self._target.create_partitions({name: len(each.source.partitions)})
            except KafkaError as error:
                result.problems[name] = str(error)
                continue
            result.topics[name] = each
            for index in each.source.partitions:
                result.partitions[TopicPartition(name, index)] = source.text
        return result

    def _is_ours(
        self, name: str, source: MirrorSource, settings: dict[str, ConfigEntry], result: Mirrored
    ) -> bool:
        text = mirror_text(settings)
        known = None if text is None else MirrorSource.read(text)
        if known == source:
            return True
        if text is None:
            result.ended[name] = "writable at the target: promoted, or not made by this link"
        elif known is not None and known[:2] == source[:2]:
            result.problems[name] = (
                f"the source topic was created again (id {source.topic_id}, the mirror's {known.topic_id}):"
                " delete the mirror to copy the new one, or isthmus mirrors failover to keep the old one"
            )
        elif known is not None and known.link == f"{TURNED} {self._settings.name}":
            result.problems[name] = (
                "it is being made a mirror; where isthmus mirrors reverse, or truncate-and-restore, broke"
                " off, run it again"
            )
        else:
            result.problems[name] = f"at the target it is a mirror of {text}"
        return False

    async def _create(
        self,
        topic: TopicMetadata,
        source: MirrorSource,
        settings: dict[str, ConfigEntry],
        result: Mirrored,
    ) -> bool:
        upstream = mirror_text(settings)
        known = None if upstream is None else MirrorSource.read(upstream)
        if known is not None and known.cluster_id == self._target.cluster_id:
            result.problems[topic.name] = "it is itself a mirror of a topic of the target"
            return False
        configs = {**self._rule.to_copy(settings), MIRROR_SOURCE: source.text}
        new = NewTopic(topic.name, len(topic.partitions), self._settings.replication_factor, configs)
        try:
            await self._target.create_topics([new])
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            return False  # by somebody else meanwhile: looked at next time
        _log.info("%s: mirror %s made, %d partitions", source.link, topic.name, len(topic.partitions))
        return True


def mirror_text(settings: Mapping[str, ConfigEntry]) -> str | None:
    """Whose mirror a topic is by its settings; None: nobody's."""
    entry = settings.get(MIRROR_SOURCE)
    return (entry.value or None) if entry is not None else None


async def compacted(client: ClusterClient, names: Collection[str]) -> set[str]:
    """Topics of which records may have gone because of later ones: a log of theirs that is cut back lacks
    those as well, and has to be filled anew. Raises ProtocolError."""
    configs = await client.describe_configs(list(names)) if names else {}
    return {
        name
        for name, entries in configs.items()
        if (entry := entries.get("cleanup.policy")) is not None and "compact" in (entry.value or "")
    }
