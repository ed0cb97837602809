"""One replica of a partition, read from its own broker: what every reader of that replica would be given.

Owns the requests. Fetch from version 11 on is served by followers too (KIP-392), whatever the cluster's
replica selector: that only chooses where a leader sends consumers. ListOffsets for replica -2 says where any
replica begins. Works on Apache Kafka from 2.4 on. Must not compare.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any

from protocol.client import Connection
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.records import BatchHeader, iter_headers
from protocol.types import TopicPartition

CHUNK = 1 << 20
_BY_NAME = 12
_FROM_FOLLOWERS = 11
_ANY_REPLICA = -2
_EARLIEST = -2

Piece = tuple[int, bytes]
"""Offset, and what has to be equal there: a whole batch, or one record."""
Split = Callable[[memoryview, int, BatchHeader], Iterator[Piece]]


@dataclass(frozen=True, slots=True)
class Extent:
    """What readers of a replica may see: offsets from `start` up to before `high_watermark`."""

    start: int
    high_watermark: int


class Replica:
    """A replica of `partition` on the broker behind `connection`. Calls raise KafkaError or ProtocolError."""

    def __init__(self, connection: Connection, partition: TopicPartition) -> None:
        self._connection, self._partition = connection, partition
        self._version = connection.version_of(FetchRequest, _BY_NAME)
        if self._version < _FROM_FOLLOWERS:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{connection.peer} speaks Fetch up to {self._version}: followers are readable from"
                f" {_FROM_FOLLOWERS} on (Apache Kafka 2.4, KIP-392)",
            )

    async def extent(self) -> Extent:
        start = await self._earliest()
        row = await self._fetch(start, 1)
        return Extent(max(start, row.log_start_offset), row.high_watermark)

    async def _earliest(self) -> int:
        topic, index = self._partition
        answer: Any = await self._connection.send(
            ListOffsetsRequest(
                replica_id=_ANY_REPLICA,
                topics=[
                    ListOffsetsTopic(
                        name=topic,
                        partitions=[ListOffsetsPartition(partition_index=index, timestamp=_EARLIEST)],
                    )
                ],
            )
        )
        row = answer.topics[0].partitions[0]
        self._check(row.error_code)
        return int(row.offset)

    async def pieces(self, start: int, end: int, split: Split) -> AsyncIterator[Piece]:
        """Everything from `start` up to before `end`, in order of offsets."""
        position = start
        while position < end:
            records = memoryview((await self._fetch(position, CHUNK)).records or b"")
            before = position
            for at, header in iter_headers(records):
                if header.next_offset <= position:
                    continue
                if header.base_offset >= end:
                    return
                for piece in split(records, at, header):
                    yield piece
                position = header.next_offset
            if position == before:
                return  # compacted away up to the end, or cut back since

    async def _fetch(self, position: int, size: int) -> Any:
        topic, index = self._partition
        wanted = FetchPartition(partition=index, fetch_offset=position, partition_max_bytes=size)
        request = FetchRequest(
            max_wait_ms=0, min_bytes=0, max_bytes=size, topics=[FetchTopic(topic=topic, partitions=[wanted])]
        )
        answer: Any = await self._connection.send(request, self._version)
        self._check(answer.error_code)
        row = answer.responses[0].partitions[0]
        self._check(row.error_code)
        return row

    def _check(self, code: int) -> None:
        if code:
            topic, index = self._partition
            raise KafkaError(ErrorCode.of(code), f"{topic}-{index} at {self._connection.peer}")
