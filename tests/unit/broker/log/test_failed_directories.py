"""One disk or one partition that fails: all else goes on, nothing is deleted or made twice."""

import errno
import logging
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from broker.log import AppendRefused, Log, LogConfig, LogDirError, LogManager
from broker.log.errors import StorageFailed
from broker.log.log_dir import LogDir
from broker.log.segment import Segment
from protocol.types import TopicPartition, new_topic_id
from tests.support.batches import batch
from tests.support.clock import VirtualClock

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
Open = Callable[[], LogManager]


@pytest.fixture
def start(tmp_path: Path, clock: VirtualClock) -> Open:
    return lambda: LogManager([tmp_path / "a", tmp_path / "b"], 1, "c", clock)


def filled(start: Open, topic_id: bytes) -> None:
    """One partition in each of two directories, closed cleanly."""
    logs = start()
    logs.load()
    for tp in (A, B):
        log = logs.get_or_create(tp, topic_id, LogConfig())
        log.append(batch([b"1", b"2"]), 0)
        log.high_watermark = 2
    assert {logs.log_dir(tp).rsplit("/", 1)[1] for tp in (A, B)} == {"a", "b"}
    logs.close()


def test_damaged_partition_metadata_takes_one_partition_away(
    start: Open, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic_id = new_topic_id()
    filled(start, topic_id)
    (tmp_path / "a" / "t-0" / "partition.metadata").write_text("version: 0\ntopic_id: ?")
    logs = start()
    with caplog.at_level(logging.ERROR):
        logs.load()
    assert len(caplog.records) == 1
    assert "t-0 is offline" in caplog.text
    assert "partition.metadata" in caplog.text
    other = logs.get(B)
    assert other is not None
    assert other.end_offset == 2
    assert logs.is_offline(A)
    assert not logs.is_offline(B)
    with pytest.raises(StorageFailed, match="t-0 is offline"):
        logs.get_or_create(A, topic_id, LogConfig(), is_new=False)
    logs.close()
    assert (tmp_path / "a" / "t-0" / f"{0:020}.log").stat().st_size > 0


def test_a_directory_that_cannot_be_used_is_left_out_and_its_partitions_are_not_made_again(
    start: Open, tmp_path: Path
) -> None:
    topic_id = new_topic_id()
    filled(start, topic_id)
    (tmp_path / "a").rename(tmp_path / "kept")
    (tmp_path / "a").write_text("a file stands for a disk that is not there")
    logs = start()
    logs.load()
    assert list(logs.offline_dirs) == [str(tmp_path / "a")]
    assert logs.log_dirs == [str(tmp_path / "b")]
    with pytest.raises(StorageFailed, match="t-0 is offline"):
        logs.get_or_create(A, topic_id, LogConfig(), is_new=False)
    assert logs.is_offline(A)
    logs.get_or_create(TopicPartition("new", 0), new_topic_id(), LogConfig())
    logs.close()
    (tmp_path / "a").unlink()
    (tmp_path / "kept").rename(tmp_path / "a")
    logs = start()
    logs.load()
    assert {tp: log.end_offset for tp in logs if (log := logs.get(tp))} == {
        A: 2, B: 2, TopicPartition("new", 0): 0,
    }  # fmt: skip
    logs.close()


def test_all_directories_failed_is_no_start(start: Open, tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_text("")
    with pytest.raises(LogDirError, match=r"no log directory is left.*/a cannot be used.*/b cannot be used"):
        start()


def test_a_directory_removed_at_run_time_fails_with_all_its_partitions(
    start: Open, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic_id = new_topic_id()
    filled(start, topic_id)
    logs = start()
    logs.load()
    gone: list[TopicPartition] = []
    logs.on_offline(gone.extend)
    shutil.rmtree(tmp_path / "a")
    log = logs.get(A)
    assert log is not None
    with caplog.at_level(logging.ERROR), pytest.raises(AppendRefused):
        log.append(batch([b"3"]), 0)
    assert gone == [A]
    assert logs.get(A) is None
    assert logs.is_offline(A)
    assert "out of use with 1 partitions" in caplog.text
    other = logs.get(B)
    assert other is not None
    assert other.append(batch([b"3"]), 0).base_offset == 2
    logs.checkpoint_tick()
    logs.close()
    assert (tmp_path / "b" / ".kafka_cleanshutdown").exists()


def test_a_log_start_that_nothing_reaches_deletes_nothing(
    start: Open, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    filled(start, new_topic_id())
    (tmp_path / "a" / "log-start-offset-checkpoint").write_text("0\n1\nt 0 1000000\n")
    logs = start()
    with caplog.at_level(logging.ERROR):
        logs.load()
    log = logs.get(A)
    assert log is not None
    assert (log.start_offset, log.end_offset) == (0, 2)
    assert "1000000" in caplog.text
    assert "not believed" in caplog.text
    logs.close()


def test_closing_waits_for_the_thread_that_loads(start: Open, tmp_path: Path) -> None:
    filled(start, new_topic_id())
    asked, answer = threading.Event(), threading.Event()

    def config_of(topic: str) -> LogConfig:
        asked.set()
        assert answer.wait(30)
        return LogConfig()

    logs = start()
    with ThreadPoolExecutor(2) as pool:
        loading = pool.submit(logs.load, config_of)
        assert asked.wait(30)
        closing = pool.submit(logs.close)
        while not logs._closing:
            assert not closing.done()
        answer.set()
        closing.result(30)
        with pytest.raises(LogDirError, match="stopped while logs were loaded"):
            loading.result(30)
    logs = start()
    logs.load()
    assert sorted(logs) == [A, B]
    logs.close()


def test_a_topic_deleted_while_it_is_flushed_is_no_failure_of_its_directory(
    start: Open, tmp_path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(start, new_topic_id())
    logs = start()
    logs.load()
    log = logs.get(A)
    assert log is not None
    log.append(batch([b"3"]), 0)
    log.roll()
    sync = Segment.sync

    def deleted_meanwhile(self: Segment, *, closing: bool) -> None:
        logs.delete(A)  # on the event loop, while a thread waits for the disk
        sync(self, closing=closing)

    monkeypatch.setattr(Segment, "sync", deleted_meanwhile)
    logs.flush_tick(clock.now_ms())
    monkeypatch.undo()
    assert logs.offline_dirs == {}
    assert logs.get(A) is None
    assert not logs.is_offline(A)
    assert logs.get(B) is not None
    logs.close()


def test_a_file_renamed_under_a_flush_is_no_failure_of_its_directory(
    start: Open, tmp_path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cleaner and retention rename segments on the event loop while a thread opens them to flush."""
    filled(start, new_topic_id())
    logs = start()
    logs.load()
    log = logs.get(A)
    assert log is not None
    log.append(batch([b"3"]), 0)
    log.roll()

    def renamed_meanwhile(self: Segment, *, closing: bool) -> None:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", self.path("log"))

    monkeypatch.setattr(Segment, "sync", renamed_meanwhile)
    logs.flush_tick(clock.now_ms())
    monkeypatch.undo()
    assert logs.offline_dirs == {}
    logs.flush_tick(clock.now_ms())
    assert log.recovery_point == log.end_offset, "the next flush does it"
    logs.close()


@pytest.mark.parametrize("failure", [errno.ENOSPC, errno.EDQUOT])
def test_a_directory_too_full_for_recovery_leaves_the_others_at_work(
    start: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: int
) -> None:
    filled(start, new_topic_id())
    really = LogDir.forget_clean_shutdown

    def full(self: LogDir) -> None:
        if self.path.endswith("/a"):
            raise OSError(failure, "no room")
        really(self)

    monkeypatch.setattr(LogDir, "forget_clean_shutdown", full)
    logs = start()
    logs.load()
    assert list(logs.offline_dirs) == [str(tmp_path / "a")]
    other = logs.get(B)
    assert other is not None
    assert other.append(batch([b"3"]), 0).base_offset == 2
    logs.close()
    monkeypatch.undo()
    logs = start()
    logs.load()
    assert {tp: log.end_offset for tp in logs if (log := logs.get(tp))} == {A: 2, B: 3}
    logs.close()


def test_a_process_out_of_files_does_not_start(
    start: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(start, new_topic_id())

    def none_left(self: LogDir) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(LogDir, "forget_clean_shutdown", none_left)
    logs = start()
    with pytest.raises(LogDirError, match="cannot be loaded"):
        logs.load()
    logs.close()


def test_a_directory_that_fails_while_a_partition_is_made_in_it_takes_that_out_of_use(start: Open) -> None:
    """A thread makes it, the directory fails beside it; else all appends were refused, and nobody told."""
    logs = start()
    logs.load()
    gone: list[TopicPartition] = []
    logs.on_offline(gone.extend)
    logs.before_create = lambda tp, path: logs.fail_dir(path, "the disk is gone")
    with pytest.raises(StorageFailed, match="the disk is gone"):
        logs.get_or_create(A, new_topic_id(), LogConfig())
    assert gone == [A]
    assert logs.is_offline(A)
    assert logs.get(A) is None
    logs.close()


def test_a_directory_that_fails_while_all_is_closed_leaves_the_other_clean(
    start: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(start, new_topic_id())
    logs = start()
    logs.load()
    broken, homes = logs.get(A), {tp: logs.log_dir(tp) for tp in (A, B)}
    close = Log.close

    def fails(log: Log) -> None:
        if log is broken:
            logs.fail_dir(homes[A], "the disk is gone")
            raise OSError(errno.EIO, "no")
        close(log)

    monkeypatch.setattr(Log, "close", fails)
    logs.close()
    assert (Path(homes[B]) / ".kafka_cleanshutdown").exists()
    assert not (Path(homes[A]) / ".kafka_cleanshutdown").exists()
    start().close()
