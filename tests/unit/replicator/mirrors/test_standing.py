"""What a link leaves of its source for a failover: when it was heard, not when that was written down."""

from protocol.types import TopicPartition
from replicator.mirrors.partition import MirrorPartition, Piece, State
from replicator.mirrors.standing import Witness, last_seen

LINK = "east->west"


class Target:
    """Committed offsets of one group."""

    def __init__(self):
        self.commits, self.written = {}, 0

    async def commit(self, group, commits):
        self.commits.update(commits)
        self.written += len(commits)

    async def committed(self, group, tps=None):
        return {tp: at for tp, at in self.commits.items() if tps is None or tp in tps}


def level(number, end=10):
    part = MirrorPartition(TopicPartition("orders", number), "text", State.COPYING)
    part.end = end
    part.heard(0, end, 1_000)
    return part


async def seen(target, *parts):
    found = await last_seen(target, LINK, [part.tp for part in parts])
    return [(found[part.tp].seen_ms, found[part.tp].level_ms) for part in parts]


async def test_a_link_that_runs_on_beside_a_dead_source_does_not_make_it_younger():
    target, parts = Target(), [level(0), level(1)]
    witness = Witness(target, LINK)
    for now_ms in range(1_000, 601_000, 1_000):
        await witness.write(parts, now_ms)
    assert await seen(target, *parts) == [(1_000, 1_000)] * 2


async def test_one_broker_of_the_source_that_answers_does_not_speak_for_another():
    target, silent, alive = Target(), level(0), level(1)
    witness = Witness(target, LINK)
    for now_ms in range(1_000, 60_000, 1_000):
        alive.heard(0, 10, now_ms)
        await witness.write([silent, alive], now_ms)
    assert await seen(target, silent, alive) == [(1_000, 1_000), (59_000, 59_000)]
    silent.heard(0, 10, 60_000)
    await witness.write([silent, alive], 60_000)
    assert await seen(target, silent, alive) == [(60_000, 60_000)] * 2


async def test_of_many_that_stand_still_one_says_how_fresh_all_are():
    target, parts = Target(), [level(number) for number in range(100)]
    witness = Witness(target, LINK)
    for now_ms in range(1_000, 11_000, 1_000):
        for part in parts:
            part.heard(0, 10, now_ms)
        await witness.write(parts, now_ms)
    assert await seen(target, *parts) == [(10_000, 10_000)] * 100
    assert target.written < 120


def test_a_mirror_is_level_with_what_its_source_was_when_it_was_heard():
    """A slow target takes what is queued long after the source was cut off."""
    part = MirrorPartition(TopicPartition("orders", 0), "text")
    part.aligned(0, 0, 0)
    part.heard(0, 10, 1_000)
    piece = Piece(0, memoryview(b"batch"), 10, 0)
    part.put(piece)
    part.done(piece)
    assert (part.level, part.level_ms) == (True, 1_000)
