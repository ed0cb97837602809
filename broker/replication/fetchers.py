"""Followers' copying: one task for each leader fetches all partitions that follow it, and appends what comes.

Owns who is copied from where, the order of cutting back and fetching after each change of leadership, and
what to do when a leader cannot be reached or refuses. Batches go into the log as they come off the wire,
under the leader's offsets and epochs. Must not decide who leads. (Kafka: `ReplicaFetcherManager`,
`ReplicaFetcherThread`, `AbstractFetcherThread`.)
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker.log import AppendRefused, LogError
from broker.replication.fetch_session import FetchSession, Key, Position
from broker.replication.flushing import on_disk
from broker.replication.truncation import UNDEFINED, where_to_cut
from protocol.errors import DecodeError, ErrorCode, KafkaError, ProtocolError
from protocol.messages.fetch_request import FetchRequest, ReplicaState
from protocol.messages.fetch_response import FetchResponse, PartitionData
from protocol.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from protocol.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

if TYPE_CHECKING:
    from broker.replication.partition import Partition
    from broker.replication.replicas import Leader
    from protocol.client import Connection

logger = logging.getLogger("isthmus.broker")

EARLIEST = -2
_ISOLATION_READ_UNCOMMITTED = 0
# Sent again, with the position as it is then, after a full fetch.
_SESSION_ERRORS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
# The leader knows of another state than this follower; the controller will tell. Try again soon, then later.
_LEADERSHIP_ERRORS = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
)
_FIRST_DELAY_S = 0.02
_SETTLE_S = 0.005  # changes of leadership come by the hundred: one new request for all of them


@dataclass(frozen=True, slots=True, kw_only=True)
class FetcherSettings:
    """Kafka's `replica.fetch.*` and `replica.socket.timeout.ms`."""

    broker_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    response_max_bytes: int
    backoff_s: float
    timeout_s: float


Connect = Callable[["Leader"], Awaitable["Connection"]]


class ReplicaFetchers:
    """`broker_epoch` tells this broker's registration, by which leaders know it from an earlier life."""

    def __init__(
        self,
        settings: FetcherSettings,
        connect: Connect,
        *,
        broker_epoch: Callable[[], int],
    ) -> None:
        self._settings = settings
        self._connect = connect
        self._broker_epoch = broker_epoch
        self._fetchers: dict[int, LeaderFetcher] = {}
        self._of: dict[Key, LeaderFetcher] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def follow(self, partition: Partition, leader: Leader) -> None:
        """Copy from this leader from now on, after cutting off what it does not have."""
        key = (partition.topic_id, partition.index)
        before = self._of.get(key)
        self.relocate(leader)
        fetcher = self._fetchers.get(leader.broker_id)
        if fetcher is None:
            fetcher = LeaderFetcher(leader, self._settings, self._connect, self._broker_epoch)
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


class _Copy:
    """One followed partition. It is cut back before it is fetched, once for each leader epoch."""

    __slots__ = (
        "anew", "beyond", "delay_s", "lag", "leader_epoch", "not_before", "partition", "suspect", "truncated",
    )  # fmt: skip

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.truncated = False
        self.beyond = False
        """The leader's log does not reach to where this one ends, or begins after that."""
        self.anew = False
        """The leader's log ends before this one begins: nothing of this one is kept."""
        self.not_before = 0.0
        self.delay_s = _FIRST_DELAY_S
        self.suspect = False
        """It was cut back once more since the last fetch that found it a part of the leader's log."""
        self.lag = 0

    @property
    def latest_epoch(self) -> int:
        return self.partition.log.epochs.latest

    @property
    def current(self) -> bool:
        """Whether the controller has not spoken again since; answers to older requests do not count."""
        return self.partition.leader_epoch == self.leader_epoch and not self.partition.is_leader


class LeaderFetcher:
    """Copies from one leader. All changes of its set come from the event loop's other tasks."""

    def __init__(
        self,
        leader: Leader,
        settings: FetcherSettings,
        connect: Connect,
        broker_epoch: Callable[[], int],
    ) -> None:
        self.leader = leader
        self._settings = settings
        self._connect = connect
        self._broker_epoch = broker_epoch
        self._copies: dict[Key, _Copy] = {}
        self._asked: dict[Key, _Copy] = {}  # by the fetch that is under way
        self._session = FetchSession(settings.max_bytes)
        self._connection: Connection | None = None
        self._changed = asyncio.Event()
        self._reachable = True
        self._task = asyncio.get_running_loop().create_task(
            self._run(), name=f"replica fetcher from broker {leader.broker_id}"
        )

    @property
    def idle(self) -> bool:
        return not self._copies

    @property
    def copies(self) -> list[_Copy]:
        return list(self._copies.values())

    @property
    def followed(self) -> list[Key]:
        return list(self._copies)

    def add(self, key: Key, partition: Partition) -> None:
        known = self._copies.get(key)
        if known is not None and known.partition is partition and known.current:
            return  # the controller has repeated itself
        self._copies[key] = _Copy(partition)
        self._changed.set()

    def remove(self, key: Key) -> None:
        self._copies.pop(key, None)

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._disconnect()

    # -- the task

    async def _run(self) -> None:
        while True:
            try:
                await self._round()
            except (ProtocolError, OSError, TimeoutError) as error:
                if self._reachable:  # one line until it works again
                    logger.warning("cannot copy from broker %d: %s", self.leader.broker_id, error)
                self._reachable = False
                await self._disconnect()
                await self._pause(self._settings.backoff_s)
            except Exception:
                logger.exception("copying from broker %d failed", self.leader.broker_id)
                await self._disconnect()
                await self._pause(self._settings.backoff_s)

    async def _round(self) -> None:
        if self._connection is not None and self._connection.retired:
            await self._disconnect()
        if self._connection is None:
            self._connection = await self._connect(self.leader)
            self._session.reset()
        connection = self._connection
        self._changed.clear()
        await self._truncate(connection)
        wanted = self._positions()
        if not wanted:
            await self._pause(self._until_due(self._settings.backoff_s))
            return
        response = await self._fetch(connection, wanted)
        if not self._reachable:
            logger.info("copying from broker %d again", self.leader.broker_id)
            self._reachable = True
        if response is not None:
            await self._append(response)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _is_followed(self, copy: _Copy) -> bool:
        """Whether that is so still, after others have had their turn."""
        key = (copy.partition.topic_id, copy.partition.index)
        return self._copies.get(key) is copy and copy.current

    def _delay(self, copy: _Copy, *, soon: bool = False) -> None:
        """Leave it out for a while. `soon`: at first only for a moment, then longer each time."""
        longest = self._settings.backoff_s
        copy.not_before = self._now() + (min(copy.delay_s, longest) if soon else longest)
        copy.delay_s *= 2

    def _cut_again(self, copy: _Copy) -> None:
        """The leader's log is not what it was taken for; where a cut does not help there is a pause."""
        copy.truncated = False
        if copy.suspect:
            self._delay(copy)
        copy.suspect = True
        self._changed.set()

    def _until_due(self, longest_s: float) -> float:
        """Seconds until the first of those that are left out for a while has its turn again."""
        now = self._now()
        due = min((copy.not_before for copy in self._copies.values() if copy.not_before > now), default=now)
        return min(due - now, longest_s) if due > now else longest_s

    # -- fetching

    def _positions(self) -> dict[Key, Position]:
        now = self._now()
        positions = {}
        self._asked = dict(self._copies)
        for key, copy in self._copies.items():
            if copy.truncated and copy.current and copy.not_before <= now:
                log = copy.partition.log
                positions[key] = Position(
                    log.end_offset, copy.leader_epoch, log.epochs.latest, log.start_offset
                )
        return positions

    async def _fetch(self, connection: Connection, wanted: dict[Key, Position]) -> FetchResponse | None:
        """The answer, or None when another request must be sent: the set of partitions has changed."""
        settings, session = self._settings, self._session
        topics, forgotten = session.next(wanted)
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=settings.broker_id, replica_epoch=self._broker_epoch()),
            max_wait_ms=int(1000 * self._until_due(settings.max_wait_ms / 1000)),
            min_bytes=settings.min_bytes,
            max_bytes=settings.response_max_bytes,
            isolation_level=_ISOLATION_READ_UNCOMMITTED,
            session_id=session.session_id,
            session_epoch=session.epoch,
            topics=topics,
            forgotten_topics_data=forgotten,
        )
        answer = asyncio.ensure_future(connection.send(request, timeout_s=settings.timeout_s))
        changed = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait((answer, changed), return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                # Do not let the new ones wait behind this request's long poll: begin again on another
                # connection, once the others that were told at the same time are here too.
                await asyncio.sleep(_SETTLE_S)
                if not answer.done():
                    await self._disconnect()
                    return None
            response = answer.result()
        finally:
            changed.cancel()
            answer.cancel()
            await asyncio.gather(answer, changed, return_exceptions=True)
        code = ErrorCode.of(response.error_code)
        if code in _SESSION_ERRORS:
            session.reset()
            return None
        if code != ErrorCode.NONE:
            raise KafkaError(code, "Fetch was refused")
        session.answered(response.session_id)
        return response

    async def _append(self, response: FetchResponse) -> None:
        size = 0
        unflushed: list[_Copy] = []
        for topic in response.responses:
            for data in topic.partitions:
                key = (topic.topic_id, data.partition_index)
                copy = self._copies.get(key)
                if copy is None or copy is not self._asked.get(key) or not copy.current:
                    continue  # followed no more, or anew: this is of another time
                self._take(copy, data)
                if copy.partition.log.flush_due and data.records:
                    unflushed.append(copy)
                size += len(data.records) if isinstance(data.records, memoryview) else 0
                if size > self._settings.max_bytes:  # others have had to wait for this much copying
                    size = 0
                    await asyncio.sleep(0)
        await asyncio.gather(*map(self._flush, unflushed))

    async def _flush(self, copy: _Copy) -> None:
        try:
            await on_disk(copy.partition, copy.partition.log.end_offset - 1)
        except (AppendRefused, OSError) as error:
            logger.error("%s: what was copied is not on disk: %s", copy.partition, error)
            self._delay(copy)

    def _take(self, copy: _Copy, data: PartitionData) -> None:
        """One partition's part of an answer. One bad partition never stops the others (I10)."""
        partition = copy.partition
        code = ErrorCode.of(data.error_code)
        try:
            if code == ErrorCode.OFFSET_OUT_OF_RANGE:
                copy.beyond = True
                self._cut_again(copy)
            elif code != ErrorCode.NONE:
                if code not in _LEADERSHIP_ERRORS:
                    logger.warning("%s: broker %d answered %s", partition, self.leader.broker_id, code.name)
                self._delay(copy, soon=code in _LEADERSHIP_ERRORS)
            elif data.diverging_epoch is not None and data.diverging_epoch.end_offset >= 0:
                self._cut_again(copy)
            else:
                self._copy_batches(copy, data)
        except (AppendRefused, LogError, DecodeError, OSError) as error:
            logger.error("%s: cannot copy from broker %d: %s", partition, self.leader.broker_id, error)
            self._delay(copy)

    def _copy_batches(self, copy: _Copy, data: PartitionData) -> None:
        partition, log = copy.partition, copy.partition.log
        copy.suspect, copy.delay_s = False, _FIRST_DELAY_S
        if isinstance(data.records, memoryview) and len(data.records):
            partition.append_copies(data.records)
        partition.follow_high_watermark(data.high_watermark)
        # Behind the high watermark, which a log does not begin above: DeleteRecords may move it up to there.
        if data.log_start_offset > log.start_offset:
            log.delete_before(min(data.log_start_offset, log.high_watermark))
        copy.lag = max(0, data.high_watermark - log.end_offset)

    # -- cutting back

    async def _truncate(self, connection: Connection) -> None:
        """Ask where the latest epoch of each new partition ended at the leader, and cut there."""
        while True:
            now = self._now()
            asked = {
                key: copy
                for key, copy in self._copies.items()
                if not copy.truncated and copy.current and copy.not_before <= now
            }
            if not asked:
                return
            await self._cut_all(connection, asked)

    async def _cut_all(self, connection: Connection, asked: dict[Key, _Copy]) -> None:
        now = self._now()
        empty = [
            copy for copy in asked.values() if copy.beyond or copy.anew or copy.latest_epoch == UNDEFINED
        ]
        if empty:
            await self._find_starts(connection, empty)
        ends = [copy for copy in asked.values() if not copy.truncated and copy.not_before <= now]
        if not ends:
            return
        copies = {(copy.partition.topic, copy.partition.index): copy for copy in ends}
        by_name: dict[str, list[OffsetForLeaderPartition]] = defaultdict(list)
        for copy in ends:
            by_name[copy.partition.topic].append(
                OffsetForLeaderPartition(
                    partition=copy.partition.index,
                    current_leader_epoch=copy.leader_epoch,
                    # Without any epoch of its own it asks where the leader's log ends.
                    leader_epoch=copy.leader_epoch if copy.latest_epoch == UNDEFINED else copy.latest_epoch,
                )
            )
        response = await connection.send(
            OffsetForLeaderEpochRequest(
                replica_id=self._settings.broker_id,
                topics=[OffsetForLeaderTopic(topic=name, partitions=each) for name, each in by_name.items()],
            ),
            timeout_s=self._settings.timeout_s,
        )
        for topic in response.topics:
            for end in topic.partitions:
                known = copies.pop((topic.topic, end.partition), None)
                if known is None or not self._is_followed(known):
                    continue
                if end.error_code:
                    self._delay(known, soon=end.error_code in _LEADERSHIP_ERRORS)
                else:
                    self._cut(known, end.leader_epoch, end.end_offset)
        for copy in copies.values():  # not answered
            self._delay(copy)

    async def _find_starts(self, connection: Connection, empty: list[_Copy]) -> None:
        """Where the leader's log begins, for followers that have nothing of it: they begin there."""
        copies = {(copy.partition.topic, copy.partition.index): copy for copy in empty}
        by_name: dict[str, list[ListOffsetsPartition]] = defaultdict(list)
        for copy in empty:
            by_name[copy.partition.topic].append(
                ListOffsetsPartition(
                    partition_index=copy.partition.index,
                    current_leader_epoch=copy.leader_epoch,
                    timestamp=EARLIEST,
                )
            )
        response = await connection.send(
            ListOffsetsRequest(
                replica_id=self._settings.broker_id,
                topics=[ListOffsetsTopic(name=name, partitions=each) for name, each in by_name.items()],
            ),
            timeout_s=self._settings.timeout_s,
        )
        for topic in response.topics:
            for start in topic.partitions:
                known = copies.pop((topic.name, start.partition_index), None)
                if known is None or not self._is_followed(known):
                    continue
                if start.error_code:
                    self._delay(known, soon=start.error_code in _LEADERSHIP_ERRORS)
                else:
                    self._begin(known, start.offset)
        for copy in copies.values():
            self._delay(copy)

    def _begin(self, copy: _Copy, leader_start: int) -> None:
        partition, log = copy.partition, copy.partition.log
        was_beyond, copy.beyond = copy.beyond, False
        try:
            if copy.anew or leader_start > log.end_offset:
                if log.end_offset > log.start_offset:
                    logger.warning(
                        "%s: offsets %d to %d are dropped, the leader's log begins at %d",
                        partition, log.start_offset, log.end_offset, leader_start,
                    )  # fmt: skip
                log.truncate_fully(leader_start)
        except (LogError, OSError) as error:
            logger.error("%s: cannot begin anew: %s", partition, error)
            self._delay(copy)
            return
        was_beyond, copy.anew = was_beyond and not copy.anew, False
        copy.truncated = copy.latest_epoch == UNDEFINED and not was_beyond

    def _cut(self, copy: _Copy, leader_epoch: int, leader_end: int) -> None:
        partition, log = copy.partition, copy.partition.log
        cut = where_to_cut(log, log.high_watermark, leader_epoch, leader_end)
        if cut.offset < log.start_offset:
            copy.anew = True
            return
        try:
            if cut.offset < log.end_offset:
                logger.info(
                    "%s: cut from offset %d to %d, which broker %d does not have",
                    partition, log.end_offset, cut.offset, self.leader.broker_id,
                )  # fmt: skip
                if cut.offset < log.high_watermark:
                    logger.warning(
                        "%s: the cut is below the high watermark %d: records that readers could see are"
                        " gone, after an unclean election or the loss of a disk",
                        partition, log.high_watermark,
                    )  # fmt: skip
                log.truncate_to(cut.offset)
            # An epoch of ours in which nothing was written may stand at the end.
            log.epochs.truncate_end(cut.offset)
        except (LogError, OSError) as error:
            logger.error("%s: cannot cut back: %s", partition, error)
            self._delay(copy)
            return
        copy.truncated = cut.done or log.epochs.latest == UNDEFINED
