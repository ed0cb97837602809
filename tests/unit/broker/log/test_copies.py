"""A follower's log is the leader's, whatever pieces it is copied in: batches, indexes, epochs."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.log import AppendRefused, Log, LogConfig, Origin
from tests.support.batches import batch, marker
from tests.support.clock import VirtualClock

PRODUCERS = (7, 8, 9)
SEGMENT_BYTES = 700

# (producer, what): records in a transaction, or its end
steps = st.lists(
    st.tuples(st.sampled_from(PRODUCERS), st.sampled_from(["records", "records", "commit", "abort"])),
    min_size=1,
    max_size=25,
)


@contextmanager
def two_logs() -> Iterator[tuple[Log, Log]]:
    directory = Path(tempfile.mkdtemp())
    config, clock = LogConfig(segment_bytes=SEGMENT_BYTES), VirtualClock()
    logs = []
    for name in ("leader-0", "follower-0"):
        (directory / name).mkdir()
        logs.append(Log.open(directory / name, config, clock))
    try:
        yield logs[0], logs[1]
    finally:
        for log in logs:
            log.close()
        shutil.rmtree(directory)


def write(leader: Log, actions: list[tuple[int, str]]) -> None:
    sequences = dict.fromkeys(PRODUCERS, 0)
    open_now: set[int] = set()
    for number, (producer, what) in enumerate(actions):
        if what == "records":
            sent = batch([b"v"] * 2, producer=(producer, 0, sequences[producer]), transactional=True)
            leader.append(sent, number // 5)
            sequences[producer] += 2
            open_now.add(producer)
        elif producer in open_now:
            leader.append(marker(producer, 0, commit=what == "commit"), number // 5, Origin.COORDINATOR)
            open_now.discard(producer)
    leader.high_watermark = leader.end_offset


def copy(leader: Log, follower: Log, sizes: list[int]) -> None:
    turn = 0
    while follower.end_offset < leader.end_offset:
        found = leader.read_blocking(follower.end_offset, sizes[turn % len(sizes)])
        data = bytearray(b"".join(bytes(segment) for segment in found.segments))
        follower.append(memoryview(data), 0, Origin.REPLICATION)
        turn += 1
    follower.high_watermark = leader.high_watermark


def seen(log: Log) -> tuple[object, ...]:
    everything: list[bytes] = []
    offset = log.start_offset
    while offset < log.end_offset:
        found = log.read_blocking(offset, 1 << 20)
        everything += [bytes(segment) for segment in found.segments]
        offset = found.next_offset
    return (
        log.end_offset,
        log.last_stable_offset,
        log.epochs.entries(),
        b"".join(everything),
        sorted(log.aborted_transactions(0, log.end_offset)),
    )


@settings(max_examples=60, deadline=None)
@given(steps, st.lists(st.integers(1, 900), min_size=1, max_size=4))
def test_a_copy_has_all_that_the_leader_has(actions: list[tuple[int, str]], sizes: list[int]) -> None:
    with two_logs() as (leader, follower):
        write(leader, actions)
        if leader.end_offset:
            copy(leader, follower, sizes)
            assert seen(follower) == seen(leader)
            clean = Path(follower.directory)
            follower.close()
            again = Log.open(clean, LogConfig(segment_bytes=SEGMENT_BYTES), VirtualClock())
            again.high_watermark = leader.high_watermark
            assert seen(again) == seen(leader)
            again.close()


def test_a_marker_whose_index_entry_cannot_be_written_is_not_copied() -> None:
    """Else readers would see what it aborts, and after a retry one offset would hold two batches (I2)."""
    with two_logs() as (leader, follower):
        write(leader, [(7, "records"), (7, "abort")])
        index = Path(follower.directory) / "00000000000000000000.txnindex"
        index.unlink(missing_ok=True)
        index.mkdir()
        with pytest.raises(AppendRefused):
            copy(leader, follower, [1000])
        assert follower.end_offset == 2
        index.rmdir()
        copy(leader, follower, [1000])
        assert seen(follower) == seen(leader)
