"""Memory of mirrors is bounded in all, partitions take turns, and a target broker that hangs holds up its own
partitions only. On a clock that jumps: how fast the machine is plays no part.
"""

import asyncio
import contextlib
from types import SimpleNamespace

from protocol.client import Fetched, Leader
from protocol.client.mirror_calls import MirrorAnswer
from protocol.records import Record, build_batch
from protocol.types import ZERO_UUID, TopicPartition, uuid_to_text
from replicator.mirrors.copying import Copying
from replicator.mirrors.partition import MirrorPartition
from replicator.mirrors.room import Room, alone
from replicator.settings import Flow
from tests.support.jumping_loop import run_jumping

MIB = 1 << 20
LONG_S = 2.0
"""So long each case runs by its clock, many times what its requests take."""
FLOW = Flow(max_bytes_in_flight=8 * MIB, fetch_max_bytes=2 * MIB, fetch_partition_max_bytes=MIB // 4)


class Source:
    """One broker that always has more: as much as `max_bytes` takes, in the order asked for."""

    def __init__(self):
        self.fetches = 0

    async def topic(self, name):
        return SimpleNamespace(topic_id=ZERO_UUID)

    async def known_leaders(self, tps):
        return {tp: Leader(1, 0) for tp in tps}

    async def fetch_from(self, node, asked, *, max_bytes, partition_max_bytes, **_):
        self.fetches += 1
        await asyncio.sleep(0.01)
        size = partition_max_bytes - 200
        chosen = list(asked.items())[: max_bytes // partition_max_bytes]
        batches = [build_batch([Record(at, 0, None, b"v" * size)], base_offset=at) for _, at in chosen]
        whole, found, at = memoryview(b"".join(batches)), {}, 0
        for (tp, _), batch in zip(chosen, batches, strict=True):
            found[tp] = Fetched(tp, whole[at : at + len(batch)], 1 << 40, 1 << 40, 0)
            at += len(batch)
        return found


class Target:
    """Two brokers, some of which hang."""

    def __init__(self, *hanging):
        self.hanging = hanging

    async def known_leaders(self, tps):
        return {tp: Leader(1 + tp.partition % 2, 0) for tp in tps}

    async def mirror_append(self, node, sources, pieces):
        await asyncio.sleep(3600 if node in self.hanging else 0.01)
        return {tp: MirrorAnswer(None, None) for tp in pieces}


async def never(*_):
    raise AssertionError("nothing is missing here")


@contextlib.asynccontextmanager
async def copying(source, target, partitions):
    work = Copying(source, target, FLOW, note=never)
    for index in range(partitions):
        tp = TopicPartition("t", index)
        work.partitions[tp] = MirrorPartition(tp, f"east->west/id/{uuid_to_text(ZERO_UUID)}")
        work.partitions[tp].aligned(0, 0, 0)
    task = asyncio.create_task(work.run())
    try:
        yield list(work.partitions.values())
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def test_what_waits_is_bounded_in_all_and_not_by_partition_alone():
    async def work():
        source = Source()
        async with copying(source, Target(1, 2), 64) as parts:
            await asyncio.sleep(LONG_S)
            fetches, queued = source.fetches, sum(part.queued_bytes for part in parts)
            await asyncio.sleep(LONG_S)
            assert source.fetches == fetches
            return queued

    assert 7 * MIB < run_jumping(work()) <= 10 * MIB  # one fetch on top of the bound


def test_one_hanging_broker_holds_up_its_own_partitions_only_and_all_others_have_turns():
    async def work():
        async with copying(Source(), Target(2), 64) as parts:
            await asyncio.sleep(LONG_S)
            assert min(part.records for part in parts if part.tp.partition % 2 == 0) >= 4
            assert not any(part.records for part in parts if part.tp.partition % 2)
            assert sum(part.queued_bytes for part in parts) <= 10 * MIB

    run_jumping(work())


def test_each_broker_of_the_target_has_its_share():
    room = Room(100)
    assert not room.is_full(1)
    room.holds(1, 60)
    assert not room.is_full(1)
    room.holds(2, 10)
    assert room.is_full(1)
    assert not room.is_full(2)


def test_a_small_part_of_an_answer_does_not_keep_all_of_it():
    answer = memoryview(b"x" * 1000)
    part = alone(answer[10:20])
    assert part == answer[10:20]
    assert len(part.obj) == 10
    assert alone(answer[:900]).obj is answer.obj


class Watched(Target):
    """Takes a while for each request, and remembers what was under way together."""

    def __init__(self):
        super().__init__()
        self.under_way, self.most, self.largest, self.overlaps = [], 0, 0, 0

    async def mirror_append(self, node, sources, pieces):
        self.overlaps += sum(tp in other for other in self.under_way for tp in pieces)
        self.under_way.append(pieces)
        self.most = max(self.most, len(self.under_way))
        self.largest = max(self.largest, sum(len(piece.records) for piece in pieces.values()))
        await asyncio.sleep(0.01)
        self.under_way.remove(pieces)
        return {tp: MirrorAnswer(None, None) for tp in pieces}


def test_several_requests_are_under_way_and_each_partition_is_in_one_of_them():
    target = Watched()

    async def work():
        async with copying(Source(), target, 40) as parts:
            await asyncio.sleep(LONG_S)
            assert min(part.records for part in parts) > 3

    run_jumping(work())
    assert target.overlaps == 0
    assert 1 < target.most <= 16  # two brokers
    assert target.largest < FLOW.produce_request_bytes + FLOW.fetch_partition_max_bytes
