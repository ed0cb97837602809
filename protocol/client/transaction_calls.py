"""Transactions of a producer (KIP-98): its identity, the partitions of a transaction, its end.

Owns what is asked of a transaction's coordinator, in the form of clients before KIP-890: partitions are
added by request, a producer's epoch changes only when it asks for that. What is written between is the
caller's.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from protocol.client.coordinators import CoordinatorKind
from protocol.client.failures import failure
from protocol.client.log_calls import ProducerId
from protocol.client.retry import RetryPolicy, retrying
from protocol.client.routing import Router
from protocol.errors import ErrorCode
from protocol.messages.add_partitions_to_txn_request import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from protocol.messages.end_txn_request import EndTxnRequest
from protocol.messages.init_producer_id_request import InitProducerIdRequest
from protocol.types import TopicPartition

_INIT: Final = 5
_ADD: Final = 3
_END: Final = 4
_ADD_LANE: Final = "add-to-transaction"
"""A broker answers one request of a connection after the other: the end of a transaction waits for none."""
_MOVED: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})

FENCED: Final = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
    }
)
"""Another producer has taken the transactional id, or its coordinator has ended the transaction."""


class TransactionCalls(Router):
    """Part of `ClusterClient`."""

    async def init_transactional_producer(
        self,
        transactional_id: str,
        timeout_ms: int,
        producer: ProducerId | None = None,
        *,
        retry: RetryPolicy | None = None,
    ) -> ProducerId:
        """Takes the id: whoever had it is fenced, and what it left open is aborted when this returns.

        With `producer` only its own next epoch is asked for: raises KafkaError (`FENCED`) when it is not the
        one that has the id.
        """

        async def attempt() -> ProducerId:
            request = InitProducerIdRequest(
                transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
            )
            if producer is not None:
                request.producer_id, request.producer_epoch = producer
            answer = await self.send_coordinator(
                transactional_id,
                request,
                CoordinatorKind.TRANSACTION,
                highest=_INIT,
                timeout_s=self.short_s,
            )
            self._check(transactional_id, answer.error_code)
            return ProducerId(answer.producer_id, answer.producer_epoch)

        return await retrying(attempt, retry or self.retry)

    async def add_to_transaction(
        self, transactional_id: str, producer: ProducerId, tps: Collection[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """One attempt; the answer for each partition (all or none are added)."""
        topics: dict[str, list[int]] = {}
        for tp in tps:
            topics.setdefault(tp.topic, []).append(tp.partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=numbers) for name, numbers in topics.items()
            ],
        )
        answer = await self.send_coordinator(
            transactional_id,
            request,
            CoordinatorKind.TRANSACTION,
            highest=_ADD,
            lane=_ADD_LANE,
            timeout_s=self.short_s,
        )
        found = {
            TopicPartition(topic.name, row.partition_index): ErrorCode.of(row.partition_error_code)
            for topic in answer.results_by_topic_v3_and_below
            for row in topic.results_by_partition
        }
        if _MOVED & set(found.values()):
            self.forget_coordinator(transactional_id, CoordinatorKind.TRANSACTION)
        return found

    async def end_transaction(self, transactional_id: str, producer: ProducerId, *, commit: bool) -> None:
        """One attempt. Raises KafkaError; after a ClientError the outcome is not known, and asking again
        tells it."""
        request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            committed=commit,
        )
        answer = await self.send_coordinator(
            transactional_id,
            request,
            CoordinatorKind.TRANSACTION,
            highest=_END,
            timeout_s=self.short_s,
        )
        self._check(transactional_id, answer.error_code)

    def _check(self, transactional_id: str, code: int) -> None:
        if not code:
            return
        if ErrorCode.of(code) in _MOVED:
            self.forget_coordinator(transactional_id, CoordinatorKind.TRANSACTION)
        raise failure(code, f"transactional id {transactional_id}")
