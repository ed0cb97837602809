"""Asking the two clusters what the checks have to know.

Owns the requests; what follows from the answers is in the rules. Nothing is changed: topics are made with
`validate_only`. What a cluster refuses to tell is noted in `Side.refused`; everything else is still asked.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import TypeVar

from protocol.client import (
    MAX_TIMESTAMP,
    NO_RETRIES,
    ClientError,
    ClusterClient,
    ConfigKind,
    CoordinatorKind,
    NewTopic,
    NotSupportedError,
    RetryPolicy,
)
from protocol.client.mirror_calls import MIRROR_SOURCE
from protocol.client.retry import retrying
from protocol.errors import ErrorCode, KafkaError, ProtocolError
from protocol.messages.describe_cluster_request import DescribeClusterRequest
from protocol.messages.describe_groups_request import DescribeGroupsRequest
from protocol.messages.describe_log_dirs_request import DescribeLogDirsRequest
from protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from protocol.types import TopicPartition
from replicator.discovery import Wanted
from replicator.filters import PatternList
from replicator.mirrors.lineage import MirrorSource
from replicator.piecemeal import piecemeal
from replicator.preflight.facts import Configs, Facts, LogDir, Rights, Side
from replicator.preflight.limits import mirror_value
from replicator.topic_settings import CopyRule

T = TypeVar("T")

_SHORT = RetryPolicy(total_s=5, unknown_topic_s=0)
_UNKNOWN = -0x8000_0000
_GROUPS_ASKED = 200
_TELLS_OF_NEW = 5
"""DescribeGroups from version 6 on does not tell rights on a group that does not exist yet (KIP-1043)."""
_CAPS_IN_SYNC = {74, 75}
"""APIs (client metrics, DescribeTopicPartitions) that brokers speak together from Kafka 3.8 on: for these no
more replicas have to be in sync than a topic has (KIP-966). Brokers of isthmus go by min.insync.replicas."""
_TOPICS_AT_A_TIME = 200


async def ask_side(
    client: ClusterClient, side: Side, topics: Collection[str], own: Collection[str], groups: list[str]
) -> None:
    """Fills `side`; `topics` are the link's, as this side calls them, `own` what it keeps for itself."""
    side.topic_rights = await _try(side, "rights on topics", _topic_rights(client, [*topics, *own]), {})
    side.cluster_rights = await _try(side, "rights on the cluster", _cluster_rights(client), Rights())
    side.group_rights = await _group_rights(client, side, groups[:_GROUPS_ASKED])
    if len(groups) > _GROUPS_ASKED:
        left = len(groups) - _GROUPS_ASKED
        side.refused[f"rights on {left} more groups"] = f"only the first {_GROUPS_ASKED} are asked about"
    await _settings(client, side, topics)
    await _disks(client, side, topics)


async def _try(side: Side, what: str, asking: Awaitable[T], otherwise: T) -> T:
    try:
        return await asking
    except NotSupportedError:
        return otherwise
    except ProtocolError as error:
        side.refused[what] = str(error)
        return otherwise


async def ask_brokers(client: ClusterClient, side: Side) -> None:
    """Clients talk to every broker at the address that it advertises."""
    await client.metadata(())
    side.cluster_id, side.brokers = client.cluster_id or "", dict(client.brokers)

    caps: list[bool] = []

    async def reach(node: int) -> None:
        try:
            caps.append((await client.connection_to(node)).versions.keys() >= _CAPS_IN_SYNC)
        except ClientError as error:
            side.silent[node] = str(error)

    await asyncio.gather(*map(reach, side.brokers))
    side.caps_in_sync = bool(caps) and all(caps)


async def _topic_rights(client: ClusterClient, topics: Collection[str]) -> dict[str, Rights]:
    found: dict[str, Rights] = {}
    names = list(topics)
    for start in range(0, len(names), _TOPICS_AT_A_TIME):
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in names[start : start + _TOPICS_AT_A_TIME]],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=True,
        )
        answer = await client.send_any(request, retry=_SHORT)
        for row in answer.topics:
            if row.name is None:
                continue
            if row.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                found[row.name] = Rights(0)  # not even DESCRIBE
            elif row.error_code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                found[row.name] = _rights(row.topic_authorized_operations)  # also of one that is to be made
    return found


async def _cluster_rights(client: ClusterClient) -> Rights:
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    answer = await client.send_any(request, retry=_SHORT)
    return Rights() if answer.error_code else _rights(answer.cluster_authorized_operations)


async def _group_rights(client: ClusterClient, side: Side, groups: list[str]) -> dict[str, Rights]:
    found: dict[str, Rights] = {}
    for group in groups:
        try:
            found[group] = await retrying(partial(_rights_on, client, group), _SHORT)
        except KafkaError as error:
            if error.retriable:  # a coordinator that has just come into being, or moves
                side.refused["rights on groups"] = str(error)
                break
            found[group] = Rights(0)  # not even DESCRIBE
        except ClientError as error:
            side.refused["rights on groups"] = str(error)
            break
    return found


async def _rights_on(client: ClusterClient, group: str) -> Rights:
    """Raises ProtocolError, KafkaError also where the broker will tell a moment later."""
    request = DescribeGroupsRequest(groups=[group], include_authorized_operations=True)
    answer = await client.send_coordinator(group, request, highest=_TELLS_OF_NEW)
    for row in answer.groups:
        code = ErrorCode.of(row.error_code)
        if code.retriable:
            client.forget_coordinator(group, CoordinatorKind.GROUP)
            raise KafkaError(code, f"group {group}")
        if code and row.authorized_operations == _UNKNOWN:
            return Rights(0)
        return _rights(row.authorized_operations)
    return Rights()


def _rights(bits: int) -> Rights:
    return Rights(None if bits == _UNKNOWN else bits)


async def _settings(client: ClusterClient, side: Side, topics: Collection[str]) -> None:
    there = [name for name in topics if name in side.topics]
    side.configs, refused = await piecemeal(_configs(client), there)
    for error in list(refused.values())[:1]:
        side.refused["settings of topics"] = str(error)
    for node in side.brokers.keys() - side.silent.keys():
        asking = client.describe_configs([str(node)], ConfigKind.BROKER, retry=_SHORT)
        answer = await _try(side, "settings of brokers", asking, {})
        rows = answer.get(str(node), {})
        side.defaults = {key: entry.value for key, entry in rows.items() if entry.value is not None}
        break


def _configs(client: ClusterClient) -> Callable[[list[str]], Awaitable[Configs]]:
    return lambda names: client.describe_configs(names, retry=_SHORT)


async def _disks(client: ClusterClient, side: Side, topics: Collection[str]) -> None:
    wanted, sizes = set(topics), dict[TopicPartition, int]()
    for node in side.brokers.keys() - side.silent.keys():
        asking = client.send_to(node, DescribeLogDirsRequest(topics=None), retry=_SHORT)
        answer = await _try(side, "log directories", asking, None)
        if answer is not None and answer.error_code:
            side.refused["log directories"] = ErrorCode.of(answer.error_code).name
        for row in answer.results if answer is not None else ():
            if row.error_code:
                continue
            side.dirs.append(LogDir(node, row.log_dir, row.total_bytes, row.usable_bytes))
            for topic in row.topics:
                for part in topic.partitions if topic.name in wanted else ():
                    tp = TopicPartition(topic.name, part.partition_index)
                    sizes[tp] = max(sizes.get(tp, 0), part.partition_size)
    found: dict[str, int] = {}
    for tp, size in sizes.items():
        found[tp.topic] = found.get(tp.topic, 0) + size
    side.sizes = found


async def ask_idempotence(target: ClusterClient, facts: Facts) -> None:
    """Asks for a producer id, as the link will: since KIP-679 WRITE on any topic is right enough, before it
    took IDEMPOTENT_WRITE, so only the broker knows."""
    try:
        await target.init_producer_id(retry=_SHORT)
    except KafkaError as error:
        if not error.retriable:
            facts.no_idempotence = str(error)


async def ask_creation(target: ClusterClient, facts: Facts) -> None:
    """Has the target validate, without doing it, the topics that the link would make or grow."""
    on, wanted = facts.settings, facts.found.wanted
    rule = CopyRule(PatternList(on.config_properties_exclude), on.use_defaults_from == "source")
    missing = {one.target_name: one for one in wanted.values() if one.target is None}
    short = {
        one.target_name: one for one in wanted.values() if one.target is not None and one.missing_partitions
    }

    def new(topic: Wanted) -> NewTopic:
        configs = rule.to_copy(facts.source.configs.get(topic.source.name, {}))
        known = next(iter(facts.target.configs.values()), configs)
        settings = {key: value for key, value in configs.items() if key in known}
        if on.offsets == "identical":  # a cluster that is not of isthmus refuses it
            of = MirrorSource.of(on.name, facts.source.cluster_id, topic.source.topic_id)
            settings[MIRROR_SOURCE] = of.text
        return NewTopic(topic.target_name, len(topic.source.partitions), on.replication_factor, settings)

    async def create(names: list[str]) -> Mapping[str, None]:
        await target.create_topics([new(missing[name]) for name in names], validate_only=True, retry=_SHORT)
        return dict.fromkeys(names)

    async def grow(names: list[str]) -> Mapping[str, None]:
        counts = {name: len(short[name].source.partitions) for name in names}
        await target.create_partitions(counts, validate_only=True, retry=_SHORT)
        return dict.fromkeys(names)

    for call, names in ((create, missing), (grow, short)):
        _, refused = await piecemeal(call, names)
        facts.cannot_create |= {name: str(error) for name, error in refused.items()}


async def ask_times(source: ClusterClient, facts: Facts) -> None:
    """Which source partitions have records, not copied yet, whose time the target would refuse."""
    if facts.settings.start == "latest":
        return
    oldest, newest = _times_let_in(facts)
    first = await _offsets(source, dict.fromkeys(oldest, -2))
    reached = await _offsets(source, oldest)
    for tp, (begin, _) in first.items():
        at, start = reached.get(tp), max(begin, facts.copied.get(tp, 0))
        # All records are older (at -1) or some are: those before the first one that is not.
        if at is not None and (at[0] > start or (at[0] < 0 and await _holds(source, tp, start))):
            facts.too_old[f"{tp.topic}-{tp.partition}"] = oldest[tp]
    for tp, (offset, timestamp) in (await _offsets(source, dict.fromkeys(newest, MAX_TIMESTAMP))).items():
        if offset >= facts.copied.get(tp, 0) and timestamp > newest[tp]:
            facts.too_new[f"{tp.topic}-{tp.partition}"] = timestamp


def _times_let_in(facts: Facts) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """The oldest and the newest that the target takes, by source partition; none where it takes any."""
    now = time.time_ns() // 1_000_000
    oldest: dict[TopicPartition, int] = {}
    newest: dict[TopicPartition, int] = {}
    for name, topic in facts.found.wanted.items():
        if mirror_value(facts, topic, "message.timestamp.type") == "LogAppendTime":
            continue  # the target stamps its own
        before = int(mirror_value(facts, topic, "message.timestamp.before.max.ms") or -1)
        after = int(mirror_value(facts, topic, "message.timestamp.after.max.ms") or -1)
        for number in topic.source.partitions:
            if 0 <= before < now:
                oldest[TopicPartition(name, number)] = now - before
            if 0 <= after < 1 << 62:
                newest[TopicPartition(name, number)] = now + after
    return oldest, newest


async def _holds(source: ClusterClient, tp: TopicPartition, start: int) -> bool:
    end = (await _offsets(source, {tp: -1})).get(tp)
    return end is not None and end[0] > start


async def _offsets(
    client: ClusterClient, wanted: Mapping[TopicPartition, int]
) -> dict[TopicPartition, tuple[int, int]]:
    """Offset and time; partitions that cannot be asked now are left out."""

    async def ask(tps: list[TopicPartition]) -> Mapping[TopicPartition, tuple[int, int]]:
        listed = await client.list_offsets({tp: wanted[tp] for tp in tps}, retry=NO_RETRIES)
        return {tp: (at.offset, at.timestamp) for tp, at in listed.items()}

    try:
        return (await piecemeal(ask, wanted))[0]
    except NotSupportedError:
        return {}
