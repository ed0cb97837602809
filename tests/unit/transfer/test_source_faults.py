"""What the source makes of answers that give nothing: when that is a fact, and which."""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from protocol.client import Broker, ListedOffset, Metadata, PartitionMetadata, TopicMetadata
from protocol.codec import decode
from protocol.errors import ErrorCode
from protocol.frames import encode_response
from protocol.messages.fetch_request import FetchRequest
from protocol.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from protocol.records import Record, build_batch
from protocol.types import TopicPartition
from transfer.endpoint import Chunk, FaultKind, SourceFault
from transfer.kafka.fetcher import FetchSettings
from transfer.kafka.source import KafkaSource

TP = TopicPartition("orders", 1)
OLD, NEW = bytes(15) + b"\1", bytes(15) + b"\2"


class Cluster:
    """One broker, which is client and connection too. It has offsets 0 to 99."""

    closed = retired = False

    def __init__(self) -> None:
        self.topic_id, self.partitions = OLD, 2
        self.out_of_range = True
        self.asked = asyncio.Event()

    async def metadata(self, topics: Collection[str]) -> Metadata:
        parts = {number: PartitionMetadata(1, 0, (1,), (1,)) for number in range(self.partitions)}
        topic = TopicMetadata("orders", self.topic_id, ErrorCode.NONE, False, parts)
        return Metadata("c", 1, {1: Broker("h", 1)}, {"orders": topic})

    async def list_offsets(self, spots: Mapping[TopicPartition, int]) -> dict[TopicPartition, ListedOffset]:
        return {tp: ListedOffset(0 if spot == -2 else 100, -1, -1) for tp, spot in spots.items()}

    async def connection_to(self, node: int, lane: str) -> "Cluster":
        return self

    def version_of(self, request: object, newest: int | None = None) -> int:
        return 12

    async def frame(self, request: object, version: int, body: Sequence[bytes]) -> memoryview:
        await asyncio.sleep(0.01)
        asked = decode(FetchRequest, version, b"".join(body)).topics[0].partitions[0]
        row = PartitionData(partition_index=asked.partition, high_watermark=100, last_stable_offset=100)
        row.records = b""
        if self.topic_id == NEW:
            row.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif self.out_of_range:
            row.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        else:
            row.records = build_batch([Record(0, 1, b"k", b"v")], base_offset=asked.fetch_offset)
        self.asked.set()
        answer = FetchableTopicResponse(topic="orders", partitions=[row])
        return memoryview(b"".join(encode_response(FetchResponse(responses=[answer]), version, 1))[4:])

    async def close(self) -> None: ...


@asynccontextmanager
async def reading(cluster: Any, gone_after_s: float) -> AsyncIterator[KafkaSource]:
    source = KafkaSource(cluster, FetchSettings(connections_per_broker=1, gone_after_s=gone_after_s))
    source.expect(TP, OLD, epoch=7)
    await source.open(TP, 50)
    try:
        async with asyncio.timeout(20):
            yield source
    finally:
        await source.aclose()


@pytest.mark.parametrize("lasts", [True, False])
async def test_a_leader_that_does_not_know_the_epoch_of_what_was_read_is_told_when_it_lasts(
    lasts: bool,
) -> None:
    """Its log has the position: it was restored from an older copy of its disk."""
    cluster = Cluster()
    async with reading(cluster, 0.5) as source:
        await cluster.asked.wait()
        cluster.out_of_range = lasts
        (found,) = await source.read()
    if lasts:
        assert isinstance(found, SourceFault)
        assert (found.kind, found.position) == (FaultKind.FAILED, 50)
        assert "leader epoch 7" in found.message
    else:
        assert isinstance(found, Chunk)


async def test_what_is_suspected_long_after_another_suspicion_has_to_last_as_well() -> None:
    cluster = Cluster()
    async with reading(cluster, 3600) as source:
        await cluster.asked.wait()
        while not source._suspects:
            await asyncio.sleep(0.01)
        cluster.out_of_range = False
        await source.read()
        (before,) = source._suspects.values()
        cluster.out_of_range = True
        while source._suspects[TP] == before:
            await asyncio.sleep(0.01)


async def test_a_partition_that_a_topic_made_again_does_not_have_is_of_another_topic() -> None:
    cluster = Cluster()
    cluster.out_of_range = False
    async with reading(cluster, 3600) as source:
        await source.read()
        cluster.topic_id, cluster.partitions = NEW, 1
        found: list[Chunk | SourceFault] = []
        while not any(isinstance(one, SourceFault) for one in found):
            found = await source.read()
    assert [one.kind for one in found if isinstance(one, SourceFault)] == [FaultKind.RECREATED]
