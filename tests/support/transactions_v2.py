"""A producer that speaks transactions of version 2 (KIP-890) request by request; no client hides answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from protocol.client import Connection
from protocol.client.cluster import ClusterClient
from protocol.client.topic_calls import NewTopic
from protocol.errors import ErrorCode
from protocol.messages.add_partitions_to_txn_request import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from protocol.messages.end_txn_request import EndTxnRequest
from protocol.messages.find_coordinator_request import FindCoordinatorRequest
from protocol.messages.init_producer_id_request import InitProducerIdRequest
from protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records import Record, build_batch
from tests.support.sides import Side
from tests.support.transactions import read_until

BOUND_S = 60.0
SETTINGS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "300"}
"""Of the brokers of these tests."""
V1, V2 = 4, 5
"""Versions of EndTxn: the last of transactions version 1, the first of version 2."""


class Identity(NamedTuple):
    producer_id: int
    epoch: int


class Ended(NamedTuple):
    code: ErrorCode
    producer_id: int
    epoch: int


class RawProducer:
    """One transactional id on one connection. Sequences are the caller's."""

    def __init__(self, connection: Connection, name: str) -> None:
        self.connection = connection
        self.name = name
        self.identity = Identity(-1, -1)

    async def begin(self, timeout_ms: int = 60_000, expected: Identity | None = None) -> Identity:
        """InitProducerId until the coordinator is ready."""
        async with asyncio.timeout(BOUND_S):
            while True:
                code = await self.try_init(timeout_ms, expected)
                if code is ErrorCode.NONE:
                    return self.identity
                assert code in (
                    ErrorCode.CONCURRENT_TRANSACTIONS,
                    ErrorCode.NOT_COORDINATOR,
                    ErrorCode.COORDINATOR_NOT_AVAILABLE,
                    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                )
                await asyncio.sleep(0.05)

    async def try_init(self, timeout_ms: int = 60_000, expected: Identity | None = None) -> ErrorCode:
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=timeout_ms)
        if expected is not None:
            request.producer_id, request.producer_epoch = expected
        await self.connection.send(FindCoordinatorRequest(key=self.name, key_type=1), 3)
        answer = await self.connection.send(request, 5)
        if not answer.error_code:
            self.identity = Identity(answer.producer_id, answer.producer_epoch)
        return ErrorCode(answer.error_code)

    async def add(self, topic: str, version: int = 3) -> ErrorCode:
        """AddPartitionsToTxn as producers of transactions version 1 send it."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.identity.producer_id,
            v3_and_below_producer_epoch=self.identity.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
        )
        async with asyncio.timeout(BOUND_S):
            while True:
                answer = await self.connection.send(request, version)
                result = answer.results_by_topic_v3_and_below[0].results_by_partition[0]
                if result.partition_error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
                    return ErrorCode(result.partition_error_code)
                await asyncio.sleep(0.05)

    async def produce(
        self,
        topic: str,
        value: str,
        sequence: int,
        *,
        version: int = 12,
        identity: Identity | None = None,
        timestamp_ms: int | None = None,
    ) -> ErrorCode:
        """One record to partition 0; asked again while the transaction before is still being ended."""
        who = self.identity if identity is None else identity
        now_ms = time.time_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms
        batch = build_batch(
            [Record(0, now_ms, None, value.encode(), [])],
            producer_id=who.producer_id,
            producer_epoch=who.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        request = ProduceRequest(
            transactional_id=self.name,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[
                TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
            ],
        )
        async with asyncio.timeout(BOUND_S):
            while True:
                answer = await self.connection.send(request, version)
                code = ErrorCode(answer.responses[0].partition_responses[0].error_code)
                if code not in (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS):
                    return code
                await asyncio.sleep(0.05)

    async def end(
        self, commit: bool, *, identity: Identity | None = None, version: int = V2, follow: bool = True
    ) -> Ended:
        """EndTxn, asked again while it is still under way; `follow`: go on with what the answer says."""
        who = self.identity if identity is None else identity
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=who.producer_id,
            producer_epoch=who.epoch,
            committed=commit,
        )
        async with asyncio.timeout(BOUND_S):
            while True:
                answer = await self.connection.send(request, version)
                if answer.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
                    break
                await asyncio.sleep(0.05)
        if version >= V2 and follow and not answer.error_code:
            self.identity = Identity(answer.producer_id, answer.producer_epoch)
        return Ended(ErrorCode(answer.error_code), answer.producer_id, answer.producer_epoch)


@asynccontextmanager
async def raw_producer(side: Side, name: str) -> AsyncIterator[RawProducer]:
    connection = await side.connect()
    try:
        yield RawProducer(connection, name)
    finally:
        await connection.close()


async def create(side: Side, *topics: str) -> None:
    """Make topics and wait until their leader knows it."""
    async with ClusterClient(side.bootstrap) as client:
        await client.create_topics([NewTopic(topic, 1, 1) for topic in topics])
    connection = await side.connect()
    try:
        async with asyncio.timeout(BOUND_S):
            for topic in topics:
                partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
                request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[partition])])
                while (await connection.send(request, 6)).topics[0].partitions[0].error_code:
                    await asyncio.sleep(0.05)
    finally:
        await connection.close()


async def committed(side: Side, topic: str, *values: str) -> list[str]:
    """What read_committed readers find, once it is as long as `values`."""

    def done(found: list[str]) -> bool:
        return len(found) >= len(values)

    return await asyncio.to_thread(read_until, side.bootstrap, topic, "read_committed", done)
