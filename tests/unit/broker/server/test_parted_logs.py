"""Readers that say of which leader epoch their last batch is, as links do (KIP-320, KIP-595).

What is expected is what Apache Kafka answers (`Partition.readRecords`).
"""

from __future__ import annotations

import asyncio

import pytest

from protocol.client import ClusterClient
from protocol.errors import ErrorCode
from protocol.types import TopicPartition
from tests.support.lone_broker import BROKER_ID
from tests.support.served import Served, batch
from transfer.endpoint import Chunk, FaultKind, SourceFault
from transfer.kafka.source import KafkaSource

SOON_S = 5.0


async def two_terms(node: Served) -> bytes:
    """Offsets 0 to 2 of epoch 0, 3 to 7 of epoch 2."""
    topic_id = node.topics.create("t")
    await node.produce("t", batch(b"a", b"b", b"c"))
    node.topics.lead("t", topic_id, range(1), BROKER_ID, leader_epoch=2, version=1)
    await node.produce("t", batch(b"d", b"e", b"f", b"g", b"h"))
    return topic_id


@pytest.mark.parametrize("version", [12, 17])
@pytest.mark.parametrize(
    ("offset", "epoch", "parted"),
    [
        (3, 0, None),
        (4, 0, (0, 3)),
        (9, 0, (0, 3)),
        (8, 2, None),
        (9, 2, (2, 8)),
        (4, 1, (0, 3)),
        (3, 1, (0, 3)),
    ],
)
async def test_a_reader_of_another_history_is_told_up_to_where_it_may_be_the_same(
    node: Served, version: int, offset: int, epoch: int, parted: tuple[int, int] | None
) -> None:
    await two_terms(node)
    found = await node.fetch("t", offset, version=version, last_fetched_epoch=epoch, max_wait_ms=10)
    assert found.error_code == 0
    assert (found.high_watermark, found.last_stable_offset) == (8, 8)
    told = found.diverging_epoch
    if parted is None:
        assert told is None or told.epoch < 0
    else:
        assert told is not None
        assert (told.epoch, told.end_offset) == parted
        assert found.records == b""


@pytest.mark.parametrize("offset", [2, 8])
async def test_a_later_epoch_than_any_is_out_of_range(node: Served, offset: int) -> None:
    await two_terms(node)
    found = await node.fetch("t", offset, last_fetched_epoch=7)
    assert (found.error_code, found.high_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)


async def test_it_is_told_again_and_again_within_a_session(node: Served) -> None:
    await two_terms(node)
    request = node.fetch_request("t", 8, last_fetched_epoch=0, session_epoch=0)
    answer = await node.fetch_all(request)
    assert answer.session_id
    for epoch in (1, 2):
        request = node.fetch_request("t", 8, session_id=answer.session_id, session_epoch=epoch)
        request.topics = []
        ((found,),) = (topic.partitions for topic in (await node.fetch_all(request)).responses)
        assert found.diverging_epoch is not None
        assert found.diverging_epoch.end_offset == 3


async def test_a_link_does_not_go_on_in_another_history(node: Served) -> None:
    """Its source was behind offset 5 in epoch 0 when a leader came that had three records of it."""
    topic_id = await two_terms(node)
    tp = TopicPartition("t", 0)
    async with ClusterClient(f"127.0.0.1:{node.port}") as client:
        source = KafkaSource(client)
        try:
            async with asyncio.timeout(SOON_S):
                source.expect(tp, topic_id, 0)
                await source.open(tp, 5)
                (fault,) = await source.read()
                assert isinstance(fault, SourceFault)
                assert (fault.kind, fault.resume_offset) == (FaultKind.TRUNCATED, 3)
                source.expect(tp, topic_id, 0)
                await source.open(tp, 3)
                (chunk,) = await source.read()
                assert isinstance(chunk, Chunk)
                assert (chunk.first_offset, chunk.next_offset) == (3, 8)
        finally:
            await source.aclose()
