"""Produce and fetch, batch by batch.

Owns the two requests that carry batches, and what may be sent again without writing anything twice. Batches
pass as bytes and are never decoded here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, cast

from protocol.client.errors import ClientError, ConnectError
from protocol.client.failures import failure
from protocol.client.retry import RetryPolicy, may_be_cured, retrying
from protocol.client.spread import LEADER_MOVED, Isolation, LeaderCalls, by_topic
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.fetch_response import PartitionData
from protocol.messages.init_producer_id_request import InitProducerIdRequest
from protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records import read_header
from protocol.types import ZERO_UUID, Buffer, TopicPartition

_BY_NAME_PRODUCE: Final = 12
_BY_NAME_FETCH: Final = 12

_NOT_APPENDED: Final = LEADER_MOVED | {ErrorCode.NOT_ENOUGH_REPLICAS}


class ProducerId(NamedTuple):
    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """Raw batches from one partition; the last one may be cut off, the first may begin before what was asked.

    `aborted` are (producer id, first offset) of aborted transactions, only with READ_COMMITTED.
    """

    tp: TopicPartition
    records: memoryview
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[tuple[int, int], ...] = ()
    preferred_read_replica: int = -1


class LogCalls(LeaderCalls):
    """Part of `ClusterClient`."""

    async def produce(
        self,
        tp: TopicPartition,
        batches: Buffer | Sequence[Buffer],
        acks: int = -1,
        timeout_ms: int = 30_000,
        *,
        transactional_id: str | None = None,
        lane: str = "produce",
        retry: RetryPolicy | None = None,
    ) -> int:
        """Base offset at which the leader appended, -1 with acks=0.

        `batches` is one v2 batch, whole or in segments; it must not change before this returns. A batch of an
        idempotent producer is sent again after any curable failure; any other only if it surely was not
        appended. Raises `KafkaError` with the broker's text.
        """
        segments = [batches] if isinstance(batches, Buffer) else list(batches)
        idempotent = read_header(b"".join(bytes(s[:61]) for s in segments)).producer_id >= 0

        def curable(error: BaseException) -> bool:
            if idempotent:
                return may_be_cured(error)
            surely_not = isinstance(error, KafkaError) and error.code in _NOT_APPENDED
            return surely_not or isinstance(error, ConnectError)

        async def attempt() -> int:
            return await self._produce(tp, segments, acks, timeout_ms, transactional_id, lane)

        return await retrying(attempt, retry or self.retry, curable=curable)

    async def _produce(
        self,
        tp: TopicPartition,
        segments: list[Buffer],
        acks: int,
        timeout_ms: int,
        transactional_id: str | None,
        lane: str,
    ) -> int:
        leader = await self.leader(tp)
        topic_id = (await self.topic(tp.topic)).topic_id
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=[
                TopicProduceData(
                    name=tp.topic,
                    topic_id=topic_id,
                    partition_data=[PartitionProduceData(index=tp.partition, records=segments)],
                )
            ],
        )
        # Transactions of version 2 (KIP-890) begin at 12, topic ids at 13.
        highest = 11 if transactional_id else _BY_NAME_PRODUCE if topic_id == ZERO_UUID else None
        try:
            connection = await self.connection_to(leader.node, lane)
            version = connection.version_of(ProduceRequest, highest)
            if acks == 0:
                await connection.post(request, version)
                return -1
            answer = await connection.send(request, version, timeout_s=self.timeout_s + timeout_ms / 1000)
        except ClientError:
            self.forget_leader(tp)
            raise
        row = answer.responses[0].partition_responses[0]
        if row.error_code:
            details = [record.batch_index_error_message for record in row.record_errors[:3]]
            text = "; ".join(filter(None, (row.error_message, *details)))
            raise self.moved(tp, failure(row.error_code, tp, text))
        return row.base_offset

    async def fetch(
        self,
        tp: TopicPartition,
        offset: int,
        *,
        max_bytes: int = 8 * 1024 * 1024,
        min_bytes: int = 1,
        max_wait_ms: int = 500,
        isolation: int = Isolation.READ_UNCOMMITTED,
        lane: str = "fetch",
        retry: RetryPolicy | None = None,
    ) -> Fetched:
        """Batches from the one that holds `offset` on, at least one if there is any, from the leader."""
        found = await self.spread(
            {tp: offset},
            lambda node, part: self.fetch_from(
                node,
                part,
                max_bytes=max_bytes,
                partition_max_bytes=max_bytes,
                min_bytes=min_bytes,
                max_wait_ms=max_wait_ms,
                isolation=isolation,
                lane=lane,
            ),
            retry or self.retry,
        )
        return found[tp]

    async def fetch_from(
        self,
        node_id: int,
        positions: Mapping[TopicPartition, int],
        *,
        max_bytes: int = 32 * 1024 * 1024,
        partition_max_bytes: int = 8 * 1024 * 1024,
        min_bytes: int = 1,
        max_wait_ms: int = 500,
        isolation: int = Isolation.READ_UNCOMMITTED,
        lane: str = "fetch",
    ) -> dict[TopicPartition, Fetched | KafkaError]:
        """One Fetch for several partitions of one broker, each with its batches or its error. No retries."""
        connection = await self.connection_to(node_id, lane)
        ids = {tp.topic: (await self.topic(tp.topic)).topic_id for tp in positions}
        names = {topic_id: name for name, topic_id in ids.items()}
        topics = []
        for name, parts in by_topic(positions).items():
            partitions = []
            for tp, offset in parts:
                leader = self._cache.leader(tp)
                partitions.append(
                    FetchPartition(
                        partition=tp.partition,
                        current_leader_epoch=leader.epoch if leader and leader.node == node_id else -1,
                        fetch_offset=offset,
                        partition_max_bytes=partition_max_bytes,
                    )
                )
            topics.append(FetchTopic(topic=name, topic_id=ids[name], partitions=partitions))
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=isolation,
            topics=topics,
        )
        by_name = len(names) < len(ids) or ZERO_UUID in names
        version = connection.version_of(FetchRequest, _BY_NAME_FETCH if by_name else None)
        answer = await connection.send(request, version, timeout_s=self.timeout_s + max_wait_ms / 1000)
        if answer.error_code:
            raise failure(answer.error_code, f"{connection.peer}: Fetch")
        result: dict[TopicPartition, Fetched | KafkaError] = {}
        for topic in answer.responses:
            name = topic.topic if version <= _BY_NAME_FETCH else names.get(topic.topic_id, "")
            for row in topic.partitions:
                tp = TopicPartition(name, row.partition_index)
                result[tp] = _fetched(tp, row, positions.get(tp, -1))
        return result

    async def init_producer_id(self, *, retry: RetryPolicy | None = None) -> ProducerId:
        """A new identity for an idempotent producer without transactions."""

        async def attempt() -> ProducerId:
            answer = await self.send_any(
                InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            )
            if answer.error_code:
                raise failure(answer.error_code, "InitProducerId")
            return ProducerId(answer.producer_id, answer.producer_epoch)

        return await retrying(attempt, retry or self.retry)


def _fetched(tp: TopicPartition, row: PartitionData, offset: int) -> Fetched | KafkaError:
    if row.error_code:
        return failure(row.error_code, f"{tp} at offset {offset}")
    return Fetched(
        tp,
        memoryview(b"") if row.records is None else cast(memoryview, row.records),
        row.high_watermark,
        row.last_stable_offset,
        row.log_start_offset,
        tuple((gone.producer_id, gone.first_offset) for gone in row.aborted_transactions or ()),
        row.preferred_read_replica,
    )
