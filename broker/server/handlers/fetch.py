"""Fetch (key 1): read batches, waiting for them if there are not enough yet.

- No incremental sessions: session id 0 declines them (KIP-227), a session id we never gave out is answered
  with FETCH_SESSION_ID_NOT_FOUND so that the client starts again.
- At least one batch is returned whatever the limits are (KIP-74), and a fetch offset inside a batch returns
  the whole batch.
- The last stable offset is never -1: some readers wait for their position to reach it. The aborted list is
  null for read_uncommitted and a list, possibly empty, for read_committed.
- Leader epochs are checked from v9 (KIP-320); topic ids replace names from v13 (KIP-516); a wrong leader is
  corrected from v16 (KIP-951).
- Large answers go from the page cache to the socket without being read; what is not cached is read in a
  thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.log import CorruptLog, Log, LogError, LogSlice, NotCached, OffsetOutOfRange, StorageFailed
from broker.log.region import Located, locate
from broker.replication import Partition
from broker.server.context import RequestContext
from broker.server.current_leader import current_leader
from broker.server.registry import handles
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.fetch_request import FetchPartition, FetchRequest
from protocol.messages.fetch_response import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

if TYPE_CHECKING:
    from broker.server.app import Broker

READ_COMMITTED = 1
_LEADER_FROM = 12
_IDS_FROM = 13
_ADDRESS_FROM = 16
_NO_OFFSET = -1


class _Cold(NamedTuple):
    """A read that has to go to the disk, with `Log.read`'s arguments."""

    log: Log
    offset: int
    max_bytes: int
    max_offset: int
    min_one: bool

    def read(self) -> LogSlice:
        return self.log.read_blocking(self.offset, self.max_bytes, self.max_offset, self.min_one)


_Pass = Generator[_Cold, LogSlice, None]


def _aborted(log: Log, offset: int, found: LogSlice | Located) -> list[AbortedTransaction]:
    """What a read_committed reader must drop from what it is sent."""
    if not found.size:
        return []
    return [
        AbortedTransaction(producer_id=gone.producer_id, first_offset=gone.first_offset)
        for gone in log.aborted_transactions(offset, found.next_offset)
    ]


@handles(
    FetchRequest,
    min=4,
    max=17,
    abandoned_on_close=True,
    notes="no incremental sessions yet (session id 0); topic ids from v13",
)
def fetch(
    request: FetchRequest, context: RequestContext
) -> FetchResponse | Coroutine[Any, Any, FetchResponse]:
    if request.session_id != 0 and request.session_epoch > 0:
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    job = _Fetch(request, context)
    reading = job.read_all()
    cold = next(reading, None)
    if cold is not None:
        return job.go_on_cold(reading, cold)
    if job.satisfied:
        return job.answer()
    return job.wait()


class _Fetch:
    """One request: what to read from where, and the answer under construction."""

    __slots__ = (
        "_broker", "_committed", "_deadline", "_failed", "_leaders", "_listener", "_max_bytes", "_min_bytes",
        "_request", "_size", "_version", "response",
    )  # fmt: skip

    def __init__(self, request: FetchRequest, context: RequestContext) -> None:
        broker: Broker = context.broker
        self._broker = broker
        self._request = request
        self._version = context.api_version
        self._listener = context.connection.listener
        self._committed = request.isolation_level == READ_COMMITTED
        self._max_bytes = min(request.max_bytes, broker.config.fetch_max_bytes)
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._deadline = context.received_at + request.max_wait_ms / 1000
        self._failed = False
        self._size = 0
        self._leaders: list[tuple[Partition, int, int]] = []  # readable end, bytes read
        self.response = FetchResponse()

    @property
    def satisfied(self) -> bool:
        return (
            self._failed
            or self._size >= self._min_bytes
            or not self._leaders
            or self._broker.clock.monotonic() >= self._deadline
        )

    def answer(self) -> FetchResponse:
        for partition, _, size in self._leaders:
            self._broker.metrics.topic(partition.topic).bytes_out += size
        return self.response

    # -- one pass over all partitions

    def read_all(self) -> _Pass:
        """Fill the answer. Yields each read that is not in the page cache; is sent its result or error."""
        self._failed = False
        self._size = 0
        self._leaders = []
        self.response = FetchResponse()
        for topic in self._request.topics:
            name = topic.topic
            if self._version >= _IDS_FROM:
                name = self._broker.metadata.topic_name(topic.topic_id) or ""
            answers: list[PartitionData] = []
            for wanted in topic.partitions:
                try:
                    if not name:
                        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
                    partition = self._broker.replicas.leader(
                        name, wanted.partition, wanted.current_leader_epoch
                    )
                    answer = yield from self._read(partition, wanted)
                except KafkaError as error:
                    answer = self._refusal(name, wanted.partition, error.code)
                except OffsetOutOfRange:
                    answer = self._out_of_range(partition, wanted.partition)
                except (CorruptLog, StorageFailed) as error:
                    code = self._broker.damage.code(str(partition), error)
                    answer = self._refusal(name, wanted.partition, code)
                answers.append(answer)
            self.response.responses.append(
                FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=answers)
            )

    def _read(
        self, partition: Partition, wanted: FetchPartition
    ) -> Generator[_Cold, LogSlice, PartitionData]:
        log = partition.log
        high_watermark = log.high_watermark
        stable = log.last_stable_offset
        limit = stable if self._committed else high_watermark
        max_bytes = max(0, min(wanted.partition_max_bytes, self._max_bytes - self._size))
        offset, min_one = wanted.fetch_offset, self._size == 0
        found: LogSlice | Located | None
        try:
            found = locate(log, offset, max_bytes, limit, min_one)
            if found is None:
                found = log.read(offset, max_bytes, limit, min_one)
        except NotCached:
            found = yield _Cold(log, offset, max_bytes, limit, min_one)
        self._size += found.size
        self._leaders.append((partition, limit, found.size))
        return PartitionData(
            partition_index=wanted.partition,
            high_watermark=high_watermark,
            last_stable_offset=stable,
            log_start_offset=log.start_offset,
            aborted_transactions=_aborted(log, offset, found) if self._committed else None,
            records=found.segments,  # type: ignore[arg-type]  # the edge sends regions from their files
        )

    # -- refusals

    def _refusal(self, topic: str, index: int, code: ErrorCode) -> PartitionData:
        self._failed = True
        answer = PartitionData(
            partition_index=index,
            error_code=code,
            high_watermark=_NO_OFFSET,
            aborted_transactions=[] if self._committed else None,
            records=b"",
        )
        if code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
            self._name_leader(topic, index, answer)
        return answer

    def _out_of_range(self, partition: Partition, index: int) -> PartitionData:
        """With where the log is, so that a client can tell "too old" from "too new"."""
        answer = self._refusal(partition.topic, index, ErrorCode.OFFSET_OUT_OF_RANGE)
        log = partition.log
        answer.high_watermark = log.high_watermark
        answer.last_stable_offset = log.last_stable_offset
        answer.log_start_offset = log.start_offset
        return answer

    def _name_leader(self, topic: str, index: int, answer: PartitionData) -> None:
        known = current_leader(self._broker.metadata, topic, index, self._listener)
        if known is None or self._version < _LEADER_FROM:
            return
        answer.current_leader = LeaderIdAndEpoch(leader_id=known.leader, leader_epoch=known.leader_epoch)
        if self._version >= _ADDRESS_FROM and all(
            node.node_id != known.leader for node in self.response.node_endpoints
        ):
            self.response.node_endpoints.append(
                NodeEndpoint(node_id=known.leader, host=known.host, port=known.port, rack=known.rack)
            )

    # -- waiting

    async def go_on_cold(self, reading: _Pass, cold: _Cold) -> FetchResponse:
        """Finish a pass that met uncached data, then wait if that was not enough."""
        await self._finish_pass(reading, cold)
        return self.answer() if self.satisfied else await self.wait()

    async def wait(self) -> FetchResponse:
        """Read again whenever a partition has grown enough, until satisfied or the time is over."""
        while not self.satisfied:
            await self._arrival()
            reading = self.read_all()
            cold = next(reading, None)
            if cold is not None:
                await self._finish_pass(reading, cold)
        return self.answer()

    async def _finish_pass(self, reading: _Pass, cold: _Cold) -> None:
        loop = asyncio.get_running_loop()
        need: _Cold | None = cold
        while need is not None:
            try:
                found = await loop.run_in_executor(self._broker.disk_readers, need.read)
            except LogError as error:  # of this partition alone: the pass goes on with the others
                go_on = partial(reading.throw, error)
            else:
                go_on = partial(reading.send, found)
            try:
                need = go_on()
            except StopIteration:
                need = None

    async def _arrival(self) -> None:
        """Return when enough bytes have become readable, leadership has changed, or the time is over."""
        loop = asyncio.get_running_loop()
        arrived: asyncio.Future[None] = loop.create_future()
        missing = self._min_bytes - self._size

        def watcher(size: int) -> None:
            nonlocal missing
            missing -= size
            if (missing <= 0 or size == 0) and not arrived.done():
                arrived.set_result(None)

        watched = [partition for partition, _, _ in self._leaders]
        for partition in watched:
            partition.watch(watcher)
        timer = loop.call_later(max(0.0, self._deadline - self._broker.clock.monotonic()), watcher, missing)
        try:
            if not self._moved():
                await arrived
        finally:
            timer.cancel()
            for partition in watched:
                partition.unwatch(watcher)

    def _moved(self) -> bool:
        """Whether something changed between the pass and the start of watching."""
        return any(
            not partition.is_leader
            or limit
            != (partition.log.last_stable_offset if self._committed else partition.log.high_watermark)
            for partition, limit, _ in self._leaders
        )
