"""What a coordinator and the leaders of partitions tell of transactions, in memory (KIP-664)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from protocol.client import ProducerId
from protocol.messages.describe_producers_request import DescribeProducersRequest
from protocol.messages.describe_producers_response import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from protocol.messages.describe_transactions_request import DescribeTransactionsRequest
from protocol.messages.describe_transactions_response import (
    DescribeTransactionsResponse,
    TopicData,
)
from protocol.messages.describe_transactions_response import TransactionState as Described
from protocol.messages.list_transactions_request import ListTransactionsRequest
from protocol.messages.list_transactions_response import ListTransactionsResponse, TransactionState
from protocol.types import TopicPartition
from tests.support.log_in_memory import Log


@dataclass
class Transactional:
    """A transactional id at its coordinator."""

    producer: ProducerId
    state: str = "empty"
    tps: set[TopicPartition] = field(default_factory=set)
    last: ProducerId | None = None
    """Its epoch before the one that it asked for (KIP-360), which it may ask for again."""


def answer(request: Any, ids: Mapping[str, Transactional], logs: Mapping[TopicPartition, Log]) -> Any:
    """Of a broker that coordinates these transactional ids and leads these partitions."""
    if isinstance(request, ListTransactionsRequest):
        rows = [
            TransactionState(transactional_id=name, producer_id=known.producer.producer_id)
            for name, known in ids.items()
            if known.producer.producer_id in request.producer_id_filters
        ]
        return ListTransactionsResponse(transaction_states=rows)
    if isinstance(request, DescribeTransactionsRequest):
        return DescribeTransactionsResponse(
            transaction_states=[
                Described(
                    transactional_id=name,
                    producer_id=ids[name].producer.producer_id,
                    topics=[TopicData(topic=tp.topic, partitions=[tp.partition]) for tp in ids[name].tps],
                )
                for name in request.transactional_ids
            ]
        )
    assert isinstance(request, DescribeProducersRequest)
    return DescribeProducersResponse(
        topics=[
            TopicResponse(name=topic.name, partitions=[_producers(logs, topic.name, n)])
            for topic in request.topics
            for n in topic.partition_indexes
        ]
    )


def _producers(logs: Mapping[TopicPartition, Log], topic: str, number: int) -> PartitionResponse:
    begun = logs[TopicPartition(topic, number)].open()
    rows = [
        ProducerState(producer_id=producer, current_txn_start_offset=start, last_timestamp=1)
        for producer, start in begun.items()
    ]
    return PartitionResponse(partition_index=number, active_producers=rows)
