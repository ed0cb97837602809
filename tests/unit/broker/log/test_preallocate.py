"""`preallocate`: a segment's room is taken when it is made, and given back when it is closed or found."""

import os
from pathlib import Path

import pytest

from broker.log import Log, LogConfig
from tests.support.batches import batch
from tests.support.clock import VirtualClock
from tests.support.disks import disk

SIZE = 4 << 20
CONFIG = LogConfig(preallocate=True, segment_bytes=SIZE)
NAME = f"{0:020}.log"


def taken(path: Path) -> int:
    """Bytes that the file has on its disk."""
    return os.stat(path).st_blocks * 512


@pytest.fixture
def log(tmp_path: Path) -> Log:
    directory = tmp_path / "t-0"
    directory.mkdir()
    log = Log.open(directory, CONFIG, VirtualClock())
    if taken(directory / NAME) < SIZE:
        pytest.skip("this file system has no fallocate")
    return log


def test_room_is_taken_at_once_and_given_back_by_roll_and_close(log: Log, tmp_path: Path) -> None:
    first = tmp_path / "t-0" / NAME
    log.append(batch([bytes(1000)]), 0)
    assert first.stat().st_size == log.size, "readers of the file see what was written"
    log.roll()
    second = tmp_path / "t-0" / f"{1:020}.log"
    assert taken(first) < SIZE <= taken(second)
    log.append(batch([bytes(1000)]), 0)
    log.close()
    assert taken(second) < SIZE
    again = Log.open(tmp_path / "t-0", CONFIG, VirtualClock(), clean=True)
    assert again.end_offset == 2
    again.release()


def test_a_start_after_a_kill_gives_it_back_even_if_the_setting_has_gone(log: Log, tmp_path: Path) -> None:
    log.append(batch([bytes(1000)]), 0)
    log.release()  # as SIGKILL leaves it
    path = tmp_path / "t-0" / NAME
    size = path.stat().st_size
    assert taken(path) >= SIZE
    again = Log.open(tmp_path / "t-0", LogConfig(segment_bytes=SIZE), VirtualClock())
    assert (again.end_offset, path.stat().st_size) == (1, size)
    assert taken(path) < SIZE
    again.append(batch([b"2"]), 0)
    again.release()


def test_without_so_much_room_the_log_works_without_it(tmp_path: Path) -> None:
    with disk(tmp_path, "small") as small:
        directory = small.path / "t-0"
        directory.mkdir()
        log = Log.open(directory, LogConfig(preallocate=True, segment_bytes=1 << 30), VirtualClock())
        assert log.append(batch([b"x"]), 0).base_offset == 0
        log.close()


def test_what_was_reserved_is_there_when_others_have_filled_the_disk(tmp_path: Path) -> None:
    with disk(tmp_path, "small") as small:
        directory = small.path / "t-0"
        directory.mkdir()
        log = Log.open(directory, CONFIG, VirtualClock())
        log.append(batch([b"first"]), 0)  # also writes the epoch's file, which has no room of its own
        small.fill()
        for offset in range(1, 30):
            assert log.append(batch([bytes(100_000)]), 0).base_offset == offset
        log.flush()
        log.release()
