"""What is deleted, by time, size and request, and what must never be."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.log import Log, LogConfig, LogManager, OffsetOutOfRange
from broker.log.retention import expired_count, held_by_future
from protocol.types import TopicPartition, new_topic_id
from tests.support.batches import T0, batch
from tests.support.clock import VirtualClock

OpenLog = Callable[..., Log]
DAY = 86_400_000


@dataclass
class Piece:
    base_offset: int
    size: int
    largest_timestamp: int


def pieces(*found: tuple[int, float]) -> list[Piece]:
    """(size, age in days); ten offsets each."""
    return [Piece(10 * i, size, T0 - int(days * DAY)) for i, (size, days) in enumerate(found)]


def count(found: list[Piece], *, start: int = 0, limit: int | None = None, **settings: object) -> int:
    end = 10 * len(found)
    config = LogConfig(**settings)  # type: ignore[arg-type]
    return expired_count(
        found, config, T0, start_offset=start, end_offset=end, limit=end if limit is None else limit
    )


OLD = pieces((100, 9), (100, 8), (100, 2), (100, 0))


def test_by_time_goes_segment_by_segment_from_the_oldest() -> None:
    assert count(OLD) == 2
    assert count(OLD, retention_ms=3 * DAY) == 2
    assert count(OLD, retention_ms=DAY) == 3
    assert count(OLD, retention_ms=-1) == 0
    assert count(pieces((100, 1), (100, 9)), retention_ms=3 * DAY) == 0, "a young one keeps what is behind it"
    assert count(pieces((100, 9), (0, 0))) == 1, "an empty active segment is not counted"


def test_by_size_keeps_at_least_that_much() -> None:
    keep_time = {"retention_ms": -1}
    assert count(OLD, retention_bytes=-1, **keep_time) == 0
    assert count(OLD, retention_bytes=400, **keep_time) == 0
    assert count(OLD, retention_bytes=301, **keep_time) == 0
    assert count(OLD, retention_bytes=300, **keep_time) == 1
    assert count(OLD, retention_bytes=250, **keep_time) == 1
    assert count(OLD, retention_bytes=0, **keep_time) == 4


def test_never_above_the_high_watermark() -> None:
    assert count(OLD, limit=19) == 1
    assert count(OLD, limit=20) == 2
    assert count(OLD, retention_bytes=0, limit=0) == 0


def test_compacted_topics_lose_only_what_is_below_the_log_start() -> None:
    assert count(OLD, cleanup_policy="compact") == 0
    assert count(OLD, cleanup_policy="compact", start=25) == 2
    assert count(OLD, cleanup_policy="compact", start=40) == 3, "the active segment stays"
    assert count(OLD, cleanup_policy="compact,delete") == 2


@given(
    st.lists(st.tuples(st.integers(0, 300), st.integers(-3, 12)), min_size=1, max_size=8),
    st.integers(-1, 1000),
    st.integers(0, 80),
)
def test_size_retention_never_goes_below_its_size(
    found: list[tuple[int, int]], retention_bytes: int, limit: int
) -> None:
    gone = count(pieces(*found), retention_ms=-1, retention_bytes=retention_bytes, limit=limit)
    left = sum(size for size, _ in found[gone:])
    assert gone == 0 or left >= retention_bytes
    assert 10 * gone <= max(limit, 0)


def test_a_future_timestamp_is_noticed() -> None:
    assert held_by_future(pieces((1, -1), (1, 9)), LogConfig(), T0) is not None
    assert held_by_future(pieces((1, 3), (1, -1)), LogConfig(), T0) is None
    assert held_by_future(pieces((1, -1), (1, 9)), LogConfig(retention_ms=-1), T0) is None
    assert held_by_future(pieces((1, -0.01), (1, 9)), LogConfig(), T0) is None, "clocks are never exact"


def test_the_log_start_moves_and_files_go_after_their_delay(
    open_log: OpenLog, tmp_path: Path, clock: VirtualClock
) -> None:
    log = open_log(segment_bytes=400, retention_ms=5 * DAY, file_delete_delay_ms=60_000)
    for i in range(10):
        log.append(batch([bytes(200)], timestamps=[T0 + i * DAY // 2]), 0)
        clock.advance(DAY / 2 / 1000)
    log.high_watermark = log.end_offset
    clock.advance(3 * DAY / 1000)
    gone = log.enforce_retention(clock.now_ms())
    assert gone == 6
    assert log.start_offset == log.segments.items[0].base_offset == 6
    assert log.epochs.entries() == [(0, 6)]
    assert len(list((tmp_path / "t-0").glob("*.log.deleted"))) == 6
    assert log.segments.sweep(clock.now_ms() + 59_999) == 0
    assert log.segments.sweep(clock.now_ms() + 60_000) >= 6
    assert not list((tmp_path / "t-0").glob("*.deleted"))
    assert log.enforce_retention(clock.now_ms()) == 0


def test_an_active_segment_that_is_old_is_rolled_first(open_log: OpenLog, clock: VirtualClock) -> None:
    log = open_log()
    log.append(batch(3), 0)
    log.high_watermark = 3
    clock.advance(8 * DAY / 1000)
    assert log.enforce_retention(clock.now_ms()) == 1
    assert (log.start_offset, log.end_offset, log.size) == (3, 3, 0)
    assert log.enforce_retention(clock.now_ms()) == 0
    log.append(batch(1, timestamps=[clock.now_ms()]), 0)
    log.close()
    again = open_log(clean=True)
    assert (again.start_offset, again.end_offset) == (3, 4)


def test_delete_before(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=400)
    for _ in range(10):
        log.append(batch([bytes(200)]), 0)
    log.high_watermark = 8
    with pytest.raises(OffsetOutOfRange):
        log.delete_before(9)
    assert log.delete_before(5) == 5
    assert log.delete_before(2) == 5
    assert log.enforce_retention(T0) == 5
    assert log.segments.start == 5
    assert log.epoch_at(5) == 0


def test_one_record_from_the_future_is_told_once_and_delete_records_helps(
    tmp_path: Path, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    logs = LogManager([tmp_path], 1, "cluster", clock)
    logs.load()
    config = LogConfig(retention_ms=2000, message_timestamp_after_max_ms=2**63 - 1)
    log = logs.get_or_create(TopicPartition("b", 0), new_topic_id(), config)
    log.append(batch(1, timestamps=[T0 + 365 * DAY]), 0)
    log.roll()
    for _ in range(100):
        log.append(batch(1, timestamps=[clock.now_ms()]), 0)
        clock.advance(0.05)
    log.roll()
    log.high_watermark = log.end_offset
    clock.advance(6)
    with caplog.at_level(logging.WARNING, "isthmus.broker.log"):
        for _ in range(3):
            assert logs.retention_tick(clock.now_ms()) == 0
    (line,) = [r.getMessage() for r in caplog.records if "future" in r.getMessage()]
    assert "b-0" in line
    assert f"{0:020d}" in line
    log.delete_before(1)
    assert logs.retention_tick(clock.now_ms()) == 2
    assert (log.start_offset, log.end_offset) == (101, 101)
    logs.close()
