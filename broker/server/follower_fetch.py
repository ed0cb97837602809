"""Fetch by the brokers that follow: up to the log's end, and each request tells how far that broker is.

- A follower's fetch offset is its log's end: it moves the high watermark, lets acks=all be answered, and may
  propose the follower for the ISR, before anything is read for it. Of a session's partitions only those are
  looked at where something has happened (`session_changes`); the follower counts as having seen the others.
- `last_fetched_epoch` is compared with this leader's epochs: where both differ the answer is a
  `diverging_epoch` and no records (KIP-595).
- A long poll ends when another request comes on its connection: a follower that is told to copy more sends
  one, and asks for all of it with its next fetch, in the same session.
- Only replicas of the partition may fetch so; anything else is NOT_LEADER_OR_FOLLOWER.
(Kafka: `ReplicaManager.readFromLog` for followers, `Partition.updateFollowerFetchState`.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Generator
from functools import partial

from broker.log import Log
from broker.replication import Partition
from broker.replication.throttle import Throttle
from broker.replication.watched import Watcher
from broker.server.context import RequestContext
from broker.server.fetch_job import ClientFetch
from broker.server.fetch_pass import Found, Need, replica_of
from broker.server.fetch_sessions import FetchSession, Wanted
from broker.server.parted_logs import parted_at
from broker.server.session_changes import SessionChanges
from protocol.messages.fetch_request import FetchPartition, FetchRequest
from protocol.messages.fetch_response import EpochEndOffset, PartitionData

_UNKNOWN = -1


class FollowerFetch(ClientFetch):
    __slots__ = ("_broker_epoch", "_changes", "_connection", "_now", "_replica", "_told")

    def __init__(self, request: FetchRequest, context: RequestContext) -> None:
        super().__init__(request, context)
        state = request.replica_state
        self._connection = context.connection
        self._replica = replica_of(request)
        self._broker_epoch = _UNKNOWN if state is None else state.replica_epoch
        self._now = context.broker.clock.monotonic()
        self._told = False  # its positions are news in the first pass only
        self._changes = None if self._session is None else self._session.changes
        if self._changes is not None:
            self._changes.fetched(self._broker_epoch, self._now)

    def _limit(self, log: Log) -> int:
        return log.end_offset

    def _find(self, topic: str, index: int, current_leader_epoch: int) -> Partition:
        return self._broker.replicas.leader(topic, index, current_leader_epoch)

    def _may_read(self, partition: Partition) -> bool:
        return partition.is_leader

    # -- the session

    def _new_session(self) -> FetchSession | None:
        session = super()._new_session()
        if session is not None:
            session.changes = SessionChanges(
                self._replica, self._broker_epoch, session.partitions, self._broker.clock.monotonic()
            )
        return session

    def _advance(self, session: FetchSession) -> None:
        super()._advance(session)
        if self._changes is not None:
            for wanted, data in self.found:
                if data.records:
                    self._changes.serve_last(session.key(wanted))

    @property
    def _has_something_to_wait_for(self) -> bool:
        return bool(self._leaders) or (self._changes is not None and self._changes.quiet > 0)

    @property
    def satisfied(self) -> bool:
        return self._connection.hurried or super().satisfied

    def _watch(self, watched: list[Partition], watcher: Watcher) -> None:
        self._connection.on_hurry = partial(watcher, 0)
        for partition in watched:
            partition.watch_end(watcher)
        if self._changes is not None:

            def arrived(partition: Partition, size: int) -> None:
                partition.watch_end(watcher)  # for what comes after this
                watched.append(partition)
                watcher(size)

            self._changes.on_arrival = arrived

    def _unwatch(self, watched: list[Partition], watcher: Watcher) -> None:
        self._connection.on_hurry = None
        if self._changes is not None:
            self._changes.on_arrival = None
        for partition in watched:
            partition.unwatch_end(watcher)

    def _soon(self, wake: Callable[[], None]) -> None:
        """Ahead of all clients: producers wait for what it says."""
        asyncio.get_running_loop().call_soon(wake)

    def _moved(self) -> bool:
        if self._connection.hurried or (self._changes is not None and self._changes.arrived):
            return True
        return super()._moved()

    # -- a pass

    def read_all(self) -> Generator[Need, Found | None, None]:
        if self._changes is not None:
            self._changes.arrived = False
        yield from super().read_all()
        self._told = True

    def _to_look_at(self) -> Collection[Wanted]:
        return super()._to_look_at() if self._changes is None else self._changes.moving.values()

    def _is_idle(self, wanted: Wanted) -> bool:
        partition, asked = wanted.partition, wanted.asked
        if partition is None:
            return False
        log, epoch, last = partition.log, partition.leader_epoch, asked.last_fetched_epoch
        end = log.end_offset
        if (
            asked.fetch_offset != end
            or asked.current_leader_epoch != epoch
            or partition.leader != partition.local_id
            or log.high_watermark != wanted.high_watermark
            or log.start_offset != wanted.log_start_offset
        ):
            return False
        if not self._told:
            if last not in (epoch, _UNKNOWN) and log.epoch_end_offset(last) != (last, end):
                return False  # its log ends in an older term, which is not the last one here
            in_sync, start = partition.in_sync, asked.log_start_offset
            if not in_sync.stands_still(self._replica, end, start, self._now, self._broker_epoch):
                return False
            if self._changes is not None and self._session is not None:
                self._changes.rest(self._session.key(wanted), wanted, partition)
                return True
        self._leaders.append((partition, end, 0))
        return True

    def _is_throttled(self, partition: Partition, throttle: Throttle) -> bool:
        members = partition.in_sync.members
        return self._replica not in members and throttle.concerns(partition.topic, partition.index)

    def _held_back(self, partition: Partition, asked: FetchPartition) -> PartitionData:
        """Nothing for now: it is read again at the end of the long poll, or with the next fetch."""
        log = partition.log
        self._leaders.append((partition, log.end_offset, 0))
        return PartitionData(
            partition_index=asked.partition,
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.start_offset,
            aborted_transactions=None,
            records=b"",
        )

    def _follow(self, partition: Partition, asked: FetchPartition) -> None:
        if not self._told:
            partition.followed(
                self._replica, asked.fetch_offset, asked.log_start_offset, self._now, self._broker_epoch
            )

    def _read(self, partition: Partition, wanted: Wanted) -> Generator[Need, Found | None, PartitionData]:
        asked, log = wanted.asked, partition.log
        parted = parted_at(log, asked)
        if parted is not None:
            self._size = max(self._size, self._min_bytes)  # answered at once
            epoch, end = parted
            return PartitionData(
                partition_index=asked.partition,
                high_watermark=log.high_watermark,
                last_stable_offset=log.last_stable_offset,
                log_start_offset=log.start_offset,
                diverging_epoch=EpochEndOffset(epoch=max(epoch, 0), end_offset=max(end, 0)),
                aborted_transactions=None,
                records=b"",
            )
        if log.start_offset <= asked.fetch_offset <= log.end_offset:
            self._follow(partition, asked)
        throttle = self._broker.replicating.leader_throttle
        throttled = throttle.limited and self._is_throttled(partition, throttle)
        if throttled and log.start_offset <= asked.fetch_offset < log.end_offset:
            now = self._broker.clock.monotonic()
            if throttle.free_at(now) > now:
                return self._held_back(partition, asked)
        before = self._size
        answer = yield from super()._read(partition, wanted)
        if throttled:
            throttle.spend(self._size - before, self._broker.clock.monotonic())
        if 0 <= wanted.log_start_offset < log.start_offset:  # deletions wait for it: answered at once
            self._size = max(self._size, self._min_bytes)
        return answer
