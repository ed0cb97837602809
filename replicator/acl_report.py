"""What a link has granted, would grant and would revoke, asked once and from outside: `isthmus links acls`.

Owns gathering what `AclSync` needs while the link is down or only reports; the rule is the sync's own.
Changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import Any

from protocol.client import Acl, ClusterClient
from protocol.errors import KafkaError
from protocol.types import TopicPartition
from replicator.acl_owners import acls_of_others
from replicator.acl_rules import Granted, Scope
from replicator.acl_sync import AclSync
from replicator.drift import found_now
from replicator.filters import NameFilter
from replicator.group_rules import is_synced
from replicator.progress import ProgressStore
from replicator.settings import LinkSettings


async def acl_report(source: ClusterClient, target: ClusterClient, settings: LinkSettings) -> dict[str, Any]:
    """`AclSync.to_json`, with the reason for a link that does not sync them. Raises ProtocolError."""
    found = await found_now(source, target, settings)
    topics = {name: topic.target_name for name, topic in found.wanted.items()}
    accepts = NameFilter(settings.groups, settings.groups_exclude).accepts
    progress = await ProgressStore(target, settings.progress_topic).refresh()
    copied = {tp for tp in progress.partitions() if tp.topic in topics}
    groups = [name for name in await _groups(source, accepts) if await _reads(source, name, copied)]
    scope = Scope(settings.names(), topics, groups, accepts, settings.topic_filter().accepts)
    sync = AclSync(
        source,
        target,
        lambda: scope,
        _never,
        report_only=True,
        revoke_at_most=settings.acls_revoke_at_most,
        of_others=lambda: acls_of_others(target, settings.progress_topic),
    )
    sync.owned = progress.acls()
    await sync.once()
    report = sync.to_json()
    if not settings.sync_topic_acls:
        report["reason"] = "the link has sync_topic_acls off"
    elif not settings.acls_report_only and sync.reason == sync.REPORT_ONLY:
        report["reason"] = None
    return report


async def _groups(source: ClusterClient, accepts: Callable[[str], bool]) -> list[str]:
    listed = await source.list_groups()
    return [one.group_id for one in listed if accepts(one.group_id) and is_synced(one.protocol_type)]


async def _reads(source: ClusterClient, group: str, copied: Set[TopicPartition]) -> bool:
    """Whether a group is one of the link's, as `GroupSync` has it: it has read what is copied."""
    try:
        return not copied.isdisjoint(await source.committed(group))
    except KafkaError:
        return False


async def _never(before: Mapping[Acl, Granted], after: Mapping[Acl, Granted]) -> None:
    raise AssertionError("a report stores nothing")
