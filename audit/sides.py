"""Looking at the two sides before an audit: which partitions exist, where they begin and end.

Owns the rule that unknown is not empty and not deleted: what is missing or has gone back is asked for again
until it has stayed so for the settling time. A partition without a leader makes that partition incomplete,
not the audit impossible. Ends are asked for twice and the later one counts, because a log never shrinks
except by truncation, which stays.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from audit.lanes import Ends
from connectors.manifest import Manifest
from protocol.client import EARLIEST, LATEST, ClusterClient, Isolation, RetryPolicy
from protocol.client.metadata import TopicMetadata
from protocol.client.mirror_calls import MIRROR_SOURCE
from protocol.errors import ErrorCode, ProtocolError
from protocol.types import ZERO_UUID, TopicPartition, uuid_to_text

_PAUSE_S = 0.5
_ONCE = RetryPolicy(total_s=2)


@dataclass(frozen=True, slots=True)
class TopicView:
    """One topic of a side."""

    name: str
    topic_id: str
    cleanup_policy: str
    append_time: bool
    partitions: tuple[int, ...]
    cuts: Mapping[int, tuple[int, ...]]
    """Offsets where reading can begin at no cost, per partition; empty where any offset can."""
    is_mirror: bool = False
    """Nobody but a link that keeps offsets writes to it."""


class SideView(Protocol):
    """What planning asks of a side."""

    async def topics(self, names: Collection[str]) -> dict[str, TopicView | str]:
        """The topics that exist, or why one cannot be looked at; absent ones were absent for the settling
        time."""

    async def ends(self, tp: TopicPartition, at_least: int = 0) -> Ends | str:
        """The partition's range, or why it cannot be had. `at_least` is an end that was seen before."""

    @property
    def cluster_id(self) -> str: ...


class ClusterView:
    """A running cluster."""

    def __init__(self, client: ClusterClient, settle_s: float) -> None:
        self._client = client
        self._settle_s = settle_s

    @property
    def cluster_id(self) -> str:
        return self._client.cluster_id or ""

    async def topics(self, names: Collection[str]) -> dict[str, TopicView | str]:
        found: dict[str, TopicMetadata] = {}
        refused: dict[str, TopicView | str] = {}
        deadline = time.monotonic() + self._settle_s
        while True:
            missing = [name for name in names if name not in found]
            for name, topic in (
                await self._client.metadata(missing, retry=self._client.retry)
            ).topics.items():
                refused.pop(name, None)
                if not topic.error and topic.partitions:
                    found[name] = topic
                elif topic.error and topic.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    refused[name] = f"{topic.error.name}: {topic.error.description}"
            if len(found) == len(set(names)) or time.monotonic() >= deadline:
                break
            await asyncio.sleep(_PAUSE_S)
        configs = await self._client.describe_configs(list(found)) if found else {}

        def setting(name: str, key: str, default: str) -> str:
            entry = configs[name].get(key)
            return (entry.value if entry is not None else None) or default

        return refused | {
            name: TopicView(
                name,
                "" if topic.topic_id == ZERO_UUID else uuid_to_text(topic.topic_id),
                setting(name, "cleanup.policy", "delete"),
                setting(name, "message.timestamp.type", "CreateTime") == "LogAppendTime",
                tuple(sorted(topic.partitions)),
                {},
                bool(setting(name, MIRROR_SOURCE, "")),
            )
            for name, topic in found.items()
        }

    async def ends(self, tp: TopicPartition, at_least: int = 0) -> Ends | str:
        deadline = time.monotonic() + self._settle_s
        best: Ends | None = None
        rounds = 0
        problem = ""
        while True:
            try:
                first = (await self._client.list_offsets({tp: EARLIEST}, retry=_ONCE))[tp].offset
                last = await self._client.list_offsets(
                    {tp: LATEST}, isolation=Isolation.READ_COMMITTED, retry=_ONCE
                )
                end = max(last[tp].offset, first, best.end if best is not None else 0)
                best = Ends(first, end)
                rounds += 1
            except ProtocolError as error:
                problem = str(error)
                self._client.forget_leader(tp)
            if best is not None and rounds >= 2 and best.end >= at_least:
                return best
            if time.monotonic() >= deadline:
                return best if best is not None and rounds >= 2 else problem or "its range is not known"
            await asyncio.sleep(0 if rounds == 1 else _PAUSE_S)


class BackupView:
    """A backup; everything is in its manifest."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest

    @property
    def cluster_id(self) -> str:
        return self._manifest.cluster_id

    async def topics(self, names: Collection[str]) -> dict[str, TopicView | str]:
        return {
            topic.name: TopicView(
                topic.name,
                topic.topic_id,
                topic.effective.get("cleanup.policy", "delete"),
                topic.effective.get("message.timestamp.type", "CreateTime") == "LogAppendTime",
                tuple(partition.partition for partition in topic.partitions),
                {
                    partition.partition: tuple(entry.first_offset for entry in partition.objects)
                    for partition in topic.partitions
                },
            )
            for topic in self._manifest.topics
            if topic.name in names
        }

    async def ends(self, tp: TopicPartition, at_least: int = 0) -> Ends | str:
        partition = self._manifest.partition(tp)
        return Ends(partition.start_offset, partition.end_offset)
