"""What a running link is made of: its source and sink, engine, book, store, and the parts that use them.

Owns putting them together from the settings and the clients of both clusters. Nothing here runs by itself;
`worker` starts and ends it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Any
from uuid import uuid4

from protocol.client import ClientError, ClusterClient
from protocol.types import TopicPartition
from replicator.acknowledgements import Difference, open_differences
from replicator.book import Book, State
from replicator.dead_letters import DeadLetters
from replicator.discovery import Found
from replicator.entry_rows import Entry
from replicator.filters import NameFilter
from replicator.metrics import LinkMetrics
from replicator.origin import Origin, OriginSink
from replicator.own_transactions import OwnTransactions
from replicator.partitions import Partitions
from replicator.phase import FENCING, FIRST, PROGRESS, Phase
from replicator.progress import ProgressStore
from replicator.refused import RefusedBatches
from replicator.settings import LinkSettings
from replicator.target_topics import TargetTopics
from replicator.transactional_progress import TransactionalProgress, fence
from replicator.workers.permit import Permit
from transfer.engine import Engine
from transfer.kafka.fetcher import FetchSettings
from transfer.kafka.sink import KafkaSink, ProduceSettings
from transfer.kafka.source import KafkaSource
from transfer.kafka.transactional import Transactions
from transfer.kafka.transactional_producer import TransactionSettings
from transfer.ledger import PartitionLedger

_COMMIT_S = 5.0


class Parts:
    """Of one link. `found` is what discovery saw last; `poke` asks it to look again at once."""

    def __init__(
        self, settings: LinkSettings, source: ClusterClient, target: ClusterClient, metrics: LinkMetrics
    ) -> None:
        self.settings = settings
        self.source_client = source
        self.target_client = target
        self.metrics = metrics
        self.naming = settings.names()
        self.topic_filter = settings.topic_filter()
        self.group_filter = NameFilter(settings.groups, settings.groups_exclude)
        self.poke = asyncio.Event()
        self.phase = Phase(PROGRESS)
        self.found = Found(looked=False)
        self.book = Book(metrics, settings.retry_refused_s, self.poke.set)
        flow = settings.flow
        self.source = KafkaSource(
            source,
            FetchSettings(
                max_bytes=flow.fetch_max_bytes,
                partition_max_bytes=flow.fetch_partition_max_bytes,
                max_wait_ms=flow.fetch_max_wait_ms,
                connections_per_broker=flow.fetch_connections_per_broker,
            ),
        )
        self.permit = Permit()
        """Without it a worker of a shared link writes nothing."""
        self.store = ProgressStore(target, settings.progress_topic, settings.internal_replication_factor)
        self.incarnation = str(uuid4())
        """Of this worker, unlike that of any other: by it others know whether a producer's owner lives."""
        self.living: Callable[[], Collection[str]] = tuple
        """Incarnations of the workers that the link has beside this one."""
        self.progress, self.transactions = self._transactional()
        self.sink = KafkaSink(
            target,
            ProduceSettings(request_bytes=flow.produce_request_bytes, merge=True),
            may_write=self.may_write,
            transactions=self.transactions,
        )
        origin = self._origin()
        self.book.records_lane = "records carry where they have been" if origin is not None else ""
        self.book.retries = self.sink.retries
        self.engine = Engine(
            self.source,
            self.sink if origin is None else OriginSink(self.sink, origin),
            self.book,
            max_bytes=flow.max_bytes_in_flight,
            partition_bytes=flow.partition_bytes_in_flight,
        )
        if self.transactions is not None:
            self.transactions.on_landed = self.engine.landed
            self.transactions.on_end = lambda committed: metrics.transaction(committed=committed)
        if self.progress is not None and self.transactions is not None:
            self.progress.ask = self.transactions.stir
        self._saving = asyncio.Lock()
        self.partitions = self._partitions(origin)
        self.engine.on_stalled = self.partitions.stalled
        self.topics = TargetTopics(
            source,
            target,
            exclude=settings.config_properties_exclude,
            replication_factor=settings.replication_factor,
            source_defaults=settings.use_defaults_from == "source",
            example=settings.progress_topic,
        )

    def _origin(self) -> Origin | None:
        if not self.settings.origin_headers:
            return None
        return Origin(
            self.source_client.cluster_id or "",
            self.target_client.cluster_id or "",
            self.naming.at_target,
            self.settings.origin_headers_ignored,
        )

    def _transactional(self) -> tuple[TransactionalProgress | None, Transactions | None]:
        settings = self.settings
        if not settings.exactly_once:
            return None, None
        self.book.once = True
        progress = TransactionalProgress(self.book, self.store, lambda: self.incarnation)
        how = TransactionSettings(
            f"{settings.transactional_id}.{self.incarnation}",
            timeout_ms=int(settings.transaction_timeout_s * 1000),
            interval_s=settings.transaction_interval_s,
            end_s=settings.transaction_timeout_s / 3,
        )
        # Whoever has fenced this worker does not count with it: the coordinator is to be heard first.
        return progress, Transactions(self.target_client, how, progress, self.may_write, self.permit.withdraw)

    def _partitions(self, origin: Origin | None) -> Partitions:
        source, target = self.source_client, self.target_client
        return Partitions(
            source,
            target,
            self.source,
            self.sink,
            self.engine,
            self.book,
            self.store,
            self.metrics,
            stop_at_gaps=self.settings.on_gap == "stop",
            stop_at_recreated=self.settings.on_recreated == "stop",
            refused=RefusedBatches(
                source,
                target,
                DeadLetters(target, self.settings) if self.settings.on_refused == "dead_letter" else None,
                None if origin is None else origin.stamped,
                self.may_write,
            ),
            origin=origin,
            transactions=self.transactions,
            progress=self.progress,
            own=OwnTransactions(
                target,
                self.settings.transactional_id,
                timeout_ms=int(self.settings.transaction_timeout_s * 1000),
            ),
        )

    def apply(self, settings: LinkSettings) -> None:
        """Goes on with other settings; of those that a running link can change (`workers.control`)."""
        self.settings = settings
        self.topic_filter = settings.topic_filter()
        self.group_filter = NameFilter(settings.groups, settings.groups_exclude)
        self.book.retry_refused_s = settings.retry_refused_s
        self.poke.set()

    def guarantee(self) -> dict[str, Any]:
        """What the link promises and, exactly once, what its transactions do: for the status."""
        if self.transactions is None:
            return {"delivery": "at least once"}
        return {"delivery": "exactly once", **self.transactions.to_json()}

    async def fence(self) -> None:
        """Takes away from workers that are gone what they may still have open. Raises ProtocolError."""
        timeout_ms = int(self.settings.transaction_timeout_s * 1000)
        await fence(
            self.target_client,
            self.store,
            lambda: {*self.living(), self.incarnation},
            timeout_ms,
            begins=self._fencing,
        )

    def _fencing(self) -> None:
        if self.phase.step is FIRST:  # later it is done beside everything else
            self.phase.enter(FENCING)

    def may_write(self) -> bool:
        """Whether no other worker has the partitions of this one."""
        return not self.settings.shared or self.permit.allows()

    def ledgers(self) -> Mapping[TopicPartition, PartitionLedger]:
        """By source partition: of those opened here, and of other workers' as they last stored them."""
        found = {tp: account.entry.ledger for tp, account in self.book.accounts.items() if account.entry}
        if self.settings.shared:
            progress = self.store.progress
            for tp in progress.partitions():
                if tp not in found and tp.topic in self.found.wanted and not self.partitions.owns(tp):
                    ledger = progress.ledger(tp)
                    if ledger is not None:
                        found[tp] = ledger
        return found

    def open_differences(self) -> list[Difference]:
        """What nobody has acknowledged: also of partitions that are not read now (paused, deleted at the
        source, not opened yet), as they are stored."""
        found, progress = dict(self.ledgers()), self.store.progress
        for tp in progress.partitions() - found.keys():
            ledger = progress.ledger(tp) if self.topic_filter.accepts(tp.topic) else None
            if ledger is not None:
                found[tp] = ledger
        return open_differences(found, self.store.acknowledged)

    async def save(self) -> None:
        """Stores the progress that is not stored yet. Raises ProtocolError."""
        async with self._saving:
            if self.may_write():
                await self._save()

    async def _save(self) -> None:
        overwritten = self.store.progress.overwritten
        for tp in overwritten & self.book.accounts.keys():
            self.book.mark(tp)
        overwritten.clear()
        entries = self.book.take_dirty()
        if entries:
            try:
                await self._store(entries)
            except BaseException:
                self.book.put_back(entries)
                raise
            self.book.stored()

    async def _store(self, entries: Mapping[TopicPartition, Entry]) -> None:
        if self.progress is None:
            await self.store.save(entries.values())
            return
        # Of those that are to be read again the stored one counts: what the book has is worth nothing.
        known = {tp for tp in entries if not self.book.accounts[tp].read_again}
        ready = {tp for tp in known if self._is_storable(tp, self.progress)}
        self.book.put_back(known - ready)
        try:
            async with asyncio.timeout(_COMMIT_S):
                await self.progress.save(ready)
        except TimeoutError as error:
            raise ClientError("progress is not committed yet") from error

    def _is_storable(self, tp: TopicPartition, progress: TransactionalProgress) -> bool:
        """Not while the book may know less than what is committed."""
        account = self.book.accounts[tp]
        if account.state is not State.RUNNING and tp not in self.engine:
            progress.forget(tp)  # what was booked since came over no transaction
        return not progress.holds_back(tp)

    async def aclose(self) -> None:
        """Ends all reading and writing; the clients stay the caller's."""
        await self.partitions.close()
        await self.source.aclose()
        await self.sink.aclose()
