"""What a backup has to know of topics before it reads them: identity, shape, settings, ranges.

Owns asking the source cluster. The range of a partition is fixed here once: from its log start to its last
stable offset, so that a backup ends however fast producers write.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from connectors.errors import NoSuchTopic
from protocol.client import (
    EARLIEST,
    LATEST,
    NO_RETRIES,
    ClusterClient,
    ConfigEntry,
    ConfigSource,
    Isolation,
    RetryPolicy,
)
from protocol.client.metadata import TopicMetadata
from protocol.client.retry import retrying
from protocol.errors import ErrorCode, KafkaError
from protocol.types import ZERO_UUID, TopicPartition, uuid_to_text
from replicator.piecemeal import piecemeal

EFFECTIVE = (
    "cleanup.policy",
    "max.message.bytes",
    "message.timestamp.type",
    "min.insync.replicas",
    "retention.bytes",
    "retention.ms",
)
"""Settings that decide what a target would do with the records, whoever set them."""

_SETTLE = RetryPolicy(total_s=15, unknown_topic_s=5)


@dataclass(frozen=True, slots=True)
class TopicFacts:
    name: str
    topic_id: str
    replication_factor: int
    partitions: tuple[int, ...]
    configs: dict[str, str]
    effective: dict[str, str]


async def describe_topics(client: ClusterClient, names: Collection[str]) -> list[TopicFacts]:
    """Raises NoSuchTopic naming every topic that does not exist (asked for until that is sure)."""

    async def ask() -> list[TopicMetadata]:
        found = (await client.metadata(names)).topics
        missing = [name for name in names if name not in found or found[name].error]
        if missing:
            code = found[missing[0]].error if missing[0] in found else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise KafkaError(code, ", ".join(missing))
        return [found[name] for name in names]

    try:
        topics = await retrying(ask, _SETTLE)
    except KafkaError as error:
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise NoSuchTopic(f"cluster {client.cluster_id} has no topic {error.message}") from error
        raise
    configs = await client.describe_configs(list(names))
    return [_facts(topic, configs[topic.name]) for topic in topics]


def overrides(entries: dict[str, ConfigEntry]) -> dict[str, str]:
    """Settings that were set for the topic itself."""
    return {
        key: entry.value
        for key, entry in sorted(entries.items())
        if entry.source is ConfigSource.TOPIC
        and entry.value is not None
        and not (entry.is_sensitive or entry.read_only)
    }


def _facts(topic: TopicMetadata, entries: dict[str, ConfigEntry]) -> TopicFacts:
    effective = {key: entries[key].value for key in EFFECTIVE if key in entries}
    return TopicFacts(
        name=topic.name,
        topic_id="" if topic.topic_id == ZERO_UUID else uuid_to_text(topic.topic_id),
        replication_factor=min((len(p.replicas) for p in topic.partitions.values()), default=1),
        partitions=tuple(sorted(topic.partitions)),
        configs=overrides(entries),
        effective={key: value for key, value in effective.items() if value is not None},
    )


class Range(NamedTuple):
    """Log start, and the offset behind the last stable record."""

    start: int
    end: int
    written: int
    """The high watermark a moment before `end`: more than that where a transaction was open then."""


async def ranges(
    client: ClusterClient, tps: Collection[TopicPartition], retry: RetryPolicy | None = None
) -> dict[TopicPartition, Range]:
    """The range of each partition. Raises ProtocolError while one has no leader."""
    first = await client.list_offsets(dict.fromkeys(tps, EARLIEST), retry=retry)
    written = await client.list_offsets(dict.fromkeys(tps, LATEST), retry=retry)
    last = await client.list_offsets(
        dict.fromkeys(tps, LATEST), isolation=Isolation.READ_COMMITTED, retry=retry
    )
    return {
        tp: Range(first[tp].offset, max(last[tp].offset, first[tp].offset), written[tp].offset) for tp in tps
    }


async def known_ranges(
    client: ClusterClient, tps: Collection[TopicPartition]
) -> tuple[dict[TopicPartition, Range], dict[TopicPartition, KafkaError]]:
    """The range of each partition that has one now, and why the others have none (I10). Raises ProtocolError
    when none of them has."""
    try:
        return await ranges(client, tps), {}
    except KafkaError:
        found, refused = await piecemeal(partial(ranges, client, retry=NO_RETRIES), tps)
        if not found:
            raise
        return found, refused
