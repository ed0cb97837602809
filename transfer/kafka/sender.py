"""The connection that writes to one broker.

Owns gathering batches of many partitions into Produce requests (one batch of a partition per request, as
Kafka wants), pipelining them over one connection, and handing answers back in order. Order, retries and
sequences of a partition are decided in `lane`; leaders in `sink`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from protocol.client.connection import Connection
from protocol.errors import ProtocolError
from protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.produce_response import PartitionProduceResponse, ProduceResponse
from protocol.types import TopicPartition
from transfer.kafka.duty import Broken, on_duty
from transfer.kafka.lane import Pending, ProduceLane
from transfer.kafka.produce_body import produce_body

_log = logging.getLogger("isthmus.transfer")

Sent = dict[TopicPartition, tuple[ProduceLane, Pending]]

_DIAL_AGAIN_S = 0.2
_ASK_AGAIN_S = 0.1
_PARTITIONS_ADDED = 11
"""The last version of Produce whose partitions the producer adds to a transaction by itself (KIP-890)."""


class BrokerSender:
    """Sends what the lanes woken with `wake` have ready, until `close`."""

    def __init__(
        self,
        dial: Callable[[], Awaitable[Connection]],
        answered: Callable[[ProduceLane, Pending, PartitionProduceResponse], None],
        lost: Callable[[Sent], None],
        unreachable: Callable[[list[ProduceLane]], None],
        *,
        request_bytes: int,
        timeout_ms: int,
        topic_ids: Callable[[str], bytes],
        broken: Broken,
        may_write: Callable[[], bool] = lambda: True,
        transactional_id: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._may_write = may_write
        self._transactional_id = transactional_id
        self._asking: asyncio.TimerHandle | None = None
        self._dial = dial
        self._answered = answered
        self._lost = lost
        self._unreachable = unreachable
        self._request_bytes = request_bytes
        self._timeout_ms = timeout_ms
        self._topic_ids = topic_ids
        self._ready: dict[ProduceLane, None] = {}
        self._wake = asyncio.Event()
        self._requests: set[asyncio.Future[None]] = set()
        self._broken = broken
        self._task = on_duty(self._run(), broken)

    def wake(self, lane: ProduceLane) -> None:
        """Says that `lane` may have a batch to send."""
        self._ready[lane] = None
        self._wake.set()

    def drop(self, lane: ProduceLane) -> None:
        """Forgets a lane that has another leader now, or is closed."""
        self._ready.pop(lane, None)

    async def close(self) -> None:
        """Ends the connection; answers on their way are lost."""
        for task in (self._task, *self._requests):
            task.cancel()
        await asyncio.gather(self._task, *self._requests, return_exceptions=True)

    async def _run(self) -> None:
        connection: Connection | None = None
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                if not self._ready:
                    continue
                try:
                    if connection is None or connection.closed:
                        connection = await self._dial()
                except ProtocolError as error:
                    _log.info("produce: %s", error)
                    lanes, self._ready = list(self._ready), {}
                    self._unreachable(lanes)
                    await asyncio.sleep(_DIAL_AGAIN_S)
                    continue
                while sent := self._gather():
                    task = on_duty(self._exchange(connection, sent), self._broken, at_once=True)
                    self._requests.add(task)
                    task.add_done_callback(self._requests.discard)
        finally:
            if connection is not None:
                await connection.close()

    def _gather(self) -> Sent:
        """Takes at most one batch per lane, up to the size of a request; none without permission to write."""
        now = asyncio.get_running_loop().time()
        sent: Sent = {}
        if not self._may_write():
            if self._asking is None or self._asking.when() <= now:
                self._asking = asyncio.get_running_loop().call_later(_ASK_AGAIN_S, self._wake.set)
            return sent
        size = 0
        for lane in list(self._ready):
            del self._ready[lane]
            pending = lane.take(now)
            if pending is None:
                if lane.waiting and lane.not_before > now:
                    asyncio.get_running_loop().call_at(lane.not_before, self.wake, lane)
                continue
            sent[lane.tp] = (lane, pending)
            self._ready[lane] = None  # behind the others: it may have more
            size += pending.out.size
            if size >= self._request_bytes:
                break
        return sent

    async def _exchange(self, connection: Connection, sent: Sent) -> None:
        try:
            response = await self._ask(connection, sent)
        except ProtocolError as error:
            _log.info("produce: %s", error)
            self._lost(sent)
            return
        for lane, pending, answer in self._pairs(response, sent):
            self._answered(lane, pending, answer)
        if sent:  # the broker left some out
            self._lost(sent)

    async def _ask(self, connection: Connection, sent: Sent) -> ProduceResponse:
        transactional_id = self._transactional_id()
        if transactional_id is None:
            version = connection.version_of(ProduceRequest)
        else:
            version = connection.version_of(ProduceRequest, _PARTITIONS_ADDED)
        batches = [(tp, pending.segments or []) for tp, (_, pending) in sent.items()]
        body = produce_body(version, self._timeout_ms, batches, self._topic_ids, transactional_id)
        request = self._request(sent) if body is None else ProduceRequest()
        return await connection.send(request, version, encoded=lambda _: body)

    def _request(self, sent: Sent) -> ProduceRequest:
        topics: dict[str, TopicProduceData] = {}
        for (name, index), (_, pending) in sent.items():
            topic = topics.get(name)
            if topic is None:
                topic = TopicProduceData(name=name, topic_id=self._topic_ids(name), partition_data=[])
                topics[name] = topic
            topic.partition_data.append(PartitionProduceData(index=index, records=pending.segments))
        return ProduceRequest(
            transactional_id=self._transactional_id(),
            acks=-1,
            timeout_ms=self._timeout_ms,
            topic_data=list(topics.values()),
        )

    def _pairs(
        self, response: ProduceResponse, sent: Sent
    ) -> list[tuple[ProduceLane, Pending, PartitionProduceResponse]]:
        """Who is answered by what; what stays in `sent` got no answer. From v13 on topics come by id only."""
        names = {self._topic_ids(tp.topic): tp.topic for tp in sent}
        found = []
        for topic in response.responses:
            name = topic.name or names.get(topic.topic_id, "")
            for answer in topic.partition_responses:
                entry = sent.pop(TopicPartition(name, answer.index), None)
                if entry is not None:
                    found.append((*entry, answer))
        return found
