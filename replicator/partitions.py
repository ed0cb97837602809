"""Bringing partitions of a link up, and up again after trouble.

Owns the way of one partition from "wanted" to "running": let go of what ran before, book the gap that was
found, open its progress against both clusters, store it, start the engine. One task per partition, so that
one that cannot start holds up nobody (I10). What is wanted is decided in `discovery`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from protocol.client import ClusterClient, TopicMetadata
from protocol.errors import ProtocolError
from protocol.types import TopicPartition, uuid_to_text
from replicator.acknowledgements import open_differences
from replicator.book import Account, Book, State
from replicator.discovery import Wanted
from replicator.entry_rows import Entry
from replicator.latency import Behind
from replicator.metrics import LinkMetrics
from replicator.opening import SOURCE_RECREATED, TARGET_RECREATED, Opener
from replicator.origin import Origin
from replicator.own_transactions import OwnTransactions
from replicator.progress import ProgressStore
from replicator.refused import RefusedBatches
from replicator.target_history import written_of
from replicator.transactional_progress import Decisions, TransactionalProgress
from transfer.endpoint import DisorderError
from transfer.engine import Engine
from transfer.kafka.sink import KafkaSink
from transfer.kafka.source import KafkaSource
from transfer.kafka.transactional import Transactions
from transfer.ledger import NOT_TOLD, Copied, DiscontinuityError, Gap, Lineage, same_topic

_log = logging.getLogger("isthmus.replicator")

_AT_A_TIME = 128
_TRY_AGAIN_S = 1.0
_DRAIN_S = 10.0
_PAUSING = "pausing"
_TARGET_RECREATED = "the target topic was created again"
_STALLED = "the target takes nothing of it at the moment, and others need the room: it is read again"
_ROOM_FOR_OTHERS_S = 20.0
_RECREATED = (SOURCE_RECREATED, TARGET_RECREATED)


class Partitions:
    """Starts and restarts partitions until `close`."""

    def __init__(
        self,
        source_client: ClusterClient,
        target_client: ClusterClient,
        source: KafkaSource,
        sink: KafkaSink,
        engine: Engine,
        book: Book,
        store: ProgressStore,
        metrics: LinkMetrics,
        *,
        stop_at_gaps: bool = False,
        stop_at_recreated: bool = False,
        refused: RefusedBatches | None = None,
        origin: Origin | None = None,
        transactions: Transactions | None = None,
        progress: TransactionalProgress | None = None,
        own: OwnTransactions | None = None,
    ) -> None:
        self._transactions = transactions
        self._progress = progress
        self._source_client = source_client
        self._target_client = target_client
        self._source = source
        self._sink = sink
        self._engine = engine
        self._book = book
        self._store = store
        self._decisions = Decisions(store)
        self._stop_at_gaps = stop_at_gaps
        self._stop_at_recreated = stop_at_recreated
        self._refused = refused
        self._opener = Opener(source_client, target_client, metrics, origin, told=stop_at_recreated, own=own)
        self._slots: defaultdict[tuple[int, int], asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(_AT_A_TIME)
        )
        """By leaders at both sides: one that does not answer holds up its own partitions only."""
        self._tasks: dict[TopicPartition, asyncio.Task[None]] = {}
        self._wanted: dict[str, Wanted] = {}
        self._records: dict[TopicPartition, bytes] = {}
        """Those that `stored` was last read from again, right before a partition was opened."""
        self.stored: dict[TopicPartition, Entry] = {}
        """Progress read at the start, until its partition is opened."""
        self.owns: Callable[[TopicPartition], bool] = lambda _: True
        """Whether this worker may copy a partition now."""
        self.paused: Callable[[TopicPartition], str] = lambda _: ""
        """Why a partition is to stand still, because somebody said so; empty: it is not."""

    def reconcile(self, wanted: dict[str, Wanted]) -> None:
        """Starts what is wanted and does not run; restarts what runs into another topic than it should."""
        self._wanted = wanted
        for topic in wanted.values():
            there = topic.target
            if there is None:
                continue
            for number in topic.source.partitions:
                tp = TopicPartition(topic.source.name, number)
                if number in there.partitions and self.owns(tp):
                    account = self._book.account(tp, TopicPartition(topic.target_name, number))
                    self._check_target(account, topic)
                    self._start_or_pause(account)

    def _start_or_pause(self, account: Account) -> None:
        paused = self.paused(account.tp)
        task = self._tasks.get(account.tp)
        if task is not None:
            if paused and task.get_name() != _PAUSING:
                task.cancel()  # what it waits for may take long
            return
        if not paused and account.state is not State.RUNNING:
            self._start(account)
        elif paused and account.state is not State.PAUSED:
            self._begin_task(account, self._pause(account, paused), _PAUSING)

    def _check_target(self, account: Account, topic: Wanted) -> None:
        if account.entry is None or topic.target is None:
            return
        if account.target.topic != topic.target_name and account.state is not State.PAUSED:
            of_source = account.entry.ledger.source.topic_id == uuid_to_text(topic.source.topic_id)
            account.reason = _TARGET_RECREATED if of_source else f"{topic.target_name} is its mirror now"
            account.state = State.WAITING
            return
        if account.state is not State.RUNNING:
            return
        ledger = account.entry.ledger
        here, there = uuid_to_text(topic.source.topic_id), uuid_to_text(topic.target.topic_id)
        if not same_topic(ledger.target.topic_id, there):
            account.state = State.WAITING
            account.reason = _TARGET_RECREATED
        elif not same_topic(ledger.source.topic_id, here):
            self._source.look_again(account.tp)
        elif ledger.source.topic_id == NOT_TOLD != here or ledger.target.topic_id == NOT_TOLD != there:
            account.state, account.reason = State.WAITING, "its topic's id is told now"
        elif lost := self._sink.led_by(account.target, *_led(topic.target, account.target.partition)):
            account.state, account.reason = State.WAITING, lost

    def _start(self, account: Account) -> None:
        self._begin_task(account, self._bring_up(account))

    def _begin_task(self, account: Account, work: Coroutine[Any, Any, None], name: str = "") -> None:
        task = asyncio.create_task(work, name=name or None)
        self._tasks[account.tp] = task
        task.add_done_callback(lambda done: self._ended(account, done))

    def _ended(self, account: Account, task: asyncio.Task[None]) -> None:
        if self._tasks.get(account.tp) is task:
            del self._tasks[account.tp]
        error = None if task.cancelled() else task.exception()
        if error is not None:  # nobody has thought of this one: it is not tried again all the time
            account.reason = repr(error)
            account.not_before = time.monotonic() + _TRY_AGAIN_S
            _log.error("%s cannot start", account.tp, exc_info=error)

    async def _pause(self, account: Account, why: str) -> None:
        await self._stop(account)
        self._book.settle(account)
        account.unseen = True
        account.state, account.reason, account.not_before = State.PAUSED, why, 0.0
        _log.info("%s %s", account.tp, why)

    def restart(self, tp: TopicPartition) -> None:
        """Has it begun anew from its progress at the next `reconcile`, whatever it waits for."""
        account = self._book.accounts.get(tp)
        if account is not None:
            account.not_before = 0.0
            if account.state is not State.PAUSED:
                account.state, account.reason = State.WAITING, "restarted by command"
            task = self._tasks.get(tp)
            if task is not None:
                task.cancel()

    def stalled(self, tp: TopicPartition) -> None:
        """What is on its way of it leaves others no room. Where the target does not take it, it is given up,
        and read again later: progress, and the target's tail, tell from where on."""
        account = self._book.accounts.get(tp)
        if account is None or account.state is not State.RUNNING or not self._sink.is_away(account.target):
            return
        account.state, account.reason, account.unseen = State.WAITING, _STALLED, True
        account.not_before = time.monotonic() + _ROOM_FOR_OTHERS_S
        _log.warning("%s: %s", tp, _STALLED)
        if tp not in self._tasks:
            self._start(account)

    async def let_go(self, tp: TopicPartition) -> None:
        """Stops it in order: what is on its way is waited for, for a while."""
        await self._end_task(tp)
        account = self._book.accounts.get(tp)
        if account is not None:
            await self._stop(account)
            self._book.settle(account)

    async def abandon(self, tp: TopicPartition) -> None:
        """Stops it at once: what is on its way is given up, and not booked."""
        account = self._book.accounts.get(tp)
        if account is not None:
            await self._abandon(account)
        await self._end_task(tp)
        await self._engine.stop_partition(tp, abandon=True)

    def forget(self, tps: Iterable[TopicPartition]) -> None:
        """They are another worker's: nothing is known of them here."""
        for tp in tps:
            self._book.drop(tp)
            self.stored.pop(tp, None)
            self._records.pop(tp, None)
            if self._progress is not None:
                self._progress.forget(tp)

    async def _stop(self, account: Account) -> None:
        try:
            async with asyncio.timeout(_DRAIN_S):
                await self._engine.stop_partition(account.tp)
        except TimeoutError:
            await self._abandon(account)
            await self._engine.stop_partition(account.tp, abandon=True)
        await self._sink.close(account.target)

    async def _abandon(self, account: Account) -> None:
        """What of a write was committed before it is given up, the book never hears."""
        account.state = State.WAITING
        account.read_again = account.read_again or self._progress is not None
        await self._sink.close(account.target)

    async def _end_task(self, tp: TopicPartition) -> None:
        task = self._tasks.get(tp)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def close(self) -> None:
        """Ends all attempts."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _bring_up(self, account: Account) -> None:
        try:
            await self._let_go(account)
            await self._take_apart(account)
            if self._held(account):
                return
            await asyncio.sleep(max(account.not_before - time.monotonic(), 0))
            await self._decided(account)
            async with self._slots[self._leaders(account)]:
                await self._open(account)
        except ProtocolError as error:
            account.reason = str(error)
            account.not_before = time.monotonic() + _TRY_AGAIN_S
            _log.warning("%s cannot start yet: %s", account.tp, error)
        except ValueError as error:
            account.reason = str(error)
            account.not_before = time.monotonic() + self._book.retry_refused_s
            _log.exception("%s cannot start", account.tp)

    async def _decided(self, account: Account) -> None:
        """Where the owner before us stopped may be committed and not be readable yet; whoever reads the topic
        for another reason may be the one that comes upon it."""
        tp, progress = account.tp, self._store.progress
        if account.entry is not None:
            return
        await self._decisions.wait(tp)
        record = progress.record(tp)
        if record is not None and record is not self._records.get(tp):
            entry = progress.entry(tp)
            if entry is not None:
                self.stored[tp], self._records[tp] = entry, record

    async def _let_go(self, account: Account) -> None:
        if account.tp in self._engine:
            stopping = asyncio.create_task(self._engine.stop_partition(account.tp))
            if account.reason in (_TARGET_RECREATED, _STALLED):
                await asyncio.sleep(0)  # nothing is read any more; what is on its way cannot arrive
                await self._sink.close(account.target)
            elif self._has_moved(account):  # what is on its way belongs there, and may arrive
                await asyncio.wait({stopping}, timeout=_DRAIN_S)
                await self._sink.close(account.target)
            await stopping
        self._book.settle(account)

    def _has_moved(self, account: Account) -> bool:
        topic = self._wanted.get(account.tp.topic)
        return topic is not None and topic.target_name != account.target.topic

    async def _take_apart(self, account: Account) -> None:
        """What of a refused batch can be written is written; with dead letters the partition goes on."""
        refused = account.refused
        if self._refused is None or refused is None:
            return
        if account.read_again:
            await self._read_again(account)
        entry = account.entry
        if entry is None:
            return

        if entry.once:  # its parts go without a transaction: until all is stored, the tail tells what arrived
            entry.once = False
            await self._save(entry)

        def book(done: Copied | Gap) -> None:
            if isinstance(done, Gap):
                self._book.gap(account, done)
            else:
                self._book.copied(account.tp, done)

        try:
            settled = await self._refused.settle(entry.ledger, refused, book, lambda: self._save(entry))
        except DiscontinuityError as error:
            self._book.disorder(account, DisorderError(account.tp, str(error)))
            account.not_before = time.monotonic() + _TRY_AGAIN_S
            settled = False
        finally:
            if refused.unsure:  # what is there of its parts, the target's tail tells; then it is tried again
                account.refused, account.new_producer = None, True
        account.refused = None
        entry.epoch = -1
        if settled:
            account.not_before = 0.0

    def _leaders(self, account: Account) -> tuple[int, int]:
        """At the source and at the target, as last seen; -1 where none is known."""
        topic, number = self._wanted.get(account.tp.topic), account.tp.partition
        return (-1, -1) if topic is None else (_leader(topic.source, number), _leader(topic.target, number))

    def _held(self, account: Account) -> bool:
        """Whether the partition waits for somebody who acknowledges its gaps."""
        if account.entry is None or not (self._stop_at_gaps or self._stop_at_recreated):
            return False
        missing = [
            found
            for found in open_differences({account.tp: account.entry.ledger}, self._store.acknowledged)
            if self._stop_at_gaps or found.reason.startswith(_RECREATED)
        ]
        if missing:
            account.state = State.HELD
            account.reason = (
                f"{missing[-1]}: stopped until it is acknowledged (isthmus links acknowledge-gap)"
            )
        return bool(missing)

    async def _open(self, account: Account) -> None:
        topic = self._wanted.get(account.tp.topic)
        if topic is None or topic.target is None:
            return
        if account.target.topic != topic.target_name:
            await self._sink.close(account.target)
            account.target = TopicPartition(topic.target_name, account.target.partition)
        await self._read_again(account)
        stored = await self._progress_of(account)
        source, target = self._lineages(account, topic)
        start_at = (self._store.progress.initial or {}).get(account.tp)
        beginning = await self._opener.open(
            stored, source, target, start_at=start_at, seen_end=account.known_end
        )
        entry = beginning.entry
        if account.new_producer:
            entry.producer = None
            account.new_producer = False
        await self._identify(entry, account.target)
        self._book.adopt(account, entry, beginning.gaps)
        if self._progress is None:
            await self._store.save([entry])  # before the first record, so that a killed link finds its tail
        if self._held(account):
            account.unseen = True
            return
        position = entry.ledger.next_source_offset
        await self._sink.open(
            account.target, entry.producer, topic.target.topic_id, position, written_of(entry)
        )
        self._source.expect(account.tp, topic.source.topic_id, entry.epoch, entry.epochs)
        await self._engine.start(account.tp, account.target, position)
        self.stored.pop(account.tp, None)
        self._records.pop(account.tp, None)
        if stored is None or stored.ledger.source != source:
            account.source_end, account.way.behind = -1, Behind()
        account.seen_end = beginning.source_end if beginning.source_end >= position else -1
        account.unseen = False
        account.state = State.RUNNING
        account.reason = ""
        account.starts += 1

    async def _read_again(self, account: Account) -> None:
        """Where a transaction ended nobody knows how, progress as it is stored counts, once that is over."""
        if self._transactions is not None:
            await self._transactions.ready()
        if account.read_again:
            await self._store.refresh()
            await self._decisions.wait(account.tp)
            account.entry = self._store.progress.entry(account.tp) or account.entry
            account.read_again = False
            self._book.settle(account)

    async def _save(self, entry: Entry) -> None:
        if self._progress is None:
            await self._store.save([entry])
        else:
            self._progress.forget(entry.tp)
            await self._progress.save([entry.tp])

    async def _identify(self, entry: Entry, target: TopicPartition) -> None:
        """Who writes the partition from now on, and how what it has written is to be told after a crash."""
        entry.once = self._progress is not None
        if self._progress is not None:
            entry.producer = None
            self._progress.forget(entry.tp)
        elif entry.producer is None:
            entry.producer = await self._sink.producer(target)

    async def _progress_of(self, account: Account) -> Entry | None:
        """Progress belongs to one topic of the target: when that has another name than before, what this name
        had counts, and the other is kept for the way back."""
        entry = account.entry or self.stored.get(account.tp)
        if entry is None or entry.ledger.target.topic == account.target.topic:
            return entry
        await self._store.set_aside(entry)
        return self._store.into(account.tp, account.target.topic) or entry

    def _lineages(self, account: Account, topic: Wanted) -> tuple[Lineage, Lineage]:
        assert topic.target is not None
        source_id, target_id = uuid_to_text(topic.source.topic_id), uuid_to_text(topic.target.topic_id)
        return (
            Lineage(self._source_client.cluster_id or "", source_id, *account.tp),
            Lineage(self._target_client.cluster_id or "", target_id, *account.target),
        )


def _led(topic: TopicMetadata, number: int) -> tuple[int, int]:
    """By whom, and in which epoch."""
    partition = topic.partitions.get(number)
    return (-1, -1) if partition is None else (partition.leader, partition.leader_epoch)


def _leader(topic: TopicMetadata | None, number: int) -> int:
    partition = topic.partitions.get(number) if topic is not None else None
    return -1 if partition is None else partition.leader
