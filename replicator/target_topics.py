"""Topics at the target: created like their source, grown with it, their settings kept alike.

Owns which settings are copied (MM2's rule: what is set on the source topic, except what the exclusion list
names) and the requests for it. Partition n is always copied to partition n; surplus partitions of the
target stay empty. Settings that only the target's topic has are left alone: somebody put them there.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping

from protocol.client import ClusterClient, ConfigEntry, ConfigSource, NewTopic
from protocol.errors import ErrorCode, KafkaError, ProtocolError
from replicator.discovery import Wanted
from replicator.filters import PatternList

_OWN_TIME = "message.timestamp.type=LogAppendTime: records get the target's time instead of their own"

_log = logging.getLogger("isthmus.replicator")


def settings_to_copy(configs: Mapping[str, ConfigEntry], exclude: PatternList) -> dict[str, str]:
    """What is set on a topic itself and may be copied."""
    return {
        key: entry.value
        for key, entry in configs.items()
        if entry.source is ConfigSource.TOPIC
        and entry.value is not None
        and not entry.read_only
        and not entry.is_sensitive
        and not exclude.matches(key)
    }


class TargetTopics:
    """Makes and grows topics; what cannot be made now is tried again at the next look (KAFKA-9218)."""

    def __init__(
        self,
        source: ClusterClient,
        target: ClusterClient,
        *,
        exclude: Collection[str],
        replication_factor: int,
    ) -> None:
        self._source = source
        self._target = target
        self._exclude = PatternList(tuple(exclude))
        self._replication_factor = replication_factor
        self.problems: dict[str, str] = {}
        """Why a source topic has no complete or no true counterpart at the target, by source topic."""

    async def ensure(self, wanted: Iterable[Wanted]) -> bool:
        """Creates and grows what is missing. True when something was changed."""
        changed = False
        for topic in wanted:
            if not topic.missing_partitions:
                if _OWN_TIME not in self.problems.get(topic.source.name, ""):
                    self.problems.pop(topic.source.name, None)
                continue
            try:
                await (self._create(topic) if topic.target is None else self._grow(topic))
            except ProtocolError as error:
                if isinstance(error, KafkaError) and error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                    changed = True
                    continue
                if self.problems.get(topic.source.name) != str(error):
                    _log.error("topic %s at the target: %s", topic.target_name, error)
                self.problems[topic.source.name] = str(error)
            else:
                self.problems.pop(topic.source.name, None)
                changed = True
        return changed

    async def _create(self, topic: Wanted) -> None:
        name = topic.source.name
        configs = (await self._source.describe_configs([name]))[name]
        await self._target.create_topics(
            [
                NewTopic(
                    topic.target_name,
                    len(topic.source.partitions),
                    self._replication_factor,
                    settings_to_copy(configs, self._exclude),
                )
            ]
        )
        _log.info("created topic %s with %d partitions", topic.target_name, len(topic.source.partitions))

    async def _grow(self, topic: Wanted) -> None:
        await self._target.create_partitions({topic.target_name: len(topic.source.partitions)})
        _log.info("grew topic %s to %d partitions", topic.target_name, len(topic.source.partitions))

    async def sync_settings(self, wanted: Collection[Wanted]) -> dict[str, dict[str, str]]:
        """Sets at the target what differs from the source. What was set, by target topic."""
        both = [topic for topic in wanted if topic.target is not None]
        if not both:
            return {}
        ours = await self._source.describe_configs([topic.source.name for topic in both])
        theirs = await self._target.describe_configs([topic.target_name for topic in both])
        changes: dict[str, dict[str, str]] = {}
        for topic in both:
            have = theirs.get(topic.target_name, {})
            self._check_time(topic, have)
            want = settings_to_copy(ours.get(topic.source.name, {}), self._exclude)
            differing = {
                key: value for key, value in want.items() if key in have and have[key].value != value
            }
            if differing:
                changes[topic.target_name] = differing
        if changes:
            await self._target.alter_configs(changes)
            _log.info("settings copied: %s", changes)
        return changes

    def _check_time(self, topic: Wanted, settings: Mapping[str, ConfigEntry]) -> None:
        """A target that stamps its own time loses the records' times: look-ups and retention differ."""
        kind = settings.get("message.timestamp.type")
        name, known = topic.source.name, self.problems.get(topic.source.name)
        if kind is not None and kind.value == "LogAppendTime":
            self.problems[name] = f"{topic.target_name} has {_OWN_TIME}"
        elif known is not None and _OWN_TIME in known:
            del self.problems[name]
