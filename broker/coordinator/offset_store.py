"""Committed offsets: taking them, telling them, forgetting them.

A commit is answered when its records are safe and only then becomes visible, so nobody reads a position
that a change of leader could take back. Methods raise `KafkaError` when the group cannot be served here
(14, 16).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence, Set

from broker.clock import Clock
from broker.coordinator.groups.group import Group
from broker.coordinator.groups.states import GroupState
from broker.coordinator.offsets.committed import CommittedOffset, commit_refusal, txn_commit_refusal
from broker.coordinator.offsets_log import OFFSETS_TOPIC, as_coordinator_error
from broker.coordinator.records import group_record, offset_record
from broker.coordinator.runtime import Runtime
from broker.coordinator.settings import GroupSettings
from broker.coordinator.shards import Led
from protocol.errors import ErrorCode, KafkaError
from protocol.types import TopicPartition

logger = logging.getLogger("isthmus.broker.coordinator")

#: Tombstones in one batch of those that nobody waits for.
_CHUNK = 500


class OffsetStore:
    """The committed offsets of all groups that this broker coordinates."""

    def __init__(self, runtime: Runtime, clock: Clock, settings: GroupSettings) -> None:
        self._runtime = runtime
        self._clock = clock
        self._settings = settings
        runtime.on_activation(self._forget_deleted)

    @property
    def metadata_max(self) -> int:
        """Longest text that may be committed beside an offset, in characters."""
        return self._settings.metadata_max

    def start(self) -> None:
        """Begin to forget what has expired, at the interval of the settings."""
        self._runtime.spawn(self._expire_for_ever(), "expire group offsets")

    # -- commit and fetch ------------------------------------------------------------------------------

    async def commit(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        offsets: Mapping[TopicPartition, CommittedOffset],
    ) -> ErrorCode:
        """Store positions of a group; the error holds for all of them."""
        batch = await self.built_if_large(group_id, offsets, None)
        led = self._runtime.shards.of(group_id)
        shard = led.shard
        group = shard.groups.get(group_id)
        error = commit_refusal(group, member_id, instance_id, generation)
        if error is not ErrorCode.NONE:
            return error
        if group is not None and member_id in group.members:
            group.keep_alive(group.members[member_id], self._runtime.now())
        if not offsets:
            return ErrorCode.NONE
        shard.commits_under_way[group_id] += 1
        try:
            last = await self._runtime.write(led, batch or self._built(led, group_id, offsets, None))
        except KafkaError as failed:
            self._runtime.unstored.say(f"offsets of group {group_id!r}", failed)
            return as_coordinator_error(failed.code, too_large=ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
        finally:
            shard.commits_under_way[group_id] -= 1
            if not shard.commits_under_way[group_id]:
                del shard.commits_under_way[group_id]
        first = last - len(offsets) + 1
        for at, (partition, committed) in enumerate(offsets.items(), first):
            shard.set_offset(group_id, partition, committed, at)
        shard.group_or_new(group_id)
        return ErrorCode.NONE

    async def commit_in_transaction(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        producer: tuple[int, int],
        offsets: Mapping[TopicPartition, CommittedOffset],
        batch: memoryview | None = None,
    ) -> ErrorCode:
        """Store positions that count once the producer (id, epoch) has committed its transaction (KIP-98).

        Nothing is waited for before they are in the log: an end may not come between that and the word of the
        transaction's coordinator. So what takes long is built before that (`batch`, from `built_if_large`).
        """
        led = self._runtime.shards.of(group_id)
        shard = led.shard
        group = shard.groups.get(group_id)
        error = txn_commit_refusal(group, member_id, instance_id, generation)
        if error is not ErrorCode.NONE or not offsets:
            return error
        if group is not None and member_id in group.members:
            group.keep_alive(group.members[member_id], self._runtime.now())
        try:
            last = led.log.append_built(batch or self._built(led, group_id, offsets, producer))
            # At once: the marker that ends the transaction may come before the replicas have this.
            for at, (partition, committed) in enumerate(offsets.items(), last - len(offsets) + 1):
                shard.add_pending(producer[0], group_id, partition, committed, at)
            shard.group_or_new(group_id)
            if not led.log.is_safe(last):
                await led.log.wait_safe(last)
        except KafkaError as failed:
            self._runtime.unstored.say(f"offsets of group {group_id!r}", failed)
            return as_coordinator_error(failed.code, too_large=ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
        return ErrorCode.NONE

    async def built_if_large(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, CommittedOffset],
        producer: tuple[int, int] | None,
    ) -> memoryview | None:
        """Build a batch that takes long in a thread, before looking at anything that may change meanwhile."""
        if len(offsets) <= _CHUNK:
            return None
        return await asyncio.to_thread(
            self._built, self._runtime.shards.of(group_id), group_id, offsets, producer
        )

    def _built(
        self,
        led: Led,
        group_id: str,
        offsets: Mapping[TopicPartition, CommittedOffset],
        producer: tuple[int, int] | None,
    ) -> memoryview:
        now_ms = self._clock.now_ms()
        return led.log.build(
            [offset_record(group_id, partition, each, now_ms) for partition, each in offsets.items()],
            producer,
        )

    def on_transaction_end(self, index: int, producer_id: int, commit: bool) -> None:
        """A marker was written to offsets partition `index`."""
        for led in self._runtime.shards:
            if led.shard.index == index:
                led.shard.end_transaction(producer_id, commit)

    def fetch(
        self, group_id: str, partitions: Collection[TopicPartition] | None
    ) -> tuple[Mapping[TopicPartition, CommittedOffset], Set[TopicPartition]]:
        """Return a group's positions now, and which of its partitions an open transaction commits.

        `partitions` says which are of interest, None means all; there may be others among the positions.
        """
        shard = self._runtime.shards.of(group_id).shard
        known = shard.offsets.get(group_id, {})
        if partitions is None or len(partitions) > len(known):
            found = dict(known)
        else:
            found = {partition: known[partition] for partition in partitions if partition in known}
        return found, shard.pending_of(group_id)

    def count(self) -> int:
        """Return how many positions the complete shards hold."""
        return sum(
            len(offsets) for led in self._runtime.shards.active() for offsets in led.shard.offsets.values()
        )

    # -- forgetting ------------------------------------------------------------------------------------

    async def delete(self, group_id: str, partitions: Collection[TopicPartition]) -> ErrorCode:
        """Delete positions of a group; partitions without one are passed over."""
        led = self._runtime.shards.of(group_id)
        known = set(led.shard.partitions_of(group_id))
        hit = [partition for partition in partitions if partition in known]
        return await self._forget_and_wait(led, group_id, hit, with_group=False)

    async def delete_group(self, group_id: str) -> ErrorCode:
        """Delete a group that nobody is in, with its positions."""
        led = self._runtime.shards.of(group_id)
        group = led.shard.groups.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if group.state is not GroupState.EMPTY:
            return ErrorCode.NON_EMPTY_GROUP
        hit = led.shard.partitions_of(group_id)  # without tombstones a restart would bring pending ones back
        return await self._forget_and_wait(led, group_id, hit, with_group=True)

    def on_partitions_deleted(self, deleted: Iterable[tuple[str, int]]) -> None:
        """Partitions are gone from the cluster, and so are the positions in them."""
        partitions = {TopicPartition(*each) for each in deleted if each[0] != OFFSETS_TOPIC}
        if not partitions:
            return
        for led in self._runtime.shards:
            led.shard.deleted_meanwhile |= partitions
        for led in self._runtime.shards.active():
            self._forget_deleted(led)

    def _forget_deleted(self, led: Led) -> None:
        partitions, led.shard.deleted_meanwhile = led.shard.deleted_meanwhile, set()
        if not partitions:
            return
        for group_id, hit in led.shard.offsets_of(partitions):
            try:
                self._forget(led, group_id, hit, with_group=False)
            except KafkaError as error:
                logger.warning("offsets in deleted partitions were not forgotten: %s", error)
                return

    async def _forget_and_wait(
        self, led: Led, group_id: str, partitions: Sequence[TopicPartition], *, with_group: bool
    ) -> ErrorCode:
        try:
            last = self._forget(led, group_id, partitions, with_group=with_group)
            if last is not None and not led.log.is_safe(last):
                await led.log.wait_safe(last)
        except KafkaError as error:
            logger.warning("offsets of group %r were not deleted: %s", group_id, error)
            return as_coordinator_error(error.code, too_large=ErrorCode.UNKNOWN_SERVER_ERROR)
        return ErrorCode.NONE

    def _forget(
        self, led: Led, group_id: str, partitions: Sequence[TopicPartition], *, with_group: bool
    ) -> int | None:
        """Write tombstones and forget at once: a later commit must not fall to an earlier tombstone.

        Returns the offset of the last tombstone, None if there was nothing to write. Raises `KafkaError`.
        """
        now_ms = self._clock.now_ms()
        last = None
        for start in range(0, len(partitions), _CHUNK):
            chunk = partitions[start : start + _CHUNK]
            last = led.log.append([offset_record(group_id, each, None, now_ms) for each in chunk])
            led.shard.forget_offsets(group_id, chunk)
        if with_group:
            last = led.log.append([group_record(group_id, None, now_ms)])
            group = led.shard.forget_group(group_id)
            if group is not None:
                self._runtime.settle(led, group)
        return last

    # -- expiry ----------------------------------------------------------------------------------------

    async def _expire_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._settings.retention_check_interval_ms / 1000)
            try:
                await self.expire()
            except Exception:
                logger.exception("offsets were not expired, it is tried again")

    async def expire(self) -> int:
        """Forget all that has outlived its time, groups too; returns the number of offsets."""
        count = 0
        for led in list(self._runtime.shards.active()):
            try:
                for group, partitions, gone in led.shard.expired(
                    self._clock.now_ms(), self._settings.retention_ms
                ):
                    self._forget(led, group.group_id, partitions, with_group=gone)
                    count += len(partitions)
                    _tell(group, partitions, gone)
                    await asyncio.sleep(0)
            except KafkaError as error:
                logger.warning("expired offsets were not forgotten: %s", error)
        return count


def _tell(group: Group, partitions: Sequence[TopicPartition], gone: bool) -> None:
    logger.info(
        "group %r: %d offsets expired%s",
        group.group_id,
        len(partitions),
        ", group removed" if gone else "",
    )
