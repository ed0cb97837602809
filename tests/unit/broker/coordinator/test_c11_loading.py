"""C11: a coordinator that loads says so, never "no offset", and leaves the event loop to others."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from broker.coordinator.offsets.committed import CommittedOffset
from broker.coordinator.offsets_log import OFFSETS_TOPIC
from broker.coordinator.records import offset_record
from protocol.errors import ErrorCode
from protocol.messages.describe_groups_request import DescribeGroupsRequest
from protocol.messages.list_groups_request import ListGroupsRequest
from protocol.records import build_batch
from protocol.types import TopicPartition
from tests.support.group_client import GroupClient
from tests.support.served import Served
from tests.unit.broker.coordinator.reborn import IDS, life

E = ErrorCode
COMMITS = 50_000
KNOWN = {"group-0": 49_800, "group-199": 49_999}


async def _write_history(directory: Path) -> None:
    """50,000 commits of 200 groups in one partition, and a member that lives on."""
    async with life(directory, 0, leads=False) as place:
        _lead_one_partition(place, 0)
        member = GroupClient(place.connection, "group-0", instance="i")
        await member.be_alone()
        partition = place.broker.replicas.leader(OFFSETS_TOPIC, 0)
        for start in range(0, COMMITS, 10):
            records = [
                offset_record(
                    f"group-{number % 200}", TopicPartition("t", 0), CommittedOffset(number, -1, "", 1), 1
                )
                for number in range(start, start + 10)
            ]
            partition.append(memoryview(bytearray(build_batch(records))))


def _lead_one_partition(place: Served, epoch: int) -> None:
    place.topics.lead(OFFSETS_TOPIC, IDS[OFFSETS_TOPIC], range(1), 1, leader_epoch=epoch)
    place.topics.lead("t", IDS["t"], range(1), 1, leader_epoch=epoch)


@pytest.mark.slow
async def test_c11(tmp_path: Path) -> None:
    await _write_history(tmp_path)
    async with life(tmp_path, 1, leads=False) as place:
        watch = asyncio.create_task(_longest_stretch(place))
        _lead_one_partition(place, 1)
        seen = set()
        while place.broker.groups.is_loading:
            seen |= await _ask_everything(place)
        assert E.COORDINATOR_LOAD_IN_PROGRESS in seen, (
            "it was never seen loading: this test has shown nothing"
        )
        assert await _ask_everything(place) == {E.NONE}
        client = GroupClient(place.connection, "group-7")
        assert await client.committed(None) == (0, {("t", 0): (49_807, 0)})
        assert len(place.broker.groups.all_groups()) == 200
        longest = await watch
        assert longest < 0.05, f"the loop stood still for {longest * 1000:.0f} ms of CPU time"


async def _ask_everything(place: Served) -> set[ErrorCode]:
    """Ask all that might wrongly say that there is nothing; returns the errors that came."""
    codes = set()
    for group, offset in KNOWN.items():
        client = GroupClient(place.connection, group)
        for version in (1, 7, 8):
            code, found = await client.committed({"t": [0]}, version)
            ((at, error),) = found.values()
            assert (at, error) in ((offset, E.NONE), (-1, E.COORDINATOR_LOAD_IN_PROGRESS))
            assert code in (0, E.COORDINATOR_LOAD_IN_PROGRESS)
            codes.add(ErrorCode(error))
        described = (await place.connection.send(DescribeGroupsRequest(groups=[group]), 5)).groups[0]
        assert described.group_state != "Dead"
        codes.add(ErrorCode(described.error_code))
    listed = await place.connection.send(ListGroupsRequest(), 4)
    assert listed.error_code == E.COORDINATOR_LOAD_IN_PROGRESS or len(listed.groups) == 200
    codes.add(ErrorCode(listed.error_code))
    if E.COORDINATOR_LOAD_IN_PROGRESS in codes:
        unknown = GroupClient(place.connection, "group-0")
        unknown.member_id = "i-1"
        assert await unknown.heartbeat() in (0, E.UNKNOWN_MEMBER_ID)
        assert (await unknown.sync({})).error_code in (E.REBALANCE_IN_PROGRESS, E.UNKNOWN_MEMBER_ID)
        assert (await unknown.join()).error_code in (14, E.UNKNOWN_MEMBER_ID)
    return codes


async def _longest_stretch(place: Served) -> float:
    """Longest CPU time of this thread between two turns of the loop, in seconds."""
    longest = 0.0
    last = time.thread_time()
    finished = 0
    while finished < 3:
        await asyncio.sleep(0)
        now = time.thread_time()
        longest = max(longest, now - last)
        last = now
        finished += not place.broker.groups.is_loading
    return longest
