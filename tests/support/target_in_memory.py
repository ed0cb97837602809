"""A target cluster in memory, for links: partitions with Kafka's rules for producers and transactions, and a
coordinator; requests and answers are lost, or come late, as a test says.

The rules: a batch of an old epoch is refused, and one of a partition that is not in its transaction; a batch
that is there already is acknowledged where it stands; of a producer that the partition does not know any
sequence number is taken; a marker ends the producer's old epoch (KIP-98, KIP-360).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, ClassVar

from protocol.client import (
    EARLIEST,
    Broker,
    ClientError,
    Fetched,
    Isolation,
    ListedOffset,
    Metadata,
    PartitionMetadata,
    ProducerId,
    RetryPolicy,
    TopicMetadata,
)
from protocol.client.metadata import Leader
from protocol.client.mirror_calls import EpochEnd
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.produce_request import ProduceRequest
from protocol.messages.produce_response import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from protocol.records import Record, build_batch, read_header
from protocol.records.reading import read_records
from protocol.types import TopicPartition
from tests.support.connection_in_memory import WAY_S, Connection, segments
from tests.support.log_in_memory import ABORT, COMMIT, Known, Log
from tests.support.transactions_in_memory import Transactional, answer

_OTHERS_ID = 1_000_000
OTHERS = b"of others"
"""The value of records that somebody else writes."""
OK, LOST, UNHEARD, LATE = "ok", "lost", "unheard", "late"
"""What becomes of a request: it and its answer arrive; it does not; its answer does not; it is taken for lost
and arrives when the next one of its partition has (a transaction's end: in the middle of the next one)."""


class TargetInMemory:
    """What a link needs of a client. `produces`, `adds`, `ends` and `inits` say what becomes of requests."""

    cluster_id = "target"
    brokers: ClassVar = {1: Broker("h", 1), 2: Broker("h", 2)}
    retry = RetryPolicy(total_s=10)

    def __init__(self, topics: Mapping[str, bytes]) -> None:
        """`topics`: their ids; each has one partition."""
        self._topics = dict(topics)
        self.logs = {TopicPartition(name, 0): Log() for name in topics}
        self.produces: Iterator[str] = iter(())
        self.adds: Iterator[str] = iter(())
        self.ends: Iterator[str] = iter(())
        self.inits: Iterator[str] = iter(())
        self.on_commit: Callable[[], None] = lambda: None
        """Called after each transaction that is committed."""
        self.refuses: set[bytes] = set()
        """Values of records whose batches it does not take."""
        self.forgets = False
        """Each transaction is the last that its partitions remember of its producer."""
        self.lost: set[TopicPartition] = set()
        self.zombie_until = self.stale_until = 0.0
        self.slow_s = WAY_S
        """How long a question about leader epochs takes."""
        self._stale: dict[str, TopicMetadata] = {}
        self._turn = 0
        self._known: dict[TopicPartition, Leader] = {}
        self.answer_late_s = 0.0
        """How long answers to Produce take, behind what they say has happened."""
        self._late: list[tuple[int, TopicPartition, str | None, bytes]] = []
        self._late_ends: list[tuple[str, ProducerId, bool]] = []
        self._ids: dict[str, Transactional] = {}
        self._producer_ids = 0

    def topic_of(self, name: str) -> TopicMetadata:
        log = self.logs[TopicPartition(name, 0)]
        partitions = {0: PartitionMetadata(log.node, log.epoch, (1, 2), (1,))}
        return TopicMetadata(name, self._topics[name], ErrorCode.NONE, False, partitions)

    # What a client of the cluster is asked for

    async def metadata(self, topics: Collection[str]) -> Metadata:
        await asyncio.sleep(0)
        return Metadata("target", 1, self.brokers, {name: self._learned(name) for name in topics})

    def stale(self, seconds: float) -> None:
        """So long one of two brokers tells what it knows now."""
        self._stale = {name: self.topic_of(name) for name in self._topics}
        self.stale_until = asyncio.get_running_loop().time() + seconds

    def _learned(self, name: str) -> TopicMetadata:
        self._turn += 1
        stale = self._turn % 2 and asyncio.get_running_loop().time() < self.stale_until
        found = self._stale[name] if stale else self.topic_of(name)
        tp, row = TopicPartition(name, 0), found.partitions[0]
        if tp not in self._known or row.leader_epoch >= self._known[tp].epoch:
            self._known[tp] = Leader(row.leader, row.leader_epoch)
        return found

    async def leader(self, tp: TopicPartition) -> Leader:
        if tp not in self._known or self._known[tp].node < 0:
            self._learned(tp.topic)
        if self._known[tp].node < 0:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)
        return self._known[tp]

    def moved(self, tp: TopicPartition, error: KafkaError) -> KafkaError:
        if tp in self._known:
            self._known[tp] = Leader(-1, self._known[tp].epoch)
        return error

    async def epoch_ends_at(
        self, node: int, wanted: Mapping[TopicPartition, tuple[int, int]]
    ) -> dict[TopicPartition, EpochEnd | KafkaError]:
        await asyncio.sleep(WAY_S if next(iter(wanted)).topic.startswith("isthmus") else self.slow_s)
        found: dict[TopicPartition, EpochEnd | KafkaError] = {}
        for tp, (epoch, current) in wanted.items():
            log = self._zombie(tp, node) or self.logs[tp]
            found[tp] = (
                log.epoch_end(epoch)
                if (node, current) == (log.node, log.epoch)
                else KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
            )
        return found

    async def connection_to(self, node: int, lane: str) -> Connection:
        return Connection(self, node)

    async def list_offsets(
        self,
        spots: Mapping[TopicPartition, int],
        *,
        isolation: int = Isolation.READ_UNCOMMITTED,
        **_: object,
    ) -> dict[TopicPartition, ListedOffset]:
        await self._served(spots)
        return {
            tp: ListedOffset(0 if spot == EARLIEST else self._readable(tp, isolation), -1, -1)
            for tp, spot in spots.items()
        }

    async def _served(self, tps: Iterable[TopicPartition]) -> None:
        """By the leaders, which are looked up until it is they that are asked."""
        await asyncio.sleep(0)
        for tp in tps:
            while self._known.get(tp) != (self.logs[tp].node, self.logs[tp].epoch):
                before = self._known.get(tp)
                self._learned(tp.topic)
                if self._known[tp] == before:
                    await asyncio.sleep(0.05)

    def _readable(self, tp: TopicPartition, isolation: int) -> int:
        log = self.logs[tp]
        return log.stable if isolation == Isolation.READ_COMMITTED else log.end

    async def offset(self, tp: TopicPartition, spot: int, *, isolation: int = 0, **_: object) -> ListedOffset:
        return (await self.list_offsets({tp: spot}, isolation=isolation))[tp]

    async def fetch(self, tp: TopicPartition, offset: int, *, isolation: int = 0, **_: object) -> Fetched:
        await self._served([tp])
        log, end = self.logs[tp], self._readable(tp, isolation)
        rest = b"".join(batch for header, batch in log.batches if offset < header.next_offset <= end)
        aborted = tuple(log.aborted(offset)) if isolation == Isolation.READ_COMMITTED else ()
        return Fetched(tp, memoryview(rest), log.end, log.stable, 0, aborted)

    async def spread_once(
        self, items: Mapping[TopicPartition, Any], call: Any
    ) -> Mapping[TopicPartition, Any]:
        found: dict[TopicPartition, Any] = {}
        for tp, item in items.items():
            found |= await call((await self.leader(tp)).node, {tp: item})
        return found

    async def send_to(self, node: int, request: Any, **_: object) -> Any:
        """Broker 1 coordinates all transactions."""
        await asyncio.sleep(WAY_S)
        return answer(request, self._ids if node == 1 else {}, self.logs)

    async def produce(self, tp: TopicPartition, batch: bytes, **_: object) -> int:
        await asyncio.sleep(0)
        code, base = self._append(tp, None, bytes(batch))
        if code:
            raise KafkaError(code)
        return base

    async def init_producer_id(self) -> ProducerId:
        await asyncio.sleep(0)
        self._producer_ids += 1
        return ProducerId(self._producer_ids, 0)

    async def init_transactional_producer(
        self, name: str, timeout_ms: int, producer: ProducerId | None = None, *, retry: object = None
    ) -> ProducerId:
        await asyncio.sleep(WAY_S)
        fate = next(self.inits, OK)
        if fate == LOST:
            raise ClientError("the request was lost")
        found = self._init(name, producer)
        if fate != OK:
            raise ClientError("the answer was lost")
        return found

    def _init(self, name: str, producer: ProducerId | None) -> ProducerId:
        known = self._ids.get(name)
        if known is None:
            self._producer_ids += 1
            known = self._ids[name] = Transactional(ProducerId(self._producer_ids, 0))
            return known.producer
        if producer is not None and producer == known.last:
            return known.producer
        if producer is not None and producer != known.producer:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)
        was_open = known.state == "open"
        known.producer = ProducerId(known.producer.producer_id, known.producer.epoch + 1)
        known.last = producer if not was_open else None
        if was_open:
            self._complete(known, commit=False)
        known.state = "empty"
        if was_open and producer is not None:  # the epoch that ends a transaction is given to nobody
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)
        return known.producer

    async def add_to_transaction(
        self, name: str, producer: ProducerId, tps: Collection[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        await asyncio.sleep(WAY_S)
        fate = next(self.adds, OK)
        if fate == LOST:
            raise ClientError("the request was lost")
        known = self._ids[name]
        if producer != known.producer:
            return dict.fromkeys(tps, ErrorCode.INVALID_PRODUCER_EPOCH)
        known.state = "open"
        known.tps |= set(tps)
        if fate != OK:
            raise ClientError("the answer was lost")
        return dict.fromkeys(tps, ErrorCode.NONE)

    async def end_transaction(self, name: str, producer: ProducerId, *, commit: bool) -> None:
        await asyncio.sleep(WAY_S)
        fate = next(self.ends, OK)
        if fate == LATE:
            self._late_ends.append((name, producer, commit))
        if fate in (LATE, LOST):
            raise ClientError("the request was lost")
        self._end(name, producer, commit=commit)
        if fate != OK:
            raise ClientError("the answer was lost")

    def _end(self, name: str, producer: ProducerId, *, commit: bool) -> None:
        known = self._ids[name]
        if producer != known.producer:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)
        wanted = "committed" if commit else "aborted"
        if known.state == "open":
            self._complete(known, commit=commit)
            known.state = wanted
        elif known.state != wanted:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE)

    # What brokers do

    def fence(self, name: str) -> None:
        """Somebody else takes the id."""
        self._init(name, None)

    def time_out(self) -> None:
        """Open transactions have taken too long."""
        for known in self._ids.values():
            if known.state == "open":
                known.producer = ProducerId(known.producer.producer_id, known.producer.epoch + 1)
                known.last = None
                self._complete(known, commit=False)
                known.state = "aborted"

    def lose(self, tp: TopicPartition, others: int = 0, batches: int = 2) -> None:
        """The last `batches`, by an unclean election, and what is known by them of their producers. Of a
        transaction all is lost or nothing. `others` write so many records where those were."""
        log, epoch = self.logs[tp], self.logs[tp].epoch + 1
        kept = log.batches[:-batches]
        while kept and kept[-1][0].is_transactional and not kept[-1][0].is_control:
            kept.pop()
        log.aside = log.copied()
        log.cut(kept[-1][0].next_offset if kept else 0)
        log.elect(epoch)
        log.forget_lost()
        self.others(tp, others)

    def others(self, tp: TopicPartition, number: int) -> None:
        """So many records are written by others."""
        for _ in range(number):
            self.logs[tp].put(build_batch([Record(0, 1, b"k", OTHERS)]))

    def others_transaction(self, tp: TopicPartition, *, commits: bool) -> None:
        """Somebody else writes in a transaction, or ends it."""
        record = Record(0, 1, COMMIT, b"") if commits else Record(0, 1, b"k", OTHERS)
        self.logs[tp].put(
            build_batch(
                [record],
                producer_id=_OTHERS_ID,
                producer_epoch=0,
                base_sequence=-1 if commits else 0,
                transactional=True,
                control=commits,
            )
        )

    def move(self, tp: TopicPartition) -> None:
        """The other broker leads, and has all."""
        log = self.logs[tp]
        log.aside = log.copied()
        log.elect(self.last_epoch(log) + 1)

    def bump(self, tp: TopicPartition) -> None:
        """The same broker leads in a later epoch."""
        self.logs[tp].begin(self.last_epoch(self.logs[tp]) + 1)

    def last_epoch(self, log: Log) -> int:
        return max(log.epoch, log.aside.epoch if log.aside is not None else 0)

    def fall_behind(self, tp: TopicPartition) -> None:
        """From now on the other broker follows no more."""
        self.logs[tp].aside = self.logs[tp].copied()

    def flap(self, tp: TopicPartition, others: int = 0) -> None:
        """The other broker leads, with what it has."""
        log = self.logs[tp]
        if log.aside is None:
            return
        epoch, now = self.last_epoch(log) + 1, log.aside
        now.node, now.aside = 3 - log.node, log.copied()
        if now.end < log.end or now.epochs != log.epochs:
            self.lost.add(tp)
        now.begin(epoch)
        self.logs[tp] = now
        self.others(tp, others)
        for known in self._ids.values():
            if known.state == "open" and tp in known.tps:
                known.producer = ProducerId(known.producer.producer_id, known.producer.epoch + 1)
                known.last = None
                self._complete(known, commit=False)
                known.state = "aborted"

    def _zombie(self, tp: TopicPartition, node: int) -> Log | None:
        if asyncio.get_running_loop().time() >= self.zombie_until or self.logs[tp].node == node:
            return None
        return self.logs[tp].aside

    def forget_producers(self) -> None:
        """Of partitions that are in no transaction (`producer.id.expiration.ms`)."""
        held = {tp for known in self._ids.values() for tp in known.tps}
        for tp, log in self.logs.items():
            if tp not in held:
                log.producers.clear()

    def _complete(self, known: Transactional, *, commit: bool) -> None:
        marker = build_batch(
            [Record(0, 1, COMMIT if commit else ABORT, b"")],
            producer_id=known.producer.producer_id,
            producer_epoch=known.producer.epoch,
            transactional=True,
            control=True,
        )
        for tp in sorted(known.tps):
            log = self.logs[tp]
            log.put(marker)
            log.producers.setdefault(known.producer.producer_id, Known(known.producer.epoch))
            self._bump(log.producers[known.producer.producer_id], known.producer.epoch)
        known.tps.clear()
        if self.forgets:
            self.forget_producers()
        if commit:
            self.on_commit()

    def _bump(self, producer: Known, epoch: int) -> None:
        if epoch > producer.epoch:
            producer.epoch = epoch
            producer.recent.clear()

    def _append(
        self, tp: TopicPartition, transactional_id: str | None, batch: bytes, log: Log | None = None
    ) -> tuple[ErrorCode, int]:
        log, header = log or self.logs[tp], read_header(batch)
        if any(record.value in self.refuses for record in read_records(memoryview(batch), 0, header)):
            return ErrorCode.MESSAGE_TOO_LARGE, -1
        if header.producer_id < 0:
            return ErrorCode.NONE, log.put(batch)
        known = log.producers.get(header.producer_id)
        if known is not None and header.producer_epoch < known.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH, -1
        if transactional_id is not None:
            owner = self._ids[transactional_id]
            if owner.producer != (header.producer_id, header.producer_epoch) or tp not in owner.tps:
                return ErrorCode.INVALID_TXN_STATE, -1
        if known is None:
            known = log.producers[header.producer_id] = Known(header.producer_epoch)
        elif header.producer_epoch > known.epoch and header.base_sequence:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        self._bump(known, header.producer_epoch)
        for sequence, records, base in known.recent:
            if (sequence, records) == (header.base_sequence, header.record_count):
                return ErrorCode.NONE, base
        if known.recent and header.base_sequence != sum(known.recent[-1][:2]):
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        base = log.put(batch)
        known.recent.append((header.base_sequence, header.record_count, base))
        return ErrorCode.NONE, base

    def produced(self, request: ProduceRequest, node: int) -> ProduceResponse:
        fate = next(self.produces, OK)
        parts = [
            (
                TopicPartition(topic.name, data.index),
                request.transactional_id,
                b"".join(segments(data.records)),
            )
            for topic in request.topic_data
            for data in topic.partition_data
        ]
        if fate == LATE:
            self._late += [(node, *part) for part in parts]
        if fate in (LATE, LOST):
            raise ClientError("the request was lost")
        rows = []
        for tp, name, batch in parts:
            code, base = ErrorCode.NOT_LEADER_OR_FOLLOWER, -1
            if self.logs[tp].node == node:
                code, base = self._append(tp, name, batch)
            elif (zombie := self._zombie(tp, node)) is not None:
                code, base = self._append(tp, name, batch, zombie)
                self.lost.add(tp)
            answer = PartitionProduceResponse(index=tp.partition, error_code=code, base_offset=base)
            rows.append(TopicProduceResponse(name=tp.topic, partition_responses=[answer]))
        ends, self._late_ends = self._late_ends, []
        for id_, producer, commit in ends:
            if self._ids[id_].state == "open":
                with contextlib.suppress(KafkaError):
                    self._end(id_, producer, commit=commit)
            else:
                self._late_ends.append((id_, producer, commit))
        late, self._late = self._late, []
        for to, tp, name, batch in late:
            if to == self.logs[tp].node:
                self._append(tp, name, batch)
        if fate == UNHEARD:
            raise ClientError("the answer was lost")
        return ProduceResponse(responses=rows)

    def committed(self, tp: TopicPartition) -> dict[int, bytes]:
        """Values by offset, as who reads committed sees them."""
        return {offset: record.value or b"" for offset, record in self.records(tp).items()}

    def records(self, tp: TopicPartition) -> dict[int, Record]:
        """The same, with keys."""
        found: dict[int, Record] = {}
        open_: dict[int, dict[int, Record]] = {}
        for header, batch in self.logs[tp].batches:
            records = list(read_records(memoryview(batch), 0, header))
            if header.is_control:
                rows = open_.pop(header.producer_id, {})
                if records[0].key == COMMIT:
                    found |= rows
                continue
            into = open_.setdefault(header.producer_id, {}) if header.is_transactional else found
            into |= {record.offset: record for record in records}
        return dict(sorted(found.items()))
