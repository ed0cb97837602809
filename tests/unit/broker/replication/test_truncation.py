"""Cutting followers back by leader epochs: KIP-101, KIP-279, and every history of small logs."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from broker.log.leader_epochs import LeaderEpochs
from broker.replication.truncation import Cut, where_to_cut


class EpochLog:
    """A log as the list of its records' epochs, with the cache of epochs that the broker keeps."""

    def __init__(self, path: Path, epochs: list[int]) -> None:
        self.records = list(epochs)
        self.cache = LeaderEpochs(str(path))
        for offset, epoch in enumerate(epochs):
            self.cache.note(epoch, offset)

    @property
    def end_offset(self) -> int:
        return len(self.records)

    def epoch_end_offset(self, epoch: int) -> tuple[int, int]:
        return self.cache.end_offset(epoch, self.end_offset)

    def cut(self, offset: int) -> None:
        del self.records[offset:]
        self.cache.trim(0, offset)


def follow(follower: EpochLog, leader: EpochLog, high_watermark: int = 0) -> int:
    """Cut as the fetcher does; returns how often the leader was asked."""
    for asked in range(1, 100):
        latest = follower.cache.latest
        if latest == -1:
            return asked - 1
        cut = where_to_cut(follower, high_watermark, *leader.epoch_end_offset(latest))
        follower.cut(cut.offset)
        if cut.done:
            return asked
    raise AssertionError("asked for ever")


def test_a_follower_with_more_of_the_same_epoch_is_cut_to_the_leaders_end(tmp_path: Path) -> None:
    follower = EpochLog(tmp_path / "f", [1, 1, 1, 1])
    assert where_to_cut(follower, 0, 1, 2) == Cut(2, True)


def test_a_follower_that_is_behind_keeps_all(tmp_path: Path) -> None:
    follower = EpochLog(tmp_path / "f", [1, 1])
    assert where_to_cut(follower, 0, 1, 9) == Cut(2, True)


def test_a_fast_fail_over_leaves_two_epochs_that_differ(tmp_path: Path) -> None:
    """KIP-279: the leader's epochs are 1 and 3, the follower's 1 and 2."""
    follower, leader = EpochLog(tmp_path / "f", [1, 2, 2, 2]), EpochLog(tmp_path / "l", [1, 3, 3])
    assert follow(follower, leader) == 1
    assert follower.records == [1]


def test_a_leader_without_any_epoch_that_old_leaves_what_is_acknowledged(tmp_path: Path) -> None:
    follower = EpochLog(tmp_path / "f", [1, 1, 1, 1])
    assert where_to_cut(follower, 3, -1, -1) == Cut(3, True)


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Two logs of a partition whose leaders were elected uncleanly: any common past, then anything.

    One epoch has one leader, so what both logs have of an epoch begins the same in both.
    """
    common = draw(st.lists(st.integers(0, 1), max_size=3))
    epochs = [sum(common[: at + 1]) for at in range(len(common))]
    tail = max(epochs, default=0)
    owners = {tail + step: draw(st.booleans()) for step in range(1, 5)}

    def rest(mine: bool) -> list[int]:
        own = [epoch for epoch, owner in owners.items() if owner == mine]
        return sorted(draw(st.lists(st.sampled_from(own), max_size=4))) if own else []

    return epochs + rest(True), epochs + rest(False)


@given(logs=histories())
def test_what_remains_is_a_prefix_of_the_leaders_log(logs: tuple[list[int], list[int]]) -> None:
    path = Path("/nonexistent")  # the caches are never saved
    follower, leader = (EpochLog(path, each) for each in logs)
    leader.cache.note(99, leader.end_offset)  # its term has begun: newer than whatever the follower has
    common = 0
    while common < min(map(len, logs)) and logs[0][common] == logs[1][common]:
        common += 1
    follow(follower, leader)
    assert follower.records == leader.records[: follower.end_offset]
    assert follower.end_offset >= common, "what both have was cut"
