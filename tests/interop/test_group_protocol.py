"""The same requests of group members to Apache Kafka and to us: every answer must be the same.

And the other way round: our coordinator reads the offsets topic that Apache Kafka wrote.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from broker.control.embedded_zookeeper import EmbeddedZooKeeper
from broker.coordinator.groups.limits import GroupLimits
from broker.coordinator.replay import Replay
from broker.coordinator.shard import Shard
from protocol.client import ClusterClient
from protocol.messages.describe_groups_request import DescribeGroupsRequest
from protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.list_groups_request import ListGroupsRequest
from protocol.types import TopicPartition
from tests.support.groups_beside_kafka import (
    SETTINGS,
    Answers,
    Place,
    Scenario,
    both_brokers,
    place,
    play_both,
    synced,
    until_rebalance,
)
from tests.support.waiting import eventually
from tests.support.zookeeper import fresh_chroot

pytestmark = [pytest.mark.interop, pytest.mark.cluster, pytest.mark.slow]


@pytest.fixture(scope="module")
def both(
    zookeeper_server: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str]]:
    """(Apache Kafka, isthmus)."""
    with both_brokers(tmp_path_factory.mktemp("broker"), fresh_chroot(zookeeper_server), SETTINGS) as pair:
        yield pair


# -- scenarios ---------------------------------------------------------------------------------------------


async def first_steps(at: Place) -> Answers:
    """Two-step join, wrong ids and generations, the life of a lone member."""
    member, stranger = await at.client(), await at.client(member_id="x", generation=3)
    said: Answers = [
        at.joined(await stranger.join()),
        synced(await stranger.sync({})),
        await stranger.heartbeat(),
        await stranger.leave(),
        await stranger.commit({("t", 0): 1}),
        at.joined(await member.join()),
        at.joined(await member.join()),
        await member.heartbeat(),
        await member.commit({("t", 0): 1}),
        synced(await member.sync({member.member_id: b"all"})),
        synced(await member.sync({member.member_id: b"other"})),
        await member.commit({("t", 0): 1, ("nope", 0): 1}),
    ]
    stranger.member_id, stranger.generation = "", -1
    said.append(await stranger.commit({("t", 0): 9}))
    member.generation += 1
    said += [await member.heartbeat(), synced(await member.sync({})), await member.commit({("t", 0): 9})]
    said += [await member.leave(), await member.leave(), await stranger.commit({("t", 1): 5})]
    said += [await member.committed({"t": [0, 1, 2]}), await member.committed(None)]
    return said


async def refusals(at: Place) -> Answers:
    said: Answers = []
    for version in (0, 3, 5, 7, 9):
        bad_session = await at.client(session_ms=1)
        nameless = await at.client()
        nameless.group = ""
        said += [at.joined(await bad_session.join(version)), at.joined(await nameless.join(version))]
    return said


async def repeated_joins(at: Place) -> Answers:
    """A lost answer: the same join again, by the leader and by a follower, before and after the sync."""
    leader, follower = await at.client(), await at.client()
    said: Answers = [at.joined(await leader.enter())]
    joining = asyncio.create_task(follower.enter())
    await until_rebalance(leader)
    said += [at.joined(await leader.join()), at.joined(await joining)]
    said += [at.joined(await leader.join()), at.joined(await follower.join())]
    said.append(synced(await leader.sync({leader.member_id: b"1", follower.member_id: b"2"})))
    said += [at.joined(await follower.join()), synced(await follower.sync())]
    follower.metadata = leader.metadata[:-1] + b"\xfe"  # changed: everybody has to join again
    changed = asyncio.create_task(follower.join())
    await until_rebalance(leader)
    said += [at.joined(await leader.join()), at.joined(await changed)]
    return said


async def c09(at: Place) -> Answers:
    """B only sends heartbeats: it is removed after the rebalance timeout, A goes on alone."""
    a = await at.client(rebalance_ms=3_000, session_ms=30_000)
    b = await at.client(rebalance_ms=3_000, session_ms=30_000)
    await a.enter()
    joining = asyncio.create_task(b.enter())
    await until_rebalance(a)
    said: Answers = [at.joined(await a.join()), at.joined(await joining)]
    said.append(synced(await a.sync({a.member_id: b"1", b.member_id: b"2"})))
    seen = set()
    async with asyncio.timeout(20):
        while (code := await a.heartbeat()) != 27:
            seen |= {code, await b.heartbeat()}
            await asyncio.sleep(0.3)
    said += [seen, await b.heartbeat(), synced(await b.sync()), at.joined(await a.join())]
    said.append(synced(await a.sync({a.member_id: b"12"})))
    described = (await a.connection.send(DescribeGroupsRequest(groups=[at.group]), 5)).groups[0]
    said.append((described.group_state, [at.plain(m.member_id) for m in described.members]))
    return said


async def c09_pending(at: Place) -> Answers:
    """C gets an id and never uses it: the round waits for C's session and no longer."""
    a, b = await at.client(session_ms=30_000), await at.client(session_ms=30_000)
    await a.enter()
    joining = asyncio.create_task(b.enter())
    await until_rebalance(a)
    c = await at.client(session_ms=3_000)
    said: Answers = [at.joined(await c.join())]
    started = asyncio.get_running_loop().time()
    said.append(at.joined(await a.join()))
    said.append(2.5 < asyncio.get_running_loop().time() - started < 9)  # A's and B's would be 10 and 30
    said.append(at.joined(await joining))
    return said


async def static_members(at: Place) -> Answers:
    one, two = await at.client(instance="i1"), await at.client(instance="i2")
    await one.enter()
    joining = asyncio.create_task(two.enter())
    await until_rebalance(one)
    said: Answers = [at.joined(await one.join()), at.joined(await joining)]
    said.append(synced(await one.sync({one.member_id: b"1", two.member_id: b"2"})))
    said.append(synced(await two.sync()))
    for old, versions in ((two, (5, 8, 9)), (one, (9, 8))):
        for version in versions:
            back = await at.client(instance=old.instance)
            said.append(at.joined(await back.join(version)))
            said.append(synced(await back.sync()))
            said += [await old.heartbeat(), synced(await old.sync()), await old.leave()]
            said += [await old.commit({("t", 0): 1}), await back.commit({("t", 0): 1})]
    stranger = await at.client(instance="i9", member_id="x")
    said += [at.joined(await stranger.join()), await stranger.leave()]
    administrator = await at.client(instance="i2")
    said += [await administrator.leave(), await administrator.leave()]
    return said


async def looking(at: Place) -> Answers:
    member = await at.client(instance="i")

    async def look() -> Answers:
        request = DescribeGroupsRequest(groups=[at.group, "never-seen"], include_authorized_operations=False)
        # Kafka answers shard by shard: groups of two shards may come in another order.
        described = sorted((await member.connection.send(request, 5)).groups, key=lambda each: each.group_id)
        listed = (await member.connection.send(ListGroupsRequest(), 4)).groups
        return [
            (
                each.error_code, each.group_state, each.protocol_type, each.protocol_data,
                [(m.group_instance_id, m.client_id, m.client_host, m.member_metadata, m.member_assignment)
                 for m in each.members],
            )
            for each in described
        ] + [(e.group_state, e.protocol_type) for e in listed if e.group_id == at.group]  # fmt: skip

    await member.enter()
    # Kafka looks up what its log has committed: a group without a record yet is not there.
    said = await eventually(look, lambda seen: "Dead" not in seen[0])  # type: ignore[operator]
    await member.sync({member.member_id: b"all"})
    said += await look()
    await member.leave()
    said += await look()
    simple = await at.client()
    simple.group = f"{at.group}-simple"
    await simple.commit({("t", 0): 1})
    described = (await member.connection.send(DescribeGroupsRequest(groups=[simple.group]), 5)).groups[0]
    return [*said, (described.group_state, described.protocol_type, described.protocol_data)]


@pytest.mark.parametrize(
    "scenario",
    [first_steps, refusals, repeated_joins, c09, c09_pending, static_members, looking],
    ids=lambda scenario: scenario.__name__,
)
async def test_answers_are_the_same(both: tuple[str, str], scenario: Scenario) -> None:
    await play_both(both, scenario)


# -- what Apache Kafka has written -------------------------------------------------------------------------


async def test_we_read_the_offsets_topic_that_kafka_wrote(both: tuple[str, str]) -> None:
    theirs, _ = both
    async with place(theirs) as at, ClusterClient(theirs) as client:
        member = await at.client(instance="i")
        await member.be_alone()
        await member.commit({("t", 0): 5, ("t", 1): 6}, metadata="text", committed_leader_epoch=2)
        simple = await at.client()
        simple.group = f"{at.group}-simple"
        await simple.commit({("t", 2): 7})
        shard = Shard(0, 0, GroupLimits())
        metadata = await client.metadata(["__consumer_offsets"])
        for partition in metadata.topics["__consumer_offsets"].partitions:
            await _replay(client, partition, shard)
        assert shard.offsets[at.group].keys() == {TopicPartition("t", 0), TopicPartition("t", 1)}
        found = shard.offsets[at.group][TopicPartition("t", 1)]
        assert (found.offset, found.leader_epoch, found.metadata) == (6, 2, "text")
        assert shard.offsets[simple.group][TopicPartition("t", 2)].offset == 7
        group = shard.groups[at.group]
        assert (group.generation, group.protocol_type, group.protocol) == (1, "consumer", "range")
        (stored,) = group.members.values()
        assert (stored.member_id, stored.instance_id, stored.assignment) == (member.member_id, "i", b"all")
        assert group.subscribed_topics == {"t"}


async def _replay(client: ClusterClient, partition: int, shard: Shard) -> None:
    replay = Replay(f"__consumer_offsets-{partition}")
    offset = 0
    while True:
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1 << 24,
            topics=[
                FetchTopic(
                    topic="__consumer_offsets",
                    partitions=[
                        FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 24)
                    ],
                )
            ],
        )
        answer = await client.send_leader(
            TopicPartition("__consumer_offsets", partition), request, highest=12
        )
        found = answer.responses[0].partitions[0]
        for _ in replay.feed(bytes(found.records or b"")):
            pass
        if offset >= found.high_watermark or not found.records:
            break
        offset = found.high_watermark
    for _ in replay.fill(shard):
        pass
