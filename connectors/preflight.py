"""Whether a restore may begin: every reason against it, before anything is written.

Owns looking at the target: topics absent or empty (or this restore's own, unfinished), brokers for the
replicas, names that a cluster takes. Nothing is changed here, so a refused restore leaves no trace.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from connectors.errors import NotHeld, RestoreRefused
from connectors.manifest import Manifest, TopicBackup
from connectors.restore_report import RestoreState, TargetState
from connectors.settings import RestoreSettings
from connectors.topic_facts import overrides, ranges
from protocol.client import ClusterClient
from protocol.client.metadata import TopicMetadata
from protocol.counted import counted
from protocol.errors import ErrorCode, ProtocolError
from protocol.types import TopicPartition, uuid_to_text

_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_INTERNAL = {"__consumer_offsets", "__transaction_state", "__cluster_metadata", "__share_group_state"}


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """One topic to restore. `existing` is what the target has under the name: empty, or begun by us."""

    topic: TopicBackup
    target: str
    replication_factor: int
    existing: TargetState | None
    begun: bool


@dataclass(frozen=True, slots=True)
class Preflight:
    plans: tuple[TopicPlan, ...]
    warnings: tuple[str, ...]


async def preflight(
    client: ClusterClient, manifest: Manifest, settings: RestoreSettings, state: RestoreState | None
) -> Preflight:
    """Raises RestoreRefused with all reasons."""
    names = settings.topics or tuple(topic.name for topic in manifest.topics)
    held = {topic.name: topic for topic in manifest.topics}
    not_held = [f"the backup holds no topic {name}" for name in names if name not in held]
    not_held += [
        f"rename names {name}, which is not restored" for name in settings.rename if name not in names
    ]
    reasons = [*not_held]
    chosen = {name: held[name] for name in names if name in held}
    targets = {name: settings.target_topic(name) for name in chosen}
    reasons += _bad_names(targets)
    found = (await client.metadata(sorted(set(targets.values())))).topics
    plans: list[TopicPlan] = []
    warnings: list[str] = []
    wanted_rf = settings.replication_factor
    for name, topic in chosen.items():
        target = targets[name]
        begun = state.topics.get(name) if state is not None and state.state == "running" else None
        existing, problems = await _look(client, topic, target, found.get(target), begun)
        reasons += problems
        factor = wanted_rf or topic.replication_factor
        if factor > len(client.brokers):
            factor = len(client.brokers)
            warnings.append(
                f"{target}: replication factor {factor} instead of {wanted_rf or topic.replication_factor}, "
                f"the target has {len(client.brokers)} brokers"
            )
        plans.append(TopicPlan(topic, target, factor, existing, begun is not None and existing is not None))
    if reasons:
        raise (NotHeld if not_held else RestoreRefused)(manifest.backup_id, reasons)
    return Preflight(tuple(plans), tuple(warnings))


def _bad_names(targets: Mapping[str, str]) -> list[str]:
    reasons = []
    for name, target in targets.items():
        if not _NAME.fullmatch(target) or target in {".", ".."}:
            reasons.append(f"{name} would become {target!r}, which is no topic name")
        elif target in _INTERNAL:
            reasons.append(f"{target} belongs to the cluster itself; group offsets are restored as offsets")
    twice = [target for target, count in Counter(targets.values()).items() if count > 1]
    reasons += [f"several topics would become {target}" for target in twice]
    return reasons


async def _look(
    client: ClusterClient,
    topic: TopicBackup,
    target: str,
    found: TopicMetadata | None,
    begun: TargetState | None,
) -> tuple[TargetState | None, list[str]]:
    if found is None or found.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return None, []
    if found.error:
        return None, [f"topic {target} cannot be looked at: {found.error.name}"]
    topic_id = uuid_to_text(found.topic_id)
    count = len(topic.partitions)
    if len(found.partitions) != count:
        return None, [
            f"topic {target} exists with {counted(len(found.partitions), 'partition')}, the backup has"
            f" {count}"
        ]
    if begun is not None and begun.target == target and begun.topic_id in ("", topic_id):
        return begun.model_copy(update={"topic_id": topic_id}), []
    try:
        held = await ranges(client, [TopicPartition(target, index) for index in range(count)])
    except ProtocolError as error:
        return None, [f"topic {target} exists and cannot be looked at: {error}"]
    records = sum(found.end - found.start for found in held.values())
    if records:
        return None, [
            f"topic {target} exists and holds {counted(records, 'record')}; restore under another name"
            " (rename or prefix), or delete it first"
        ]
    bases = tuple(held[TopicPartition(target, index)].end for index in range(count))
    own = overrides((await client.describe_configs([target]))[target])
    return TargetState(target=target, topic_id=topic_id, created=False, bases=bases, own=own), []
