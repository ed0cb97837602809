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
from typing import TYPE_CHECKING

from broker.log import AppendRefused, LogError
from broker.replication.cutting_back import LEADERSHIP_ERRORS, CuttingBack, now
from broker.replication.fetch_session import FetchSession, Key, Position
from broker.replication.flushing import on_disk
from broker.replication.followed_copy import Copy
from broker.replication.throttle import Throttle
from protocol.errors import DecodeError, ErrorCode, KafkaError, ProtocolError
from protocol.messages.fetch_request import FetchRequest, ReplicaState
from protocol.messages.fetch_response import FetchResponse, PartitionData

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
        self._session = FetchSession(settings.max_bytes)
        self._cutting_back = CuttingBack(settings.broker_id, settings.timeout_s, self._is_followed)
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
    def copies(self) -> list[Copy]:
        return list(self._copies.values())

    @property
    def followed(self) -> list[Key]:
        return list(self._copies)

    def add(self, key: Key, partition: Partition) -> None:
        known = self._copies.get(key)
        if known is not None and known.partition is partition and known.current:
            return  # the controller has repeated itself
        self._copies[key] = Copy(partition, self.leader.broker_id, self._settings.backoff_s)
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
        self._changed.clear()  # before what may fail: the pause after it must be one
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

    def _is_followed(self, copy: Copy) -> bool:
        """Whether that is so still, after others have had their turn."""
        key = (copy.partition.topic_id, copy.partition.index)
        return self._copies.get(key) is copy and copy.current

    def _until_due(self, longest_s: float) -> float:
        """Seconds until the first of those that are left out for a while has its turn again."""
        begun = now()
        due = min(
            (copy.not_before for copy in self._copies.values() if copy.not_before > begun), default=begun
        )
        return min(due - begun, longest_s) if due > begun else longest_s

    # -- fetching

    def _positions(self) -> dict[Key, Position]:
        begun = now()
        positions = {}
        self._asked = dict(self._copies)
        for key, copy in self._copies.items():
            if copy.truncated and copy.current and copy.not_before <= begun:
                if self._throttle.limited and self._is_throttled(copy):
                    copy.not_before = self._throttle.free_at(begun)
                    if copy.not_before > begun:
                        continue
                positions[key] = copy.position()
        return positions

    def _is_throttled(self, copy: Copy) -> bool:
        return not copy.caught_up and self._throttle.concerns(copy.partition.topic, copy.partition.index)

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
        unflushed: list[Copy] = []
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
                for copy in self._copies.values()
                if not copy.truncated and copy.current and copy.not_before <= begun
            ]
            if not asked:
                return
            await self._cutting_back.cut_back(connection, asked)
