"""C17, the part of groups: 60 members with 40 KB of metadata each, and assignments of 2.5 MB.

Where the offsets topic takes such a record, a broker that was killed comes back with all members and serves
their SyncGroup. Where it does not, SyncGroup gets an error and the group can join again; it does not hang.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

import pytest

from protocol.client.connection import Connection
from protocol.errors import ErrorCode
from protocol.messages.describe_groups_request import DescribeGroupsRequest
from tests.support.broker import BrokerProcess, Cluster
from tests.support.group_client import GroupClient

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

E = ErrorCode
MEMBERS = 60
METADATA = bytes(range(256)) * 160  # 40 KB
ASSIGNMENT = bytes(range(255, -1, -1)) * 160
BOUND_S = 60.0


async def connect(broker: BrokerProcess, stack: AsyncExitStack) -> Connection:
    connection = await Connection.open("127.0.0.1", broker.port)
    stack.push_async_callback(connection.close)
    return connection


async def joined_group(broker: BrokerProcess, stack: AsyncExitStack) -> tuple[GroupClient, list[GroupClient]]:
    """(the leader, all members) of one generation in which nobody has synced."""
    everybody = []
    for _ in range(MEMBERS):
        member = GroupClient(await connect(broker, stack), "c17")
        member.protocol_type, member.metadata = "connect", METADATA
        member.session_ms = member.rebalance_ms = 60_000
        everybody.append(member)
    leader, *others = everybody
    await leader.until_coordinated()
    await leader.be_alone()
    # Whoever has got an id is waited for, so all come into one round, which begins with the first of them.
    assert {(await member.join()).error_code for member in others} == {E.MEMBER_ID_REQUIRED}
    answers = await asyncio.gather(*(member.join() for member in everybody))
    assert {(answer.error_code, answer.generation_id) for answer in answers} == {(E.NONE, 2)}
    return leader, everybody


async def synced(
    leader: GroupClient, everybody: list[GroupClient], assignment: bytes
) -> list[tuple[int, bytes]]:
    plan = {member.member_id: assignment for member in everybody}
    answers = await asyncio.gather(*(member.sync(plan if member is leader else None) for member in everybody))
    return [(answer.error_code, bytes(answer.assignment)) for answer in answers]


async def test_all_members_are_known_after_a_kill(cluster: Callable[[int], Cluster]) -> None:
    broker = cluster(0).add(1, settings={"message.max.bytes": "12000000"})
    await asyncio.to_thread(broker.start)
    async with asyncio.timeout(2 * BOUND_S), AsyncExitStack() as stack:
        leader, everybody = await joined_group(broker, stack)
        assert await synced(leader, everybody, ASSIGNMENT) == [(E.NONE, ASSIGNMENT)] * MEMBERS
        broker.kill()
        await asyncio.to_thread(broker.start)
        for member in everybody:
            member.connection = await connect(broker, stack)
        await leader.until_coordinated()
        described = (await leader.connection.send(DescribeGroupsRequest(groups=["c17"]), 5)).groups[0]
        assert described.group_state == "Stable"
        assert {each.member_id for each in described.members} == {each.member_id for each in everybody}
        assert {bytes(each.member_metadata) for each in described.members} == {METADATA}
        assert await synced(leader, everybody, b"") == [(E.NONE, ASSIGNMENT)] * MEMBERS


async def test_an_assignment_that_cannot_be_stored_is_an_error_and_no_hang(broker: BrokerProcess) -> None:
    async with asyncio.timeout(2 * BOUND_S), AsyncExitStack() as stack:
        leader, everybody = await joined_group(broker, stack)
        answers = await synced(leader, everybody, ASSIGNMENT)
        # Who syncs after the failure learns that the round is over: both mean "join again".
        assert {code for code, _ in answers} <= {E.UNKNOWN_SERVER_ERROR, E.REBALANCE_IN_PROGRESS}
        assert E.UNKNOWN_SERVER_ERROR in {code for code, _ in answers}
        small = everybody[:2]
        for member in everybody[2:]:
            await member.leave()
        for member in small:
            member.metadata = b"small"
        rejoined = await asyncio.gather(*(member.join() for member in small))
        assert {answer.error_code for answer in rejoined} == {E.NONE}
        (leads,) = (member for member in small if member.member_id == rejoined[0].leader)
        assert await synced(leads, small, b"mine") == [(E.NONE, b"mine")] * 2
    assert broker.running
