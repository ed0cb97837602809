"""Topics at the target: created like their source, grown with it, their settings kept alike.

Owns the requests; whose word counts for a setting is decided in `topic_settings`. Partition n is always
copied to partition n; surplus partitions of the target stay empty. A new topic is made without the settings
that the target does not know (the drift report names them): the topic matters more.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from protocol.client import ClusterClient, ConfigEntry, NewTopic, RetryPolicy
from protocol.counted import counted
from protocol.errors import ErrorCode, KafkaError, ProtocolError
from replicator.discovery import Wanted
from replicator.filters import PatternList
from replicator.piecemeal import piecemeal
from replicator.topic_settings import Action, CopyRule, compare

_OWN_TIME = "message.timestamp.type=LogAppendTime: records get the target's time instead of their own"

_DOES_NOT_SHOW = (
    "does not show it to the link: grant the link's user DESCRIBE on it, or wait until its deletion has ended"
)

_SOON = RetryPolicy(total_s=5, unknown_topic_s=0)

_ABOUT_A_VALUE = frozenset({ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST, ErrorCode.POLICY_VIOLATION})

_Settings = Mapping[str, Mapping[str, ConfigEntry]]

_log = logging.getLogger("isthmus.replicator")


class TargetTopics:
    """Makes and grows topics; what cannot be made now is tried again at the next look (KAFKA-9218)."""

    def __init__(
        self,
        source: ClusterClient,
        target: ClusterClient,
        *,
        exclude: Collection[str],
        replication_factor: int,
        source_defaults: bool = False,
        example: str | None = None,
    ) -> None:
        """`example`: a topic of the target that tells which settings are known there."""
        self._source = source
        self._target = target
        self._rule = CopyRule(PatternList(tuple(exclude)), source_defaults)
        self._example = example
        self._replication_factor = replication_factor
        self.problems: dict[str, str] = {}
        """Why a source topic has no complete or no true counterpart at the target, by source topic."""
        self.settings_problems: dict[str, str] = {}
        """Settings that cannot be read or set now, by source topic."""
        self._hidden: set[str] = set()
        """Topics of the target that were there by its last word, and that it did not show."""
        self.ours: dict[str, dict[str, str]] = {}
        """What this link has set at the target, by source topic."""
        self.not_stored: set[str] = set()
        """Topics of `ours` that the caller has to store."""

    def told(self) -> dict[str, str]:
        """All that is wrong now, by what it concerns."""
        return self.problems | {
            f"settings of {name}": problem for name, problem in self.settings_problems.items()
        }

    def forget_problems(self) -> None:
        """Another worker makes topics now."""
        self.problems.clear()
        self.settings_problems.clear()

    async def ensure(self, wanted: Collection[Wanted]) -> bool:
        """Creates and grows what is missing. True when something was changed."""
        changed = False
        for gone in self.problems.keys() - {topic.source.name for topic in wanted}:
            del self.problems[gone]
        for topic in wanted:
            if not topic.missing_partitions:
                self._hidden.discard(topic.target_name)
                if _OWN_TIME not in self.problems.get(topic.source.name, ""):
                    self.problems.pop(topic.source.name, None)
                continue
            try:
                changed |= await self._make(topic)
            except ProtocolError as error:
                self._note(topic, str(error))
                if not isinstance(error, KafkaError):
                    break  # a cluster does not answer: not about the next one either
            else:
                if topic.target_name not in self._hidden:
                    self.problems.pop(topic.source.name, None)
        return changed

    async def _make(self, topic: Wanted) -> bool:
        """Whether the target is to be looked at again."""
        try:
            await (self._create(topic) if topic.target is None else self._grow(topic))
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            if topic.target_name in self._hidden:
                self._note(topic, f"{topic.target_name} is at the target, which {_DOES_NOT_SHOW}")
                return False
            self._hidden.add(topic.target_name)
        return True

    def _note(self, topic: Wanted, problem: str) -> None:
        if self.problems.get(topic.source.name) != problem:
            _log.error("topic %s at the target: %s", topic.target_name, problem)
        self.problems[topic.source.name] = problem

    async def _create(self, topic: Wanted) -> None:
        name = topic.source.name
        configs = (await self._source.describe_configs([name]))[name]
        settings = await self._known(self._rule.to_copy(configs))
        partitions = len(topic.source.partitions)
        await self._target.create_topics(
            [NewTopic(topic.target_name, partitions, self._replication_factor, settings)], retry=_SOON
        )
        self._remember(name, settings)
        _log.info(
            "created topic %s with %s", topic.target_name, counted(len(topic.source.partitions), "partition")
        )

    async def _known(self, settings: dict[str, str]) -> dict[str, str]:
        """Those that the target knows: one that it does not would keep the topic from being made."""
        if self._example is None or not settings:
            return settings
        there = (await described(self._target, [self._example]))[0].get(self._example)
        if there is None:
            return settings
        unknown = settings.keys() - there.keys()
        if unknown:
            _log.warning("the target does not know %s", ", ".join(sorted(unknown)))
        return {key: value for key, value in settings.items() if key in there}

    async def _grow(self, topic: Wanted) -> None:
        await self._target.create_partitions({topic.target_name: len(topic.source.partitions)}, retry=_SOON)
        _log.info(
            "grew topic %s to %s", topic.target_name, counted(len(topic.source.partitions), "partition")
        )

    async def sync_settings(self, wanted: Collection[Wanted]) -> dict[str, dict[str, str | None]]:
        """Sets at the target what differs from the source, and takes back what this link had set and the
        source has no more. What was changed, by target topic (None: taken back); what cannot be asked or
        changed now does not stop the rest."""
        both = {topic.source.name: topic for topic in wanted if topic.target is not None}
        here, unread = await described(self._source, list(both))
        there, unread_there = await described(self._target, [topic.target_name for topic in both.values()])
        wants: dict[str, dict[str, str]] = {}
        changes: dict[str, dict[str, str | None]] = {}
        problems: dict[str, str] = {}
        for name, topic in both.items():
            have = there.get(topic.target_name)
            if name not in here or have is None:
                error = unread.get(name) or unread_there.get(topic.target_name)
                if error is not None and error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    problems[name] = f"cannot be compared: {error}"
                continue  # else one of them was deleted just now
            self._check_time(topic, have)
            differing = {
                found.key: found.source if found.action is Action.SET else None
                for found in compare(here[name], have, self.ours.get(name, {}), self._rule)
                if found.action is not Action.NONE
            }
            if differing:
                changes[topic.target_name] = differing
            want = self._rule.to_copy(here[name])
            wants[name] = {key: value for key, value in want.items() if key in have}
        refused = await self._alter(changes)
        for name, want in wants.items():
            at_target = both[name].target_name
            before, wrong = self.ours.get(name, {}), refused.get(at_target, {})
            ours = before.keys() | changes.get(at_target, {}).keys()  # not what somebody else had set alike
            mine = {key: value for key, value in want.items() if key in ours and key not in wrong}
            self._remember(name, mine | {key: before[key] for key in wrong if key in before})
            if wrong:
                problems[name] = "; ".join(f"{key}: {error}" for key, error in sorted(wrong.items()))
        for name, problem in problems.items():
            if self.settings_problems.get(name) != problem:
                _log.error("settings of %s at the target: %s", both[name].target_name, problem)
        self.settings_problems = problems
        done = {
            name: {key: value for key, value in change.items() if key not in refused.get(name, {})}
            for name, change in changes.items()
        }
        done = {name: change for name, change in done.items() if change}
        if done:
            _log.info("settings copied: %s", done)
        return done

    async def _alter(
        self, changes: Mapping[str, Mapping[str, str | None]]
    ) -> Mapping[str, Mapping[str, KafkaError]]:
        """What the target refuses, by topic and setting: one value that it does not take stops none of the
        others."""

        async def alter(names: list[str]) -> Mapping[str, None]:
            await self._target.alter_configs({name: changes[name] for name in names}, retry=_SOON)
            return dict.fromkeys(names)

        wrong: dict[str, Mapping[str, KafkaError]] = {}
        for topic, error in (await piecemeal(alter, changes))[1].items():
            wrong[topic] = dict.fromkeys(changes[topic], error)
            if error.code in _ABOUT_A_VALUE:
                wrong[topic] = await self._one_by_one(topic, changes[topic])
        return wrong

    async def _one_by_one(self, topic: str, change: Mapping[str, str | None]) -> Mapping[str, KafkaError]:
        async def alter(keys: list[str]) -> Mapping[str, None]:
            await self._target.alter_configs({topic: {key: change[key] for key in keys}}, retry=_SOON)
            return dict.fromkeys(keys)

        return (await piecemeal(alter, change))[1]

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


async def described(client: ClusterClient, names: list[str]) -> tuple[_Settings, Mapping[str, KafkaError]]:
    """Settings of the topics that can be asked about, and why the others cannot."""

    async def ask(part: list[str]) -> _Settings:
        return await client.describe_configs(part, retry=_SOON)

    return await piecemeal(ask, names)
