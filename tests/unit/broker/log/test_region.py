"""Locating batches for sending gives the very bytes that reading gives."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.log import Log, LogConfig, NotCached, OffsetOutOfRange, cold_reads
from broker.log.cold_reads import ColdRegion
from broker.log.files import OpenFile
from broker.log.log_view import LogView
from broker.log.region import WORTH_LOCATING, FileRegion, locate
from protocol.records import Record, build_batch
from tests.support.clock import VirtualClock


def append(log: Log, count: int, size: int) -> int:
    now = log.clock.now_ms()
    records = [Record(offset=n, timestamp=now, key=None, value=os.urandom(size)) for n in range(count)]
    return log.append(bytearray(build_batch(records)), 0).base_offset


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """Three segments with batches of all sizes, 6 MB."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    opened = Log.open(directory, LogConfig(segment_bytes=2_500_000), VirtualClock(), clean=True)
    dice = random.Random(7)
    while opened.size < 6_000_000:
        append(opened, dice.choice([1, 3, 50]), dice.choice([10, 700, 9_000]))
    opened.high_watermark = opened.end_offset
    yield opened
    opened.close()


@pytest.mark.parametrize("max_bytes", [10_000, 40_000, 200_000, 1_000_000, 50_000_000])
@pytest.mark.parametrize("min_one", [True, False])
def test_the_same_batches_as_reading(log: Log, max_bytes: int, min_one: bool) -> None:
    located = 0
    dice = random.Random(3)
    for _ in range(150):
        offset = dice.randrange(log.end_offset)
        limit = log.end_offset if dice.random() < 0.5 else dice.randrange(log.end_offset + 1)
        found = locate(log, offset, max_bytes, limit, min_one)
        if found is None:
            continue
        located += 1
        assert locate(log, offset, max_bytes, limit, min_one, blocking=True) is not None
        expected = log.read_blocking(offset, max_bytes, limit, min_one)
        (region,) = found.segments
        assert (found.size, found.next_offset) == (expected.size, expected.next_offset)
        assert region.read(region.size) == b"".join(expected.segments)
    assert (located > 20) == (max_bytes > WORTH_LOCATING)


def test_reading_on_from_where_a_region_ended_sees_every_offset(log: Log) -> None:
    offset = 0
    total = 0
    while offset < log.end_offset:
        found = locate(log, offset, 300_000, log.end_offset, True)
        taken = found if found is not None else log.read_blocking(offset, 300_000, log.end_offset)
        total += taken.size
        assert taken.next_offset > offset
        offset = taken.next_offset
    assert total == log.size


def test_a_batch_above_the_limit_comes_whole_or_not_at_all(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"
    directory.mkdir()
    log = Log.open(directory, LogConfig(), VirtualClock(), clean=True)
    append(log, 1, 200_000)
    append(log, 1, 10)
    found = locate(log, 0, 100_000, 2, True)
    assert found is not None
    assert found.next_offset == 1
    assert locate(log, 0, 100_000, 2, False) is None
    log.close()


def test_offsets_outside_are_refused(log: Log) -> None:
    with pytest.raises(OffsetOutOfRange):
        locate(log, log.end_offset + 1, 1_000_000, log.end_offset, True)
    assert locate(log, log.end_offset, 1_000_000, log.end_offset, True) is None


def test_a_region_outlives_its_segment(log: Log) -> None:
    found = locate(log, 0, 1_000_000, log.end_offset, True)
    assert found is not None
    (region,) = found.segments
    before = region.read(region.size)
    log.truncate_fully(log.end_offset)
    assert region.read(region.size) == before


def drop_from_memory(log: Log, region: FileRegion) -> None:
    for path in Path(log.directory).glob("*.log"):
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
    if region.is_cached():
        pytest.skip("this file system keeps everything in memory")


@pytest.mark.parametrize("past_the_cache", [True, False])
def test_what_is_not_in_memory_is_noticed_and_fetched(
    log: Log, past_the_cache: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not past_the_cache:
        monkeypatch.setattr(cold_reads, "_DIRECT", 0)
    found = locate(log, 0, 1_000_000, log.end_offset, True)
    assert found is not None
    (region,) = found.segments
    assert isinstance(region, FileRegion)
    whole = region.read(region.size)
    assert region.is_cached()
    drop_from_memory(log, region)
    with pytest.raises(NotCached):
        locate(log, 0, 1_000_000, log.end_offset, True)
    again = locate(log, 0, 1_000_000, log.end_offset, True, blocking=True)
    assert again is not None
    assert (again.size, again.next_offset) == (found.size, found.next_offset)
    assert again.segments[0].read(again.size) == whole
    assert region.is_cached() != isinstance(again.segments[0], ColdRegion)


def test_a_thread_that_appends_overtake_sees_nothing_above_its_limit(log: Log) -> None:
    """The end of the log and of its segment are looked at one after the other."""
    append(log, 50, 9_000)
    limit, begin = log.end_offset, log.segments.active.base_offset
    expected = log.read_blocking(begin, 9_000_000, limit)
    append(log, 3, 9_000)
    assert log.segments.active.base_offset == begin

    class Late(LogView):
        """As the thread saw the log before the last append."""

        end_offset = limit  # type: ignore[assignment]

    late = Late(log.directory, log.config, log.segments, log.producers, log.epochs)
    found = locate(late, begin, 9_000_000, limit, True, blocking=True)
    assert found is not None
    assert (found.size, found.next_offset) == (expected.size, limit)


def test_a_region_shrinks_from_the_front(log: Log) -> None:
    found = locate(log, 0, 1_000_000, log.end_offset, True)
    assert found is not None
    region = found.segments[0]
    whole = region.read(region.size)
    region.advance(1000)
    assert len(region) == len(whole) - 1000
    assert region.read(500) == whole[1000:1500]


def test_a_header_that_is_only_half_in_the_page_cache_sends_the_read_to_a_thread(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    locate(log, 0, 200_000, log.end_offset, True)  # now the start is found without reading
    cached = OpenFile.read_cached
    monkeypatch.setattr(OpenFile, "read_cached", lambda *call: cached(*call)[:10])
    with pytest.raises(NotCached):
        locate(log, 0, 200_000, log.end_offset, True)
