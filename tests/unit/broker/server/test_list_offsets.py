"""ListOffsets: ends, starts and times, exact to the record."""

from __future__ import annotations

import pytest

from protocol.errors import ErrorCode
from protocol.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from protocol.messages.list_offsets_response import ListOffsetsPartitionResponse
from tests.support.lone_broker import BROKER_ID
from tests.support.served import Served, batch

VERSIONS = range(1, 9)
T0 = 1_700_000_000_000


async def ask(
    node: Served, *times: int, topic: str = "t", version: int = 8, isolation: int = 0, epoch: int = -1
) -> list[ListOffsetsPartitionResponse]:
    wanted = [
        ListOffsetsPartition(partition_index=index, timestamp=time, current_leader_epoch=epoch)
        for index, time in enumerate(times)
    ]
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=isolation, topics=[ListOffsetsTopic(name=topic, partitions=wanted)]
    )
    answer = await node.connection.send(request, version)
    return list(answer.topics[0].partitions)


async def filled(node: Served) -> None:
    """Two partitions alike: three records in one batch, then two in another, a second apart; start at 1."""
    topic_id = node.topics.create("t", 2)
    node.topics.lead("t", topic_id, range(2), BROKER_ID, leader_epoch=4, version=1)
    for partition in range(2):
        await node.produce("t", batch(b"a", b"b", b"c", timestamp=T0), partition)
        await node.produce("t", batch(b"d", b"e", timestamp=T0 + 1000), partition)
        node.broker.replicas.leader("t", partition).log.delete_before(1)


@pytest.mark.parametrize("version", VERSIONS)
async def test_ends_and_starts_in_every_version(node: Served, version: int) -> None:
    await filled(node)
    latest, earliest = await ask(node, -1, -2, version=version)
    assert (latest.error_code, latest.offset, latest.timestamp) == (0, 5, -1)
    assert (earliest.error_code, earliest.offset, earliest.timestamp) == (0, 1, -1)
    if version >= 4:
        assert (latest.leader_epoch, earliest.leader_epoch) == (4, 4)
    (unknown,) = await ask(node, -1, topic="nowhere", version=version)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (unknown.offset, unknown.timestamp) == (-1, -1)


@pytest.mark.parametrize(
    ("time", "offset", "timestamp"),
    [
        (0, 1, T0 + 1),
        (T0 + 1, 1, T0 + 1),
        (T0 + 2, 2, T0 + 2),
        (T0 + 3, 3, T0 + 1000),
        (T0 + 1001, 4, T0 + 1001),
        (T0 + 1002, -1, -1),
    ],
)
async def test_a_time_finds_the_first_record_at_or_after_it(
    node: Served, time: int, offset: int, timestamp: int
) -> None:
    await filled(node)
    (found,) = await ask(node, time)
    assert (found.error_code, found.offset, found.timestamp) == (0, offset, timestamp)


async def test_only_readable_records_are_found(node: Served) -> None:
    await filled(node)
    partition = node.broker.replicas.leader("t", 0)
    partition.lead(BROKER_ID, 5, (BROKER_ID, 2), (BROKER_ID, 2))
    appended = partition.append(memoryview(bytearray(batch(b"f", timestamp=T0 + 5000))))
    assert appended.base_offset == 5
    (hidden,) = await ask(node, T0 + 2000)
    assert hidden.offset == -1
    (latest,) = await ask(node, -1)
    assert latest.offset == 5


@pytest.mark.parametrize(("version", "code"), [(6, ErrorCode.UNSUPPORTED_VERSION), (7, ErrorCode.NONE)])
async def test_the_largest_timestamp_from_version_7(node: Served, version: int, code: ErrorCode) -> None:
    await filled(node)
    (found,) = await ask(node, -3, version=version)
    assert found.error_code == code
    if code == ErrorCode.NONE:
        assert (found.offset, found.timestamp) == (4, T0 + 1001)


async def test_earliest_local_is_the_start_from_version_8(node: Served) -> None:
    await filled(node)
    assert [found.offset for found in await ask(node, -4)] == [1]
    assert [found.error_code for found in await ask(node, -4, version=7)] == [ErrorCode.UNSUPPORTED_VERSION]
    assert [found.error_code for found in await ask(node, -9)] == [ErrorCode.UNSUPPORTED_VERSION]


async def test_epochs_and_repeats_are_refused_one_by_one(node: Served) -> None:
    await filled(node)
    assert [found.error_code for found in await ask(node, -1, -1, epoch=3)] == [
        ErrorCode.FENCED_LEADER_EPOCH
    ] * 2
    twice = [ListOffsetsPartition(partition_index=0, timestamp=time) for time in (-1, -2)]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=twice)])
    answer = await node.connection.send(request, 5)
    assert [part.error_code for part in answer.topics[0].partitions] == [0, ErrorCode.INVALID_REQUEST]


@pytest.mark.parametrize(
    ("version", "code"), [(4, ErrorCode.LEADER_NOT_AVAILABLE), (8, ErrorCode.OFFSET_NOT_AVAILABLE)]
)
async def test_a_new_leader_does_not_say_where_the_end_is_before_it_knows(
    node: Served, version: int, code: ErrorCode
) -> None:
    """Consumers may have read further than the high watermark that it knows (KIP-207)."""
    await filled(node)
    partition = node.broker.replicas.leader("t", 0)
    partition.log.truncate_to(3)
    await node.produce("t", batch(b"f", b"g", timestamp=T0 + 1000))
    partition.log._high_watermark = 3  # as of a follower that was behind in knowing, not in having
    partition.lead(BROKER_ID, 5, (1, 2), (1, 2), 7, 0.0)
    for time in (-1, T0):
        (refused,) = await ask(node, time, version=version)
        assert refused.error_code == code
    (earliest,) = await ask(node, -2, version=version)
    assert earliest.error_code == ErrorCode.NONE
    partition.followed(2, 5, 1, 1.0)
    (latest,) = await ask(node, -1, version=version)
    assert (latest.error_code, latest.offset) == (0, 5)
