"""C09: heartbeats keep no member that never asks for its assignment, and a given-out id blocks nobody.

The same steps run beside Apache Kafka in tests/interop/test_group_protocol.py (`c09`, `c09_pending`).
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import Any

import pytest

from protocol.client.connection import Connection
from protocol.errors import ErrorCode
from protocol.messages.describe_groups_request import DescribeGroupsRequest
from tests.support.broker import BrokerProcess
from tests.support.group_client import GroupClient

pytestmark = pytest.mark.cluster

E = ErrorCode
BOUND_S = 30.0


async def members(broker: BrokerProcess, stack: AsyncExitStack, group: str, count: int) -> list[GroupClient]:
    made = []
    for _ in range(count):
        connection = await Connection.open("127.0.0.1", broker.port)
        stack.push_async_callback(connection.close)
        client = GroupClient(connection, group)
        client.session_ms, client.rebalance_ms = 30_000, 3_000
        made.append(client)
    await made[0].until_coordinated()
    return made


async def until_rebalance(member: GroupClient) -> None:
    async with asyncio.timeout(BOUND_S):
        while await member.heartbeat() != E.REBALANCE_IN_PROGRESS:
            await asyncio.sleep(0.02)


async def described(member: GroupClient) -> Any:
    request = DescribeGroupsRequest(groups=[member.group])
    return (await member.connection.send(request, 5)).groups[0]


async def test_who_never_syncs_is_removed(broker: BrokerProcess) -> None:
    async with AsyncExitStack() as stack:
        a, b = await members(broker, stack, "c09", 2)
        await a.enter()
        joining = asyncio.create_task(b.enter())
        await until_rebalance(a)
        await a.join()
        assert (await joining).error_code == E.NONE
        started = time.monotonic()
        assert (await a.sync({a.member_id: b"1", b.member_id: b"2"})).assignment == b"1"
        async with asyncio.timeout(BOUND_S):
            while await a.heartbeat() != E.REBALANCE_IN_PROGRESS:
                await b.heartbeat()
                await asyncio.sleep(0.3)
        assert time.monotonic() - started > 2.5
        assert await b.heartbeat() == E.UNKNOWN_MEMBER_ID
        assert (await b.sync()).error_code == E.UNKNOWN_MEMBER_ID
        assert await b.commit({("nowhere", 0): 1}) == {("nowhere", 0): E.UNKNOWN_TOPIC_OR_PARTITION}
        assert (await a.join()).error_code == E.NONE
        assert (await a.sync({a.member_id: b"12"})).assignment == b"12"
        group = await described(a)
        assert (group.group_state, [each.member_id for each in group.members]) == ("Stable", [a.member_id])


async def test_an_id_that_is_never_used_blocks_the_round_for_its_session_only(broker: BrokerProcess) -> None:
    async with AsyncExitStack() as stack:
        a, b, c = await members(broker, stack, "c09-pending", 3)
        for member in (a, b):
            member.rebalance_ms = 60_000
        c.session_ms = 6_000  # the least that the broker allows
        await a.enter()
        joining = asyncio.create_task(b.enter())
        await until_rebalance(a)
        started = time.monotonic()
        assert (await c.join()).error_code == E.MEMBER_ID_REQUIRED
        assert (await a.join()).error_code == E.NONE
        assert (await joining).error_code == E.NONE
        assert 5 < time.monotonic() - started < 30  # without C's session it would be 60
        assert {each.member_id for each in (await described(a)).members} == {a.member_id, b.member_id}
        assert (await c.join()).error_code == E.UNKNOWN_MEMBER_ID
