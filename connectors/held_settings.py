"""Settings of a topic while it is restored, and afterwards.

Owns which settings are held so that everything restored is still there when it is counted: retention would
delete old records at once, the cleaner would compact them, append time would replace their timestamps, and
`min.insync.replicas` above the replicas there are would refuse every write. Afterwards an override is an
override with the backup's value, and what was no override is none. Pure: no requests are made here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from connectors.manifest import TopicBackup

_FOREVER: Final = "-1"
_ANY_TIME: Final = str(2**63 - 1)

HELD: Final = {
    "cleanup.policy": "delete",
    "retention.ms": _FOREVER,
    "retention.bytes": _FOREVER,
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": _ANY_TIME,
    "message.timestamp.after.max.ms": _ANY_TIME,
}

NEVER_RESTORED: Final = frozenset(
    {
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
    }
)
"""They name brokers of the old cluster."""

_BATCH_MARGIN = 1024


def held(topic: TopicBackup, replication_factor: int) -> dict[str, str]:
    """What to set instead of the backup's values while restoring."""
    wanted = dict(HELD)
    wanted["min.insync.replicas"] = str(
        min(int(topic.effective.get("min.insync.replicas", "1")), replication_factor)
    )
    largest = max((e.max_batch_bytes for p in topic.partitions for e in p.objects), default=0)
    limit = int(topic.effective.get("max.message.bytes", "0"))
    wanted["max.message.bytes"] = str(max(limit, largest + _BATCH_MARGIN))
    return wanted


def final(wanted: Mapping[str, str], holding: Collection[str]) -> dict[str, str | None]:
    """The change that ends the holding: the `wanted` overrides, and None (back to default) for the rest."""
    changes: dict[str, str | None] = dict.fromkeys(holding)
    return changes | dict(wanted)


def wanted_overrides(topic: TopicBackup) -> dict[str, str]:
    return {key: value for key, value in topic.configs.items() if key not in NEVER_RESTORED}


def expiring(topic: TopicBackup, retention_ms: int, now_ms: int) -> int:
    """Records in objects that are older than the target's retention as a whole: they go once it applies."""
    if retention_ms < 0:
        return 0
    return sum(
        entry.records
        for partition in topic.partitions
        for entry in partition.objects
        if entry.max_timestamp < now_ms - retention_ms
    )
