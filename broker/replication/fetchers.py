"""Followers' copying: which partitions are copied from which leader, one fetcher for each leader.

Owns who is copied from where, also when a leader comes back somewhere else. Must not decide who leads.
(Kafka: `ReplicaFetcherManager`.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from broker.replication.leader_fetcher import Connect, FetcherSettings, LeaderFetcher
from broker.replication.throttle import Throttle
from protocol.client.fetch_session import Key

if TYPE_CHECKING:
    from broker.replication.partition import Partition
    from broker.replication.replicas import Leader

__all__ = ["FetcherSettings", "LeaderFetcher", "ReplicaFetchers"]


class ReplicaFetchers:
    """`broker_epoch` tells this broker's registration, by which leaders know it from an earlier life."""

    def __init__(
        self,
        settings: FetcherSettings,
        connect: Connect,
        *,
        broker_epoch: Callable[[], int],
        throttle: Throttle | None = None,
    ) -> None:
        self._settings = settings
        self._throttle = throttle or Throttle(settings.broker_id, lambda topic: ())
        self._connect = connect
        self._broker_epoch = broker_epoch
        self._fetchers: dict[int, LeaderFetcher] = {}
        self._of: dict[Key, LeaderFetcher] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._handing_over: frozenset[Key] = frozenset()

    def follow_no_more(self, led: Iterable[Key]) -> None:
        """This broker is about to stop: what it leads and hands over it does not copy from the new leaders,
        which would take it for one that wants to be in sync. What it follows it copies as long as it is
        waited for, whoever leads that next.
        """
        self._handing_over = frozenset(led)

    def follow(self, partition: Partition, leader: Leader) -> None:
        """Copy from this leader from now on, after cutting off what it does not have."""
        key = (partition.topic_id, partition.index)
        if key in self._handing_over:
            self.unfollow(partition)
            return
        before = self._of.get(key)
        self.relocate(leader)
        fetcher = self._fetchers.get(leader.broker_id)
        if fetcher is None:
            fetcher = LeaderFetcher(leader, self._settings, self._connect, self._broker_epoch, self._throttle)
            self._fetchers[leader.broker_id] = fetcher
        if before is not None and before is not fetcher:
            self._remove(before, key)
        self._of[key] = fetcher
        fetcher.add(key, partition)

    def relocate(self, leader: Leader) -> None:
        """A leader is somewhere else now: whatever is copied from it is copied from there."""
        before = self._fetchers.get(leader.broker_id)
        if before is not None and before.leader != leader:
            partitions = [copy.partition for copy in before.copies]
            self._drop(before)
            for partition in partitions:
                self.follow(partition, leader)

    def unfollow(self, partition: Partition) -> None:
        key = (partition.topic_id, partition.index)
        fetcher = self._of.pop(key, None)
        if fetcher is not None:
            self._remove(fetcher, key)

    def _remove(self, fetcher: LeaderFetcher, key: Key) -> None:
        fetcher.remove(key)
        if fetcher.idle:
            self._drop(fetcher)

    def _drop(self, fetcher: LeaderFetcher) -> None:
        if self._fetchers.get(fetcher.leader.broker_id) is fetcher:
            del self._fetchers[fetcher.leader.broker_id]
        for key in fetcher.followed:
            self._of.pop(key, None)
            fetcher.remove(key)
        task = asyncio.get_running_loop().create_task(fetcher.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        for fetcher in list(self._fetchers.values()):
            self._drop(fetcher)
        await asyncio.gather(*self._closing, return_exceptions=True)

    def lags(self) -> dict[tuple[str, int], int]:
        """Records that each followed partition is known to be behind its leader's high watermark."""
        return {
            (copy.partition.topic, copy.partition.index): copy.lag
            for fetcher in self._fetchers.values()
            for copy in fetcher.copies
        }
