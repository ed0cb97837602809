"""C10: offsets expire under no living group, and those of dead groups do not stay for ever."""

from __future__ import annotations

import asyncio
from pathlib import Path

from protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.support.clock import VirtualClock
from tests.support.group_client import GroupClient
from tests.support.served import Served
from tests.unit.broker.coordinator.reborn import life

SUBSCRIBED_TO_U = b"\x00\x00\x00\x00\x00\x01\x00\x01u\xff\xff\xff\xff"
MINUTE = 60_000


async def _expire(place: Served) -> int:
    return await place.broker.groups.offsets.expire()


async def _loaded(place: Served) -> None:
    async with asyncio.timeout(10):
        while place.broker.groups.is_loading:
            await asyncio.sleep(0.001)


async def _positions(place: Served, group: str) -> set[tuple[str, int]]:
    code, found = await GroupClient(place.connection, group).committed(None)
    assert code == 0
    return set(found)


def _groups(place: Served) -> set[str]:
    return {group.group_id for group in place.broker.groups.all_groups()}


async def test_c10(tmp_path: Path) -> None:
    clock = VirtualClock()
    settings = {"offsets_retention_minutes": "1"}
    async with life(tmp_path, 0, clock, **settings) as place:
        g1, g2, g4 = (GroupClient(place.connection, name) for name in ("g1", "g2", "g4"))
        g4.metadata = SUBSCRIBED_TO_U
        for member in (g1, g2, g4):
            await member.be_alone()
        await g1.commit({("t", 0): 1})
        await g2.commit({("t", 0): 1})
        await GroupClient(place.connection, "g3").commit({("t", 0): 1})
        await g4.commit({("t", 0): 1, ("u", 0): 1})
        await g2.leave()
        clock.jump_wall(MINUTE - 1)
        assert await _expire(place) == 0
        clock.jump_wall(1)
        assert await _expire(place) == 3
        assert await _positions(place, "g1") == {("t", 0)}
        assert await _positions(place, "g2") == await _positions(place, "g3") == set()
        assert await _positions(place, "g4") == {("u", 0)}
        assert _groups(place) == {"g1", "g4"}
    async with life(tmp_path, 1, clock, **settings) as place:
        await _loaded(place)
        clock.jump_wall(MINUTE)
        assert await _expire(place) == 0
        assert await _positions(place, "g1") == {("t", 0)}
        assert await _positions(place, "g4") == {("u", 0)}
        assert _groups(place) == {"g1", "g4"}


async def test_time_counts_from_the_moment_the_group_became_empty(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with life(tmp_path, 0, clock, offsets_retention_minutes="1") as place:
        member = GroupClient(place.connection, "g")
        await member.be_alone()
        await member.commit({("t", 0): 1})
        clock.jump_wall(10 * MINUTE)
        await member.leave()
        assert await _expire(place) == 0
        clock.jump_wall(MINUTE - 1)
        assert await _expire(place) == 0
        clock.jump_wall(1)
        assert await _expire(place) == 1


async def test_what_is_committed_to_a_group_that_is_empty_for_long_lives_its_time(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with life(tmp_path, 0, clock, offsets_retention_minutes="1") as place:
        member = GroupClient(place.connection, "g")
        await member.be_alone()
        await member.commit({("t", 0): 1})
        await member.leave()
        clock.jump_wall(MINUTE - 1)
        await GroupClient(place.connection, "g").commit({("t", 1): 1})  # an administrator, or a link
        clock.jump_wall(MINUTE - 1)
        assert await _expire(place) == 1
        assert await _positions(place, "g") == {("t", 1)}


async def test_a_retention_time_of_an_old_client_is_its_own(tmp_path: Path) -> None:
    clock = VirtualClock()
    for number in (0, 1):
        async with life(tmp_path, number, clock, offsets_retention_minutes="1") as place:
            if number == 0:
                topics = [
                    OffsetCommitRequestTopic(
                        name="t", partitions=[OffsetCommitRequestPartition(committed_offset=1)]
                    )
                ]
                request = OffsetCommitRequest(group_id="g", retention_time_ms=5 * MINUTE, topics=topics)
                await place.connection.send(request, 2)
                clock.jump_wall(2 * MINUTE)
                assert await _expire(place) == 0
            else:
                await _loaded(place)
                clock.jump_wall(3 * MINUTE - 1)
                assert await _expire(place) == 0
                clock.jump_wall(1)
                assert await _expire(place) == 1


async def test_members_whose_subscription_cannot_be_read_protect_everything(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with life(tmp_path, 0, clock, offsets_retention_minutes="1") as place:
        member = GroupClient(place.connection, "g")
        member.metadata = b"\x00"
        await member.be_alone()
        await member.commit({("t", 0): 1})
        clock.jump_wall(100 * MINUTE)
        assert await _expire(place) == 0


async def test_the_check_runs_by_itself(tmp_path: Path) -> None:
    clock = VirtualClock()
    settings = {"offsets_retention_minutes": "1", "offsets_retention_check_interval_ms": "20"}
    async with life(tmp_path, 0, clock, **settings) as place:
        await GroupClient(place.connection, "g").commit({("t", 0): 1})
        clock.jump_wall(MINUTE)
        async with asyncio.timeout(5):
            while _groups(place):
                await asyncio.sleep(0.01)
