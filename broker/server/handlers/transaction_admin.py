"""WriteTxnMarkers (27), DescribeProducers (61), DescribeTransactions (65), ListTransactions (66).

- Markers come from coordinators on other brokers, and from administrators who end a transaction that hangs
  (KIP-664).
- DescribeProducers shows what the leader of a partition remembers of its producers, with the first
  offset of an open transaction.
- ListTransactions names the ids coordinated here; unknown states to filter by are named in the answer. v2
  takes a regular expression for the whole id, in RE2's language: linear in time, whatever a client asks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import re2

from broker.coordinator.transactions.markers import Ending
from broker.coordinator.transactions.states import TxnState
from broker.log.producer_state import Producer
from broker.server.context import RequestContext
from broker.server.registry import handles
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.describe_producers_request import DescribeProducersRequest
from protocol.messages.describe_producers_response import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from protocol.messages.describe_transactions_request import DescribeTransactionsRequest
from protocol.messages.describe_transactions_response import DescribeTransactionsResponse, TopicData
from protocol.messages.describe_transactions_response import TransactionState as DescribedTransaction
from protocol.messages.list_transactions_request import ListTransactionsRequest
from protocol.messages.list_transactions_response import ListTransactionsResponse
from protocol.messages.list_transactions_response import TransactionState as ListedTransaction
from protocol.messages.write_txn_markers_request import WritableTxnMarker, WriteTxnMarkersRequest
from protocol.messages.write_txn_markers_response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from protocol.types import TopicPartition

_NONE = -1
_STATES = {state.shown: state for state in TxnState}


@handles(WriteTxnMarkersRequest, min=1, max=2)
async def write_txn_markers(
    request: WriteTxnMarkersRequest, context: RequestContext
) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(markers=[await _write(marker, context) for marker in request.markers])


async def _write(marker: WritableTxnMarker, context: RequestContext) -> WritableTxnMarkerResult:
    ending = Ending(
        marker.producer_id,
        marker.producer_epoch,
        marker.transaction_result,
        marker.coordinator_epoch,
        marker.transaction_version,
    )
    result = WritableTxnMarkerResult(producer_id=marker.producer_id)
    for topic in marker.topics:
        asked = [TopicPartition(topic.name, index) for index in topic.partition_indexes]
        written = await context.broker.markers.write(asked, ending)
        answers = [
            WritableTxnMarkerPartitionResult(partition_index=each.partition, error_code=code)
            for each, code in written.items()
        ]
        result.topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=answers))
    return result


# -- looking -----------------------------------------------------------------------------------------------


@handles(DescribeProducersRequest, min=0, max=0)
def describe_producers(
    request: DescribeProducersRequest, context: RequestContext
) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[_producers_of(topic.name, index, context) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _producers_of(topic: str, index: int, context: RequestContext) -> PartitionResponse:
    try:
        producers = context.broker.replicas.leader(topic, index).log.producers
    except KafkaError as error:
        return PartitionResponse(partition_index=index, error_code=error.code, error_message=error.message)
    return PartitionResponse(partition_index=index, active_producers=[_described(each) for each in producers])


def _described(producer: Producer) -> ProducerState:
    last = producer.batches[-1] if producer.batches else None
    first = producer.txn_first_offset
    return ProducerState(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        last_sequence=_NONE if last is None else last.last_sequence,
        last_timestamp=producer.touched_ms if last is None else last.timestamp,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_start_offset=_NONE if first is None else first,
    )


@handles(DescribeTransactionsRequest, min=0, max=0)
def describe_transactions(
    request: DescribeTransactionsRequest, context: RequestContext
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[_describe(name, context) for name in request.transactional_ids]
    )


def _describe(name: str, context: RequestContext) -> DescribedTransaction:
    try:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        transaction = context.broker.transactions.find(name)
        if transaction is None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    except KafkaError as error:
        return DescribedTransaction(transactional_id=name, error_code=error.code)
    image = transaction.image
    by_topic: dict[str, list[int]] = {}
    for partition in sorted(image.partitions):
        by_topic.setdefault(partition.topic, []).append(partition.partition)
    return DescribedTransaction(
        transactional_id=name,
        transaction_state=image.state.shown,
        transaction_timeout_ms=image.timeout_ms,
        transaction_start_time_ms=image.start_ms,
        producer_id=image.producer_id,
        producer_epoch=image.epoch,
        topics=[TopicData(topic=topic, partitions=indexes) for topic, indexes in by_topic.items()],
    )


@handles(ListTransactionsRequest, min=0, max=2)
def list_transactions(request: ListTransactionsRequest, context: RequestContext) -> ListTransactionsResponse:
    coordinator = context.broker.transactions
    if coordinator.is_loading:
        return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    try:
        named = _name_filter(request.transactional_id_pattern)
    except re2.error:
        return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    states = {_STATES[name] for name in request.state_filters if name in _STATES}
    unknown = [name for name in request.state_filters if name not in _STATES]
    producer_ids = set(request.producer_id_filters)
    now_ms = context.broker.clock.now_ms()
    listed = []
    for transaction in coordinator.all_transactions():
        image = transaction.image
        if (
            (request.state_filters and image.state not in states)
            or (producer_ids and image.producer_id not in producer_ids)
            or (request.duration_filter >= 0 and now_ms - image.start_ms <= request.duration_filter)
            or not named(transaction.transactional_id)
        ):
            continue
        listed.append(
            ListedTransaction(
                transactional_id=transaction.transactional_id,
                producer_id=image.producer_id,
                transaction_state=image.state.shown,
            )
        )
    return ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=listed)


_PATTERN_MEMORY: Final = 1 << 20


def _name_filter(pattern: str | None) -> Callable[[str], bool]:
    """Whether an id is asked for. Raises `re2.error`."""
    if not pattern:
        return lambda name: True
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _PATTERN_MEMORY
    compiled = re2.compile(pattern, options)
    return lambda name: compiled.fullmatch(name) is not None
