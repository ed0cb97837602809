"""Partitions are asked about some hundred at a time; one that cannot be answered for holds up no others."""

import asyncio

from protocol.client import Leader
from protocol.errors import ErrorCode, KafkaError
from protocol.types import TopicPartition
from replicator.mirrors.copying import Copying
from replicator.mirrors.partition import MirrorPartition, State
from replicator.settings import Flow
from tests.support.waiting import eventually


class Side:
    """Leads all partitions, and is never asked for more than that."""

    async def known_leaders(self, tps):
        return {tp: Leader(1, 0) for tp in tps}

    async def fetch_from(self, *_, **__):
        await asyncio.sleep(3600)


async def never(*_):
    raise AssertionError("nothing is missing here")


async def test_one_bad_partition_holds_up_no_others():
    work = Copying(Side(), Side(), Flow(), note=never)
    bad = TopicPartition("t", 7)
    asked = []

    class Scripted:
        async def align(self, parts, now_ms):
            asked.append(len(parts))
            if any(part.tp == bad for part in parts):
                raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, str(bad))
            for part in parts:
                part.aligned(0, 0, 0)

    work._aligner = Scripted()
    for index in range(600):
        tp = TopicPartition("t", index)
        work.partitions[tp] = MirrorPartition(tp, "east->west/id/x")

    async def copied():
        return sum(part.state is State.COPYING for part in work.partitions.values())

    task = asyncio.create_task(work.run())
    try:
        await eventually(copied, lambda count: count == 599)
        assert sum(size > 1 for size in asked) <= 4  # three portions, and once more the one with the bad one
        assert work.partitions[bad].state is State.ALIGNING
        assert str(bad) in (work.partitions[bad].problem or "")
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
