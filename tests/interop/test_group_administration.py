"""Offsets, limits and operators' requests of groups: every answer as Apache Kafka gives it, case by case."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from broker.control.embedded_zookeeper import EmbeddedZooKeeper
from protocol.messages.delete_groups_request import DeleteGroupsRequest
from protocol.messages.describe_groups_request import DescribeGroupsRequest
from protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from protocol.messages.list_groups_request import ListGroupsRequest
from protocol.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from protocol.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from protocol.messages.sync_group_request import SyncGroupRequest
from tests.support.group_client import GroupClient
from tests.support.groups_beside_kafka import (
    SETTINGS,
    Answers,
    Place,
    Scenario,
    both_brokers,
    play_both,
    synced,
    until_rebalance,
)
from tests.support.zookeeper import fresh_chroot

pytestmark = [pytest.mark.interop, pytest.mark.cluster, pytest.mark.slow]

LIMITS: Mapping[str, str] = {
    **SETTINGS,
    "group.max.size": "2",
    "group.max.session.timeout.ms": "60000",
    "offset.metadata.max.bytes": "10",
}


@pytest.fixture(scope="module")
def both(
    zookeeper_server: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str]]:
    """(Apache Kafka, isthmus)."""
    with both_brokers(tmp_path_factory.mktemp("broker"), fresh_chroot(zookeeper_server), LIMITS) as pair:
        yield pair


async def _delete_offsets(
    client: GroupClient, wanted: dict[str, list[int]], group: str | None = None
) -> tuple[int, dict[tuple[str, int], int]]:
    topics = [
        OffsetDeleteRequestTopic(
            name=name, partitions=[OffsetDeleteRequestPartition(partition_index=each) for each in partitions]
        )
        for name, partitions in wanted.items()
    ]
    request = OffsetDeleteRequest(group_id=client.group if group is None else group, topics=topics)
    answer = await client.connection.send(request, 0)
    return answer.error_code, {
        (topic.name, each.partition_index): each.error_code
        for topic in answer.topics
        for each in topic.partitions
    }


async def _delete_groups(client: GroupClient, *groups: str) -> list[int]:
    answer = await client.connection.send(DeleteGroupsRequest(groups_names=list(groups)), 2)
    codes = {each.group_id: each.error_code for each in answer.results}
    return [codes[group] for group in groups]


# -- scenarios ---------------------------------------------------------------------------------------------


async def nameless_groups(at: Place) -> Answers:
    """The empty group id: no member may have it, commits may."""
    nobody = await at.client(member_id="x", generation=1)
    nobody.group = ""
    said: Answers = [
        at.joined(await nobody.join()),
        synced(await nobody.sync()),
        await nobody.heartbeat(),
        await nobody.leave(),
        await nobody.leave(version=2),
        await nobody.committed({"t": [0]}),
        await _delete_offsets(nobody, {"t": [0]}),
    ]
    described = (await nobody.connection.send(DescribeGroupsRequest(groups=[""]), 5)).groups[0]
    said.append((described.error_code, described.group_state))
    nobody.member_id, nobody.generation = "", -1
    said += [await nobody.commit({("t", 0): 3}), await nobody.committed({"t": [0]})]
    return [*said, await _delete_groups(nobody, "")]


async def partitions_that_are_not_there(at: Place) -> Answers:
    client = await at.client()
    wanted = {("t", 0): 1, ("t", 9): 1, ("nope", 0): 1}
    said: Answers = [await client.commit(wanted), await client.commit({("t", 9): 1})]
    said += [await client.committed({"t": [0, 9], "nope": [0]}, version) for version in (1, 5, 7, 8)]
    said.append(await _delete_offsets(client, {"t": [0, 1, 9], "nope": [0]}))
    said.append(await client.committed({"t": [0]}))
    return said


async def texts(at: Place) -> Answers:
    """`offset.metadata.max.bytes` counts characters."""
    client = await at.client()
    said: Answers = []
    for text in ("", "x" * 10, "x" * 11, "é" * 10, None):
        said.append(await client.commit({("t", 0): 1}, metadata=text))
    return said


async def syncs_without_a_protocol(at: Place) -> Answers:
    member = await at.client()
    await member.enter()
    said: Answers = []
    for kind, name in ((None, "range"), ("consumer", None), ("connect", "range"), ("consumer", "other")):
        request = SyncGroupRequest(
            group_id=at.group,
            generation_id=member.generation,
            member_id=member.member_id,
            protocol_type=kind,
            protocol_name=name,
        )
        said.append(synced(await member.connection.send(request, 5)))
    said.append(synced(await member.sync({member.member_id: b"1"}, version=4)))
    return said


async def a_full_group(at: Place) -> Answers:
    """`group.max.size` is 2: a third is refused in every state; whoever is in may join again."""
    third, late = await at.client(), await at.client()
    first, second = await at.two()
    said: Answers = [at.joined(await third.join()), at.joined(await third.join(3))]
    said.append(synced(await first.sync({first.member_id: b"1", second.member_id: b"2"})))
    said += [at.joined(await third.join()), synced(await second.sync())]
    first.metadata = first.metadata[:-1] + b"\xfe"
    joining = asyncio.create_task(first.join())
    await until_rebalance(second)
    said += [at.joined(await late.join()), at.joined(await second.join()), at.joined(await joining)]
    return said


async def long_sessions(at: Place) -> Answers:
    said: Answers = []
    for session in (999, 1_000, 60_000, 60_001):
        member = await at.client(session_ms=session)
        said.append(at.joined(await member.join()))
    return said


async def an_id_that_leaves(at: Place) -> Answers:
    """An id that was given out leaves before it was used."""
    member, idle = await at.client(), await at.client()
    await member.be_alone()
    said: Answers = [at.joined(await idle.join()), await idle.leave(), await idle.leave()]
    return [*said, await member.heartbeat()]


async def an_id_that_runs_out(at: Place) -> Answers:
    member, idle = await at.client(), await at.client(session_ms=1_000)
    await member.be_alone()
    await idle.join()
    seen = set()
    ends = asyncio.get_running_loop().time() + 2.5
    while asyncio.get_running_loop().time() < ends:
        seen.add(await member.heartbeat())
        await asyncio.sleep(0.05)
    return [seen, member.generation, at.joined(await idle.join())]


async def many_leave(at: Place) -> Answers:
    """One request for several members: each has its own answer, and one round follows."""
    one, two = await at.client(instance="i1"), await at.client(instance="i2")
    await one.enter()
    joining = asyncio.create_task(two.enter())
    await until_rebalance(one)
    await one.join()
    await joining
    await one.sync({one.member_id: b"1", two.member_id: b"2"})

    async def leave(*identities: tuple[str, str | None]) -> Answers:
        members = [MemberIdentity(member_id=m, group_instance_id=i, reason="asked to") for m, i in identities]
        request = LeaveGroupRequest(group_id=at.group, members=members)
        answer = await one.connection.send(request, 5)
        return [
            answer.error_code,
            [(at.plain(m.member_id), m.group_instance_id, m.error_code) for m in answer.members],
        ]

    said: Answers = [await leave(("x", None), ("", None), ("", "i9"), ("x", "i1"), (two.member_id, "i1"))]
    said.append(await one.heartbeat())
    said.append(await leave(("", "i2"), ("", "i2"), (one.member_id, None), ("x", None)))
    said += [await one.heartbeat(), await leave(), await leave(("x", None))]
    return said


async def connect_workers(at: Place) -> Answers:
    """Metadata of another protocol type is opaque; its topics are unknown, so no offset may go."""
    worker = await at.client(metadata=b"\xff\x00 opaque", protocol_type="connect")
    said: Answers = [at.joined(await worker.enter())]
    said.append(synced(await worker.sync({worker.member_id: b"all"})))
    consumer = await at.client()
    said.append(at.joined(await consumer.join()))
    said.append(await _delete_offsets(worker, {"t": [0]}))
    said.append(await _delete_groups(worker, at.group, f"{at.group}-none"))
    described = (await worker.connection.send(DescribeGroupsRequest(groups=[at.group]), 5)).groups[0]
    said.append((described.group_state, described.protocol_type, described.protocol_data))
    said.append([(m.member_metadata, m.member_assignment) for m in described.members])
    return [*said, await worker.leave(), await _delete_groups(worker, at.group)]


async def deleting(at: Place) -> Answers:
    member, administrator = await at.client(), await at.client()
    await member.be_alone()
    await member.commit({("t", 0): 1, ("t", 1): 2})
    said: Answers = [await administrator.commit({("t", 0): 9})]
    said += [await _delete_groups(member, at.group), await _delete_offsets(member, {"t": [0]})]
    said += [await member.leave(), await _delete_offsets(member, {"t": [0, 2]})]
    said += [await administrator.committed(None), await administrator.commit({("t", 2): 3})]
    said += [await _delete_groups(member, at.group), await _delete_groups(member, at.group)]
    said += [await administrator.committed(None), await _delete_offsets(member, {"t": [0]})]
    return [*said, at.joined(await member.join()), await member.heartbeat()]


async def listing(at: Place) -> Answers:
    stable, simple = await at.client(), await at.client()
    await stable.be_alone()
    simple.group = f"{at.group}-simple"
    await simple.commit({("t", 0): 1})

    async def listed(version: int, **filters: Any) -> Answers:
        answer = await stable.connection.send(ListGroupsRequest(**filters), version)
        groups = sorted(
            (each.group_id.removeprefix(at.group), each.protocol_type, each.group_state, each.group_type)
            for each in answer.groups
            if each.group_id.startswith(at.group)
        )
        return [answer.error_code, groups]

    said: Answers = [await listed(version) for version in range(6)]
    for states in (["Stable"], ["stable", "EMPTY"], ["Dead"], ["nonsense"], [" stable "]):
        said.append(await listed(4, states_filter=states))
    for types in (["classic"], ["Classic", "consumer"], ["consumer"], ["share"]):
        said.append(await listed(5, types_filter=types))
    said.append(await listed(5, types_filter=["classic"], states_filter=["Empty"]))
    return said


async def many_groups_at_once(at: Place) -> Answers:
    """OffsetFetch v8 (KIP-709): each group its own answer, all positions where no topics are named."""
    first, second = await at.client(), await at.client()
    second.group = f"{at.group}-2"
    await first.commit({("t", 0): 1, ("t", 1): 2}, metadata="one")
    await second.commit({("t", 2): 3})
    some = [OffsetFetchRequestTopics(name="t", partition_indexes=[1, 2])]
    request = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(group_id=first.group, topics=None),
            OffsetFetchRequestGroup(group_id=second.group, topics=some),
            OffsetFetchRequestGroup(group_id=f"{at.group}-none", topics=some),
            OffsetFetchRequestGroup(group_id=f"{at.group}-none-2", topics=None),
            OffsetFetchRequestGroup(group_id=first.group, topics=[]),
        ]
    )
    answer = await first.connection.send(request, 8)
    return [
        (
            each.error_code,
            sorted(
                (t.name, p.partition_index, p.committed_offset, p.metadata, p.error_code)
                for t in each.topics
                for p in t.partitions
            ),
        )
        for each in answer.groups
    ]


async def changing_protocols(at: Place) -> Answers:
    """Eager to cooperative by two rolling restarts: the group agrees on what all offer, the first choice."""
    one, two = await at.client(), await at.client()
    both_ways = [("cooperative-sticky", b"c"), ("range", b"r")]
    said: Answers = [at.joined(await one.enter())]
    two.protocols = both_ways
    joining = asyncio.create_task(two.enter())
    await until_rebalance(one)
    one.protocols = both_ways
    said += [at.joined(await one.join()), at.joined(await joining)]
    stranger = await at.client(protocols=[("roundrobin", b"x")])
    return [*said, at.joined(await stranger.join(3))]


async def assignments_that_are_too_large(at: Place) -> Answers:
    """More than the offsets topic takes in a batch: the sync fails, and the group can join again (C17)."""
    first, second = await at.two()
    waiting = asyncio.create_task(second.sync())
    huge = await first.sync({first.member_id: bytes(2_500_000), second.member_id: b"2"})
    # Whoever asks a moment later learns that the round is over.
    said: Answers = [synced(huge), (await waiting).error_code in (-1, 27)]
    joining = asyncio.create_task(second.join())
    said += [await first.heartbeat(), at.joined(await first.join()), at.joined(await joining)]
    said.append(synced(await first.sync({first.member_id: b"1", second.member_id: b"2"})))
    return [*said, synced(await second.sync())]


@pytest.mark.parametrize(
    "scenario",
    [
        nameless_groups,
        partitions_that_are_not_there,
        texts,
        syncs_without_a_protocol,
        a_full_group,
        long_sessions,
        an_id_that_leaves,
        an_id_that_runs_out,
        many_leave,
        connect_workers,
        deleting,
        listing,
        many_groups_at_once,
        changing_protocols,
        assignments_that_are_too_large,
    ],
    ids=lambda scenario: scenario.__name__,
)
async def test_answers_are_the_same(both: tuple[str, str], scenario: Scenario) -> None:
    await play_both(both, scenario)
