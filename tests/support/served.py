"""A lone broker with a client connection to it, and the shortest ways to produce to it and fetch from it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from broker.server.app import Broker
from protocol.client.connection import Connection
from protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.fetch_response import FetchResponse, PartitionData
from protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.produce_response import PartitionProduceResponse
from protocol.records import Record, build_batch
from protocol.types import Buffer
from tests.support.lone_broker import LoneTopics, lone_broker


def batch(*values: bytes, timestamp: int = 1_700_000_000_000, **options: Any) -> bytes:
    """One record batch; record n has timestamp + n."""
    records = [
        Record(offset=number, timestamp=timestamp + number, key=b"k", value=value, headers=[])
        for number, value in enumerate(values)
    ]
    return build_batch(records, **options)


class Served:
    """`broker` and `topics` are the inside, `connection` is a client's."""

    def __init__(self, broker: Broker, topics: LoneTopics, port: int, connection: Connection) -> None:
        self.broker = broker
        self.topics = topics
        self.port = port
        self.connection = connection

    @asynccontextmanager
    async def another(self) -> AsyncIterator[Connection]:
        """One more client, for what must not wait behind the first one's requests."""
        connection = await Connection.open("127.0.0.1", self.port)
        try:
            yield connection
        finally:
            await connection.close()

    async def produce(
        self,
        topic: str,
        records: Buffer | None,
        partition: int = 0,
        *,
        acks: int = 1,
        version: int = 11,
        timeout_ms: int = 5000,
    ) -> PartitionProduceResponse:
        request = ProduceRequest(
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=[
                TopicProduceData(
                    name=topic, partition_data=[PartitionProduceData(index=partition, records=records)]
                )
            ],
        )
        answer = await self.connection.send(request, version)
        ((only,),) = (each.partition_responses for each in answer.responses)
        return only

    def fetch_request(
        self, topic: str, offset: int, partitions: Sequence[int] = (0,), *, version: int = 17, **options: Any
    ) -> FetchRequest:
        """Options are fields of the request or of its partitions."""
        known = self.broker.metadata.topic(topic)
        mine = {name: options.pop(name) for name in list(options) if name in _OF_PARTITIONS}
        wanted = [
            FetchPartition(partition=index, fetch_offset=offset, **{"partition_max_bytes": 1 << 20} | mine)
            for index in partitions
        ]
        if version >= 13:
            entry = FetchTopic(topic_id=known.topic_id if known else bytes(15) + b"x", partitions=wanted)
        else:
            entry = FetchTopic(topic=topic, partitions=wanted)
        defaults = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 50 << 20}
        return FetchRequest(topics=[entry], **defaults | options)

    async def fetch_all(self, request: FetchRequest, version: int = 17) -> FetchResponse:
        return await self.connection.send(request, version)

    async def fetch(self, topic: str, offset: int, *, version: int = 17, **options: Any) -> PartitionData:
        request = self.fetch_request(topic, offset, version=version, **options)
        answer = await self.fetch_all(request, version)
        ((only,),) = (each.partitions for each in answer.responses)
        return only


_OF_PARTITIONS = ("current_leader_epoch", "last_fetched_epoch", "log_start_offset", "partition_max_bytes")


@asynccontextmanager
async def served(directory: Path, **settings: str) -> AsyncIterator[Served]:
    async with lone_broker(directory, **settings) as (broker, topics, port):
        connection = await Connection.open("127.0.0.1", port)
        try:
            yield Served(broker, topics, port, connection)
        finally:
            await connection.close()
