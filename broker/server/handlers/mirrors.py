"""The private APIs of mirrors with identical offsets: MirrorAppend, SettleMirrors, AlterMirrors.

- MirrorAppend (leader) takes batches as the source's log has them, and answers when every in-sync replica has
  them; with expected offset -1 it only tells where the mirror stands. An expected offset that is not the
  log's end is OFFSET_OUT_OF_RANGE, with the end in the answer: the end is the only progress there is.
- SettleMirrors (leader), in the term that it names: ends what the source's producers have open and forgets
  them (a control batch that replicas and restarts read as well), or cuts the log back.
- AlterMirrors (controller) says whose mirror a topic is, and raises leader epochs.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from broker.config.topic_settings import MIRROR_SOURCE
from broker.control.controller_jobs import Results
from broker.control.controller_store import ControllerMoved
from broker.control.mirror_terms import raise_epochs
from broker.log import AppendRefused, LogError
from broker.replication import Partition
from broker.replication.flushing import on_disk
from broker.replication.mirroring import append_mirrored, begin_at, check_mirror, cut, follow_start
from broker.server.context import RequestContext
from broker.server.mirror_ending import end_mirror
from broker.server.registry import handles
from protocol.errors import ErrorCode, KafkaError
from protocol.private.alter_mirrors_request import (
    AlterMirrorsPartition,
    AlterMirrorsRequest,
    AlterMirrorsTopic,
)
from protocol.private.alter_mirrors_response import (
    AlterMirrorsPartitionResult,
    AlterMirrorsResponse,
    AlterMirrorsTopicResult,
)
from protocol.private.mirror_append_request import MirrorAppendPartition, MirrorAppendRequest
from protocol.private.mirror_append_response import (
    MirrorAppendPartitionResult,
    MirrorAppendResponse,
    MirrorAppendTopicResult,
)
from protocol.private.settle_mirrors_request import SettleMirrorsPartition, SettleMirrorsRequest
from protocol.private.settle_mirrors_response import (
    SettleMirrorsPartitionResult,
    SettleMirrorsResponse,
    SettleMirrorsTopicResult,
)
from protocol.types import TopicPartition

if TYPE_CHECKING:
    from broker.server.app import Broker

_TELL = -1
_NO_CUT = -1
_IN_ONE_TURN = 50
"""Partitions that are ended before the loop turns to others."""
_TOPICS_AT_ONCE = 16

Waiting = tuple[Partition, int, int]
"""A partition, the last offset that other replicas have to have, and the term of its append."""


# -- MirrorAppend


@handles(MirrorAppendRequest, min=0, max=0, notes="batches at their source's offsets; isthmus only")
def mirror_append(request: MirrorAppendRequest, context: RequestContext) -> object:
    """Appends before it waits: the batches are slices of the receive buffer."""
    response = MirrorAppendResponse()
    waiting: list[tuple[Waiting, MirrorAppendPartitionResult]] = []
    for topic in request.topics:
        result = MirrorAppendTopicResult(name=topic.name)
        response.topics.append(result)
        for wanted in topic.partitions:
            answer = MirrorAppendPartitionResult(index=wanted.index)
            result.partitions.append(answer)
            found = _append(context.broker, topic.name, topic.source, wanted, answer)
            if found is not None:
                waiting.append((found, answer))
    return _wait_all(response, waiting, request.timeout_ms / 1000) if waiting else response


def _append(
    broker: Broker,
    topic: str,
    source: str,
    wanted: MirrorAppendPartition,
    answer: MirrorAppendPartitionResult,
) -> Waiting | None:
    waits = None
    try:
        partition = broker.replicas.leader(topic, wanted.index)
        check_mirror(partition, source)
        if wanted.expected_offset != _TELL:
            waits = _append_to(broker, partition, wanted)
    except (KafkaError, AppendRefused) as error:
        answer.error_code, answer.error_message = error.code, error.message
    except LogError as error:
        answer.error_code, answer.error_message = ErrorCode.KAFKA_STORAGE_ERROR, str(error)
    found = broker.replicas.get(topic, wanted.index)
    if found is not None:
        _tell(found, answer)
    return waits


def _append_to(broker: Broker, partition: Partition, wanted: MirrorAppendPartition) -> Waiting | None:
    records = wanted.records
    if not isinstance(records, memoryview) or not records:
        begin_at(partition, wanted.log_start_offset)
        follow_start(partition, wanted.log_start_offset)
        return None
    before = partition.log.end_offset
    last = append_mirrored(partition, records, wanted.expected_offset, wanted.log_start_offset)
    counts = broker.metrics.topic(partition.topic)
    counts.bytes_in += len(records)
    counts.messages_in += last + 1 - before
    return partition, last, partition.leader_epoch


def _tell(partition: Partition, answer: MirrorAppendPartitionResult) -> None:
    log = partition.log
    answer.log_start_offset, answer.log_end_offset = log.start_offset, log.end_offset
    answer.high_watermark, answer.leader_epoch = log.high_watermark, partition.leader_epoch
    answer.last_epoch = log.epochs.latest
    answer.open_transactions = len(log.producers.open_transactions())


async def _wait_all(
    response: MirrorAppendResponse,
    waiting: list[tuple[Waiting, MirrorAppendPartitionResult]],
    timeout_s: float,
) -> MirrorAppendResponse:
    codes = await asyncio.gather(*(_stored(*each, timeout_s) for each, _ in waiting))
    for ((partition, _, _), answer), code in zip(waiting, codes, strict=True):
        answer.error_code = code
        answer.high_watermark = partition.log.high_watermark
        if code is not ErrorCode.NONE:
            answer.error_message = f"{partition}: appended, but not known to be on all in-sync replicas"
    return response


async def _stored(partition: Partition, last_offset: int, leader_epoch: int, timeout_s: float) -> ErrorCode:
    """When the disk, where it is waited for, and every in-sync replica have it."""
    log = partition.log
    if log.flush_due and last_offset >= log.recovery_point:
        try:
            await on_disk(partition, last_offset)
        except AppendRefused as error:
            return error.code
    return await partition.wait_acknowledged(last_offset, leader_epoch, timeout_s)


# -- SettleMirrors


@handles(SettleMirrorsRequest, min=0, max=0, notes="before a mirror is written to, or cut back; isthmus only")
async def settle_mirrors(request: SettleMirrorsRequest, context: RequestContext) -> SettleMirrorsResponse:
    """All are appended to before any is waited for: replicas copy them together."""
    response = SettleMirrorsResponse()
    waiting: list[tuple[Waiting, SettleMirrorsPartitionResult]] = []
    for topic in request.topics:
        result = SettleMirrorsTopicResult(name=topic.name)
        response.topics.append(result)
        for wanted in topic.partitions:
            answer = SettleMirrorsPartitionResult(index=wanted.index)
            result.partitions.append(answer)
            found = _settle(context.broker, topic.name, topic.source, wanted, answer)
            if found is not None:
                waiting.append((found, answer))
            if len(waiting) % _IN_ONE_TURN == 0:
                await asyncio.sleep(0)
    timeout_s = request.timeout_ms / 1000
    codes = await asyncio.gather(
        *(p.wait_acknowledged(last, term, timeout_s) for (p, last, term), _ in waiting)
    )
    for ((partition, _, _), answer), code in zip(waiting, codes, strict=True):
        answer.error_code, answer.log_end_offset = code, partition.log.end_offset
        if code is not ErrorCode.NONE:
            answer.error_message = f"{partition}: its end is not known to be on all in-sync replicas"
    return response


def _settle(
    broker: Broker,
    topic: str,
    source: str,
    wanted: SettleMirrorsPartition,
    answer: SettleMirrorsPartitionResult,
) -> Waiting | None:
    try:
        partition = broker.replicas.leader(topic, wanted.index, wanted.leader_epoch)
        check_mirror(partition, source)
        if wanted.cut_to != _NO_CUT:
            answer.log_end_offset = cut(partition, wanted.cut_to, broker.clock.monotonic())
            return None
        ended = end_mirror(partition, broker.clock.now_ms())
    except (KafkaError, AppendRefused) as error:
        answer.error_code, answer.error_message = error.code, error.message
    except (LogError, OSError) as error:
        answer.error_code, answer.error_message = ErrorCode.KAFKA_STORAGE_ERROR, str(error)
    else:
        answer.aborted_transactions = ended.aborted
        return partition, ended.last_offset, wanted.leader_epoch
    return None


# -- AlterMirrors


@handles(
    AlterMirrorsRequest, min=0, max=0, notes="whose mirror a topic is, higher leader epochs; isthmus only"
)
async def alter_mirrors(request: AlterMirrorsRequest, context: RequestContext) -> AlterMirrorsResponse:
    """Epochs of all topics are one job of the controller; then topics change, a few at a time."""
    results = [AlterMirrorsTopicResult(name=topic.name) for topic in request.topics]
    slots = asyncio.Semaphore(_TOPICS_AT_ONCE)

    async def one(topic: AlterMirrorsTopic, result: AlterMirrorsTopicResult, done: Results) -> None:
        result.partitions = [_raised(topic.name, each, done) for each in topic.partitions]
        if not topic.changes_source:
            return
        async with slots:
            try:
                await _change_source(context.broker, topic)
            except ControllerMoved as error:
                result.error_code, result.error_message = ErrorCode.NOT_CONTROLLER, str(error)
            except KafkaError as error:
                result.error_code, result.error_message = error.code, error.message

    try:
        done = await _raise(context.broker, request.topics)
    except ControllerMoved as error:
        for result in results:
            result.error_code, result.error_message = ErrorCode.NOT_CONTROLLER, str(error)
    except KafkaError as error:
        for result in results:
            result.error_code, result.error_message = error.code, error.message
    else:
        await asyncio.gather(*(one(*each, done) for each in zip(request.topics, results, strict=True)))
    return AlterMirrorsResponse(topics=results)


async def _raise(broker: Broker, topics: list[AlterMirrorsTopic]) -> Results:
    if broker.controller is None or not broker.controller.active:
        raise ControllerMoved("this broker is not the controller")
    least = {
        TopicPartition(topic.name, each.index): each.least_epoch
        for topic in topics
        for each in topic.partitions
    }
    return await broker.controller.ask(partial(raise_epochs, least=least))


def _raised(topic: str, wanted: AlterMirrorsPartition, done: Results) -> AlterMirrorsPartitionResult:
    error = done[TopicPartition(topic, wanted.index)]
    return AlterMirrorsPartitionResult(
        index=wanted.index,
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message,
        leader_epoch=wanted.least_epoch,
    )


async def _change_source(broker: Broker, topic: AlterMirrorsTopic) -> None:
    def edit(current: dict[str, str]) -> dict[str, str]:
        mine = current.get(MIRROR_SOURCE) or None
        if mine not in (topic.expected_source or None, topic.source or None):
            text = f"{topic.name} is a mirror of {mine}" if mine else f"{topic.name} is no mirror"
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION, f"{text}, not what was expected; nothing was changed"
            )
        if topic.source:
            current[MIRROR_SOURCE] = topic.source
        else:
            current.pop(MIRROR_SOURCE, None)
        return current

    await broker.topics.change_configs(topic.name, edit)
