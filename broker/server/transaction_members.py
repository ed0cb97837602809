"""Whether a transactional batch may open its producer's transaction in a partition (KIP-890).

A batch that comes after the end of its transaction would leave one that nobody ends. So the batch that begins
one in a partition needs the word of the transaction's coordinator: up to Produce v11 whether the partition
takes part, from v12 on (transactions of version 2) the partition is made to take part by this question. The
coordinator on this broker is asked directly, others with AddPartitionsToTxn v4; the batch waits meanwhile.
Must not know requests of producers. (Kafka: AddPartitionsToTxnManager, ReplicaManager.)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from broker.control.internal_topics import TRANSACTIONS_TOPIC
from broker.control.metadata_cache import NO_LEADER, MetadataCache
from broker.coordinator.transactions.coordinator import TransactionCoordinator
from broker.coordinator.transactions.markers import MarkerWriter
from broker.coordinator.transactions.rules import EPOCH_BUMP_FROM
from broker.replication.partition import Partition
from protocol.client.pool import ConnectionPool
from protocol.errors import DecodeError, ErrorCode, KafkaError, ProtocolError
from protocol.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from protocol.messages.add_partitions_to_txn_response import AddPartitionsToTxnResponse
from protocol.records import BatchHeader, read_header
from protocol.types import TopicPartition

logger = logging.getLogger("isthmus.broker")

TRANSACTIONAL_AT: Final = 22
TRANSACTIONAL: Final = 0x10
# Markers of the transaction before are on their way: worth a moment before the client is sent away.
_PATIENCE_S: Final = 0.1
_PAUSE_S: Final = 0.005
_ASK_TIMEOUT_S: Final = 10.0
_ASK_VERSION: Final = 4
_LANE: Final = "asks"

Codes = dict[TopicPartition, ErrorCode]


class Producer(NamedTuple):
    """Who writes: a transactional id with the id and the epoch that it has."""

    transactional_id: str
    producer_id: int
    epoch: int


class Asked(NamedTuple):
    """A batch that needs the coordinator's word."""

    partition: Partition
    header: BatchHeader


class TransactionMembers:
    """One for each broker. `verifies` is Kafka's `transaction.partition.verification.enable`."""

    def __init__(
        self,
        coordinator: TransactionCoordinator,
        markers: MarkerWriter,
        metadata: MetadataCache,
        listener: str,
        *,
        verifies: bool = True,
    ) -> None:
        self._coordinator = coordinator
        self._markers = markers
        self._metadata = metadata
        self._listener = listener
        self._verifies = verifies
        self._connections = ConnectionPool(
            "transaction-members", metadata.peer_security, _ASK_TIMEOUT_S, _ASK_TIMEOUT_S
        )

    async def close(self) -> None:
        await self._connections.close()

    # -- which batches need it

    def asked(self, partition: Partition, batch: memoryview, *, adds: bool) -> Asked | None:
        """The question that this batch raises, None if it goes on with what is open or was stored before.

        `adds`: the question makes the partition take part (transactions of version 2).
        """
        if not batch[TRANSACTIONAL_AT] & TRANSACTIONAL or not (adds or self._verifies):
            return None
        try:
            header = read_header(batch)
        except DecodeError:
            return None  # the log refuses it, and says why
        producers = partition.log.producers
        known = producers.get(header.producer_id)
        if known is not None and (
            (known.txn_first_offset is not None and known.epoch == header.producer_epoch)
            or producers.duplicate(header) is not None
        ):
            return None
        return Asked(partition, header)

    def answers_at_once(self, transactional_id: str) -> bool:
        """Whether the coordinator is here and only has to look (`verify`)."""
        return self._leader_of(transactional_id) == self._markers.broker_id

    def verify(self, transactional_id: str, asked: Asked) -> ErrorCode:
        """Whether the partition takes part, as the coordinator on this broker knows it."""
        header = asked.header
        producer = Producer(transactional_id, header.producer_id, header.producer_epoch)
        return self._verified(producer, asked.partition.topic_partition)

    # -- asking

    async def admit(self, transactional_id: str, asked: Sequence[Asked], *, adds: bool) -> Codes:
        """The coordinator's word for each partition. An end that slips in meanwhile takes it back."""
        by_producer: dict[Producer, list[Asked]] = {}
        for each in asked:
            producer = Producer(transactional_id, each.header.producer_id, each.header.producer_epoch)
            by_producer.setdefault(producer, []).append(each)
        codes: Codes = {}
        for producer, theirs in by_producer.items():
            codes |= await self._admit(producer, theirs, adds)
        return codes

    async def _admit(self, producer: Producer, asked: Sequence[Asked], adds: bool) -> Codes:
        watches = [
            self._markers.watch(each.partition.topic_partition, producer.producer_id) for each in asked
        ]
        epochs = [each.partition.leader_epoch for each in asked]
        try:
            codes = await self.ask(producer, [watch.partition for watch in watches], adds=adds)
        finally:
            for watch in watches:
                self._markers.unwatch(watch)
        for watch, each, epoch in zip(watches, asked, epochs, strict=True):
            if codes[watch.partition] is not ErrorCode.NONE:
                continue
            if watch.forbids(producer.epoch, version=EPOCH_BUMP_FROM if adds else 0):
                codes[watch.partition] = (
                    ErrorCode.PRODUCER_FENCED if adds else ErrorCode.TRANSACTION_ABORTABLE
                )
            elif each.partition.leader_epoch != epoch:
                codes[watch.partition] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return codes

    async def ask(self, producer: Producer, partitions: Sequence[TopicPartition], *, adds: bool) -> Codes:
        """Whether the partitions take part; with `adds` they do from now on."""
        if not adds and not self._verifies:
            return dict.fromkeys(partitions, ErrorCode.NONE)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _PATIENCE_S
        while True:
            leader = self._leader_of(producer.transactional_id)
            if leader == NO_LEADER:
                return dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            if leader == self._markers.broker_id:
                codes = await self._ask_here(producer, partitions, adds)
            else:
                codes = await self._ask_broker(leader, producer, partitions, adds)
            if ErrorCode.CONCURRENT_TRANSACTIONS not in codes.values() or loop.time() >= deadline:
                return codes
            await asyncio.sleep(_PAUSE_S)

    def _leader_of(self, transactional_id: str) -> int:
        known = self._metadata.partition(TRANSACTIONS_TOPIC, self._coordinator.partition_of(transactional_id))
        return NO_LEADER if known is None else known.leader

    async def _ask_here(self, producer: Producer, partitions: Sequence[TopicPartition], adds: bool) -> Codes:
        if not adds:
            return {partition: self._verified(producer, partition) for partition in partitions}
        unknown = [each for each in partitions if not self._metadata.has_partition(*each)]
        if unknown:
            return dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED) | dict.fromkeys(
                unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
        try:
            await self._coordinator.add_partitions(*producer, partitions, client_version=EPOCH_BUMP_FROM)
        except KafkaError as error:
            return dict.fromkeys(partitions, error.code)
        return dict.fromkeys(partitions, ErrorCode.NONE)

    def _verified(self, producer: Producer, partition: TopicPartition) -> ErrorCode:
        try:
            self._coordinator.verify(*producer, partition)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    async def _ask_broker(
        self, leader: int, producer: Producer, partitions: Sequence[TopicPartition], adds: bool
    ) -> Codes:
        endpoint = self._metadata.endpoint(leader, self._listener)
        if endpoint is None:
            return dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        try:
            connection = await self._connections.get((endpoint.host, endpoint.port), _LANE)
            answer = await connection.send(_request(producer, partitions, adds), _ASK_VERSION)
        except (ProtocolError, OSError) as error:
            logger.warning("broker %d was not asked about a transaction: %s", leader, error)
            return dict.fromkeys(partitions, ErrorCode.NETWORK_EXCEPTION)
        return codes_told(answer, partitions)


def _request(
    producer: Producer, partitions: Iterable[TopicPartition], adds: bool
) -> AddPartitionsToTxnRequest:
    by_topic: dict[str, list[int]] = {}
    for partition in partitions:
        by_topic.setdefault(partition.topic, []).append(partition.partition)
    return AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=producer.transactional_id,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                verify_only=not adds,
                topics=[
                    AddPartitionsToTxnTopic(name=topic, partitions=indexes)
                    for topic, indexes in by_topic.items()
                ],
            )
        ]
    )


def codes_told(answer: AddPartitionsToTxnResponse, partitions: Iterable[TopicPartition]) -> Codes:
    """By partition; what the answer does not name counts as not known."""
    code = ErrorCode.of(answer.error_code)
    if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        # That one is between brokers. All else is told as it is: INVALID_TXN_STATE would end the producer.
        code = ErrorCode.INVALID_TXN_STATE
    if code:
        return dict.fromkeys(partitions, code)
    codes = dict.fromkeys(partitions, ErrorCode.UNKNOWN_SERVER_ERROR)
    for result in answer.results_by_transaction:
        for topic in result.topic_results:
            for each in topic.results_by_partition:
                codes[TopicPartition(topic.name, each.partition_index)] = ErrorCode(each.partition_error_code)
    return codes


# -- in a producer's words ---------------------------------------------------------------------------------

_AGAIN: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
# All producers send again after NOT_ENOUGH_REPLICAS without losing anything, whatever their age.
_SAID: Final[Mapping[ErrorCode, ErrorCode]] = {
    **dict.fromkeys(_AGAIN, ErrorCode.NOT_ENOUGH_REPLICAS),
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
}


def refusal(code: ErrorCode, *, abortable: bool) -> KafkaError:
    """What a producer is told; `abortable`: it knows TRANSACTION_ABORTABLE (Produce v11)."""
    if code is ErrorCode.TRANSACTION_ABORTABLE and not abortable:
        code = ErrorCode.INVALID_TXN_STATE
    if code in _AGAIN:
        return KafkaError(_SAID[code], "the transaction is not ready for this batch yet")
    return KafkaError(_SAID.get(code, code), "the batch is in no open transaction of its producer")
