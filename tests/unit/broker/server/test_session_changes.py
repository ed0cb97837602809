"""A follower's session looks only where something happened, and misses nothing of that."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from broker.replication import Partition
from broker.server.follower_fetch import FollowerFetch
from broker.server.session_changes import LOOK_AGAIN_S, SessionChanges
from protocol.messages.fetch_request import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from protocol.messages.fetch_response import FetchResponse, PartitionData
from tests.support.lone_broker import BROKER_ID
from tests.support.served import Served, batch

FOLLOWER, OTHER = 2, 3
REPLICAS = (BROKER_ID, FOLLOWER, OTHER)
LAG_S = 10.0


class Follower:
    """Speaks the protocol of one: says where it stands, and takes what it is told."""

    def __init__(self, node: Served, count: int) -> None:
        self.node = node
        self.topic_id = node.topics.create("t", count)
        self.partitions = [node.broker.replicas.leader("t", index) for index in range(count)]
        self.epoch = 1
        self.session_id = self.session_epoch = 0
        self.ends = dict.fromkeys(range(count), 0)
        self.starts = dict.fromkeys(range(count), 0)
        self.told: dict[int, tuple[int, int]] = {}
        self.moved = set(self.ends)
        self.lead()

    def lead(self, isr: tuple[int, ...] = REPLICAS) -> None:
        self.epoch += 1
        for partition in self.partitions:
            partition.lead(BROKER_ID, self.epoch, isr, REPLICAS, self.epoch, self.now())
        self.moved.update(self.ends)

    def now(self) -> float:
        return self.node.broker.clock.monotonic()

    def changes(self) -> SessionChanges:
        (session,) = self.node.broker.fetch_sessions
        assert session.changes is not None
        return session.changes

    async def fetch(self, max_wait_ms: int = 0, forget: tuple[int, ...] = ()) -> dict[int, PartitionData]:
        parts = [
            FetchPartition(
                partition=index,
                fetch_offset=self.ends[index],
                current_leader_epoch=self.epoch,
                last_fetched_epoch=-1,
                log_start_offset=self.starts[index],
                partition_max_bytes=1 << 20,
            )
            for index in sorted(self.moved if self.session_epoch else self.ends)
        ]
        self.moved.clear()
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=FOLLOWER, replica_epoch=7),
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=10 << 20,
            session_id=self.session_id,
            session_epoch=self.session_epoch,
            topics=[FetchTopic(topic_id=self.topic_id, partitions=parts)] if parts else [],
            forgotten_topics_data=[ForgottenTopic(topic_id=self.topic_id, partitions=list(forget))]
            if forget
            else [],
        )
        answer: FetchResponse = await self.node.connection.send(request, 17)
        assert answer.error_code == 0
        self.session_id, self.session_epoch = answer.session_id, self.session_epoch + 1
        found = {part.partition_index: part for topic in answer.responses for part in topic.partitions}
        for index, part in found.items():
            assert part.error_code == 0
            self.told[index] = (part.high_watermark, part.log_start_offset)
            if part.records:
                self.ends[index] = self.partitions[index].log.end_offset
                self.moved.add(index)
            if part.log_start_offset > self.starts[index]:
                self.starts[index] = part.log_start_offset
                self.moved.add(index)
        return found

    async def settle(self) -> None:
        """Until it has everything, and nothing is looked at any more."""
        for _ in range(6):
            await self.fetch()
        assert not self.changes().moving


def append(partition: Partition, *values: bytes) -> None:
    partition.append(memoryview(bytearray(batch(*values))))


def other_follows(partition: Partition) -> None:
    partition.followed(OTHER, partition.log.end_offset, partition.log.start_offset, 1.0)


@pytest.mark.parametrize("seed", range(12))
async def test_a_follower_is_told_whatever_changes(node: Served, seed: int) -> None:
    chance = random.Random(seed)
    follower = Follower(node, 4)
    await follower.fetch()
    for _ in range(80):
        index = chance.randrange(4)
        partition, log = follower.partitions[index], follower.partitions[index].log
        match chance.choice(
            ("append", "append", "other", "delete", "term", "fetch", "fetch", "fetch", "isr")
        ):
            case "append":
                append(partition, b"x")
            case "other":
                other_follows(partition)
            case "delete":
                log.delete_before(log.high_watermark)
                partition.wake(0)
            case "term" if chance.random() < 0.2:
                follower.lead()
            case "isr":
                partition.settle_isr(chance.choice((REPLICAS, (BROKER_ID, OTHER))), partition.partition_epoch)
            case _:
                before = {
                    number: (each.log.high_watermark, each.log.start_offset, each.log.end_offset)
                    for number, each in enumerate(follower.partitions)
                }
                await follower.fetch()
                for number, (high, start, end) in before.items():
                    assert follower.told[number][0] >= high
                    assert follower.told[number][1] >= start
                    assert follower.ends[number] >= end
    for partition in follower.partitions:
        other_follows(partition)
    await follower.settle()
    for index, partition in enumerate(follower.partitions):
        assert follower.told[index] == (partition.log.high_watermark, partition.log.start_offset)
        assert partition.in_sync.followers[FOLLOWER].end_offset == partition.log.end_offset
        assert FOLLOWER in partition.in_sync.maximal, "who stands still outside the ISR is proposed"


async def test_partitions_at_rest_are_not_looked_at_and_wake_a_waiting_fetch(node: Served) -> None:
    follower = Follower(node, 50)
    await follower.settle()
    waiting = asyncio.create_task(follower.fetch(max_wait_ms=60_000))
    while follower.changes().on_arrival is None:
        await asyncio.sleep(0.002)
    assert not any(partition._end_watchers for partition in follower.partitions)
    append(follower.partitions[33], b"news")
    assert list(await asyncio.wait_for(waiting, 40)) == [33]
    assert len(follower.changes().moving) == 1


async def test_what_comes_between_the_look_and_the_waiting_is_not_missed(
    node: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower = Follower(node, 3)
    await follower.settle()
    watch = FollowerFetch._watch

    def late(job: FollowerFetch, *arguments: Any) -> None:
        if not follower.partitions[1].log.end_offset:
            append(follower.partitions[1], b"late")
        watch(job, *arguments)

    monkeypatch.setattr(FollowerFetch, "_watch", late)
    assert list(await asyncio.wait_for(follower.fetch(max_wait_ms=60_000), 40)) == [1]


async def test_a_request_that_comes_between_the_look_and_the_waiting_ends_it(
    node: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look that took the disk or several turns ends in another turn than that in which waiting begins."""
    follower = Follower(node, 3)
    await follower.settle()
    watch = FollowerFetch._watch

    def late(job: FollowerFetch, *arguments: Any) -> None:
        job._connection.hurry()
        watch(job, *arguments)

    monkeypatch.setattr(FollowerFetch, "_watch", late)
    assert await asyncio.wait_for(follower.fetch(max_wait_ms=60_000), 5) == {}


async def test_who_was_at_rest_was_there_until_the_last_fetch(node: Served) -> None:
    """Else a follower of a partition without records would leave the ISR with the first record."""
    follower = Follower(node, 2)
    await follower.settle()
    changes, partition = follower.changes(), follower.partitions[0]
    later = follower.now() + 100 * LAG_S
    changes.fetched(7, later)
    append(partition, b"x")
    in_sync = partition.in_sync
    for each in (later + 1, later + LAG_S):
        assert FOLLOWER not in in_sync.lagging(partition.log.end_offset, each, LAG_S)
    # From then on its silence counts.
    assert FOLLOWER in in_sync.lagging(partition.log.end_offset, later + LAG_S + 0.1, LAG_S)


async def test_a_start_that_moves_without_a_word_is_told_within_seconds(node: Served) -> None:
    follower = Follower(node, 2)
    append(follower.partitions[1], b"x", b"y")
    await follower.settle()
    other_follows(follower.partitions[1])
    await follower.settle()
    follower.partitions[1].log.delete_before(1)  # as retention does
    assert not await follower.fetch()
    changes = follower.changes()
    changes.fetched(7, follower.now() + LOOK_AGAIN_S)
    assert list(await follower.fetch()) == [1]


async def test_another_life_of_the_follower_is_noted_everywhere(node: Served) -> None:
    follower = Follower(node, 3)
    await follower.settle()
    follower.changes().fetched(8, follower.now())
    assert len(follower.changes().moving) == 3


async def test_what_is_forgotten_and_a_session_that_is_over_leave_nothing(node: Served) -> None:
    follower = Follower(node, 3)
    await follower.settle()
    await follower.fetch(forget=(2,))
    assert not follower.partitions[2]._at_rest
    assert follower.partitions[0]._at_rest
    node.broker.fetch_sessions.close(follower.session_id)
    assert not any(partition._at_rest for partition in follower.partitions)
