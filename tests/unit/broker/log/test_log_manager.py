"""The logs of a whole broker: starts after any kind of end, deletion, flushing, idle partitions."""

import os
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from broker.log import LogConfig, LogManager
from protocol.types import ZERO_UUID, TopicPartition, new_topic_id, uuid_to_text
from tests.support.batches import batch, records_of
from tests.support.clock import VirtualClock

OpenManager = Callable[..., LogManager]
T = TopicPartition("t", 0)


def crash(logs: LogManager) -> None:
    """What SIGKILL leaves: the files as they are, the lock given up."""
    for tp in logs:
        log = logs.get(tp)
        assert log is not None
        log.release()
    logs._unlock()
    logs._logs.clear()
    logs._loaded.clear()


@pytest.mark.parametrize("clean", [True, False])
def test_a_start_that_fails_leaves_the_directory_as_it_was(
    manager: OpenManager, tmp_path: Path, clean: bool
) -> None:
    logs = manager()
    for i in range(3):
        log = logs.get_or_create(TopicPartition("t", i), new_topic_id(), LogConfig())
        log.append(batch(5), 0)
        log.high_watermark = 5
        log.delete_before(i)
    logs.checkpoint_tick()
    logs.close() if clean else crash(logs)
    before = {path.name: path.read_bytes() for path in (tmp_path / "d").iterdir() if path.is_file()}
    assert (".kafka_cleanshutdown" in before) == clean

    manager(load=False).close()  # something else was wrong before loading began

    def broken(topic: str) -> LogConfig:
        raise RuntimeError("no settings")

    logs = manager(load=False)
    with pytest.raises(RuntimeError):
        logs.load(broken)
    logs.close()
    assert {path.name: path.read_bytes() for path in (tmp_path / "d").iterdir() if path.is_file()} == before
    metadata = tmp_path / "d" / "t-1" / "partition.metadata"
    whole = metadata.read_text()
    metadata.write_text("damage")
    logs = manager()
    assert logs.is_offline(TopicPartition("t", 1))
    logs.close()
    metadata.write_text(whole)
    assert (tmp_path / "d" / ".kafka_cleanshutdown").exists() == clean
    again = manager()
    starts = []
    for tp in again:
        found = again.get(tp)
        assert found is not None
        starts.append(found.start_offset)
    assert sorted(starts) == [0, 1, 2]


@pytest.mark.parametrize("clean", [True, False])
def test_a_restart_brings_everything_back(manager: OpenManager, tmp_path: Path, clean: bool) -> None:
    logs = manager()
    topic_id = new_topic_id()
    log = logs.get_or_create(T, topic_id, LogConfig(segment_bytes=500))
    for i in range(20):
        log.append(batch([b"%d" % i + bytes(100)], producer=(3, 0, i)), 2)
    log.high_watermark = 20
    log.delete_before(4)
    logs.checkpoint_tick()
    for i in range(20, 30):
        log.append(batch([b"%d" % i + bytes(100)], producer=(3, 0, i)), 2)
    log.high_watermark = 30
    logs.close() if clean else crash(logs)
    assert (tmp_path / "d" / ".kafka_cleanshutdown").exists() == clean
    again = manager()
    assert not (tmp_path / "d" / ".kafka_cleanshutdown").exists(), "a crash from now on is a crash"
    found = again.get(T)
    assert found is not None
    assert (found.start_offset, found.end_offset, again.topic_id(T)) == (4, 30, topic_id)
    assert found.high_watermark == (30 if clean else 20)
    assert found.append(batch([b"29" + bytes(100)], producer=(3, 0, 29)), 2).duplicate
    assert records_of(found.read_blocking(29, 1).segments)[0].value == b"29" + bytes(100)


def test_the_checkpoints_are_kafkas(manager: OpenManager, tmp_path: Path) -> None:
    logs = manager()
    log = logs.get_or_create(T, new_topic_id(), LogConfig())
    log.append(batch(7), 0)
    log.high_watermark = 7
    log.delete_before(3)
    log.flush()
    logs.close(broker_epoch=12)
    read = {path.name: path.read_text() for path in (tmp_path / "d").iterdir() if path.is_file()}
    assert read["recovery-point-offset-checkpoint"] == "0\n1\nt 0 7\n"
    assert read["replication-offset-checkpoint"] == "0\n1\nt 0 7\n"
    assert read["log-start-offset-checkpoint"] == "0\n1\nt 0 3\n"
    assert read[".kafka_cleanshutdown"] == '{"version":0,"brokerEpoch":12}'


def test_damaged_checkpoints_cost_time_not_data(
    manager: OpenManager, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logs = manager()
    logs.get_or_create(T, new_topic_id(), LogConfig()).append(batch(5), 0)
    crash(logs)
    for name in ("recovery-point", "log-start", "replication"):
        (tmp_path / "d" / f"{name}-offset-checkpoint").write_text("damage")
    again = manager().get(T)
    assert again is not None
    assert again.end_offset == 5
    assert len([r for r in caplog.records if "going on as if it were empty" in r.getMessage()]) == 3


@pytest.mark.parametrize("clean", [True, False])
def test_records_that_were_on_disk_and_are_not_any_more_are_missed_aloud(
    manager: OpenManager, tmp_path: Path, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    logs = manager()
    log = logs.get_or_create(T, new_topic_id(), LogConfig())
    log.append(batch(5), 0)
    log.flush()
    logs.checkpoint_tick()
    logs.close() if clean else crash(logs)
    os.truncate(tmp_path / "d" / "t-0" / f"{0:020d}.log", 0)
    found = manager().get(T)
    assert found is not None
    assert found.end_offset == 0
    assert "t-0: the log ends at 0, but was on disk up to 5: records are missing" in caplog.text


def test_deleting_is_at_once_and_files_go_later(
    manager: OpenManager, tmp_path: Path, clock: VirtualClock
) -> None:
    logs = manager()
    log = logs.get_or_create(T, new_topic_id(), LogConfig(file_delete_delay_ms=1000))
    log.append(batch(5), 0)
    logs.delete(T)
    logs.delete(T)
    assert logs.get(T) is None
    assert not (tmp_path / "d" / "t-0").exists()
    (condemned,) = (tmp_path / "d").glob("t-0.*-delete")
    assert logs.sweep_tick(clock.now_ms() + 999) == 0
    assert condemned.exists()
    assert logs.sweep_tick(clock.now_ms() + 1000) == 1
    assert not condemned.exists()
    assert logs.get_or_create(T, new_topic_id(), LogConfig()).end_offset == 0


def test_a_deletion_that_a_crash_interrupted_is_finished(manager: OpenManager, tmp_path: Path) -> None:
    logs = manager()
    logs.get_or_create(T, new_topic_id(), LogConfig())
    logs.delete(T)
    crash(logs)
    again = manager()
    assert again.get(T) is None
    assert again.sweep_tick(0) == 1
    assert not list((tmp_path / "d").glob("*-delete"))


def test_a_recreated_topic_does_not_get_the_old_ones_records(
    manager: OpenManager, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logs = manager()
    old, new = new_topic_id(), new_topic_id()
    logs.get_or_create(T, old, LogConfig()).append(batch(5), 0)
    log = logs.get_or_create(T, new, LogConfig())
    assert log.end_offset == 0
    assert logs.topic_id(T) == new
    (stray,) = (tmp_path / "d").glob("t-0.*-stray")
    assert uuid_to_text(old) in (stray / "partition.metadata").read_text()
    assert stray.name in caplog.text
    logs.close()
    again = manager()
    assert list(again) == [T]
    assert again.sweep_tick(1 << 60) == 0
    assert stray.exists(), "nothing is deleted that nobody asked to delete"


def test_topic_ids_that_come_late(manager: OpenManager) -> None:
    logs = manager()
    logs.get_or_create(T, ZERO_UUID, LogConfig())
    assert logs.topic_id(T) is None
    topic_id = new_topic_id()
    logs.get_or_create(T, topic_id, LogConfig())
    assert logs.topic_id(T) == topic_id
    logs.get_or_create(T, ZERO_UUID, LogConfig())
    assert logs.topic_id(T) == topic_id


def test_settings_may_change_while_running(manager: OpenManager) -> None:
    logs = manager()
    log = logs.get_or_create(T, new_topic_id(), LogConfig())
    logs.set_config("t", LogConfig(message_timestamp_type="LogAppendTime"))
    logs.set_config("other", LogConfig(segment_bytes=1))
    assert log.append(batch(1), 0).log_append_time_ms > 0


def test_flushing_by_time_and_after_rolls(manager: OpenManager, clock: VirtualClock) -> None:
    logs = manager()
    log = logs.get_or_create(T, new_topic_id(), LogConfig(flush_ms=5000, segment_bytes=300))
    log.append(batch([bytes(100)]), 0)
    assert logs.flush_tick(clock.now_ms()) == 0
    clock.advance(5)
    assert logs.flush_tick(clock.now_ms()) == 1
    assert log.recovery_point == 1
    assert logs.flush_tick(clock.now_ms()) == 0
    for _ in range(3):
        log.append(batch([bytes(100)]), 0)
    assert logs.flush_tick(clock.now_ms()) == 1, "closed segments do not wait"
    assert log.recovery_point == 4


def test_flushing_by_count(manager: OpenManager) -> None:
    log = manager().get_or_create(T, new_topic_id(), LogConfig(flush_messages=3))
    log.append(batch(2), 0)
    assert log.recovery_point == 0
    log.append(batch(1), 0)
    assert log.recovery_point == 3


def test_one_bad_partition_does_not_stop_the_others(
    manager: OpenManager, tmp_path: Path, clock: VirtualClock
) -> None:
    logs = manager()
    config = LogConfig(retention_ms=1000, segment_bytes=300)
    both = [logs.get_or_create(TopicPartition("t", i), new_topic_id(), config) for i in range(2)]
    for log in both:
        for _ in range(4):
            log.append(batch([bytes(200)]), 0)
        log.high_watermark = 4
    clock.advance(10)
    os.rename(tmp_path / "d" / "t-0", tmp_path / "d" / "moved")
    assert logs.retention_tick(clock.now_ms()) == 4
    os.rename(tmp_path / "d" / "moved", tmp_path / "d" / "t-0")


def test_idle_partitions_hold_no_descriptors(
    manager: OpenManager, clock: VirtualClock, tmp_path: Path
) -> None:
    def descriptors() -> int:
        files = [file.path for file in psutil.Process().open_files() if "/t-" in file.path]
        return sum(path.startswith(f"{tmp_path}/") for path in files)  # others' wait for the collector

    logs = manager()
    config = LogConfig(segment_bytes=500, retention_ms=-1)
    made = [logs.get_or_create(TopicPartition("t", i), new_topic_id(), config) for i in range(5)]
    for log in made:
        for _ in range(4):
            log.append(batch([bytes(200)]), 0)
    logs.retention_tick(clock.now_ms())
    assert descriptors() > 0
    for _ in range(3):
        logs.retention_tick(clock.now_ms())
    assert descriptors() == 0
    made[0].append(batch([bytes(200)]), 0)
    logs.retention_tick(clock.now_ms())
    assert descriptors() == 1, "the one that is written"
    for log in made:
        assert len(records_of(log.read_blocking(3, 10_000).segments)) > 0
        log.append(batch([bytes(200)]), 0)
    logs.close()
    again = manager()
    assert descriptors() == 0
    assert all(records_of(log.read_blocking(0, 1).segments) for log in map(again.get, again) if log)


def test_strange_names_are_left_alone(manager: OpenManager, tmp_path: Path) -> None:
    for name in ("notes", "__cluster_metadata-0", "t-0-future", "t-x", "-1", "a-b.c_d-12"):
        (tmp_path / "d" / name).mkdir(parents=True)
    (tmp_path / "d" / "file-0").write_text("x")
    logs = manager()
    assert set(logs) == {TopicPartition("__cluster_metadata", 0), TopicPartition("a-b.c_d", 12)}


@pytest.mark.parametrize("killed", [False, True])
def test_a_start_of_idle_partitions_writes_nothing_into_their_directories(
    manager: OpenManager, tmp_path: Path, killed: bool
) -> None:
    """Thousands of them must not cost thousands of renames, also when the leader's epoch is as before."""
    ids = {TopicPartition("t", number): new_topic_id() for number in range(3)}

    def lead(logs: LogManager) -> None:
        for tp, topic_id in ids.items():
            logs.get_or_create(tp, topic_id, LogConfig()).assign_epoch(4)

    def files() -> dict[str, tuple[int, int, bytes]]:
        found = {}
        for path in sorted((tmp_path / "d").glob("t-*/*")):
            status = path.stat()
            found[str(path)] = (status.st_ino, status.st_mtime_ns, path.read_bytes())
        return found

    first = manager()
    lead(first)
    first.close()
    before = files()
    assert not [name for name in before if name.endswith("leader-epoch-checkpoint")], "no record has an epoch"
    for _ in range(2):
        logs = manager()
        lead(logs)
        assert files() == before
        if killed:
            crash(logs)
        else:
            logs.close()
    assert files() == before
