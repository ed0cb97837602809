"""Copying from one leader: one task fetches all partitions that follow it, and appends what comes.

Owns the order of cutting back and fetching after each change of leadership, and what to do when the leader
cannot be reached or refuses. Batches go into the log as they come off the wire, under the leader's offsets
and epochs. Must not decide who leads. (Kafka: `ReplicaFetcherThread`, `AbstractFetcherThread`.)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from broker.log import AppendRefused, LogError
from broker.replication.cutting_back import LEADERSHIP_ERRORS, CuttingBack, now
from broker.replication.flushing import on_disk
from broker.replication.followed_copy import Copy
from broker.replication.throttle import Throttle
from protocol.client.fetch_session import FetchSession, Key
from protocol.errors import DecodeError, ErrorCode, KafkaError, ProtocolError
from protocol.messages.fetch_request import FetchRequest, ReplicaState
from protocol.messages.fetch_response import FetchResponse, PartitionData
from protocol.messages.offset_for_leader_epoch_request import OffsetForLeaderEpochRequest

if TYPE_CHECKING:
    from broker.replication.partition import Partition
    from broker.replication.replicas import Leader
    from protocol.client import Connection

logger = logging.getLogger("isthmus.broker")

_ISOLATION_READ_UNCOMMITTED = 0
# Sent again, with the position as it is then, after a full fetch.
_SESSION_ERRORS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
_SETTLE_S = 0.005  # changes of leadership come by the hundred: one request for all of them
_LOOK_AT_ALL_S = 5.0
"""What moves without a word (retention moves a log's start) is told so often."""


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


class LeaderFetcher:
    """Copies from one leader. All changes of its set come from the event loop's other tasks."""

    def __init__(
        self,
        leader: Leader,
        settings: FetcherSettings,
        connect: Connect,
        broker_epoch: Callable[[], int],
        throttle: Throttle,
    ) -> None:
        self.leader = leader
        self._throttle = throttle
        self._settings = settings
        self._connect = connect
        self._broker_epoch = broker_epoch
        self._copies: dict[Key, Copy] = {}
        self._asked: dict[Key, Copy] = {}  # by the fetch that is under way
        self._unsettled: dict[Key, Copy] = {}  # to be cut back first, or left out for a while
        self._behind: dict[Key, Copy] = {}  # may be throttled
        self._moved: set[Key] = set()  # may stand somewhere else than the leader was told
        self._look_at_all = 0.0
        self._session = FetchSession(settings.max_bytes)
        self._cutting_back = CuttingBack(settings.broker_id, settings.timeout_s, self._is_followed)
        self._connection: Connection | None = None
        self._changed = asyncio.Event()
        self._fetching: asyncio.Future[FetchResponse] | None = None
        self._hastening: asyncio.Future[Any] | None = None
        self._reachable = True
        self._task = asyncio.get_running_loop().create_task(
            self._run(), name=f"replica fetcher from broker {leader.broker_id}"
        )

    @property
    def idle(self) -> bool:
        return not self._copies

    @property
    def copies(self) -> list[Copy]:
        return list(self._copies.values())

    @property
    def followed(self) -> list[Key]:
        return list(self._copies)

    def add(self, key: Key, partition: Partition) -> None:
        known = self._copies.get(key)
        if known is not None and known.partition is partition and known.current:
            return  # the controller has repeated itself
        copy = Copy(partition, self.leader.broker_id, self._settings.backoff_s)
        self._copies[key] = self._unsettled[key] = copy
        if not copy.caught_up:
            self._behind[key] = copy
        if not self._changed.is_set():
            self._changed.set()
            self._interrupt()

    def _interrupt(self) -> None:
        """Do not let new copies wait behind a long poll: it ends, once the others that were told at the same
        time are here too.
        """
        if self._fetching is not None:
            asyncio.get_running_loop().call_later(_SETTLE_S, self._hasten, self._fetching)

    def _hasten(self, fetching: asyncio.Future[FetchResponse]) -> None:
        """A question about nothing: the leader ends a long poll when something comes behind it.

        The session goes on. Dropping the connection would end it, and all that follows this leader had to be
        named again for each of the many small changes of a planned restart.
        """
        if self._fetching is fetching and self._connection is not None and self._hastening is None:
            nothing = OffsetForLeaderEpochRequest(replica_id=self._settings.broker_id)
            self._hastening = asyncio.ensure_future(
                self._connection.send(nothing, timeout_s=self._settings.timeout_s)
            )

    def remove(self, key: Key) -> None:
        self._copies.pop(key, None)
        self._unsettled.pop(key, None)
        self._behind.pop(key, None)
        self._session.forget(key)

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
        self._changed.clear()  # before what may fail: the pause after it must be one
        if self._connection is None:
            self._connection = await self._connect(self.leader)
            self._begin_session()
        connection = self._connection
        self._changed.clear()
        await self._truncate(connection)
        self._take_positions()
        if not self._session:
            await self._pause(self._until_due(self._settings.backoff_s))
            return
        response = await self._fetch(connection)
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

    def _is_followed(self, copy: Copy) -> bool:
        """Whether that is so still, after others have had their turn."""
        key = (copy.partition.topic_id, copy.partition.index)
        return self._copies.get(key) is copy and copy.current

    def _until_due(self, longest_s: float) -> float:
        """Seconds until the first of those that are left out for a while has its turn again."""
        begun = now()
        due = min(
            (copy.not_before for copy in self._unsettled.values() if copy.not_before > begun), default=begun
        )
        return min(due - begun, longest_s) if due > begun else longest_s

    # -- fetching

    def _begin_session(self, *, gone: bool = False) -> None:
        self._session.reset(gone=gone)
        self._look_at_all = 0.0

    def _take_positions(self) -> None:
        """Tell the session where the copies stand that have moved, and which are to be fetched at all."""
        begun, session = now(), self._session
        self._asked = dict(self._copies)
        if begun >= self._look_at_all:
            self._look_at_all = begun + _LOOK_AT_ALL_S
            self._moved.update(self._copies)
            self._behind = {key: copy for key, copy in self._behind.items() if not copy.caught_up}
        behind = self._behind if self._throttle.limited else ()
        for key in {*self._moved, *self._unsettled, *behind}:
            copy = self._copies.get(key)
            if copy is None:
                continue
            if copy.truncated and copy.current and copy.not_before <= begun and not self._must_wait(copy):
                self._unsettled.pop(key, None)
                session.want(key, copy.position())
            else:
                self._unsettled[key] = copy
                session.forget(key)
        self._moved.clear()

    def _must_wait(self, copy: Copy) -> bool:
        """Whether the throttle holds it back for a while."""
        throttle, begun = self._throttle, now()
        if not throttle.limited or not self._is_throttled(copy):
            return False
        copy.not_before = throttle.free_at(begun)
        return copy.not_before > begun

    def _is_throttled(self, copy: Copy) -> bool:
        return not copy.caught_up and self._throttle.concerns(copy.partition.topic, copy.partition.index)

    async def _fetch(self, connection: Connection) -> FetchResponse | None:
        """The answer, or None when the session is over and another request must be sent."""
        settings, session = self._settings, self._session
        topics, forgotten = session.next()
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
        self._fetching = answer
        if self._changed.is_set():
            self._interrupt()
        try:
            await asyncio.wait((answer,))
            if self._hastening is not None:  # its answer follows
                await asyncio.wait((self._hastening,))
        finally:
            hastening, self._fetching, self._hastening = self._hastening, None, None
            if hastening is not None or not answer.done():
                asked = [each for each in (answer, hastening) if each is not None]
                for each in asked:
                    each.cancel()
                await asyncio.gather(*asked, return_exceptions=True)
        response = answer.result()
        code = ErrorCode.of(response.error_code)
        if code in _SESSION_ERRORS:
            self._begin_session(gone=code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            return None
        if code != ErrorCode.NONE:
            raise KafkaError(code, "Fetch was refused")
        session.answered(response.session_id)
        return response

    async def _append(self, response: FetchResponse) -> None:
        size = 0
        unflushed: list[Copy] = []
        for topic in response.responses:
            for data in topic.partitions:
                key = (topic.topic_id, data.partition_index)
                copy = self._copies.get(key)
                if copy is None or copy is not self._asked.get(key) or not copy.current:
                    continue  # followed no more, or anew: this is of another time
                self._moved.add(key)
                self._take(copy, data)
                if not copy.truncated:
                    self._unsettled[key] = copy
                if copy.partition.log.flush_due and data.records:
                    unflushed.append(copy)
                size += len(data.records) if isinstance(data.records, memoryview) else 0
                if size > self._settings.max_bytes:  # others have had to wait for this much copying
                    size = 0
                    await asyncio.sleep(0)
        await asyncio.gather(*map(self._flush, unflushed))

    async def _flush(self, copy: Copy) -> None:
        try:
            await on_disk(copy.partition, copy.partition.log.end_offset - 1)
        except (AppendRefused, OSError) as error:
            logger.error("%s: what was copied is not on disk: %s", copy.partition, error)
            copy.delay(now())

    def _take(self, copy: Copy, data: PartitionData) -> None:
        """One partition's part of an answer. One bad partition never stops the others (I10)."""
        partition = copy.partition
        code = ErrorCode.of(data.error_code)
        try:
            if code == ErrorCode.OFFSET_OUT_OF_RANGE:
                copy.beyond = True
                copy.cut_again(now())
                self._changed.set()
            elif code != ErrorCode.NONE:
                if code not in LEADERSHIP_ERRORS:
                    logger.warning("%s: broker %d answered %s", partition, self.leader.broker_id, code.name)
                copy.delay(now(), soon=code in LEADERSHIP_ERRORS)
            elif data.diverging_epoch is not None and data.diverging_epoch.end_offset >= 0:
                copy.cut_again(now())
                self._changed.set()
            else:
                self._copy_batches(copy, data)
        except (AppendRefused, LogError, DecodeError, OSError) as error:
            logger.error("%s: cannot copy from broker %d: %s", partition, self.leader.broker_id, error)
            copy.delay(now())

    def _copy_batches(self, copy: Copy, data: PartitionData) -> None:
        partition, log = copy.partition, copy.partition.log
        copy.agrees()
        if isinstance(data.records, memoryview) and len(data.records):
            partition.append_copies(data.records)
            if self._throttle.limited and self._is_throttled(copy):
                self._throttle.spend(len(data.records), now())
        partition.follow_high_watermark(data.high_watermark)
        # Behind the high watermark, which a log does not begin above: DeleteRecords may move it up to there.
        if data.log_start_offset > log.start_offset:
            log.delete_before(min(data.log_start_offset, log.high_watermark))
        copy.lag = max(0, data.high_watermark - log.end_offset)
        copy.caught_up = copy.caught_up or not copy.lag

    async def _truncate(self, connection: Connection) -> None:
        """Ask where the latest epoch of each new partition ended at the leader, and cut there."""
        while True:
            begun = now()
            asked = [
                copy
                for copy in self._unsettled.values()
                if not copy.truncated and copy.current and copy.not_before <= begun
            ]
            if not asked:
                return
            await self._cutting_back.cut_back(connection, asked)
