"""A disk that takes no more: appends are refused, what is there stays, and it works again once there is room.

RLIMIT_FSIZE stands in for the disk: writes above it fail half way, as they do on a full one.
"""

import errno
import logging
import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from broker.clock import SystemClock
from broker.log import AppendRefused, Log, LogConfig, LogManager, Origin
from broker.log.segment import Segment
from broker.log.txn_index import AbortedTxn, append_aborted, read_aborted
from protocol.errors import ErrorCode
from protocol.types import TopicPartition, new_topic_id
from tests.support.batches import batch, marker, records_of
from tests.support.clock import VirtualClock

OpenLog = Callable[..., Log]


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """No file of this process grows above `size` bytes; the write that tries gets as far as it can."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, previous)


def values(log: Log) -> list[bytes | None]:
    found, offset = [], 0
    while offset < log.end_offset:
        data = log.read_blocking(offset, 100_000)
        found += [record.value for record in records_of(data.segments)]
        offset = data.next_offset
    return found


@pytest.mark.parametrize("room", [0, 1, 60, 61, 200])
def test_a_write_that_gets_only_so_far(
    open_log: OpenLog, tmp_path: Path, room: int, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log()
    log.append(batch([b"x" * 100], producer=(5, 0, 0)), 0)
    log.high_watermark = 1
    size = log.size
    with file_size_limit(size + room):
        for _ in range(3):
            with pytest.raises(AppendRefused) as refusal:
                log.append(batch([b"y" * 500], producer=(5, 0, 1)), 0)
            assert refusal.value.code == ErrorCode.KAFKA_STORAGE_ERROR
            assert str(tmp_path) in refusal.value.message
        assert (log.end_offset, log.size) == (1, size)
        assert (tmp_path / "t-0" / f"{0:020d}.log").stat().st_size == size
        assert values(log) == [b"x" * 100]
    assert len([r for r in caplog.records if r.levelno >= logging.ERROR]) == 1, "one line, not one for each"
    assert log.append(batch([b"y" * 500], producer=(5, 0, 1)), 0).base_offset == 1, (
        "the sequence is not used up"
    )
    again = open_log()
    assert values(again) == values(log) == [b"x" * 100, b"y" * 500]


def test_no_room_for_a_new_segments_first_batch(open_log: OpenLog) -> None:
    log = open_log(segment_bytes=500)
    log.append(batch([b"x" * 300]), 0)
    with file_size_limit(100), pytest.raises(AppendRefused):
        log.append(batch([b"y" * 300]), 0)
    assert log.end_offset == 1
    log.append(batch([b"z" * 300]), 0)
    assert values(log) == [b"x" * 300, b"z" * 300]
    log.close()
    assert values(open_log(clean=True, segment_bytes=500)) == [b"x" * 300, b"z" * 300]


def test_no_room_behind_a_hole(open_log: OpenLog) -> None:
    log = open_log()
    far = batch([b"y" * 300], base_offset=3_000_000_000, leader_epoch=0)
    log.append(batch([b"x"], leader_epoch=0), 0, Origin.REPLICATION)
    with file_size_limit(100), pytest.raises(AppendRefused):
        log.append(far, 0, Origin.REPLICATION)
    assert len(log.segments) == 1
    log.append(batch([b"x"]), 0)
    assert log.end_offset == 2


def test_a_new_epoch_that_cannot_be_written_down(open_log: OpenLog) -> None:
    log = open_log()
    log.append(batch(1), 0)
    with file_size_limit(0):
        with pytest.raises(AppendRefused):
            log.append(batch(1), 1)
        log.assign_epoch(1)
    assert log.epochs.entries() == [(0, 0)]
    log.append(batch(1), 1)
    assert log.epochs.entries() == [(0, 0), (1, 1)]


def test_closing_without_room_is_an_unclean_shutdown(tmp_path: Path) -> None:
    tp = TopicPartition("t", 0)
    logs = LogManager([tmp_path], 1, "cluster", VirtualClock())
    logs.load()
    log = logs.get_or_create(tp, new_topic_id(), LogConfig(index_interval_bytes=0))
    for _ in range(5):
        log.append(batch(3), 0)
    with file_size_limit(0):
        logs.close()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    logs = LogManager([tmp_path], 1, "cluster", VirtualClock())
    logs.load()
    again = logs.get(tp)
    assert again is not None
    assert again.end_offset == 15
    logs.close()


def test_a_directory_that_became_read_only(
    open_log: OpenLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may write anywhere, so the refusal is made by a directory that has gone."""
    log = open_log(segment_bytes=500)
    log.append(batch([b"x" * 300]), 0)
    (tmp_path / "t-0").rename(tmp_path / "moved")
    with pytest.raises(AppendRefused) as refusal:
        log.append(batch([b"y" * 300]), 0)
    assert refusal.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    (tmp_path / "moved").rename(tmp_path / "t-0")
    log.append(batch([b"y" * 300]), 0)
    assert values(log) == [b"x" * 300, b"y" * 300]


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_without_room_for_the_aborted_index_changes_nothing(
    open_log: OpenLog, tmp_path: Path, commit: bool
) -> None:
    """The marker fits into the last block of the data file, the index of aborted transactions has none."""
    log = open_log()
    log.append(batch([b"a"], producer=(7, 0, 0), transactional=True), 0)
    log.high_watermark = 1
    index = tmp_path / "t-0" / f"{0:020d}.txnindex"
    index.mkdir()  # stands for a file that cannot be made
    if commit:
        assert log.append(marker(7, 0, commit=True), 0, Origin.COORDINATOR).base_offset == 1
        return
    for _ in range(2):
        with pytest.raises(AppendRefused) as refusal:
            log.append(marker(7, 0, commit=False), 0, Origin.COORDINATOR)
        assert refusal.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (log.end_offset, log.last_stable_offset) == (1, 0)
    assert log.append(batch([b"b"]), 0).base_offset == 1
    index.rmdir()
    assert log.append(marker(7, 0, commit=False), 0, Origin.COORDINATOR).base_offset == 2
    log.high_watermark = 3
    assert log.last_stable_offset == 3
    again = open_log()
    assert again.end_offset == 3
    for each in (log, again):
        assert [(t.first_offset, t.last_offset) for t in each.aborted_transactions(0, 3)] == [(0, 2)]


def test_a_marker_that_has_no_room_leaves_no_entry_in_the_aborted_index(open_log: OpenLog) -> None:
    log = open_log()
    log.append(batch([b"a" * 500], producer=(7, 0, 0), transactional=True), 0)
    log.high_watermark = 1
    with file_size_limit(log.size + 10), pytest.raises(AppendRefused):
        log.append(marker(7, 0, commit=False), 0, Origin.COORDINATOR)
    assert log.last_stable_offset == 0
    assert log.aborted_transactions(0, 1) == []


def test_a_flush_that_fails_in_an_append_is_a_refusal(
    open_log: OpenLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`flush.messages` flushes before the answer: what did not reach the disk is not acknowledged."""
    log = open_log(flush_messages=1)
    failures: list[int | None] = []
    log.storage_failed = lambda directory, error: failures.append(error.errno)

    def fails(self: Segment, *, closing: bool) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Segment, "sync", fails)
    with pytest.raises(AppendRefused) as refusal:
        log.append(batch([b"a"]), 0)
    assert refusal.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert failures == [errno.EIO]
    assert log.recovery_point == 0


def test_an_entry_of_the_aborted_index_that_gets_only_so_far_leaves_no_part(tmp_path: Path) -> None:
    """Part of an entry would shift all that come after it."""
    path, entries = str(tmp_path / "i"), [AbortedTxn(7, n, n + 1, n + 2) for n in range(3)]
    append_aborted(path, entries[0])
    with file_size_limit(34 + 10), pytest.raises(OSError, match="File too large"):
        append_aborted(path, entries[1])
    append_aborted(path, entries[2])
    assert read_aborted(path) == [entries[0], entries[2]]


def test_a_full_disk_is_one_line_for_a_directory_and_another_when_it_works(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = LogManager([tmp_path], 1, "c", SystemClock())
    logs.load()
    for index in range(5):
        log = logs.get_or_create(TopicPartition("t", index), new_topic_id(), LogConfig(flush_ms=0))
        log.append(batch([b"x"]), 0)

    def full(self: Log) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with caplog.at_level(logging.INFO):
        with monkeypatch.context() as patch:
            patch.setattr(Log, "flush", full)
            for _ in range(3):
                assert logs.flush_tick(SystemClock().now_ms() + 1000) == 0
        assert [r.levelname for r in caplog.records if "flush failed" in r.message] == ["WARNING"]
        assert "and 4 other partitions" in caplog.text
        assert logs.flush_tick(SystemClock().now_ms() + 1000) == 5
    assert caplog.text.count("flush works again") == 1
    assert logs.offline_dirs == {}
    logs.close()


def test_retention_makes_room_on_a_disk_too_full_for_its_own_small_files(
    open_log: OpenLog, monkeypatch: pytest.MonkeyPatch, clock: VirtualClock
) -> None:
    log = open_log(segment_bytes=300, retention_bytes=300)
    for epoch in range(4):
        log.append(batch([bytes(200)]), epoch)
    log.high_watermark = log.end_offset

    def full(*arguments: object, **more: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("broker.log.leader_epochs.write_epochs", full)
    assert log.enforce_retention(clock.now_ms()) > 0
    assert log.start_offset == log.segments.start > 0
    monkeypatch.undo()
    start, end = log.start_offset, log.end_offset
    log.release()
    again = open_log(segment_bytes=300)
    assert (again.start_offset, again.end_offset) == (start, end)
    assert min(at for _, at in again.epochs.entries()) == start


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_disk_that_lost_what_was_written_is_not_asked_again(
    tmp_path: Path, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fdatasync says so once; the next one succeeds, and would acknowledge what is not there."""
    logs = LogManager([tmp_path / "a", tmp_path / "b"], 1, "c", SystemClock())
    logs.load()
    tp = TopicPartition("t", 0)
    log = logs.get_or_create(tp, new_topic_id(), LogConfig(flush_messages=1))
    failures = [code]
    sync = os.fdatasync

    def once(fd: int) -> None:
        if failures:
            raise OSError(failures.pop(), "said once")
        sync(fd)

    monkeypatch.setattr(os, "fdatasync", once)
    with pytest.raises(AppendRefused):
        log.append(batch([b"lost"]), 0)
    with pytest.raises(AppendRefused):
        log.append(batch([b"next"]), 0)
    assert log.recovery_point == 0
    assert len(logs.offline_dirs) == 1
    assert logs.is_offline(tp)
    logs.close()
