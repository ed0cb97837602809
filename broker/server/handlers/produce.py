"""Produce (key 0): append batches to partitions that this broker leads.

- Versions 0-2 are advertised and refused: librdkafka before 2.11.1 takes "v0 is there" for "may compress"
  (KIP-896, KAFKA-18659). One batch of magic 2 per partition (KIP-98); zstd only from v7 (KIP-110).
- acks=0 has no answer; if it fails the connection is closed, which is all the client can notice.
- acks=all waits outside this call until the high watermarks have passed all batches of the request; the next
  request of the connection may be appended meanwhile. So does the disk where `flush.messages` wants that.
- Plain requests (nearly all) are read, appended and answered without an object per partition, by
  `plain_append`; what does not go that way comes here.
- Record bytes are slices of the connection's receive buffer and go to the log from there.
- The first batch of a transaction in a partition needs its coordinator's word (KIP-890). From v12 on it makes
  the partition take part; then, and where the coordinator is another broker, the whole request waits, and
  with it what comes behind it on the connection.
- A transactional batch without a transactional id refuses the whole request, as in Kafka.
- From v10 a wrong leader is corrected in the answer (KIP-951). v13 (topic ids) is not served.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from broker.control.metadata_cache import INTERNAL_TOPICS
from broker.log import AppendRefused, AppendResult, StorageFailed
from broker.replication import Partition
from broker.replication.acknowledging import Acknowledgements
from broker.replication.flushing import on_disk
from broker.server.context import RequestContext
from broker.server.current_leader import current_leader
from broker.server.edge import CloseConnectionError
from broker.server.error_answers import error_answer
from broker.server.offences import Offences
from broker.server.plain_append import plain_first
from broker.server.produce_batches import distinct, holds_transactional, in_turns, keep, single_batch
from broker.server.registry import InOrder, handles
from broker.server.transaction_members import Asked, Codes, refusal
from broker.server.turns import is_long
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.produce_response import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from protocol.plain_produce import decode_produce

if TYPE_CHECKING:
    from broker.server.app import Broker

ALL_REPLICAS = -1
_VALID_ACKS = (ALL_REPLICAS, 0, 1)
# Kafka's admin client alone may write to internal topics.
ADMIN_CLIENT = "__admin_client"
_LEADER_FROM = 10
_BAD_INPUT = (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)
_ABORTABLE_FROM = 11
_ADDS_FROM = 12


@handles(
    ProduceRequest,
    min=3,
    max=12,
    advertised_min=0,
    pipelined=True,
    decode=decode_produce,
    notes='0-2 are advertised for old librdkafka, which reads them as "may compress", and refused',
)
@plain_first
def produce(
    request: ProduceRequest, context: RequestContext
) -> ProduceResponse | Coroutine[Any, Any, ProduceResponse | None] | InOrder | None:
    job = _Produce(request, context)
    topics = distinct(request.topic_data)
    long = is_long(len(topic.partition_data) for topic in topics)
    if request.transactional_id is not None:
        asked = None if long else job.questions(topics)
        if asked:
            keep(topics)
            return InOrder(job.append_in_turns(topics, asked))
    elif holds_transactional(topics):  # nobody would ever end what it begins
        job.failed = "a transactional batch came without a transactional id"
        return job.end(_refused_whole(request, context.api_version))
    if long:
        keep(topics)
        return InOrder(job.append_in_turns(topics))
    job.append(topics)
    return job.wait() if job.has_to_wait else job.end(job.response)


def _refused_whole(request: ProduceRequest, version: int) -> ProduceResponse:
    answer = error_answer(request, version, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    assert isinstance(answer, ProduceResponse)
    for topic in answer.responses:
        for each in topic.partition_responses:
            each.base_offset = -1
    return answer


class _Produce:
    """One request's appends and what is still missing for its answer."""

    __slots__ = (
        "_acknowledged", "_acks", "_adds", "_all", "_broker", "_connection", "_internal", "_timeout_s",
        "_transactional_id", "_unflushed", "_unreplicated", "_verdicts", "_version", "failed", "response",
    )  # fmt: skip

    def __init__(self, request: ProduceRequest, context: RequestContext) -> None:
        self._broker: Broker = context.broker
        self._version = context.api_version
        self._acks = request.acks
        self._transactional_id = request.transactional_id
        self._adds = context.api_version >= _ADDS_FROM
        self._verdicts: Codes | None = None
        self._all = request.acks == ALL_REPLICAS
        self._internal = context.client_id == ADMIN_CLIENT
        self._connection = context.connection
        self._timeout_s = max(0, request.timeout_ms) / 1000
        self.response = ProduceResponse()
        self.failed: str | None = None
        self._acknowledged = Acknowledgements()
        self._unreplicated: list[PartitionProduceResponse] = []  # in the order of `_acknowledged`
        self._unflushed: list[tuple[Partition, int, PartitionProduceResponse]] = []

    @property
    def has_to_wait(self) -> bool:
        """Whether something is still missing: other replicas, or the disk."""
        return bool(self._unflushed or self._unreplicated)

    def append(self, topics: list[TopicProduceData]) -> None:
        for topic in topics:
            self.append_topic(topic.name, topic.partition_data)

    def end(self, response: ProduceResponse) -> ProduceResponse | None:
        """The answer, as far as there is one. Raises CloseConnectionError."""
        if self._acks != 0:
            return response
        if self.failed is not None:
            raise CloseConnectionError(f"Produce with acks=0 failed: {self.failed}")
        return None

    def append_topic(self, topic: str, parts: list[PartitionProduceData]) -> None:
        answers: list[PartitionProduceResponse] = []
        refused = self._refused(topic)
        count = size = 0
        for data in parts:
            try:
                if refused is not None:
                    raise refused
                result = self._append(topic, data, answers)
            except (KafkaError, AppendRefused) as error:
                answers.append(self._refusal(topic, data.index, error))
            except StorageFailed as error:
                refusal = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
                answers.append(self._refusal(topic, data.index, refusal))
            except Exception as error:  # noqa: BLE001 - of this partition alone (I10)
                self._unforeseen(topic, data.index, error)
                refusal = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, repr(error))
                answers.append(self._refusal(topic, data.index, refusal))
            else:
                if not result.duplicate:
                    size += len(data.records)  # type: ignore[arg-type]  # None was refused
                    count += result.last_offset - result.base_offset + 1
        if count:
            counts = self._broker.metrics.topic(topic)
            counts.bytes_in += size
            counts.messages_in += count
        responses = self.response.responses
        if responses and responses[-1].name == topic:  # its partitions come in turns
            responses[-1].partition_responses += answers
        else:
            responses.append(TopicProduceResponse(name=topic, partition_responses=answers))

    def _append(
        self, topic: str, data: PartitionProduceData, answers: list[PartitionProduceResponse]
    ) -> AppendResult:
        partition = self._broker.replicas.leader(topic, data.index)
        batch = single_batch(data.records, self._version)
        if self._transactional_id is not None:
            self._check_member(self._transactional_id, partition, batch)
        result = partition.append(batch, all_replicas=self._all, flush_later=True)
        answer = PartitionProduceResponse(
            index=data.index,
            base_offset=result.base_offset,
            log_append_time_ms=result.log_append_time_ms,
            log_start_offset=result.log_start_offset,
        )
        answers.append(answer)
        log = partition.log
        if log.flush_due and result.last_offset >= log.recovery_point:
            self._unflushed.append((partition, result.last_offset, answer))
        if self._all and not partition.acknowledged(result.last_offset):
            partition.line_up(result.last_offset, self._acknowledged)
            self._unreplicated.append(answer)
        return result

    def _refused(self, topic: str) -> KafkaError | None:
        """Why nothing of this request may be written to the topic."""
        if self._acks not in _VALID_ACKS:
            return KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={self._acks} is none of -1, 0, 1")
        if topic in INTERNAL_TOPICS and not self._internal:
            return KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is internal: clients may not write to it"
            )
        return None

    # -- transactions

    def questions(self, topics: list[TopicProduceData]) -> list[Asked]:
        """What has to be asked of the transaction's coordinator before anything is appended."""
        members = self._broker.transaction_members
        asked = []
        for topic in topics:
            for data in topic.partition_data:
                try:
                    partition = self._broker.replicas.leader(topic.name, data.index)
                    batch = single_batch(data.records, self._version)
                    question = members.asked(partition, batch, adds=self._adds)
                except KafkaError:
                    continue  # refused when its turn comes
                if question is not None:
                    asked.append(question)
        if asked and not self._adds and members.answers_at_once(self._transactional_id or ""):
            return []  # looked up when each has its turn
        return asked

    async def append_in_turns(
        self, topics: list[TopicProduceData], asked: list[Asked] | None = None
    ) -> ProduceResponse | None:
        """`append` once the transaction's coordinator has been asked; others have turns meanwhile (I11)."""
        if self._transactional_id is not None:
            if asked is None:
                asked = [each async for part in in_turns(topics) for each in self.questions([part])]
            if asked:
                members = self._broker.transaction_members
                self._verdicts = await members.admit(self._transactional_id, asked, adds=self._adds)
        async for part in in_turns(topics):
            self.append_topic(part.name, part.partition_data)
        return await self.wait()

    def _check_member(self, transactional_id: str, partition: Partition, batch: memoryview) -> None:
        members = self._broker.transaction_members
        asked = members.asked(partition, batch, adds=self._adds)
        if asked is None:
            return
        if self._verdicts is not None:  # a partition that was not led here when it was asked is not in it
            code = self._verdicts.get(partition.topic_partition, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        else:
            code = members.verify(transactional_id, asked)
        if code is not ErrorCode.NONE:
            raise refusal(code, abortable=self._version >= _ABORTABLE_FROM)

    # -- refusals

    @property
    def _offences(self) -> Offences:
        return self._broker.listeners[self._connection.listener].offences

    def _unforeseen(self, topic: str, index: int, error: Exception) -> None:
        why = f"{topic}-{index}: {error!r}"
        self._offences.say("append failed", self._connection, why, level=logging.ERROR, error=error)

    def _refusal(self, topic: str, index: int, error: KafkaError | AppendRefused) -> PartitionProduceResponse:
        self.failed = f"{topic}-{index}: {error}"
        if error.code in _BAD_INPUT and self._acks != 0:  # else the connection is closed, which says so
            self._offences.say("refused a batch", self._connection, self.failed)
        if self._broker.metadata.topic(topic) is not None:
            self._broker.metrics.topic(topic).failed_produce += 1
        answer = PartitionProduceResponse(
            index=index, error_code=error.code, base_offset=-1, error_message=error.message
        )
        if isinstance(error, AppendRefused):
            answer.record_errors = [
                BatchIndexAndErrorMessage(batch_index=number, batch_index_error_message=message)
                for number, message in error.record_errors
            ]
        elif error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER and self._version >= _LEADER_FROM:
            self._name_leader(topic, index, answer)
        return answer

    def _name_leader(self, topic: str, index: int, answer: PartitionProduceResponse) -> None:
        """KIP-951: tell the client at once who leads, so that it need not ask for metadata."""
        known = current_leader(self._broker.metadata, topic, index, self._connection.listener)
        if known is None:
            return
        answer.current_leader = LeaderIdAndEpoch(leader_id=known.leader, leader_epoch=known.leader_epoch)
        if all(node.node_id != known.leader for node in self.response.node_endpoints):
            self.response.node_endpoints.append(
                NodeEndpoint(node_id=known.leader, host=known.host, port=known.port, rack=known.rack)
            )

    # -- waiting

    async def wait(self) -> ProduceResponse | None:
        """Answer when the batches are where they have to be, or say which are not in time (I3)."""
        deadline = asyncio.get_running_loop().time() + self._timeout_s
        if self._unflushed:
            await self._wait_for_disk()
        if self._unreplicated:
            await self._wait_for_replicas(deadline)
        return self.end(self.response)

    async def _wait_for_disk(self) -> None:
        waits = (on_disk(partition, last_offset) for partition, last_offset, _ in self._unflushed)
        outcomes = await asyncio.gather(*waits, return_exceptions=True)
        for (partition, _, answer), error in zip(self._unflushed, outcomes, strict=True):
            if error is None:
                continue
            if not isinstance(error, AppendRefused):
                raise error
            self.failed = f"{partition}: {error}"
            answer.error_code, answer.base_offset, answer.error_message = error.code, -1, error.message
            for number, unreplicated in enumerate(self._unreplicated):
                if unreplicated is answer:  # whatever the replicas do
                    self._acknowledged.settle(number, error.code)

    async def _wait_for_replicas(self, deadline: float) -> None:
        codes = await self._acknowledged.wait(deadline - asyncio.get_running_loop().time())
        for answer, code in zip(self._unreplicated, codes, strict=True):
            if code != ErrorCode.NONE and answer.error_code == ErrorCode.NONE:
                answer.error_code, answer.base_offset = code, -1
