"""What the rest of the broker sees of the coordinator: requests of groups in, answers out.

`offsets` holds the committed offsets. Methods raise `KafkaError` when the group as a whole cannot be served
here: NOT_COORDINATOR (16), COORDINATOR_LOAD_IN_PROGRESS (14), INVALID_GROUP_ID (24).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from broker.clock import Clock
from broker.control.metadata_cache import MetadataCache
from broker.coordinator.groups import departing, joining, syncing
from broker.coordinator.groups.events import NO_MEMBER, JoinCall, Joined, Leaving, SyncCall, Synced
from broker.coordinator.groups.group import Group
from broker.coordinator.java_hash import partition_for
from broker.coordinator.offset_store import OffsetStore
from broker.coordinator.offsets_log import OFFSETS_TOPIC, OffsetsLog
from broker.coordinator.runtime import Runtime
from broker.coordinator.settings import GroupSettings
from broker.coordinator.shards import Led
from protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from broker.replication.partition import Partition

logger = logging.getLogger("isthmus.broker.coordinator")


class GroupCoordinator:
    """One for each broker. `metadata` tells how many partitions the offsets topic has."""

    def __init__(self, *, clock: Clock, settings: GroupSettings, metadata: MetadataCache) -> None:
        self._settings = settings
        self._metadata = metadata
        self._runtime = Runtime(clock, settings, self._partition_count)
        self.offsets = OffsetStore(self._runtime, clock, settings)
        self._trouble = ""
        metadata.on_deletion(self.offsets.on_partitions_deleted)

    def _partition_count(self) -> int:
        topic = self._metadata.topic(OFFSETS_TOPIC)
        # Before the topic is made the setting says what it will have.
        return len(topic.partitions) if topic is not None else self._settings.topic_partitions

    def partition_of(self, group_id: str) -> int:
        """Return the partition of the offsets topic whose leader coordinates the group."""
        return partition_for(group_id, self._partition_count())

    def start(self) -> None:
        """Begin the work that no request asks for."""
        self.offsets.start()

    async def close(self) -> None:
        """Stop; requests that still wait are answered with NOT_COORDINATOR."""
        await self._runtime.close()

    def on_leadership_change(self, partition: Partition, is_leader: bool) -> None:
        """Hook for the replica manager; partitions of other topics are ignored."""
        if partition.topic != OFFSETS_TOPIC:
            return
        if is_leader:
            log = OffsetsLog(
                partition,
                codec=self._settings.compression_codec,
                timeout_s=self._settings.commit_timeout_ms / 1000,
            )
            self._runtime.shards.lead(partition.index, partition.leader_epoch, log)
        else:
            self._runtime.shards.resign(partition.index)

    def report_trouble(self, what: str) -> None:
        """Log why groups cannot be coordinated; once, though clients ask again and again."""
        if what != self._trouble:
            self._trouble = what
            logger.warning("groups have no coordinator: %s", what)

    # -- membership ------------------------------------------------------------------------------------

    def _led_for_member(self, group_id: str) -> Led:
        # Commits and look-ups of the empty group are taken, as they were before groups had members.
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "a member needs a group id")
        return self._runtime.shards.of(group_id)

    async def join(self, group_id: str, call: JoinCall) -> Joined:
        """Take a JoinGroup; returns when the round closes."""
        led = self._led_for_member(group_id)
        if group_id not in led.shard.groups and call.member_id != NO_MEMBER:
            return Joined(error=ErrorCode.UNKNOWN_MEMBER_ID, member_id=call.member_id)
        is_new = group_id not in led.shard.groups
        group = led.shard.group_or_new(group_id)
        waiter: asyncio.Future[Joined] = asyncio.get_running_loop().create_future()
        joining.join(group, call, waiter, self._runtime.now())
        self._runtime.settle(led, group)
        if is_new and not group.members and not group.pending:
            del led.shard.groups[group_id]  # refused: leave no trace
        return await waiter

    async def sync(self, group_id: str, call: SyncCall) -> Synced:
        """Take a SyncGroup; returns when the assignment is known."""
        led = self._led_for_member(group_id)
        group = led.shard.groups.get(group_id)
        if group is None:
            return Synced(error=ErrorCode.UNKNOWN_MEMBER_ID)
        waiter: asyncio.Future[Synced] = asyncio.get_running_loop().create_future()
        syncing.sync(group, call, waiter, self._runtime.now())
        self._runtime.settle(led, group)
        return await waiter

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Keep a member alive."""
        group = self._led_for_member(group_id).shard.groups.get(group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return departing.heartbeat(group, member_id, instance_id, generation, self._runtime.now())

    def leave(self, group_id: str, leavings: Sequence[Leaving]) -> list[ErrorCode]:
        """Remove members; one error for each of `leavings`."""
        led = self._led_for_member(group_id)
        group = led.shard.groups.get(group_id)
        if group is None:
            return [ErrorCode.UNKNOWN_MEMBER_ID] * len(leavings)
        errors = departing.leave(group, leavings, self._runtime.now())
        self._runtime.settle(led, group)
        return errors

    # -- looking ---------------------------------------------------------------------------------------

    def find(self, group_id: str) -> Group | None:
        """Return a group to look at, or None if there is none of this id."""
        return self._runtime.shards.of(group_id).shard.groups.get(group_id)

    def all_groups(self) -> list[Group]:
        """Return the groups of all shards that are complete."""
        return [group for led in self._runtime.shards.active() for group in led.shard.groups.values()]

    @property
    def is_loading(self) -> bool:
        """Say whether `all_groups` may miss some because a shard is still being read."""
        return self._runtime.shards.any_loading
