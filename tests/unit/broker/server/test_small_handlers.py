"""DeleteRecords, OffsetForLeaderEpoch and DescribeLogDirs in all their versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.errors import ErrorCode
from protocol.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from protocol.messages.describe_log_dirs_request import DescribableLogDirTopic, DescribeLogDirsRequest
from protocol.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.support.lone_broker import BROKER_ID
from tests.support.served import Served, batch


async def delete(node: Served, topic: str, offset: int, version: int = 2) -> tuple[int, int]:
    wanted = [DeleteRecordsPartition(partition_index=0, offset=offset)]
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=wanted)], timeout_ms=1000
    )
    (answer,) = (await node.connection.send(request, version)).topics[0].partitions
    return answer.error_code, answer.low_watermark


@pytest.mark.parametrize("version", range(3))
async def test_records_are_deleted_up_to_an_offset_or_the_high_watermark(node: Served, version: int) -> None:
    node.topics.create("t")
    await node.produce("t", batch(b"a", b"b", b"c"))
    assert await delete(node, "t", 2, version) == (0, 2)
    assert await delete(node, "t", 1, version) == (0, 2), "the start never goes back"
    assert await delete(node, "t", 4, version) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert await delete(node, "t", -2, version) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert await delete(node, "t", -1, version) == (0, 3)
    assert await delete(node, "nowhere", 0, version) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert (await node.fetch("t", 0)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (await node.fetch("t", 3)).log_start_offset == 3


async def test_compacted_topics_keep_their_records(node: Served) -> None:
    node.topics.create("t", cleanup_policy="compact")
    await node.produce("t", batch(b"a"))
    assert await delete(node, "t", -1) == (ErrorCode.POLICY_VIOLATION, -1)
    node.topics.create("both", cleanup_policy="compact,delete")
    await node.produce("both", batch(b"a"))
    assert await delete(node, "both", -1) == (0, 1)


@pytest.mark.parametrize("version", range(2, 5))
async def test_where_a_leader_epoch_ended(node: Served, version: int) -> None:
    topic_id = node.topics.create("t")
    await node.produce("t", batch(b"a", b"b"))
    node.topics.lead("t", topic_id, range(1), BROKER_ID, leader_epoch=5, version=1)
    await node.produce("t", batch(b"c"))

    async def ask(epoch: int, current: int = -1, topic: str = "t") -> tuple[int, int, int]:
        wanted = OffsetForLeaderPartition(partition=0, leader_epoch=epoch, current_leader_epoch=current)
        request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=[wanted])])
        (answer,) = (await node.connection.send(request, version)).topics[0].partitions
        return answer.error_code, answer.leader_epoch, answer.end_offset

    assert await ask(0) == (0, 0, 2)
    assert await ask(3) == (0, 0, 2)
    assert await ask(5, current=5) == (0, 5, 3)
    assert await ask(6) == (0, -1, -1)
    assert await ask(5, current=4) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)
    assert await ask(5, current=6) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)
    assert await ask(0, topic="nowhere") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)


@pytest.mark.parametrize("version", range(1, 5))
async def test_log_dirs_name_replicas_with_their_sizes(node: Served, tmp_path: Path, version: int) -> None:
    node.topics.create("t", 2)
    node.topics.create("u")
    sent = batch(b"a" * 100)
    await node.produce("t", sent, 1)
    answer = await node.connection.send(DescribeLogDirsRequest(topics=None), version)
    (result,) = answer.results
    assert result.log_dir == str(tmp_path / "data")
    sizes = {
        (topic.name, part.partition_index): part.partition_size
        for topic in result.topics
        for part in topic.partitions
    }
    assert sizes == {("t", 0): 0, ("t", 1): len(sent), ("u", 0): 0}
    if version >= 4:
        assert 0 < result.usable_bytes <= result.total_bytes
    some = DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic="u", partitions=[0, 9])])
    (result,) = (await node.connection.send(some, version)).results
    assert [(topic.name, len(topic.partitions)) for topic in result.topics] == [("u", 1)]
