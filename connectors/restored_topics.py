"""Making the topics of a restore, and giving them their settings when the data is in.

Owns the requests around `held_settings`. A setting that the target refuses is reported and left out; the
topic is restored all the same.
"""

from __future__ import annotations

from collections.abc import Mapping

from connectors.held_settings import final, held, wanted_overrides
from connectors.preflight import TopicPlan
from connectors.restore_report import RefusedSetting
from connectors.topic_facts import overrides
from protocol.client import ClusterClient, NewTopic
from protocol.errors import ErrorCode, KafkaError
from protocol.types import uuid_to_text

_REFUSAL = {ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST, ErrorCode.POLICY_VIOLATION}


class RestoredSettings:
    """Settings of one topic over a restore."""

    def __init__(self, client: ClusterClient, plan: TopicPlan) -> None:
        self._client = client
        self._plan = plan
        self._held = held(plan.topic, plan.replication_factor)
        own = plan.existing.own if plan.existing is not None and not plan.existing.created else None
        self._wanted = wanted_overrides(plan.topic) if own is None else own
        self.refused: list[RefusedSetting] = []
        self.retention_ms = -1
        """By time, of the topic as it was given back: its own or the target's; -1: nothing goes by age."""

    async def create(self) -> str:
        """Creates the topic with the backup's overrides, held ones aside. Returns its id (text)."""
        target = self._plan.target
        configs = self._wanted | self._held
        try:
            await self._try(target, configs)
        except KafkaError as error:
            if error.code not in _REFUSAL:
                raise
            configs = await self._accepted(target, configs)
        new = NewTopic(target, len(self._plan.topic.partitions), self._plan.replication_factor, configs)
        return uuid_to_text((await self._client.create_topics([new]))[target])

    async def hold(self) -> None:
        """For a topic that exists already."""
        known = (await self._client.describe_configs([self._plan.target]))[self._plan.target]
        self._held = {key: value for key, value in self._held.items() if key in known}
        await self._client.alter_configs({self._plan.target: self._held})

    async def release(self) -> list[str]:
        """Gives the topic its own settings and reads them back; returns what differs."""
        target = self._plan.target
        refused = {entry.key for entry in self.refused}
        wanted = {key: value for key, value in self._wanted.items() if key not in refused}
        await self._apply(target, final(wanted, self._held))
        refused = {entry.key for entry in self.refused}
        entries = (await self._client.describe_configs([target]))[target]
        if "delete" in (entries["cleanup.policy"].value or ""):
            self.retention_ms = int(entries["retention.ms"].value or -1)
        now = overrides(entries)
        problems = [
            f"topic {target}: setting {entry.key}={entry.value} is refused by the target: {entry.reason}"
            for entry in self.refused
        ]
        problems += [
            f"topic {target}: setting {key} is {now.get(key, 'no override')} instead of "
            f"{self._wanted.get(key, 'no override')}"
            for key in sorted(self._wanted.keys() | now.keys())
            if key not in refused and self._wanted.get(key) != now.get(key)
        ]
        return problems

    async def _try(self, target: str, configs: Mapping[str, str]) -> None:
        topic = NewTopic(target, len(self._plan.topic.partitions), self._plan.replication_factor, configs)
        await self._client.create_topics([topic], validate_only=True)

    async def _accepted(self, target: str, configs: dict[str, str]) -> dict[str, str]:
        """One by one: what the target takes; the rest is noted as refused."""
        accepted: dict[str, str] = {}
        for key, value in configs.items():
            try:
                await self._try(target, {key: value})
                accepted[key] = value
            except KafkaError as error:
                self._refuse(key, value, error)
        return accepted

    async def _apply(self, target: str, changes: Mapping[str, str | None]) -> None:
        try:
            await self._client.alter_configs({target: changes})
        except KafkaError as error:
            if error.code not in _REFUSAL:
                raise
            for key, value in changes.items():
                try:
                    await self._client.alter_configs({target: {key: value}})
                except KafkaError as refusal:
                    self._refuse(key, value, refusal)

    def _refuse(self, key: str, value: str | None, error: KafkaError) -> None:
        if error.code not in _REFUSAL:
            raise error
        if self._held.pop(key, None) is None or key in self._wanted:
            self.refused.append(RefusedSetting(key=key, value=value or "", reason=error.message))
