"""Look-ups by time are exact to the record, whatever batch, codec or segment it is in."""

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.log import FoundOffset, Log, LogConfig
from protocol.records import Codec
from tests.support.batches import T0, batch
from tests.support.clock import VirtualClock

OpenLog = Callable[..., Log]
numbers = itertools.count()


def test_records_inside_batches(open_log: OpenLog) -> None:
    log = open_log()
    log.append(batch(3, timestamps=[T0, T0 + 50, T0 + 20], codec=Codec.GZIP), 3)
    log.append(batch(2, timestamps=[T0 + 50, T0 + 10]), 4)
    for _ in range(2):
        assert log.max_timestamp_offset() == FoundOffset(T0 + 50, 1, 3)
        assert log.offset_for_timestamp(T0 + 15) == FoundOffset(T0 + 50, 1, 3)
        assert log.offset_for_timestamp(T0) == FoundOffset(T0, 0, 3)
        assert log.offset_for_timestamp(T0 + 51) is None
        log.close()
        log = open_log(clean=True)


def test_append_time_leads_to_the_first_record(open_log: OpenLog, clock: VirtualClock) -> None:
    log = open_log(message_timestamp_type="LogAppendTime")
    log.append(batch(5, timestamps=[1, 2, 3, 4, 5]), 0)
    now = clock.now_ms()
    found = log.offset_for_timestamp(now)
    assert found is not None
    assert found.offset == 0
    assert log.offset_for_timestamp(now + 1) is None
    assert log.max_timestamp_offset() == FoundOffset(now, 0, 0)


def test_nothing_below_the_log_start(open_log: OpenLog) -> None:
    log = open_log()
    log.append(batch(4, timestamps=[T0 + 9, T0 + 1, T0 + 5, T0 + 5]), 0)
    log.high_watermark = 4
    log.delete_before(1)
    assert log.offset_for_timestamp(T0 + 6) is None
    assert log.offset_for_timestamp(T0) == FoundOffset(T0 + 1, 1, 0)


def test_an_empty_log_and_records_without_time(open_log: OpenLog) -> None:
    log = open_log()
    assert log.max_timestamp_offset() is None
    assert log.offset_for_timestamp(0) is None
    log.append(batch(2, timestamps=[-1, -1]), 0)
    assert log.max_timestamp_offset() is None
    assert log.offset_for_timestamp(0) is None


@settings(deadline=None)
@given(
    times=st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=4), min_size=1, max_size=25),
    restart=st.sampled_from([None, "clean", "crash"]),
    segment_bytes=st.sampled_from([400, 1200, 1 << 20]),
    data=st.data(),
)
def test_as_a_scan_of_all_records_would_find(
    scratch: Path, times: list[list[int]], restart: str | None, segment_bytes: int, data: st.DataObject
) -> None:
    directory = scratch / f"time-{next(numbers)}"
    directory.mkdir()
    config = LogConfig(segment_bytes=segment_bytes, index_interval_bytes=data.draw(st.sampled_from([0, 200])))
    log = Log.open(directory, config, VirtualClock())
    for found in times:
        log.append(batch(len(found), timestamps=[T0 + t for t in found]), 0)
    if restart:
        if restart == "clean":
            log.close()
        log.release()
        log = Log.open(directory, config, VirtualClock(), clean=restart == "clean")
    flat = [T0 + t for found in times for t in found]
    for asked in {T0 + data.draw(st.integers(-1, 31)) for _ in range(5)}:
        expected = next(((t, offset) for offset, t in enumerate(flat) if t >= asked), None)
        answer = log.offset_for_timestamp(asked)
        assert (answer and answer[:2]) == expected
    latest = log.max_timestamp_offset()
    assert latest is not None
    assert latest[:2] == (max(flat), flat.index(max(flat)))
    log.release()
    shutil.rmtree(directory)


def test_largest_timestamps_of_closed_segments_survive(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=400)
    for i in range(20):
        log.append(batch(1, timestamps=[T0 + i]), 0)
    expected = [segment.largest_timestamp for segment in log.segments]
    assert len(expected) > 3
    log.close()
    log = open_log(segment_bytes=400, clean=True)
    assert [segment.largest_timestamp for segment in log.segments] == expected
