"""What is in the page cache is told rightly, by the kernel's own call and by samples."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.log import page_cache

SIZE = 3 * 1024 * 1024


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    """A file on a disk, not in the page cache."""
    path = tmp_path / "segment"
    path.write_bytes(os.urandom(SIZE))
    opened = os.open(path, os.O_RDONLY)
    os.fsync(opened)
    page_cache.read_at_random(opened)
    os.posix_fadvise(opened, 0, 0, os.POSIX_FADV_DONTNEED)
    if page_cache.is_cached(opened, 0, SIZE):
        pytest.skip("this file system keeps everything in memory")
    yield opened
    os.close(opened)


def test_the_kernel_says_what_is_there_and_where_it_ends(fd: int) -> None:
    if page_cache._CALL is None:
        pytest.skip("this kernel has no cachestat")
    assert not page_cache.is_cached(fd, 0, 4096)
    page_cache.bring(fd, 1_000_000, 500_000)
    assert page_cache.is_cached(fd, 1_000_000, 500_000)
    assert page_cache.is_cached(fd, 1_234_567, 1)
    assert not page_cache.is_cached(fd, 500_000, 900_000)


def test_without_the_kernels_word_samples_do(fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_cache, "_CALL", None)
    page_cache.bring(fd, 1_000_000, 500_000)
    assert page_cache.is_cached(fd, 1_000_000, 500_000)


def test_what_follows_is_asked_for(fd: int) -> None:
    page_cache.bring(fd, 0, 100_000)
    for _ in range(1000):
        if page_cache.is_cached(fd, 100_000, 1_000_000):
            return
        os.pread(fd, 1, 0)
    pytest.skip("this kernel does not read ahead on request")


def test_the_end_of_the_file(fd: int) -> None:
    page_cache.bring(fd, SIZE - 5000, 5000)
    assert page_cache.is_cached(fd, SIZE - 5000, 5000)
