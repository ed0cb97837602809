"""A cluster as a sink: idempotent Produce, up to five batches in flight per partition, in order (KIP-98).

Owns leaders of target partitions, producer ids, and what each error code means for a partition. A batch
refused for good concerns its partition alone; a broker that is away is waited for, for ever, while other
brokers' partitions go on (I10).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from protocol.client import ClusterClient
from protocol.client.connection import Connection
from protocol.counted import counted
from protocol.errors import ErrorCode
from protocol.messages.produce_response import PartitionProduceResponse
from protocol.types import ZERO_UUID, TopicPartition
from transfer.endpoint import (
    AbortedError,
    BrokenEndpointError,
    Chunk,
    ClosedError,
    PositionLostError,
    RefusedError,
)
from transfer.kafka.duty import on_duty
from transfer.kafka.lane import Pending, ProduceLane, Ticket
from transfer.kafka.leaders import Leaders
from transfer.kafka.parts import outcome, parts_of
from transfer.kafka.sender import BrokerSender
from transfer.kafka.transactional import Transactions
from transfer.kafka.written import Written
from transfer.ledger import Copied, ProducerState
from transfer.rewrite import DAMAGED, UNREADABLE, Refusal, is_intact, is_readable, plan

_log = logging.getLogger("isthmus.transfer")
_ABORT_S = 2.0

_LOST: frozenset[ErrorCode] = frozenset(
    {
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,  # the same, from Produce v11 on (KIP-890)
    }
)


@dataclass(frozen=True, slots=True)
class ProduceSettings:
    """Sizes and waits of writing."""

    request_bytes: int = 1 << 20
    timeout_ms: int = 30_000
    merge: bool = False
    """Small batches that stand next to each other become one (`transfer.merge`)."""


class KafkaSink:
    """`BatchSink` of a cluster. The client stays the caller's; close the sink before it."""

    def __init__(
        self,
        client: ClusterClient,
        settings: ProduceSettings | None = None,
        may_write: Callable[[], bool] = lambda: True,
        transactions: Transactions | None = None,
    ) -> None:
        """`may_write` is asked before each request: while it says no, batches wait. With `transactions` a
        write returns once its transaction is committed."""
        self._loop = asyncio.get_running_loop()
        self._transactions = transactions
        self._may_write = may_write
        self._client = client
        self._settings = settings or ProduceSettings()
        self._lanes: dict[TopicPartition, ProduceLane] = {}
        self._closed: set[TopicPartition] = set()
        """Partitions that take nothing until they are opened again."""
        self._apart: set[TopicPartition] = set()
        """Where a batch of several was refused: they go as they are."""
        self._senders: dict[int, BrokerSender] = {}
        self._lost_there: dict[TopicPartition, str] = {}
        """What a new leader said that does not have all that was acknowledged, until it is opened again."""
        self._producer: ProducerState | None = None
        self._numbered: set[TopicPartition] = set()
        """Partitions that have begun with it."""
        self._producer_lock = asyncio.Lock()
        self._broken: BrokenEndpointError | None = None
        self._leaders = Leaders(client, self._lanes, self, self._break)
        self._transacting: asyncio.Future[None] | None = None
        if transactions is not None:
            transactions.attach(self._wake, self._leave, self._open)
            self._transacting = on_duty(transactions.run(), self._break)

    async def producer(self, tp: TopicPartition) -> ProducerState:
        """This sink's own producer id at sequence 0, shared by all partitions, for one that begins there.

        A producer that begins at 0 once more in a partition is answered as if that had arrived before: what
        it writes is acknowledged and not there. So who begins again gets a new one.
        """
        async with self._producer_lock:
            if self._producer is None or tp in self._numbered:
                producer_id, epoch = await self._client.init_producer_id()
                self._producer = ProducerState(producer_id, epoch, 0)
                self._numbered.clear()
            self._numbered.add(tp)
            return self._producer

    async def open(
        self,
        tp: TopicPartition,
        producer: ProducerState | None = None,
        topic_id: bytes = ZERO_UUID,
        position: int = -1,
        written: Written | None = None,
    ) -> None:
        """(Re)opens a partition; with `producer` its sequence numbers go on where they were, with `topic_id`
        it is bound to this topic and not to another one that takes the name (else to the first one seen),
        with `position` to the source offset at which its first write begins, with `written` to leaders that
        have that."""
        await self.close(tp)
        self._closed.discard(tp)
        self._open(tp, producer, topic_id, position, written)

    def _open(
        self,
        tp: TopicPartition,
        producer: ProducerState | None = None,
        topic_id: bytes = ZERO_UUID,
        position: int = -1,
        written: Written | None = None,
    ) -> ProduceLane:
        lane = self._lanes[tp] = ProduceLane(tp, producer, topic_id, self._transactions, position, written)
        self._leaders.stir()
        return lane

    async def close(self, tp: TopicPartition) -> None:
        """Gives up what is on its way; what is offered from now on, until `open`, is refused: it may stand
        behind what was given up, and would be taken for the next."""
        self._closed.add(tp)
        self._lost_there.pop(tp, None)
        lane = self._lanes.pop(tp, None)
        if lane is not None:
            dirty = not lane.quiet
            lane.abandon(ClosedError(f"{tp.topic}-{tp.partition} was closed"))
            self._drop(lane)
            if self._transactions is not None:
                await self._transactions.closed(lane, dirty=dirty)

    def write(self, tp: TopicPartition, chunk: Chunk) -> Awaitable[Copied]:
        """Appends the chunk's data; see `BatchSink.write`. Opens `tp` if it never was."""
        if self._broken is not None:
            raise self._broken
        if tp in self._closed:
            raise ClosedError(f"{tp.topic}-{tp.partition} was closed")
        lane = self._lanes.get(tp) or self._open(tp)
        outs, refusal = plan(chunk, merge=self._settings.merge and tp not in self._apart)
        done: asyncio.Future[Copied] = self._loop.create_future()
        ticket = Ticket(done, chunk.next_offset, chunk.last_epoch, chunk.tp, chunk.first_offset)
        if refusal is not None:
            ticket.next_source_offset = outs[-1].next_source_offset if outs else chunk.first_offset
            ticket.epoch = outs[-1].source_epoch if outs else -1
        parts = [ticket]
        if self._transactions is None:
            ticket.batches = [Pending(out, ticket) for out in outs]
        else:
            parts = list(parts_of(ticket, outs))
        for part in parts:
            lane.offer(part)
        if refusal is not None:
            lane.block(ClosedError(f"{tp.topic}-{tp.partition}: an earlier batch was refused"))
        self._wake(lane)
        written = done if len(parts) == 1 else outcome(parts)
        return written if refusal is None else _before_refusal(written, chunk.tp, refusal)

    def retries(self, tp: TopicPartition) -> int:
        """How often batches of a partition had to be sent again since it was opened."""
        lane = self._lanes.get(tp)
        return lane.retries if lane is not None else 0

    def is_away(self, tp: TopicPartition) -> bool:
        """Whether a partition has no leader, or none that takes what it is sent."""
        lane = self._lanes.get(tp)
        if lane is None:
            return False
        sender = self._senders.get(lane.leader)
        return lane.troubled or sender is None or not sender.answers

    def led_by(self, tp: TopicPartition, node: int, epoch: int) -> str:
        """Tells of the leader and its epoch that the target names now: one that is new here is asked what it
        has, also where nothing is to be written. What is known to be lost; empty: nothing."""
        lane = self._lanes.get(tp)
        if lane is not None and lane.leader >= 0 and lane.written.doubts(epoch):
            sender = self._senders.get(node)
            if lane.leader == node and epoch == lane.written.epoch + 1 and sender and sender.connected:
                # Nobody else can have led: an ISR has shrunk (Kafka before 3.6), or replicas are other ones.
                lane.written.led_by(epoch)
            else:
                self._leave(lane)
        return self._lost_there.get(tp, "")

    async def _end_transactions(self) -> None:
        if self._transactions is None or self._transacting is None:
            return
        try:
            async with asyncio.timeout(_ABORT_S):
                await self._transactions.abort_open()
        except TimeoutError:
            _log.warning("a transaction is left open, its coordinator aborts it after its timeout")
        self._transacting.cancel()
        await asyncio.gather(self._transacting, return_exceptions=True)

    async def aclose(self) -> None:
        """Ends all writing; writes on their way fail with ClosedError."""
        await self._end_transactions()
        for tp in list(self._lanes):
            await self.close(tp)
        await asyncio.gather(
            self._leaders.aclose(),
            *(sender.close() for sender in self._senders.values()),
            return_exceptions=True,
        )
        self._senders.clear()

    def _break(self, error: BrokenEndpointError) -> None:
        self._broken = self._broken or error
        for lane in self._lanes.values():
            lane.broken = self._broken
            lane.abandon(ClosedError(str(error)))

    def _wake(self, lane: ProduceLane) -> None:
        sender = self._senders.get(lane.leader)
        if sender is None:
            self._leaders.stir()
        elif self._transactions is None or self._transactions.takes(lane):
            sender.wake(lane)

    def _drop(self, lane: ProduceLane) -> None:
        sender = self._senders.get(lane.leader)
        if sender is not None:
            sender.drop(lane)
        lane.leader = -1

    def _landed(self, lane: ProduceLane, pending: Pending, base_offset: int) -> None:
        if lane.error is not None and lane.owns(pending):  # a broker that has forgotten the producer took it
            self._spoil(lane, f"{lane.tp}: something is written behind a batch that was refused")
        if lane.acknowledged(pending, base_offset):
            self._wake(lane)

    def _failed(self, lane: ProduceLane, pending: Pending, answer: PartitionProduceResponse) -> None:
        if not lane.owns(pending):
            return
        code = ErrorCode.of(answer.error_code)
        if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and lane.follows_trouble(pending):
            self._retry(lane, pending)
        elif code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and lane.error is not None:
            lane.close(lane.error, pending)  # one before it was refused, so it cannot be there
        elif code in _LOST or code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            self._begin_anew(lane, pending, f"the target answered {code.name}")
        elif not _damage(pending, code) and (code.retriable or code is ErrorCode.UNKNOWN_SERVER_ERROR):
            self._retry(lane, pending)
            self._leave(lane)
        elif len(pending.out.source_crcs) > 1:  # perhaps only one of them is refused, or none by itself
            self._apart.add(lane.tp)
            self._begin_anew(
                lane, pending, f"{code.name}: what was joined goes in batches as the source has it"
            )
        else:
            if pending.repeated or lane.follows_trouble(pending):
                self._spoil(lane, f"{lane.tp}: {code.name} where something may be written without an answer")
            lane.close(self._refused(lane, pending, code, answer), pending)
        if self._transactions is not None:
            self._transactions.stir()

    def _begin_anew(self, lane: ProduceLane, pending: Pending | None, why: str) -> None:
        where = f"{lane.tp.topic}-{lane.tp.partition}"
        self._spoil(lane, f"{where}: {why}")
        kind = PositionLostError if self._transactions is None else AbortedError
        lane.close(kind(f"{where}: {why}"), pending)

    def _spoil(self, lane: ProduceLane, why: str) -> None:
        if self._transactions is not None:
            self._transactions.spoil(lane, why)

    def _refused(
        self, lane: ProduceLane, pending: Pending, code: ErrorCode, answer: PartitionProduceResponse
    ) -> RefusedError:
        offset = pending.out.sources[0][0]
        damage = _damage(pending, code)
        if damage:
            return RefusedError(lane.tp, offset, damage)
        parts = [f"{code.name}: {code.description}", answer.error_message or ""]
        parts += [
            f"record {row.batch_index} of the batch: {row.batch_index_error_message or 'refused'}"
            for row in (answer.record_errors or ())[:3]
        ]
        parts.append(
            f"batch of {counted(pending.out.size, 'byte')}, {counted(pending.out.record_count, 'record')}"
        )
        reason = "; ".join(part for part in parts if part)
        return RefusedError(lane.tp, offset, reason, int(code))

    def _lost(self, sent: list[tuple[ProduceLane, Pending]]) -> None:
        for lane, pending in sent:
            if lane.owns(pending):
                self._retry(lane, pending)
                self._leave(lane)

    def _unreachable(self, lanes: list[ProduceLane]) -> None:
        for lane in lanes:
            self._leave(lane)

    def _retry(self, lane: ProduceLane, pending: Pending) -> None:
        lane.retry(pending, asyncio.get_running_loop().time())
        self._wake(lane)

    def _reconnected(self, node: int) -> None:
        """The broker may have been started again meanwhile, without all of its logs."""
        for lane in list(self._lanes.values()):
            if lane.leader == node:
                self._leave(lane)

    def _leave(self, lane: ProduceLane) -> None:
        """The leader may be another by now."""
        self._drop(lane)
        self._leaders.stir()

    # What is told of leaders

    async def identify(self, lanes: list[ProduceLane]) -> None:
        """See `Listener`."""
        for lane in lanes:
            if not lane.identified and self._transactions is None:
                lane.identify(await self.producer(lane.tp))

    def led(self, lane: ProduceLane) -> None:
        """See `Listener`."""
        self._sender(lane.leader)
        self._wake(lane)

    def lost(self, lane: ProduceLane, why: str) -> None:
        """See `Listener`."""
        self._lost_there[lane.tp] = why
        self._begin_anew(lane, None, why)
        if self._transactions is not None:
            self._transactions.stir()

    def replaced(self, lane: ProduceLane) -> None:
        """See `Listener`."""
        why = f"{lane.tp}: another topic took the name"
        self._spoil(lane, why)
        lane.close(PositionLostError(why))

    def _sender(self, node: int) -> BrokerSender:
        sender = self._senders.get(node)
        if sender is None:

            async def dial() -> Connection:
                return await self._client.connection_to(node, f"produce-{id(self):x}")

            sender = self._senders[node] = BrokerSender(
                dial,
                self._landed,
                self._failed,
                self._lost,
                self._unreachable,
                lambda: self._reconnected(node),
                request_bytes=self._settings.request_bytes,
                timeout_ms=self._settings.timeout_ms,
                topic_ids=self._leaders.topic_id,
                broken=self._break,
                may_write=self._may_write,
                transactional_id=self._transactional_id,
            )
        return sender

    def _transactional_id(self) -> str | None:
        return self._transactions.transactional_id if self._transactions is not None else None


def _damage(pending: Pending, code: ErrorCode) -> str:
    """What was wrong with a batch at the source already, where that may be why the target refuses it; empty
    where it may be taken next time: a way that damages batches, a broker that fails."""
    sealed = pending.segments
    if sealed is None:
        return ""
    if code is ErrorCode.CORRUPT_MESSAGE:
        return "" if is_intact(sealed) else DAMAGED
    if code is ErrorCode.UNKNOWN_SERVER_ERROR:  # Kafka has no code for what it cannot decompress
        return "" if is_readable(sealed) else UNREADABLE
    return ""


async def _before_refusal(written: Awaitable[Copied], tp: TopicPartition, refusal: Refusal) -> Copied:
    """What stands before a refused batch is written; that one fails, saying so."""
    error = RefusedError(tp, refusal.offset, refusal.reason)
    error.copied = await written
    raise error
