"""AddPartitionsToTxn (24), AddOffsetsToTxn (25), EndTxn (26), TxnOffsetCommit (28): a transaction's course.

- Every partition takes part before it is written to; offsets are written in `__consumer_offsets`, so its
  partition takes part as well (KIP-98).
- Fenced producers are told INVALID_PRODUCER_EPOCH before v2 (KIP-588), PRODUCER_FENCED from then on.
- AddPartitionsToTxn is all or nothing: one partition that does not exist (3) and the others get
  OPERATION_NOT_ATTEMPTED. v4 comes from brokers: it asks for several transactions, or only whether partitions
  take part (KIP-890).
- TxnOffsetCommit needs the word of the transaction's coordinator; from v5 on the group's partition takes part
  by that question. v4 may say TRANSACTION_ABORTABLE, earlier ones INVALID_TXN_STATE.
- EndTxn v5 is the end of a transaction of version 2: its answer has the producer's next id and epoch.
- A request before these that its producer has overtaken over a newer connection closes its own (KAFKA-17754):
  see docs/decisions.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Iterable

from broker.control.internal_topics import OFFSETS_TOPIC
from broker.coordinator.offsets.committed import CommittedOffset
from broker.coordinator.transactions.coordinator import StaleConnectionError
from broker.coordinator.transactions.rules import EPOCH_BUMP_FROM
from broker.server.context import RequestContext
from broker.server.edge import CloseConnectionError
from broker.server.registry import handles
from broker.server.transaction_members import Codes, Producer
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from protocol.messages.add_offsets_to_txn_response import AddOffsetsToTxnResponse
from protocol.messages.add_partitions_to_txn_request import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from protocol.messages.add_partitions_to_txn_response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from protocol.messages.end_txn_request import EndTxnRequest
from protocol.messages.end_txn_response import EndTxnResponse
from protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
)
from protocol.messages.txn_offset_commit_response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from protocol.types import TopicPartition

logger = logging.getLogger("isthmus.broker")

_FENCED_FROM = 2
_SEVERAL_FROM = 4
_ABORTABLE_FROM = 4
_ADDS_FROM = 5
_BUMPS_FROM = 5


async def _code(call: Awaitable[None], version: int) -> ErrorCode:
    """How the coordinator's answer is said in this version. Raises CloseConnectionError."""
    try:
        await call
    except StaleConnectionError as error:
        raise CloseConnectionError(str(error)) from error
    except KafkaError as error:
        if error.code is ErrorCode.PRODUCER_FENCED and version < _FENCED_FROM:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        return error.code
    return ErrorCode.NONE


def _partitions(topics: Iterable[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, index) for topic in topics for index in topic.partitions]


@handles(AddPartitionsToTxnRequest, min=0, max=5)
async def add_partitions_to_txn(
    request: AddPartitionsToTxnRequest, context: RequestContext
) -> AddPartitionsToTxnResponse:
    if context.api_version < _SEVERAL_FROM:
        topics = request.v3_and_below_topics
        codes = await _add(
            request.v3_and_below_transactional_id,
            (request.v3_and_below_producer_id, request.v3_and_below_producer_epoch),
            _partitions(topics),
            context,
            context.connection,
        )
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_results(topics, codes))
    answers = []
    for each in request.transactions:
        producer = (each.producer_id, each.producer_epoch)
        wanted = _partitions(each.topics)
        if each.verify_only:
            codes = {p: _verified(each.transactional_id, producer, p, context) for p in wanted}
        else:
            codes = await _add(each.transactional_id, producer, wanted, context, None)
        answers.append(
            AddPartitionsToTxnResult(
                transactional_id=each.transactional_id, topic_results=_results(each.topics, codes)
            )
        )
    return AddPartitionsToTxnResponse(results_by_transaction=answers)


async def _add(
    transactional_id: str,
    producer: tuple[int, int],
    partitions: list[TopicPartition],
    context: RequestContext,
    connection: object,
) -> Codes:
    broker = context.broker
    unknown = [each for each in partitions if not broker.metadata.has_partition(*each)]
    if unknown:
        codes = dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED)
        return codes | dict.fromkeys(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    call = broker.transactions.add_partitions(
        transactional_id,
        *producer,
        partitions,
        connection,
        client_version=EPOCH_BUMP_FROM if context.api_version >= _SEVERAL_FROM else 0,
    )
    return dict.fromkeys(partitions, await _code(call, context.api_version))


def _verified(
    transactional_id: str, producer: tuple[int, int], partition: TopicPartition, context: RequestContext
) -> ErrorCode:
    try:
        context.broker.transactions.verify(transactional_id, *producer, partition)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def _results(topics: Iterable[AddPartitionsToTxnTopic], codes: Codes) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=codes[TopicPartition(topic.name, index)]
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]


# What the transaction's coordinator could not say; about it, not about the group's.
_TRY_AGAIN = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


@handles(AddOffsetsToTxnRequest, min=0, max=4)
async def add_offsets_to_txn(
    request: AddOffsetsToTxnRequest, context: RequestContext
) -> AddOffsetsToTxnResponse:
    broker = context.broker
    try:  # a producer may know a group before any member has looked for its coordinator
        await broker.topics.ensure_internal_topic(OFFSETS_TOPIC)
    except KafkaError:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    partition = TopicPartition(OFFSETS_TOPIC, broker.groups.partition_of(request.group_id))
    call = broker.transactions.add_partitions(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        [partition],
        context.connection,
    )
    return AddOffsetsToTxnResponse(error_code=await _code(call, context.api_version))


@handles(EndTxnRequest, min=0, max=5)
async def end_txn(request: EndTxnRequest, context: RequestContext) -> EndTxnResponse:
    if context.api_version >= _BUMPS_FROM:
        return await _end_v2(request, context)
    call = context.broker.transactions.end(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        request.committed,
        context.connection,
    )
    return EndTxnResponse(error_code=await _code(call, context.api_version))


async def _end_v2(request: EndTxnRequest, context: RequestContext) -> EndTxnResponse:
    try:
        following = await context.broker.transactions.end_v2(
            request.transactional_id, request.producer_id, request.producer_epoch, request.committed
        )
    except KafkaError as error:
        return EndTxnResponse(error_code=error.code)
    except Exception as error:  # noqa: BLE001 - whatever ZooKeeper's trouble is, the producer has to wait
        logger.warning("no producer ids can be claimed: %r", error)
        return EndTxnResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    return EndTxnResponse(producer_id=following.producer_id, producer_epoch=following.epoch)


@handles(TxnOffsetCommitRequest, min=0, max=5)
async def txn_offset_commit(
    request: TxnOffsetCommitRequest, context: RequestContext
) -> TxnOffsetCommitResponse:
    now_ms = context.broker.clock.now_ms()
    metadata_max = context.broker.groups.offsets.metadata_max
    codes: Codes = {}
    accepted: dict[TopicPartition, CommittedOffset] = {}
    for topic in request.topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition_index)
            if not context.broker.metadata.has_partition(*partition):
                codes[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif len(each.committed_metadata or "") > metadata_max:
                codes[partition] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                accepted[partition] = _committed(each, now_ms)
    codes |= dict.fromkeys(accepted, await _commit_offsets(request, accepted, context))
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=each.partition_index,
                        error_code=codes[TopicPartition(topic.name, each.partition_index)],
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _committed(each: TxnOffsetCommitRequestPartition, now_ms: int) -> CommittedOffset:
    return CommittedOffset(
        each.committed_offset, each.committed_leader_epoch, each.committed_metadata or "", now_ms
    )


async def _commit_offsets(
    request: TxnOffsetCommitRequest, offsets: dict[TopicPartition, CommittedOffset], context: RequestContext
) -> ErrorCode:
    broker = context.broker
    producer = Producer(request.transactional_id, request.producer_id, request.producer_epoch)
    adds = context.api_version >= _ADDS_FROM
    try:
        if not request.group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        broker.groups.find(request.group_id)  # raises where the group is not coordinated here
        positions, identity = broker.groups.offsets, (request.producer_id, request.producer_epoch)
        batch = await positions.built_if_large(request.group_id, offsets, identity)
        where = TopicPartition(OFFSETS_TOPIC, broker.groups.partition_of(request.group_id))
        watch = broker.markers.watch(where, request.producer_id)
        try:
            codes = await broker.transaction_members.ask(producer, [where], adds=adds)
        finally:
            broker.markers.unwatch(watch)
        code = codes[where]
        if watch.forbids(request.producer_epoch, version=EPOCH_BUMP_FROM if adds else 0):
            code = ErrorCode.PRODUCER_FENCED if adds else ErrorCode.TRANSACTION_ABORTABLE
        if code is not ErrorCode.NONE:
            return _offsets_refusal(code, context)
        return await positions.commit_in_transaction(
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id,
            identity,
            offsets,
            batch,
        )
    except KafkaError as error:
        return error.code


def _offsets_refusal(code: ErrorCode, context: RequestContext) -> ErrorCode:
    """What the transaction's coordinator says, in this request's words."""
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code in _TRY_AGAIN:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # that one is retried by clients of all versions
    if code is ErrorCode.TRANSACTION_ABORTABLE and context.api_version < _ABORTABLE_FROM:
        return ErrorCode.INVALID_TXN_STATE
    return code
