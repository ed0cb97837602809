"""Reads against a plain model, and reads beside appends, deletions and a cold page cache."""

import itertools
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.log import CorruptLog, Log, LogConfig, NotCached, OffsetOutOfRange, Origin
from broker.log.cleaner.rewrite import emptied
from broker.log.files import OpenFile
from broker.log.segment_list import SegmentList
from protocol.records import iter_headers
from tests.support.batches import batch, records_of
from tests.support.clock import VirtualClock

OpenLog = Callable[..., Log]

numbers = itertools.count()


@st.composite
def layouts(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    """(offsets skipped before, records, bytes per record) of each batch, as compaction might leave them."""
    return draw(
        st.lists(
            st.tuples(
                st.sampled_from([0, 0, 0, 1, 7]), st.integers(1, 4), st.sampled_from([0, 10, 90, 700, 5000])
            ),
            min_size=1,
            max_size=25,
        )
    )


@settings(deadline=None)
@given(
    layout=layouts(),
    segment_bytes=st.sampled_from([21_000, 40_000, 1 << 20]),
    index_interval=st.sampled_from([0, 300, 4096]),
    data=st.data(),
)
def test_reads_are_what_a_list_of_batches_would_give(
    scratch: Path,
    layout: list[tuple[int, int, int]],
    segment_bytes: int,
    index_interval: int,
    data: st.DataObject,
) -> None:
    directory = scratch / f"read-{next(numbers)}"
    directory.mkdir()
    log = Log.open(
        directory, LogConfig(segment_bytes=segment_bytes, index_interval_bytes=index_interval), VirtualClock()
    )
    model: list[tuple[int, int, bytes, int]] = []  # first and last offset, bytes, segment
    offset = 0
    for skipped, records, size in layout:
        offset += skipped
        view = batch([bytes(size)] * records, base_offset=offset, leader_epoch=0)
        log.append(view, 0, Origin.REPLICATION)
        model.append((offset, offset + records - 1, bytes(view), len(log.segments)))
        offset += records
    for _ in range(8):
        asked = data.draw(st.integers(0, offset))
        limit = data.draw(st.sampled_from([first for first, *_ in model] + [offset]))
        max_bytes = data.draw(st.sampled_from([0, 61, 400, 5000, 12_000, 1 << 20]))
        min_one = data.draw(st.booleans())
        blocking = data.draw(st.booleans())
        if data.draw(st.integers(0, 5)) == 0:
            log.close()
            log = Log.open(directory, log.config, VirtualClock(), clean=data.draw(st.booleans()))
        try:
            found = log.read(asked, max_bytes, limit, min_one, blocking=blocking)
        except NotCached:  # an index that was not loaded yet
            found = log.read_blocking(asked, max_bytes, limit, min_one)
        reach = [b for b in model if b[1] >= asked and b[0] < limit] if asked < limit else []
        wanted: list[bytes] = []
        for _, _, raw, segment in reach:
            if segment != reach[0][3]:
                break
            if sum(map(len, wanted)) + len(raw) > max_bytes and not (min_one and not wanted):
                break
            wanted.append(raw)
        assert b"".join(found.segments) == b"".join(wanted)
        assert found.size == sum(map(len, wanted))
        if wanted:
            assert (
                reach[len(wanted) - 1][1] < found.next_offset <= [*[b[0] for b in reach], offset][len(wanted)]
            )
        else:
            assert found.next_offset == asked
    log.release()
    shutil.rmtree(directory)


def test_offsets_outside_the_log(open_log: OpenLog) -> None:
    log = open_log()
    log.append(batch(3), 0)
    log.high_watermark = 3
    assert log.read(3, 1000) == ([], 0, 3)
    log.delete_before(2)
    for offset in (1, 4, -1):
        with pytest.raises(OffsetOutOfRange) as caught:
            log.read(offset, 1000)
        assert (caught.value.start, caught.value.end) == (2, 3)
    assert records_of(log.read(2, 1000).segments)[0].offset == 0, "the whole batch that holds offset 2"


def test_nothing_at_or_above_the_limit(open_log: OpenLog) -> None:
    log = open_log()
    for _ in range(3):
        log.append(batch(2), 0)
    assert [r.offset for r in records_of(log.read(0, 9999, 4).segments)] == [0, 1, 2, 3]
    assert [r.offset for r in records_of(log.read(0, 9999, 3).segments)] == [0, 1], "no batch reaches over it"
    assert log.read(4, 9999, 4).segments == []


def test_following_next_offset_reads_all(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=4000)
    for i in range(200):
        log.append(batch([b"%d" % i]), 0)
    offset, seen = 0, []
    while offset < log.end_offset:
        found = log.read(offset, 700)
        seen += [int(r.value or b"") for r in records_of(found.segments)]
        offset = found.next_offset
    assert seen == list(range(200))
    assert len(log.segments) > 3


def test_what_is_not_in_the_page_cache_is_not_waited_for(
    open_log: OpenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log()
    log.append(batch(3), 0)

    def cold(self: OpenFile, position: int, size: int) -> memoryview:
        raise NotCached

    monkeypatch.setattr(OpenFile, "read_cached", cold)
    with pytest.raises(NotCached):
        log.read(0, 1000)
    assert len(records_of(log.read_blocking(0, 1000).segments)) == 3


def test_half_cached_data_comes_as_far_as_it_goes(open_log: OpenLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log()
    for _ in range(3):
        log.append(batch([bytes(500)]), 0)
    whole = OpenFile.read_cached
    monkeypatch.setattr(OpenFile, "read_cached", lambda self, at, size: whole(self, at, size)[:1000])
    found = log.read(0, 10_000)
    assert [r.offset for r in records_of(found.segments)] == [0]
    assert found.next_offset == 1
    monkeypatch.setattr(OpenFile, "read_cached", lambda self, at, size: whole(self, at, size)[:300])
    with pytest.raises(NotCached):
        log.read(0, 10_000)


def test_an_index_that_is_not_loaded_is_not_waited_for(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=2000)
    for _ in range(20):
        log.append(batch([bytes(500)]), 0)
    log.close()
    log = open_log(segment_bytes=2000, clean=True)
    with pytest.raises(NotCached):
        log.read(1, 1000)
    log.read_blocking(1, 1000)
    log.read(2, 1000)
    log.release_idle()
    log.read(2, 1000)
    log.release_idle()
    log.release_idle()
    with pytest.raises(NotCached):
        log.read(2, 1000)


def test_a_reader_outlives_the_files_it_reads(open_log: OpenLog, tmp_path: Path, clock: VirtualClock) -> None:
    log = open_log(segment_bytes=2000, file_delete_delay_ms=0)
    for _ in range(10):
        log.append(batch([bytes(500)]), 0)
    log.high_watermark = log.end_offset
    first = log.segments.items[0]
    file = first.file  # as a reader in a thread holds it
    log.delete_before(9)
    assert log.enforce_retention(clock.now_ms()) == len(log.segments.items) + 2
    assert log.segments.sweep(clock.now_ms()) > 0
    assert not list(tmp_path.glob("t-0/*.deleted"))
    assert not Path(first.path("log")).exists()
    data = file.read(0, first.size)
    assert len(list(iter_headers(data))) == 3


def test_reading_beside_appends_and_retention(open_log: OpenLog, clock: VirtualClock) -> None:
    """A reader in a thread sees every record once and in order, whatever the writer does meanwhile."""
    log = open_log(segment_bytes=20_000, retention_bytes=200_000, index_interval_bytes=500)
    total = 3000
    done = threading.Event()
    problems: list[BaseException] = []

    def reader() -> None:
        offset = 0
        try:
            while offset < total:
                try:
                    found = log.read_blocking(offset, 3000, log.end_offset)
                except OffsetOutOfRange as error:
                    if error.offset > error.end:
                        raise
                    offset = error.start  # only what retention took may be missing
                    continue
                for record in records_of(found.segments):
                    if record.offset >= offset:
                        assert record.offset == offset
                        assert record.value == b"%d" % offset + bytes(50)
                        offset += 1
                if done.is_set() and not found.size and offset == log.end_offset:
                    break
        except BaseException as error:  # the test reports it
            problems.append(error)

    thread = threading.Thread(target=reader)
    thread.start()
    written = 0
    while written < total:
        values = [b"%d" % i + bytes(50) for i in range(written, min(total, written + 7))]
        log.append(batch(values), 0)
        written += len(values)
        log.high_watermark = log.end_offset
        if written % 20 == 0:
            log.enforce_retention(clock.now_ms())
            log.segments.sweep(clock.now_ms())
            log.flush()
            log.release_idle()
    done.set()
    thread.join(60)
    assert not thread.is_alive()
    assert problems == []


def test_damage_below_the_log_end_is_said_not_served(open_log: OpenLog, tmp_path: Path) -> None:
    log = open_log()
    for _ in range(3):
        log.append(batch(2), 0)
    with open(tmp_path / "t-0" / f"{0:020d}.log", "r+b") as file:
        file.seek(len(batch(2)) + 8)
        file.write(b"\0\0\0\1")
    with pytest.raises(CorruptLog, match=str(tmp_path)):
        log.read(3, 1000)


def test_a_limit_at_the_log_end_holds_although_a_batch_arrives_meanwhile(
    open_log: OpenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log()
    log.append(batch(3), 0)
    read = SegmentList.read
    late = [batch(2)]

    def read_after_an_append(*call: Any, **how: Any) -> tuple[memoryview, int]:
        if late:
            log.append(late.pop(), 0)
        return read(*call, **how)

    monkeypatch.setattr(SegmentList, "read", read_after_an_append)
    found = log.read_blocking(0, 10_000, 3)
    assert not late
    assert (found.next_offset, len(records_of(found.segments))) == (3, 3)


@pytest.mark.parametrize(
    ("interval", "damaged"), [(4096, 4), (1, 5)], ids=["walked to", "led to by the index"]
)
def test_damage_behind_sound_batches_costs_none_of_them(
    open_log: OpenLog, tmp_path: Path, interval: int, damaged: int
) -> None:
    """Closed segments are not read at start; whoever meets damage there still gets what stands before it."""
    log = open_log(index_interval_bytes=interval)
    for number in range(6):
        log.append(batch([b"value-%d" % number]), 0)
    log.high_watermark = log.end_offset
    place = [position for position, _ in log.segments.active.batches_from(0)][damaged]
    with (tmp_path / "t-0" / f"{0:020d}.log").open("r+b") as file:
        file.seek(place + 16)
        file.write(b"\xff")  # no magic number that anybody knows
    part = log.read_blocking(0, 1 << 20)
    assert [record.value for record in records_of(part.segments)] == [
        b"value-%d" % at for at in range(damaged)
    ]
    assert part.next_offset == damaged
    with pytest.raises(CorruptLog, match="no batch starts"):
        log.read_blocking(damaged, 1 << 20)


def test_segments_of_headers_only_are_passed_through_to_a_record(open_log: OpenLog) -> None:
    """A client that gets headers alone, answer after answer, gives up (librdkafka: MSG_SIZE_TOO_LARGE)."""
    log = open_log(segment_bytes=200)
    expected = b""
    for offset in range(0, 40, 2):
        full = batch(2, base_offset=offset, leader_epoch=0)
        _, header = next(iter_headers(full))
        empty = memoryview(bytearray(emptied(header)))
        log.append(empty, 0, Origin.REPLICATION)
        log.roll()
        expected += bytes(empty)
    last = batch(2, base_offset=40, leader_epoch=0)
    log.append(last, 0, Origin.REPLICATION)
    log.roll()
    log.append(batch(2, base_offset=42, leader_epoch=0), 0, Origin.REPLICATION)
    found = log.read_blocking(0, 1 << 20)
    assert b"".join(found.segments) == expected + bytes(last)
    assert found.next_offset == 42
    few = log.read_blocking(1, 150)
    assert (few.size, few.next_offset) == (122, 4)  # the size limit still holds
    one = log.read_blocking(0, 10)
    assert (one.size, one.next_offset) == (61, 2)


def test_a_read_that_is_overtaken_by_a_cut_leaves_nothing_behind(
    open_log: OpenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A follower is cut back while a thread reads: where that read ended is no batch's place any more."""
    log = open_log()
    log.append(batch([b"a"]), 0)
    log.append(batch([b"b"]), 0)
    whole, reads = OpenFile.read, itertools.count(1)

    def overtaken(file: OpenFile, position: int, size: int) -> bytes:
        found = whole(file, position, size)
        if next(reads) == 2:  # the first one finds the place
            monkeypatch.setattr(OpenFile, "read", whole)
            log.truncate_to(1)
            log.append(batch([b"c" * 700]), 0)
            log.append(batch([b"d"]), 0)
        return found

    monkeypatch.setattr(OpenFile, "read", overtaken)
    assert [record.value for record in records_of(log.read_blocking(0, 1 << 20).segments)] == [b"a", b"b"]
    assert [record.value for record in records_of(log.read_blocking(2, 1 << 20).segments)] == [b"d"]
