"""The connection that writes to one broker.

Owns gathering batches of many partitions into Produce requests (one batch of a partition per request, as
Kafka wants), pipelining them over one connection, and handing answers back in order. Order, retries and
sequences of a partition are decided in `lane`; leaders in `sink`.

What happens for each request happens in calls: a task for each took a third of the time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from protocol.client.connection import Connection
from protocol.errors import ProtocolError
from protocol.frames import decode_response
from protocol.messages.produce_request import ProduceRequest
from protocol.messages.produce_response import PartitionProduceResponse
from transfer.kafka.duty import Broken, on_duty, report
from transfer.kafka.lane import Pending, ProduceLane
from transfer.kafka.produce_body import landed, produce_body

_log = logging.getLogger("isthmus.transfer")

Sent = dict[str, dict[int, tuple[ProduceLane, Pending]]]
"""By topic and partition."""

_DIAL_AGAIN_S = 0.2
_ASK_AGAIN_S = 0.1
_PARTITIONS_ADDED = 11
"""The last version of Produce whose partitions the producer adds to a transaction by itself (KIP-890)."""
_BY_ID_FROM = 13


class BrokerSender:
    """Sends what the lanes woken with `wake` have ready, until `close`."""

    def __init__(
        self,
        dial: Callable[[], Awaitable[Connection]],
        landed: Callable[[ProduceLane, Pending, int], None],
        failed: Callable[[ProduceLane, Pending, PartitionProduceResponse], None],
        lost: Callable[[list[tuple[ProduceLane, Pending]]], None],
        unreachable: Callable[[list[ProduceLane]], None],
        reconnected: Callable[[], None] = lambda: None,
        *,
        request_bytes: int,
        timeout_ms: int,
        topic_ids: Callable[[str], bytes],
        broken: Broken,
        may_write: Callable[[], bool] = lambda: True,
        transactional_id: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`landed` hears of each batch with its base offset, `failed` of those with an error code, `lost` of
        those without an answer, `unreachable` of who wanted to send while nobody could be reached,
        `reconnected` of a connection in place of one that was lost, before anything goes over it."""
        self._may_write = may_write
        self._transactional_id = transactional_id
        self._asking: asyncio.TimerHandle | None = None
        self._dial = dial
        self._landed = landed
        self._failed = failed
        self._lost = lost
        self._unreachable = unreachable
        self._reconnected = reconnected
        self._request_bytes = request_bytes
        self._timeout_ms = timeout_ms
        self._topic_ids = topic_ids
        self._ready: dict[ProduceLane, None] = {}
        self._later: dict[ProduceLane, asyncio.TimerHandle] = {}
        """Who is woken when its back-off is over."""
        self._broken = broken
        self._connection: Connection | None = None
        self.answers = True
        """Whether the last thing heard of the broker was an answer, if anything was."""
        self._version = 0
        self._due = False
        self._waiting: asyncio.Future[None] | None = None
        """For a connection, or until it takes more bytes."""
        self._closed = False

    @property
    def connected(self) -> bool:
        """Whether the connection that it writes over stands."""
        return self._connection is not None and not self._connection.closed

    def wake(self, lane: ProduceLane) -> None:
        """Says that `lane` may have a batch to send."""
        self._ready[lane] = None
        self._send_soon()

    def _send_soon(self) -> None:
        if not self._due:
            self._due = True
            # Not at once: what other partitions have by then goes into the same request.
            asyncio.get_running_loop().call_soon(self._send_all)

    def drop(self, lane: ProduceLane) -> None:
        """Forgets a lane that has another leader now, or is closed."""
        self._ready.pop(lane, None)
        later = self._later.pop(lane, None)
        if later is not None:  # or it would be sent here beside its new leader
            later.cancel()

    async def close(self) -> None:
        """Ends the connection; answers on their way are lost."""
        self._closed = True
        for timer in (*self._later.values(), self._asking):
            if timer is not None:
                timer.cancel()
        if self._waiting is not None:
            self._waiting.cancel()
            await asyncio.gather(self._waiting, return_exceptions=True)
        if self._connection is not None:
            await self._connection.close()

    def _send_all(self) -> None:
        self._due = False
        if self._closed or self._waiting is not None or not self._ready:
            return
        try:
            connection = self._connection
            while connection is not None and not connection.closed:
                if connection.retired:  # order holds on one connection: the next begins behind its answers
                    if connection.waiting:
                        return
                    break
                if connection.full:
                    self._wait(connection.writable)
                    return
                sent = self._gather()
                if not sent:
                    return
                self._send(connection, sent)
            self._wait(self._connect)
        except Exception as fault:  # noqa: BLE001 (nobody waits for this call)
            report(fault, self._broken)

    def _wait(self, work: Callable[[], Awaitable[None]]) -> None:
        async def waited() -> None:
            try:
                await work()
            finally:
                self._waiting = None
            self._send_all()

        self._waiting = on_duty(waited(), self._broken)

    async def _connect(self) -> None:
        try:
            connection = await self._dial()
            newest = None if self._transactional_id() is None else _PARTITIONS_ADDED
            self._version = connection.version_of(ProduceRequest, newest)
            lost = self._connection is not None and not self._connection.retired
            self._connection = connection
            if lost:
                self._reconnected()
        except ProtocolError as error:
            _log.info("produce: %s", error)
            self.answers = False
            lanes, self._ready = list(self._ready), {}
            self._unreachable(lanes)
            await asyncio.sleep(_DIAL_AGAIN_S)

    def _gather(self) -> Sent:
        """Takes at most one batch per lane, up to the size of a request; none without permission to write."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        sent: Sent = {}
        if not self._may_write():
            if self._asking is None:
                self._asking = loop.call_later(_ASK_AGAIN_S, self._ask_again)
            return sent
        size = 0
        ready = self._ready
        for lane in list(ready):
            del ready[lane]
            pending = lane.take(now)
            if pending is None:
                if lane.waiting and lane.not_before > now and lane not in self._later:
                    self._later[lane] = loop.call_at(lane.not_before, self._wake_again, lane)
                continue
            topic, partition = lane.tp
            sent.setdefault(topic, {})[partition] = (lane, pending)
            if lane.open:
                ready[lane] = None  # behind the others
            size += pending.out.size
            if size >= self._request_bytes:
                break
        return sent

    def _ask_again(self) -> None:
        self._asking = None
        self._send_all()

    def _wake_again(self, lane: ProduceLane) -> None:
        del self._later[lane]
        self.wake(lane)

    def _send(self, connection: Connection, sent: Sent) -> None:
        version, transactional_id = self._version, self._transactional_id()
        body = produce_body(version, self._timeout_ms, sent, self._topic_ids, transactional_id)
        if not connection.call(ProduceRequest, version, body, partial(self._answered, version, sent)):
            self._lost(_all_of(sent))  # it has just ended

    def _answered(self, version: int, sent: Sent, answer: memoryview | ProtocolError) -> None:
        if self._closed:
            return
        self.answers = isinstance(answer, memoryview)
        try:
            if not isinstance(answer, memoryview):
                _log.info("produce: %s", answer)
            else:
                self._hand_back(version, sent, answer)
        except ProtocolError as error:
            _log.warning("produce: an answer that cannot be read: %s", error)
        except Exception as fault:  # noqa: BLE001 (the connection cannot do anything about it)
            report(fault, self._broken)
        left = _all_of(sent)
        if left:  # no answer, or the broker left some out
            try:
                self._lost(left)
            except Exception as fault:  # noqa: BLE001 (others of the connection still have to hear)
                report(fault, self._broken)
        if self._ready:  # they may have waited for this answer
            self._send_soon()

    def _hand_back(self, version: int, sent: Sent, frame: memoryview) -> None:
        """Tells each who is answered, and takes it out of `sent`. Raises DecodeError."""
        # From v13 on topics come by id only.
        by_key = {self._topic_ids(name) if version >= _BY_ID_FROM else name: sent[name] for name in sent}
        quick = landed(version, frame)
        if quick is not None:
            for key, index, base_offset in quick:
                entry = by_key[key].pop(index, None) if key in by_key else None
                if entry is not None:
                    self._landed(*entry, base_offset)
            return
        _, response = decode_response(frame, ProduceRequest, version)
        for topic in response.responses:
            partitions = by_key.get(topic.topic_id if version >= _BY_ID_FROM else topic.name, {})
            for row in topic.partition_responses:
                entry = partitions.pop(row.index, None)
                if entry is None:
                    continue
                if row.error_code:
                    self._failed(*entry, row)
                else:
                    self._landed(*entry, row.base_offset)


def _all_of(sent: Sent) -> list[tuple[ProduceLane, Pending]]:
    return [entry for partitions in sent.values() for entry in partitions.values()]
