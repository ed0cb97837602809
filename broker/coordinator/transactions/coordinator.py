"""What the rest of the broker sees of transactions: requests of producers in, answers out.

Owns which partitions of `__transaction_state` this broker leads, the writes to them, and the abort of what
has timed out. A change counts once its record is safe; while it is being written every other request
of that id gets CONCURRENT_TRANSACTIONS. An end is answered when it is decided and stored; markers follow.
Methods raise `KafkaError`: NOT_COORDINATOR (16) and COORDINATOR_LOAD_IN_PROGRESS (14) where this broker
cannot say. (Kafka: TransactionCoordinator, TransactionStateManager.)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator
from dataclasses import replace

from broker.clock import Clock
from broker.control.internal_topics import TRANSACTIONS_TOPIC
from broker.control.metadata_cache import MetadataCache
from broker.coordinator.java_hash import partition_for
from broker.coordinator.offsets_log import OffsetsLog, as_coordinator_error
from broker.coordinator.producer_ids import ProducerIds
from broker.coordinator.transactions import ending_v2, rules
from broker.coordinator.transactions.ending_v2 import Next
from broker.coordinator.transactions.markers import Ending, MarkerSender
from broker.coordinator.transactions.records import transaction_record
from broker.coordinator.transactions.settings import TransactionSettings
from broker.coordinator.transactions.shard import Shard
from broker.coordinator.transactions.states import ENDING, TxnState
from broker.coordinator.transactions.transaction import NO_PRODUCER_ID, Image, Transaction
from broker.coordinator.unstored import Unstored
from broker.log.errors import LogError
from broker.replication.partition import Partition
from protocol.errors import ErrorCode, KafkaError
from protocol.types import TopicPartition

logger = logging.getLogger("isthmus.broker.coordinator")

_RETRY_S = 1.0


class TransactionCoordinator:
    """One for each broker. `settings` are those of its start; `version` says the cluster's finalized level of
    `transaction.version`, which may change.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        settings: TransactionSettings,
        metadata: MetadataCache,
        producer_ids: ProducerIds,
        markers: MarkerSender,
        version: Callable[[], int] = lambda: 0,
    ) -> None:
        self._clock = clock
        self._settings = settings
        self._metadata = metadata
        self._producer_ids = producer_ids
        self._markers = markers
        self._version = version
        self._unstored = Unstored(clock.monotonic)
        self._shards: dict[int, Shard] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        metadata.on_deletion(self._on_partitions_deleted)

    # -- which transactions are ours

    def partition_of(self, transactional_id: str) -> int:
        """The partition of the transactions topic whose leader coordinates the id."""
        topic = self._metadata.topic(TRANSACTIONS_TOPIC)
        count = len(topic.partitions) if topic is not None else self._settings.topic_partitions
        return partition_for(transactional_id, count)

    def _shard_of(self, transactional_id: str) -> Shard:
        index = self.partition_of(transactional_id)
        shard = self._shards.get(index)
        if shard is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, f"{TRANSACTIONS_TOPIC}-{index} is not led here")
        if not shard.complete:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return shard

    def find(self, transactional_id: str) -> Transaction | None:
        """The transaction of this id to look at, or None if the id is not known."""
        return self._shard_of(transactional_id).transactions.get(transactional_id)

    def all_transactions(self) -> Iterator[Transaction]:
        """Those of all shards that are complete."""
        for shard in self._complete():
            yield from list(shard.transactions.values())

    @property
    def is_loading(self) -> bool:
        return any(not shard.complete for shard in self._shards.values())

    def _complete(self) -> list[Shard]:
        return [shard for shard in self._shards.values() if shard.complete]

    # -- life

    def start(self) -> None:
        """Begin the work that no request asks for."""
        self._spawn(self._for_ever(self._settings.abort_interval_ms, self.abort_timed_out), "abort timed out")
        self._spawn(
            self._for_ever(self._settings.expire_interval_ms, self.expire), "expire transactional ids"
        )

    async def close(self) -> None:
        for index in list(self._shards):
            self._resign(index)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _for_ever(self, interval_ms: int, work: Callable[[], Coroutine[None, None, None]]) -> None:
        while True:
            await asyncio.sleep(interval_ms / 1000)
            try:
                await work()
            except Exception:  # else nothing would be aborted or forgotten until the next start
                logger.exception("%s failed, it is tried again", work.__name__)

    def _spawn(self, work: Coroutine[None, None, None], name: str, shard: Shard | None = None) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        if shard is not None:
            shard.tasks.add(task)
            task.add_done_callback(shard.tasks.discard)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("%s failed", task.get_name(), exc_info=error)

    def on_leadership_change(self, partition: Partition, is_leader: bool) -> None:
        """Hook for the replica manager; partitions of other topics are ignored."""
        if partition.topic != TRANSACTIONS_TOPIC:
            return
        log = OffsetsLog(partition, codec=0, timeout_s=self._settings.write_timeout_ms / 1000)
        known = self._shards.get(partition.index)
        if is_leader and known is not None and known.log.goes_on(log):
            known.coordinator_epoch = partition.leader_epoch
            return
        self._resign(partition.index)
        if not is_leader:
            return
        shard = self._shards[partition.index] = Shard(partition.index, partition.leader_epoch, log)
        if log.is_empty:
            shard.complete = True
        else:
            self._spawn(self._load(shard), f"load {log}", shard)

    def _resign(self, index: int) -> None:
        shard = self._shards.pop(index, None)
        if shard is not None:
            shard.close()

    async def _load(self, shard: Shard) -> None:
        while True:
            try:
                count = await shard.load()
            except LogError as error:
                logger.error("%s: cannot be read, its transactions have to wait: %s", shard.log, error)
                await asyncio.sleep(_RETRY_S)
                continue
            shard.complete = True
            logger.info("%s: %d records read, %d ids", shard.log, count, len(shard.transactions))
            for transaction in shard.transactions.values():
                if transaction.image.state in ENDING:
                    self._begin_end(shard, transaction)
            return

    def _on_partitions_deleted(self, deleted: Iterable[tuple[str, int]]) -> None:
        gone = frozenset(TopicPartition(*each) for each in deleted)
        for transaction in self.all_transactions():
            hit = gone & (transaction.pending or transaction.image).partitions
            if hit:
                transaction.forget_partitions(hit)

    # -- requests

    async def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: tuple[int, int] | None
    ) -> tuple[int, int]:
        """(producer id, epoch) for a new instance of a producer, or a new epoch for the same instance."""
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        if not 0 < timeout_ms <= self._settings.max_timeout_ms:
            raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        known = self.find(transactional_id)
        needs_id = known is None or known.image.epoch_exhausted
        fresh_id = await self._producer_ids.take() if needs_id else -1
        shard = self._shard_of(transactional_id)  # the wait may have changed everything
        transaction = shard.transactions.get(transactional_id)
        if transaction is None:
            transaction = Transaction(transactional_id, Image(fresh_id, timeout_ms=timeout_ms))
            shard.transactions[transactional_id] = transaction
        _check_free(transaction)
        if transaction.image.epoch_exhausted and fresh_id < 0:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        image = rules.initialized(
            transaction.image, timeout_ms, expected, fresh_id, self._clock.now_ms(), self._version()
        )
        await self._store(shard, transaction, image)
        if image.state is TxnState.PREPARE_ABORT:
            self._begin_end(shard, transaction)
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, "the open transaction is being aborted")
        return image.producer_id, image.epoch

    async def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Collection[TopicPartition],
        connection: object = None,
        client_version: int = 0,
    ) -> None:
        """Let partitions take part; after this the producer may write to them."""
        shard, transaction = self._of_producer(transactional_id, producer_id, epoch, connection)
        _check_free(transaction)
        image = rules.extended(transaction.image, partitions, self._clock.now_ms(), client_version)
        if image is None:
            return
        for topic in {partition.topic for partition in partitions}:
            transaction.topic_ids.setdefault(topic, self._metadata.topic_id(topic))
        await self._store(shard, transaction, image)

    async def end(
        self, transactional_id: str, producer_id: int, epoch: int, commit: bool, connection: object = None
    ) -> None:
        """Commit or abort; returns when that is decided for good."""
        shard, transaction = self._of_producer(transactional_id, producer_id, epoch, connection)
        _check_free(transaction)
        image = rules.ended(transaction.image, commit, self._clock.now_ms())
        if image is None:
            return
        await self._store(shard, transaction, image)
        self._begin_end(shard, transaction)

    async def end_v2(self, transactional_id: str, producer_id: int, epoch: int, commit: bool) -> Next:
        """The same for transactions of version 2; returns what the producer goes on with (KIP-890)."""
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        known = self.find(transactional_id)
        fresh_id = -1
        if known is not None and known.image.epoch_exhausted:
            fresh_id = await self._producer_ids.take()
        shard = self._shard_of(transactional_id)  # the wait may have changed everything
        transaction = shard.transactions.get(transactional_id)
        if transaction is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        repeated = ending_v2.is_repetition(transaction.image, producer_id, epoch)
        _check_free(transaction)
        if transaction.image.epoch_exhausted and fresh_id < 0:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        image = ending_v2.ended(transaction.image, repeated, commit, fresh_id, self._clock.now_ms())
        if image is None:
            return ending_v2.successor(transaction.image)
        await self._store(shard, transaction, image)
        self._begin_end(shard, transaction)
        return ending_v2.successor(image)

    def verify(self, transactional_id: str, producer_id: int, epoch: int, partition: TopicPartition) -> None:
        """Raise unless the partition takes part in the open transaction of this producer (KIP-890)."""
        transaction = rules.check_producer(self.find(transactional_id), producer_id, epoch)
        _check_free(transaction, TxnState.ONGOING)
        rules.check_member_of(transaction.image, partition)

    def _of_producer(
        self, transactional_id: str, producer_id: int, epoch: int, connection: object
    ) -> tuple[Shard, Transaction]:
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        shard = self._shard_of(transactional_id)
        transaction = rules.check_producer(shard.transactions.get(transactional_id), producer_id, epoch)
        if connection is not None and transaction.is_stale(connection):
            raise StaleConnectionError(
                f"a request of {transactional_id!r} came late: its producer uses a newer connection already"
            )
        return shard, transaction

    # -- storing and ending

    async def _store(self, shard: Shard, transaction: Transaction, image: Image) -> None:
        """Write an image; it counts when it is safe. Raises `KafkaError`, and then all is as before."""
        transaction.pending = image
        record = transaction_record(
            transaction.transactional_id, image, self._clock.now_ms(), self._version()
        )
        try:
            last = shard.log.append([record])
            if not shard.log.is_safe(last):
                await shard.log.wait_safe(last)
        except KafkaError as error:
            transaction.pending = None
            self._unstored.say(f"transaction {transaction.transactional_id!r}", error)
            code = as_coordinator_error(error.code, too_large=ErrorCode.UNKNOWN_SERVER_ERROR)
            raise KafkaError(code, error.message) from error
        transaction.accept()

    def _begin_end(self, shard: Shard, transaction: Transaction) -> None:
        self._spawn(self._finish(shard, transaction), f"end {transaction.transactional_id}", shard)

    async def _finish(self, shard: Shard, transaction: Transaction) -> None:
        """End it, whatever goes wrong meanwhile: nobody else does, and readers wait for the markers."""
        while not shard.closed:
            try:
                await self._end(shard, transaction)
                return
            except Exception:
                logger.exception(
                    "transaction %r could not be ended, it is tried again", transaction.transactional_id
                )
                await asyncio.sleep(_RETRY_S)

    async def _end(self, shard: Shard, transaction: Transaction) -> None:
        """Write the markers, then that all of them are written."""
        image = transaction.image
        what = f"transaction {transaction.transactional_id!r}"
        ending = Ending(
            image.producer_id,
            image.epoch,
            image.state is TxnState.PREPARE_COMMIT,
            shard.coordinator_epoch,
            image.client_version,
        )
        if not await self._markers.send(what, ending, image.partitions, transaction.topic_ids):
            return
        while not shard.closed:
            try:
                await self._store(
                    shard, transaction, rules.completed(transaction.image, self._clock.now_ms())
                )
                return
            except KafkaError:
                await asyncio.sleep(_RETRY_S)

    # -- what no request asks for

    async def abort_timed_out(self) -> None:
        """Abort transactions that last longer than their producers said, and fence those producers."""
        now_ms = self._clock.now_ms()
        for shard in self._complete():
            for transaction in list(shard.transactions.values()):
                if transaction.pending is None and rules.has_timed_out(transaction.image, now_ms):
                    await self._abort_timed_out(shard, transaction, now_ms)

    async def _abort_timed_out(self, shard: Shard, transaction: Transaction, now_ms: int) -> None:
        """What cannot be done now is done by the next search; it keeps nobody else's from its end."""
        image, name = transaction.image, transaction.transactional_id
        try:
            fresh_id = await self._producer_ids.take() if image.epoch_exhausted else NO_PRODUCER_ID
        except Exception as error:  # noqa: BLE001 - whatever ZooKeeper's trouble is
            logger.warning("transaction %r timed out, no producer id can be claimed: %r", name, error)
            return
        if transaction.pending is not None or transaction.image is not image:
            return  # it went on while an id was claimed
        try:
            await self._store(shard, transaction, rules.fenced(image, now_ms, self._version(), fresh_id))
        except KafkaError:
            return
        logger.info("transaction %r timed out and is aborted", name)
        self._begin_end(shard, transaction)

    async def expire(self) -> None:
        """Forget ids that were quiet for longer than `transactional.id.expiration.ms`."""
        now_ms = self._clock.now_ms()
        for shard in self._complete():
            for name, transaction in list(shard.transactions.items()):
                if transaction.pending is None and rules.has_expired(
                    transaction.image, now_ms, self._settings.id_expiration_ms
                ):
                    transaction.pending = replace(transaction.image, state=TxnState.DEAD)
                    try:
                        shard.log.append([transaction_record(name, None, now_ms)])
                        del shard.transactions[name]
                    except KafkaError as error:
                        transaction.pending = None
                        logger.warning("transactional id %r was not forgotten: %s", name, error)


class StaleConnectionError(Exception):
    """A request was overtaken by later ones of the same producer."""


def _check_free(transaction: Transaction, unless: TxnState | None = None) -> None:
    """A change that is being written may not be overtaken; but one to the state `unless`."""
    pending = transaction.pending
    if pending is not None and pending.state is not unless:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
