"""Writes that wait for other replicas: visible only when safe, and what is said when they never are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.coordinator.offsets_log import OFFSETS_TOPIC
from broker.replication import Partition
from protocol.errors import ErrorCode
from tests.support.group_client import GroupClient
from tests.support.served import Served
from tests.unit.broker.coordinator.reborn import lead, life

E = ErrorCode


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Served]:
    async with life(tmp_path, 0, offsets_commit_timeout_ms="300") as place:
        yield place


def set_isr(partition: Partition, *isr: int) -> None:
    partition.lead(partition.leader, partition.leader_epoch, isr, (1, 2))


def slow_partition(place: Served, group: str) -> Partition:
    """The group's offsets partition, with a follower that has nothing yet."""
    partition = place.broker.replicas.leader(OFFSETS_TOPIC, place.broker.groups.partition_of(group))
    set_isr(partition, 1, 2)
    return partition


def catch_up(partition: Partition) -> None:
    partition.followed(2, partition.log.end_offset, 0, 0.0)


async def written(partition: Partition, end: int) -> None:
    async with asyncio.timeout(5):
        while partition.log.end_offset < end:
            await asyncio.sleep(0.001)


async def test_a_commit_is_answered_and_visible_when_the_replicas_have_it(here: Served) -> None:
    partition = slow_partition(here, "g")
    client = GroupClient(here.connection, "g")
    committing = asyncio.create_task(client.commit({("t", 0): 4}))
    await written(partition, 1)
    async with here.another() as connection:
        reader = GroupClient(connection, "g")
        assert await reader.committed({"t": [0]}) == (0, {("t", 0): (-1, 0)})
        assert await here.broker.groups.offsets.expire() == 0
        catch_up(partition)
        assert await committing == {("t", 0): E.NONE}
        assert await reader.committed({"t": [0]}) == (0, {("t", 0): (4, 0)})


async def test_a_commit_that_is_not_replicated_in_time(here: Served) -> None:
    slow_partition(here, "g")
    client = GroupClient(here.connection, "g")
    assert await client.commit({("t", 0): 4}) == {("t", 0): E.COORDINATOR_NOT_AVAILABLE}
    assert await client.committed({"t": [0]}) == (0, {("t", 0): (-1, 0)})
    assert not here.broker.groups.all_groups()


async def test_an_assignment_waits_for_the_replicas_and_the_round_starts_again_without(here: Served) -> None:
    partition = slow_partition(here, "g")
    member = GroupClient(here.connection, "g")
    await member.enter()
    syncing = asyncio.create_task(member.sync({member.member_id: b"all"}))
    await written(partition, 1)
    catch_up(partition)
    assert (await syncing).assignment == b"all"
    await member.join()
    assert (await member.sync({member.member_id: b"new"})).error_code == E.COORDINATOR_NOT_AVAILABLE
    assert await member.heartbeat() == E.REBALANCE_IN_PROGRESS


async def test_leadership_that_ends_while_a_commit_waits(here: Served) -> None:
    partition = slow_partition(here, "g")
    committing = asyncio.create_task(GroupClient(here.connection, "g").commit({("t", 0): 4}))
    await written(partition, 1)
    lead(here.topics, OFFSETS_TOPIC, 1, leader=2, version=1)
    assert await committing == {("t", 0): E.NOT_COORDINATOR}


async def test_too_few_replicas(here: Served) -> None:
    partition = here.broker.replicas.leader(OFFSETS_TOPIC, here.broker.groups.partition_of("g"))
    set_isr(partition)
    client = GroupClient(here.connection, "g")
    assert await client.commit({("t", 0): 4}) == {("t", 0): E.COORDINATOR_NOT_AVAILABLE}
    set_isr(partition, 1)
    assert await client.commit({("t", 0): 4}) == {("t", 0): E.NONE}


async def test_a_record_that_is_too_large(here: Served) -> None:
    member = GroupClient(here.connection, "g")
    member.metadata = member.metadata + bytes(2_000_000)
    await member.enter()
    assert (await member.sync({member.member_id: b"all"})).error_code == E.UNKNOWN_SERVER_ERROR


async def test_a_record_that_is_nearly_too_large_is_warned_of(
    here: Served, caplog: pytest.LogCaptureFixture
) -> None:
    member = GroupClient(here.connection, "g")
    member.metadata = member.metadata + bytes(700_000)
    await member.enter()
    assert (await member.sync({member.member_id: b"all"})).error_code == E.NONE
    assert not [record for record in caplog.records if "max.message.bytes" in record.getMessage()]
    assert (await member.leave())[0] == 0
    member.member_id = ""
    member.metadata = member.metadata + bytes(100_000)
    await member.enter()
    assert (await member.sync({member.member_id: b"all"})).error_code == E.NONE
    [warning] = [record for record in caplog.records if "max.message.bytes" in record.getMessage()]
    assert "group 'g'" in warning.getMessage()
