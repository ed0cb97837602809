"""Ranges that are read past the page cache are the very bytes, and leave no trace in it."""

from __future__ import annotations

import errno
import mmap
import os
import random
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.log import cold_reads, page_cache
from broker.log.cold_reads import ROOM, Rooms

SIZE = 3 * 1024 * 1024 + 777


@pytest.fixture
def content() -> bytes:
    return random.Random(5).randbytes(SIZE)


@pytest.fixture
def fd(tmp_path: Path, content: bytes) -> Iterator[int]:
    """A file on a disk, not in the page cache."""
    path = tmp_path / "segment"
    path.write_bytes(content)
    opened = os.open(path, os.O_RDONLY)
    os.fsync(opened)
    page_cache.read_at_random(opened)
    os.posix_fadvise(opened, 0, 0, os.POSIX_FADV_DONTNEED)
    if page_cache.is_cached(opened, 0, SIZE):
        pytest.skip("this file system keeps everything in memory")
    if cold_reads.read(opened, 0, 1, Rooms()) is None:
        pytest.skip("this file system has no O_DIRECT")
    yield opened
    os.close(opened)


def test_the_very_bytes_wherever_they_begin_and_end(fd: int, content: bytes) -> None:
    dice, rooms = random.Random(7), Rooms(1)
    for _ in range(100):
        begin = dice.randrange(SIZE)
        size = min(dice.choice([1, 5000, 300_000, ROOM - 2 * mmap.PAGESIZE]), SIZE - begin)
        region = cold_reads.read(fd, begin, size, rooms)
        assert region is not None
        assert region.read(size + 10) == content[begin : begin + size]
        taken = dice.randrange(size)
        region.advance(taken)
        assert len(region) == size - taken
        assert region.read(size) == content[begin + taken : begin + size]
        del region


def test_the_page_cache_stays_as_it_was(fd: int) -> None:
    region = cold_reads.read(fd, 4096, 900_000, Rooms())
    assert region is not None
    assert not page_cache.is_cached(fd, 4096, 4096)
    assert not page_cache.is_known(fd, 4096, 900_000)


def test_what_is_half_there_is_read_by_way_of_the_page_cache(fd: int) -> None:
    page_cache.bring(fd, 0, 500_000)
    if not page_cache.is_known(fd, 0, 900_000):
        pytest.skip("this kernel has no cachestat")
    assert cold_reads.read(fd, 0, 900_000, Rooms()) is None


def test_buffers_are_few_and_come_back(fd: int) -> None:
    rooms = Rooms(2)
    first, second = (cold_reads.read(fd, at, 10, rooms) for at in (0, 1))
    assert first is not None
    assert second is not None
    assert cold_reads.read(fd, 2, 10, rooms) is None
    del first
    assert cold_reads.read(fd, 2, 10, rooms) is not None


def test_more_than_a_buffer_holds_and_more_than_there_is(fd: int) -> None:
    rooms = Rooms(1)
    assert cold_reads.read(fd, 0, ROOM + 1, rooms) is None
    assert cold_reads.read(fd, SIZE - 10, 11, rooms) is None, "the file ends before the range"
    assert cold_reads.read(fd, SIZE - 10, 10, rooms) is not None, "the buffer came back"


def test_a_file_system_without_it_is_read_the_ordinary_way(fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cold_reads, "_DIRECT", os.O_DIRECTORY)
    rooms = Rooms(1)
    with pytest.raises(NotADirectoryError):
        cold_reads.read(fd, 0, 10, rooms)
    monkeypatch.setattr(cold_reads, "_NOT_HERE", (*cold_reads._NOT_HERE, errno.ENOTDIR))
    assert cold_reads.read(fd, 0, 10, rooms) is None
    assert rooms.take() is not None, "the buffer came back both times"


def test_a_full_socket_takes_what_it_has_room_for(fd: int, content: bytes) -> None:
    region = cold_reads.read(fd, 1, 800_000, Rooms())
    assert region is not None
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        received = bytearray()
        while len(region):
            try:
                region.advance(region.send(ours.fileno(), 100_000))
            except BlockingIOError:
                received += theirs.recv(1 << 20)
        ours.close()
        while more := theirs.recv(1 << 20):
            received += more
    assert received == content[1:800_001]
