"""Topics at the target: created like their source, grown with it, their settings kept alike.

Owns which settings are copied (MM2's rule: what is set on the source topic, except what the exclusion list
names) and the requests for it. Partition n is always copied to partition n; surplus partitions of the
target stay empty. A setting that the source does not have (any more) is taken back at the target if this link
has set it and nobody has changed it since; any other was put there by somebody and is left alone.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping

from protocol.client import ClusterClient, ConfigEntry, ConfigSource, NewTopic, RetryPolicy
from protocol.errors import ErrorCode, KafkaError, ProtocolError
from replicator.discovery import Wanted
from replicator.filters import PatternList
from replicator.piecemeal import piecemeal

_OWN_TIME = "message.timestamp.type=LogAppendTime: records get the target's time instead of their own"

_SOON = RetryPolicy(total_s=5, unknown_topic_s=0)

_Settings = Mapping[str, Mapping[str, ConfigEntry]]

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
        self.ours: dict[str, dict[str, str]] = {}
        """What this link has set at the target, by source topic."""
        self.not_stored: set[str] = set()
        """Topics of `ours` that the caller has to store."""

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
        settings = settings_to_copy(configs, self._exclude)
        partitions = len(topic.source.partitions)
        await self._target.create_topics(
            [NewTopic(topic.target_name, partitions, self._replication_factor, settings)]
        )
        self._remember(name, settings)
        _log.info("created topic %s with %d partitions", topic.target_name, len(topic.source.partitions))

    async def _grow(self, topic: Wanted) -> None:
        await self._target.create_partitions({topic.target_name: len(topic.source.partitions)})
        _log.info("grew topic %s to %d partitions", topic.target_name, len(topic.source.partitions))

    async def sync_settings(self, wanted: Collection[Wanted]) -> dict[str, dict[str, str | None]]:
        """Sets at the target what differs from the source, and takes back what this link had set and the
        source has no more. What was changed, by target topic (None: taken back); one that cannot be asked or
        changed now does not stop the others."""
        both = {topic.source.name: topic for topic in wanted if topic.target is not None}
        here = await _described(self._source, list(both))
        there = await _described(self._target, [topic.target_name for topic in both.values()])
        wants: dict[str, dict[str, str]] = {}
        changes: dict[str, dict[str, str | None]] = {}
        for name, topic in both.items():
            have = there.get(topic.target_name)
            if name not in here or have is None:
                continue  # one of them was deleted just now
            self._check_time(topic, have)
            want = settings_to_copy(here[name], self._exclude)
            differing = _differences(want, have, self._taken_back(name))
            if differing:
                changes[topic.target_name] = differing
            wants[name] = {key: value for key, value in want.items() if key in have}
        refused = await self._alter(changes)
        for name, want in wants.items():
            if both[name].target_name not in refused:
                self._remember(name, want)
        return {name: change for name, change in changes.items() if name not in refused}

    async def _alter(self, changes: Mapping[str, Mapping[str, str | None]]) -> Collection[str]:
        """Names of the topics whose settings the target refuses."""

        async def alter(names: list[str]) -> Mapping[str, None]:
            await self._target.alter_configs({name: changes[name] for name in names}, retry=_SOON)
            return dict.fromkeys(names)

        done, refused = await piecemeal(alter, changes)
        if done:
            _log.info("settings copied: %s", {name: changes[name] for name in done})
        for name, error in refused.items():
            _log.error("settings of %s at the target: %s", name, error)
        return refused.keys()

    def _taken_back(self, name: str) -> dict[str, str]:
        """What the link has set and may take back: what it is told to leave alone by now it leaves."""
        ours = self.ours.get(name, {})
        return {key: value for key, value in ours.items() if not self._exclude.matches(key)}

    def _remember(self, name: str, settings: dict[str, str]) -> None:
        if self.ours.get(name) != settings:
            self.ours[name] = settings
            self.not_stored.add(name)

    def _check_time(self, topic: Wanted, settings: Mapping[str, ConfigEntry]) -> None:
        """A target that stamps its own time loses the records' times: look-ups and retention differ."""
        kind = settings.get("message.timestamp.type")
        name, known = topic.source.name, self.problems.get(topic.source.name)
        if kind is not None and kind.value == "LogAppendTime":
            self.problems[name] = f"{topic.target_name} has {_OWN_TIME}"
        elif known is not None and _OWN_TIME in known:
            del self.problems[name]


def _differences(
    want: Mapping[str, str], have: Mapping[str, ConfigEntry], ours: Mapping[str, str]
) -> dict[str, str | None]:
    """What to set, and (None) what to take back: set by this link, unset at the source, unchanged since."""
    differing: dict[str, str | None] = {
        key: value for key, value in want.items() if key in have and have[key].value != value
    }
    for key, value in ours.items():
        entry = have.get(key)
        if key in want or entry is None or entry.source is not ConfigSource.TOPIC:
            continue
        if entry.value == value:
            differing[key] = None
    return differing


async def _described(client: ClusterClient, names: list[str]) -> _Settings:
    async def ask(part: list[str]) -> _Settings:
        return await client.describe_configs(part, retry=_SOON)

    return (await piecemeal(ask, names))[0]
