"""Group requests in every version over a real connection to a real broker (without ZooKeeper)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from protocol.errors import ErrorCode
from protocol.messages.delete_groups_request import DeleteGroupsRequest
from protocol.messages.describe_groups_request import DescribeGroupsRequest
from protocol.messages.find_coordinator_request import FindCoordinatorRequest
from protocol.messages.init_producer_id_request import InitProducerIdRequest
from protocol.messages.list_groups_request import ListGroupsRequest
from protocol.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from protocol.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.support.group_client import GroupClient
from tests.support.served import Served, served

E = ErrorCode


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path, group_initial_rebalance_delay_ms="0") as place:
        place.topics.create("t", 3)
        await place.topics.ensure_internal_topic("__consumer_offsets")
        yield place


@pytest.mark.parametrize("version", range(10))
async def test_membership_in_every_version(here: Served, version: int) -> None:
    others = {"sync": min(version, 5), "beat": min(version, 4), "leave": min(version, 5)}
    member = GroupClient(here.connection, "g")
    joined = await member.enter(version)
    assert joined.error_code == E.NONE
    assert joined.leader == joined.member_id == member.member_id
    assert joined.protocol_name == "range"
    assert joined.protocol_type == ("consumer" if version >= 7 else None)
    assert [each.metadata for each in joined.members] == [member.metadata]
    synced = await member.sync({member.member_id: b"mine"}, others["sync"])
    assert (synced.error_code, synced.assignment) == (E.NONE, b"mine")
    assert await member.heartbeat(others["beat"]) == E.NONE
    assert await member.leave(others["leave"]) == (E.NONE, [E.NONE] if others["leave"] >= 3 else [])
    assert await member.heartbeat(others["beat"]) == E.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("version", range(10))
async def test_errors_have_the_shape_of_the_version(here: Served, version: int) -> None:
    stranger = GroupClient(here.connection, "")
    assert (await stranger.join(version)).error_code == E.INVALID_GROUP_ID
    stranger = GroupClient(here.connection, "nowhere")
    stranger.session_ms = 1
    assert (await stranger.join(version)).error_code == E.INVALID_SESSION_TIMEOUT
    stranger.member_id = "x"
    assert (await stranger.sync({}, min(version, 5))).error_code == E.UNKNOWN_MEMBER_ID
    code, members = await stranger.leave(min(version, 5))
    assert (code, members) == ((0, [25]) if version >= 3 else (25, []))
    listed = await here.connection.send(ListGroupsRequest(), 4)
    assert listed.groups == []


async def test_two_members_share_and_the_second_waits_for_the_first(here: Served) -> None:
    first = GroupClient(here.connection, "g")
    await first.be_alone()
    async with here.another() as connection:
        second = GroupClient(connection, "g")
        joining = asyncio.create_task(second.enter())
        while await first.heartbeat() != E.REBALANCE_IN_PROGRESS:
            await asyncio.sleep(0.005)
        again = await first.join()
        assert (await joining).generation_id == again.generation_id == 2
        assert {each.member_id for each in again.members} == {first.member_id, second.member_id}
        waiting = asyncio.create_task(second.sync())
        await first.sync({first.member_id: b"1", second.member_id: b"2"})
        assert (await waiting).assignment == b"2"


async def test_a_session_ends_by_itself(tmp_path: Path) -> None:
    async with served(
        tmp_path, group_initial_rebalance_delay_ms="0", group_min_session_timeout_ms="50"
    ) as place:
        await place.topics.ensure_internal_topic("__consumer_offsets")
        member = GroupClient(place.connection, "g")
        member.session_ms = 60
        await member.be_alone()
        async with asyncio.timeout(5):
            while place.broker.groups.find("g").members:  # type: ignore[union-attr]
                await asyncio.sleep(0.01)
        assert await member.heartbeat() == E.UNKNOWN_MEMBER_ID


async def test_c05_a_client_that_goes_away_while_it_waits_costs_nothing(here: Served) -> None:
    first = GroupClient(here.connection, "g")
    await first.be_alone()
    async with here.another() as connection:
        second = GroupClient(connection, "g")
        joining = asyncio.create_task(second.enter())
        while await first.heartbeat() != E.REBALANCE_IN_PROGRESS:
            await asyncio.sleep(0.005)
        joining.cancel()
    assert (await first.join()).error_code == E.NONE


@pytest.mark.parametrize("version", range(2, 9))
async def test_commit_in_every_version(here: Served, version: int) -> None:
    client = GroupClient(here.connection, "simple")
    errors = await client.commit({("t", 0): 5, ("t", 2): 7, ("nope", 0): 1}, version, metadata=None)
    assert errors == {("t", 0): 0, ("t", 2): 0, ("nope", 0): E.UNKNOWN_TOPIC_OR_PARTITION}
    assert await client.commit({("t", 1): 3}, version, metadata="x" * 4097) == {
        ("t", 1): E.OFFSET_METADATA_TOO_LARGE
    }
    assert await client.commit({("t", 1): 3}, version, metadata="x" * 4096) == {("t", 1): 0}


@pytest.mark.parametrize("version", range(1, 9))
async def test_fetch_in_every_version(here: Served, version: int) -> None:
    client = GroupClient(here.connection, "simple")
    await client.commit({("t", 0): 5, ("t", 2): 7}, metadata="m", committed_leader_epoch=3)
    code, found = await client.committed({"t": [0, 1], "nope": [0]}, version)
    assert code == E.NONE
    assert found == {("t", 0): (5, 0), ("t", 1): (-1, 0), ("nope", 0): (-1, 0)}
    if version >= 2:
        assert await client.committed(None, version) == (0, {("t", 0): (5, 0), ("t", 2): (7, 0)})
    other = GroupClient(here.connection, "unknown")
    assert await other.committed({"t": [0]}, version) == (0, {("t", 0): (-1, 0)})


async def test_fetch_of_several_groups_gives_epoch_and_text(here: Served) -> None:
    for group, offset in (("a", 1), ("b", 2)):
        client = GroupClient(here.connection, group)
        await client.commit({("t", 0): offset}, metadata=f"of {group}", committed_leader_epoch=offset)
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, topics=None) for group in ("a", "b", "c")],
        require_stable=True,
    )
    answer = await here.connection.send(request, 8)
    assert [group.group_id for group in answer.groups] == ["a", "b", "c"]
    (of_b,) = answer.groups[1].topics[0].partitions
    assert (of_b.committed_offset, of_b.committed_leader_epoch, of_b.metadata) == (2, 2, "of b")
    assert answer.groups[2].topics == []


async def test_who_may_commit(here: Served) -> None:
    member = GroupClient(here.connection, "g")
    ghost = GroupClient(here.connection, "g")
    ghost.generation, ghost.member_id = 3, "x"
    assert await ghost.commit({("t", 0): 1}) == {("t", 0): E.ILLEGAL_GENERATION}  # no such group yet
    assert (await member.enter()).error_code == 0
    assert await member.commit({("t", 0): 1}) == {("t", 0): E.REBALANCE_IN_PROGRESS}
    await member.sync({member.member_id: b"all"})
    assert await member.commit({("t", 0): 1}) == {("t", 0): E.NONE}
    nobody = GroupClient(here.connection, "g")
    assert await nobody.commit({("t", 0): 9}) == {("t", 0): E.UNKNOWN_MEMBER_ID}
    assert await ghost.commit({("t", 0): 9}) == {("t", 0): E.UNKNOWN_MEMBER_ID}
    member.generation += 1
    assert await member.commit({("t", 0): 9}) == {("t", 0): E.ILLEGAL_GENERATION}
    await member.leave()
    assert await nobody.commit({("t", 0): 2}) == {("t", 0): E.NONE}
    assert await nobody.committed({"t": [0]}) == (0, {("t", 0): (2, 0)})


@pytest.mark.parametrize("version", range(6))
async def test_describe_in_every_version(here: Served, version: int) -> None:
    member = GroupClient(here.connection, "g", instance="i1")
    await member.be_alone()
    await GroupClient(here.connection, "simple").commit({("t", 0): 1})
    request = DescribeGroupsRequest(
        groups=["g", "simple", "none"], include_authorized_operations=version >= 3
    )
    live, simple, none = (await here.connection.send(request, version)).groups
    assert (live.group_state, live.protocol_type, live.protocol_data) == ("Stable", "consumer", "range")
    (described,) = live.members
    assert described.member_id == member.member_id
    assert described.group_instance_id == ("i1" if version >= 4 else None)
    assert described.client_host == "/127.0.0.1"
    assert (described.member_metadata, described.member_assignment) == (member.metadata, b"all")
    assert live.authorized_operations == (328 if version >= 3 else -(2**31))
    assert (simple.group_state, simple.members) == ("Empty", [])
    assert (none.group_state, none.error_code) == ("Dead", 0)


@pytest.mark.parametrize("version", range(5))
async def test_list_in_every_version(here: Served, version: int) -> None:
    await GroupClient(here.connection, "g").be_alone()
    await GroupClient(here.connection, "simple").commit({("t", 0): 1})
    listed = (await here.connection.send(ListGroupsRequest(), version)).groups
    assert {each.group_id: each.protocol_type for each in listed} == {"g": "consumer", "simple": ""}
    if version == 4:
        request = ListGroupsRequest(states_filter=["stable", "Dead"])
        (only,) = (await here.connection.send(request, version)).groups
        assert (only.group_id, only.group_state) == ("g", "Stable")


@pytest.mark.parametrize("version", range(3))
async def test_delete_groups_in_every_version(here: Served, version: int) -> None:
    member = GroupClient(here.connection, "g")
    await member.be_alone()
    simple = GroupClient(here.connection, "simple")
    await simple.commit({("t", 0): 1, ("t", 1): 1})
    request = DeleteGroupsRequest(groups_names=["g", "simple", "none"])
    results = (await here.connection.send(request, version)).results
    assert {each.group_id: each.error_code for each in results} == {
        "g": E.NON_EMPTY_GROUP,
        "simple": E.NONE,
        "none": E.GROUP_ID_NOT_FOUND,
    }
    assert await simple.committed({"t": [0, 1]}) == (0, {("t", 0): (-1, 0), ("t", 1): (-1, 0)})
    await member.leave()
    (result,) = (await here.connection.send(DeleteGroupsRequest(groups_names=["g"]), version)).results
    assert result.error_code == E.NONE
    assert (await here.connection.send(ListGroupsRequest(), 4)).groups == []


async def test_offset_delete_spares_what_is_read(here: Served) -> None:
    here.topics.create("u", 1)
    member = GroupClient(here.connection, "g")
    await member.be_alone()
    await member.commit({("t", 0): 1, ("u", 0): 2})

    async def delete(group: str) -> tuple[int, dict[tuple[str, int], int]]:
        topics = [
            OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
            for name in ("t", "u", "nope")
        ]
        answer = await here.connection.send(OffsetDeleteRequest(group_id=group, topics=topics), 0)
        return answer.error_code, {
            (topic.name, each.partition_index): each.error_code
            for topic in answer.topics
            for each in topic.partitions
        }

    assert await delete("none") == (E.GROUP_ID_NOT_FOUND, {})
    assert await delete("g") == (
        E.NONE,
        {("t", 0): E.GROUP_SUBSCRIBED_TO_TOPIC, ("u", 0): 0, ("nope", 0): E.UNKNOWN_TOPIC_OR_PARTITION},
    )
    assert await member.committed(None) == (0, {("t", 0): (1, 0)})
    await member.leave()
    assert (await delete("g"))[1]["t", 0] == E.NONE
    assert await member.committed(None) == (0, {})


@pytest.mark.parametrize("version", range(5))
async def test_find_coordinator_in_every_version(here: Served, version: int) -> None:
    async def find(key: str, key_type: int = 0) -> tuple[int, int, int]:
        if version >= 4:
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
            (found,) = (await here.connection.send(request, version)).coordinators
            assert found.key == key
            return found.error_code, found.node_id, found.port
        request = FindCoordinatorRequest(key=key)
        if version:
            request.key_type = key_type
        answer = await here.connection.send(request, version)
        return answer.error_code, answer.node_id, answer.port

    assert await find("g") == (E.NONE, 1, here.port)
    if version:
        assert await find("my-txn", key_type=1) == (E.NONE, 1, here.port)
        assert await find("", key_type=1) == (E.INVALID_REQUEST, -1, -1)


async def test_the_offsets_topic_is_made_when_it_is_first_asked_for(tmp_path: Path) -> None:
    async with served(tmp_path, group_initial_rebalance_delay_ms="0") as place:
        member = GroupClient(place.connection, "g")
        assert (await member.join()).error_code == E.NOT_COORDINATOR
        assert (await place.connection.send(FindCoordinatorRequest(key="g"), 3)).node_id == 1
        await member.be_alone()


@pytest.mark.parametrize("version", range(5))
async def test_init_producer_id_in_every_version(here: Served, version: int) -> None:
    seen = set()
    for _ in range(3):
        answer = await here.connection.send(InitProducerIdRequest(transactional_id=None), version)
        assert (answer.error_code, answer.producer_epoch) == (E.NONE, 0)
        seen.add(answer.producer_id)
    assert len(seen) == 3
    too_long = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=900_001)
    refused = await here.connection.send(too_long, version)
    assert (refused.error_code, refused.producer_id) == (E.INVALID_TRANSACTION_TIMEOUT, -1)
    elsewhere = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000)
    assert (await here.connection.send(elsewhere, version)).error_code == E.NOT_COORDINATOR


async def test_groups_are_counted_for_the_metrics(here: Served) -> None:
    await GroupClient(here.connection, "g").be_alone()
    await GroupClient(here.connection, "simple").commit({("t", 0): 1, ("t", 1): 1})
    found = {
        sample.name.removeprefix("kafka_coordinator_group_groupmetadatamanager_"): sample.value
        for family in here.broker.metrics.collect()
        for sample in family.samples
        if "groupmetadatamanager" in sample.name
    }
    assert found == {
        "numgroups": 2,
        "numoffsets": 2,
        "numgroupsempty": 1,
        "numgroupsstable": 1,
        "numgroupspreparingrebalance": 0,
        "numgroupscompletingrebalance": 0,
    }
