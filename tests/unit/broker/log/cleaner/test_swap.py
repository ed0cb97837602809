"""A crash at any rename of a swap leaves the old segments or the new ones, never a mix, nothing behind."""

import contextlib
import dataclasses
import errno
import os
import shutil
from pathlib import Path

import pytest

from broker.config.server_settings import LogSettings
from broker.log import Log, LogConfig, Origin
from broker.log.cleaner.compaction import Compaction
from broker.log.cleaner.job import Event, GroupCleaned, Job, SegmentFile
from broker.log.cleaner.partition import dirt_of, job_for, swap_in
from broker.log.cleaner.swap import SwapNotBegun, remove_unfinished
from broker.log.cleaner.throttle import Throttle
from protocol.records import Record
from tests.support.batches import batch, marker, records_of
from tests.support.clock import VirtualClock

CONFIG = LogConfig(cleanup_policy="compact", segment_bytes=600, file_delete_delay_ms=0)
RENAMES = 21


class Crash(BaseException):
    """The process dies here."""


class Cleaned:
    """A log of four segments whose first two were cleaned into one and the third alone, nothing swapped.

    All records of the second are superseded.
    """

    def __init__(self, directory: Path) -> None:
        self.clock = VirtualClock()
        self.log = Log.open(directory, CONFIG, self.clock)
        for n, key in enumerate((b"c", b"d", b"d")):
            self.log.append(batch(3, keys=[b"a", b"b", key]), 0)
            if n != 1:
                self.log.append(batch(2, keys=[b"x", b"y"], producer=(7, n, 0), transactional=True), 0)
                self.log.append(marker(7, n, commit=False), 0, Origin.COORDINATOR)
            else:
                self.log.append(batch(3, keys=[b"a", b"b", b"a"]), 0)
            self.log.roll()
        self.log.append(batch(1, keys=[b"z"]), 0)
        self.log.high_watermark = self.log.end_offset
        self.old = read_all(self.log)
        dirt = dirt_of(self.log, None, self.clock.now_ms())
        self.job: Job = job_for(self.log, dirt, LogSettings(), self.clock.now_ms())
        events: list[Event] = []
        Compaction(self.job, events.append, Throttle(float("inf"))).run()
        self.groups = [event for event in events if isinstance(event, GroupCleaned)]
        assert [group.bases for group in self.groups] == [(0, 6), (12,)]

    def swap(self) -> None:
        for group in self.groups:
            assert swap_in(self.log, self.job, group, self.clock.now_ms())


def read_all(log: Log) -> list[Record]:
    found, offset = [], log.start_offset
    while offset < log.end_offset:
        data = log.read_blocking(offset, 1 << 20)
        found += records_of(data.segments)
        offset = data.next_offset
    return found


@pytest.fixture
def new(tmp_path: Path) -> list[Record]:
    """What is read after a swap that nothing disturbs."""
    directory = tmp_path / "whole-0"
    directory.mkdir()
    cleaned = Cleaned(directory)
    cleaned.swap()
    return read_all(cleaned.log)


@pytest.mark.parametrize("point", range(RENAMES))
def test_killed_at_a_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new: list[Record], point: int
) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    cleaned = Cleaned(directory)
    assert read_all(cleaned.log) == cleaned.old != new
    done = renames(monkeypatch, point)
    with contextlib.suppress(Crash):
        cleaned.swap()
    monkeypatch.undo()
    assert len(done) == point + 1
    crashed = tmp_path / "u-0"
    shutil.copytree(directory, crashed)

    log = Log.open(directory, CONFIG, cleaned.clock)
    found = read_all(log)
    between = [record for record in new if record.offset < 12] + cleaned.old[-6:]
    assert found in (cleaned.old, between, new)
    aborted = {txn.first_offset for txn in log.aborted_transactions(0, 100)}
    # Recovery writes no entry for a transaction of which compaction has left a marker alone.
    assert aborted == {3, 15} or (found != cleaned.old and aborted == {15})
    assert not [path for path in directory.iterdir() if path.suffix in (".swap", ".cleaned", ".deleted")]
    log.release()

    # The start that repairs may be killed as well.
    again = 0
    while True:
        trial = tmp_path / f"{again}-0"
        shutil.copytree(crashed, trial)
        done = renames(monkeypatch, again)
        with contextlib.suppress(Crash):
            Log.open(trial, CONFIG, cleaned.clock).release()
        monkeypatch.undo()
        log = Log.open(trial, CONFIG, cleaned.clock)
        assert read_all(log) == found
        log.release()
        if len(done) < again:
            break
        again += 1


def renames(monkeypatch: pytest.MonkeyPatch, allowed: int) -> list[str]:
    """Let that many renames and removals through and die at the next; returns those that were tried."""
    done: list[str] = []
    real_rename, real_unlink = os.rename, os.unlink

    def step(path: str) -> None:
        done.append(path)
        if len(done) > allowed:
            raise Crash

    def rename(old: str, to: str) -> None:
        if os.path.exists(old):
            step(old)
        real_rename(old, to)

    def unlink(path: str) -> None:
        if os.path.exists(path):
            step(path)
        real_unlink(path)

    monkeypatch.setattr(os, "rename", rename)
    monkeypatch.setattr(os, "unlink", unlink)
    return done


def test_readers_go_on_in_what_was_replaced(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    cleaned = Cleaned(directory)
    before = cleaned.log.segments.items[0]
    expected = bytes(before.read(0, 1 << 20, before.size, {}, at_least_one=True, blocking=True)[0])
    before.release()
    cleaned.swap()
    assert bytes(before.read(0, 1 << 20, before.size, {}, at_least_one=True, blocking=True)[0]) == expected


def test_a_log_that_changed_meanwhile_is_left_alone(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    cleaned = Cleaned(directory)
    cleaned.log.delete_before(7)
    cleaned.log.enforce_retention(cleaned.clock.now_ms())
    assert not swap_in(cleaned.log, cleaned.job, cleaned.groups[0], cleaned.clock.now_ms())
    assert read_all(cleaned.log) == [record for record in cleaned.old if record.offset >= 6]


@pytest.mark.parametrize("point", range(RENAMES))
def test_no_room_for_a_name_changes_nothing_and_the_next_try_may_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new: list[Record], point: int
) -> None:
    """A directory that is full to the last entry refuses longer names, of any of the files."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    cleaned = Cleaned(directory)
    really, count = os.rename, 0

    def rename(old: str, new_name: str) -> None:
        nonlocal count
        count += 1
        if count == point + 1:
            raise OSError(errno.ENOSPC, "No space left on device", old)
        really(old, new_name)

    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(SwapNotBegun):
        cleaned.swap()
    monkeypatch.undo()
    remove_unfinished(str(directory))
    found = read_all(cleaned.log)
    assert found in (cleaned.old, [record for record in new if record.offset < 12] + cleaned.old[-6:])
    cleaned.log.segments.sweep(cleaned.clock.now_ms())
    names = {path.name for path in directory.iterdir()}
    assert not [name for name in names if name.endswith((".swap", ".cleaned", ".deleted"))]
    for segment in cleaned.log.segments:
        segment.release()
    assert read_all(cleaned.log) == found, "from the files under their ordinary names"
    again = Log.open(directory, CONFIG, cleaned.clock)
    assert read_all(again) == found
    assert 15 in {txn.first_offset for txn in again.aborted_transactions(0, 100)}
    again.release()


def test_no_rename_has_to_free_a_file(tmp_path: Path) -> None:
    """A segment cleaned a second time would take the name of its first original, and the kernel free all of
    that file inside the rename, on the event loop.
    """
    directory = tmp_path / "t-0"
    directory.mkdir()
    cleaned = Cleaned(directory)
    originals = {path.stat().st_ino for path in directory.glob("*.log")}
    cleaned.swap()
    for _ in range(2):
        first, behind = cleaned.log.segments.items[:2]
        originals.add(os.stat(first.path("log")).st_ino)
        for kind in ("log", "index"):
            shutil.copy(first.path(kind), first.path(kind) + ".cleaned")
        same = SegmentFile(first.base_offset, first.size, behind.base_offset)
        job = dataclasses.replace(cleaned.job, segments=(same,))
        group = dataclasses.replace(cleaned.groups[0], bases=(first.base_offset,), size=first.size)
        assert swap_in(cleaned.log, job, group, cleaned.clock.now_ms())
    left = {path.stat().st_ino for path in directory.iterdir() if ".log" in path.name}
    assert originals <= left, "all are there until they are due"
    cleaned.log.segments.sweep(cleaned.clock.now_ms())
    assert not list(directory.glob("*.deleted"))
    cleaned.log.release()
