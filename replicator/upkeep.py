"""What is done for a link as a whole, beside copying: topic settings, ACLs, groups, what MM2's tools read.

Owns these jobs and how often each runs (`jobs`), and which of them are done once more when the link ends, so
that a planned failover loses nothing. Which partitions there are is discovery's business.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from protocol.client import ClusterClient
from protocol.types import TopicPartition
from replicator.acl_owners import acls_of_others
from replicator.acl_rules import Scope
from replicator.acl_sync import AclSync
from replicator.emitters import Checkpoints, Heartbeats, OffsetSyncs
from replicator.group_deletion import GroupDeletion
from replicator.group_sync import GroupSync
from replicator.internal_topics import InternalTopic
from replicator.jobs import Job
from replicator.naming import HEARTBEATS
from replicator.parts import Parts
from transfer.ledger import PartitionLedger


class Periodic(NamedTuple):
    """A job, and how often it is done."""

    what: str
    interval_s: Callable[[], float]
    job: Job


class Upkeep:
    """Of one link; `ledgers` are those of all its partitions."""

    def __init__(self, parts: Parts, ledgers: Callable[[], Mapping[TopicPartition, PartitionLedger]]) -> None:
        self._parts = parts
        self._ledgers = ledgers
        settings = parts.settings
        self.groups = GroupSync(
            parts.source_client,
            parts.target_client,
            parts.group_filter,
            ledgers,
            write=settings.sync_group_offsets,
            notebook=parts.store if settings.notes_groups else None,
            follow_rewinds=settings.groups_on_rewind == "follow",
            deletion=self._group_deletion(),
        )
        self.acls = AclSync(
            parts.source_client,
            parts.target_client,
            self._acl_scope,
            parts.store.save_acls,
            report_only=settings.acls_report_only,
            revoke_at_most=settings.acls_revoke_at_most,
            note_withheld=parts.store.save_withheld,
            of_others=lambda: acls_of_others(parts.target_client, settings.progress_topic),
        )

    def _group_deletion(self) -> GroupDeletion | None:
        parts = self._parts
        if parts.settings.groups_on_delete != "delete":
            return None
        return GroupDeletion(parts.source_client, parts.target_client, lambda: parts.found.wanted.keys())

    def jobs(self) -> list[Periodic]:
        """All that the settings ask for."""
        parts = self._parts
        on = parts.settings
        jobs = [
            (
                on.sync_topic_configs,
                Periodic(
                    "topic settings", lambda: parts.settings.sync_topic_configs_interval_s, self.sync_settings
                ),
            ),
            (
                on.sync_topic_acls,
                Periodic("ACLs", lambda: parts.settings.sync_topic_acls_interval_s, self.sync_acls),
            ),
            (
                True,
                Periodic("groups", lambda: parts.settings.sync_group_offsets_interval_s, self.groups.once),
            ),
            (
                on.emit_checkpoints,
                Periodic(
                    "checkpoints", lambda: parts.settings.emit_checkpoints_interval_s, self._checkpoints()
                ),
            ),
            (
                on.emit_offset_syncs,
                Periodic(
                    "offset syncs", lambda: parts.settings.emit_offset_syncs_interval_s, self._offset_syncs()
                ),
            ),
            (
                on.emit_heartbeats,
                Periodic("heartbeats", lambda: parts.settings.emit_heartbeats_interval_s, self._heartbeats()),
            ),
        ]
        return [periodic for wanted, periodic in jobs if wanted]

    async def sync_settings(self) -> None:
        """Brings topics' settings at the target in line."""
        await self._parts.topics.sync_settings(list(self._parts.found.wanted.values()))
        await self.note_settings()

    async def note_settings(self) -> None:
        """What was set at the target is noted there, so that it can be taken back after a restart too."""
        topics = self._parts.topics
        names, topics.not_stored = topics.not_stored, set()
        if names:
            try:
                await self._parts.store.save_settings({name: topics.ours[name] for name in names})
            except BaseException:
                topics.not_stored |= names
                raise

    async def sync_acls(self) -> None:
        """Grants and revokes, once it is known which topics there are."""
        if self._parts.found.wanted:
            await self.acls.once()

    def _acl_scope(self) -> Scope:
        topics = {name: topic.target_name for name, topic in self._parts.found.wanted.items()}
        groups, accepts = self.groups.translations.keys(), self._parts.group_filter.accepts
        return Scope(self._parts.naming, topics, groups, accepts, self._parts.topic_filter.accepts)

    def _checkpoints(self) -> Callable[[], Awaitable[object]]:
        factor = self._parts.settings.checkpoints_topic_replication_factor
        topic = self._internal(self._parts.target_client, self._parts.naming.checkpoints, factor)
        emitter = Checkpoints(topic)

        async def emit() -> None:
            await emitter.emit(self.groups.translations)
            self._parts.metrics.checkpointed()

        return emit

    def _offset_syncs(self) -> Callable[[], Awaitable[object]]:
        settings = self._parts.settings
        at_source = settings.offset_syncs_topic_location == "source"
        client = self._parts.source_client if at_source else self._parts.target_client
        factor = settings.offset_syncs_topic_replication_factor
        name = self._parts.naming.offset_syncs(at_source=at_source)
        emitter = OffsetSyncs(self._internal(client, name, factor))
        return lambda: emitter.emit(self._ledgers())

    def _heartbeats(self) -> Callable[[], Awaitable[object]]:
        settings = self._parts.settings
        factor = settings.heartbeats_topic_replication_factor
        return Heartbeats(
            settings.source.alias,
            settings.target.alias,
            self._internal(self._parts.source_client, HEARTBEATS, factor),
            self._internal(self._parts.target_client, HEARTBEATS, factor),
        ).emit

    def _internal(self, client: ClusterClient, name: str, factor: int | None) -> InternalTopic:
        replicas = self._parts.settings.internal_replication_factor if factor is None else factor
        return InternalTopic(client, name, replication_factor=replicas)

    def observe(self, *, leading: bool) -> None:
        """Brings the gauges up to date. Who does not lead any more tells nothing of what it did then."""
        standings = self.groups.standings if leading else {}
        if not leading:
            self._parts.metrics.gauge("last_checkpoint_timestamp_seconds").clear()
        reasons = [standing.reason for standing in standings.values()]
        groups, name = self._parts.metrics.groups, self._parts.settings.name
        in_sync = reasons.count(None)
        groups.labels(name, "in sync").set(in_sync)
        groups.labels(name, "with a reason").set(len(reasons) - in_sync)

    def groups_json(self) -> dict[str, Any]:
        """How each group stands."""
        return {
            name: {"reason": standing.reason, "partitions": standing.partitions}
            for name, standing in sorted(self.groups.standings.items())
        }
