"""The broker's side with the real process: it cleans, writes its checkpoint, survives the process's death."""

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.clock import SystemClock
from broker.config.server_settings import LogSettings
from broker.log import LogConfig, LogManager
from broker.log.checkpoints import read_offsets
from broker.log.cleaner.log_cleaner import LogCleaner
from broker.log.partition_log import Log
from protocol.records import Record
from protocol.types import TopicPartition, new_topic_id
from tests.support.batches import batch, records_of
from tests.support.clock import VirtualClock
from tests.support.disks import disk

CONFIG = LogConfig(cleanup_policy="compact", segment_bytes=1 << 20, min_cleanable_dirty_ratio=0.01)
QUICK = LogSettings(log_cleaner_backoff_ms=50)
CHECKPOINT = "cleaner-offset-checkpoint"


def open_logs(directory: Path) -> LogManager:
    logs = LogManager([directory], 1, "cluster", SystemClock())
    logs.load(lambda topic: CONFIG)
    return logs


def make(logs: LogManager, name: str, keys: int, rounds: int, value: bytes = b"v") -> Log:
    """A log in which each key occurs `rounds` times, with a closed segment at its end."""
    log = logs.get_or_create(TopicPartition(name, 0), new_topic_id(), CONFIG)
    for n in range(rounds):
        for at in range(0, keys, 100):
            names = [b"k%d" % i for i in range(at, min(at + 100, keys))]
            log.append(batch([b"%d" % n + value] * len(names), keys=names), 0)
    log.roll()
    log.append(batch(1, keys=[b"active"]), 0)
    log.high_watermark = log.end_offset
    return log


def newest(log: Log) -> list[Record]:
    found, offset = [], 0
    while offset < log.end_offset:
        data = log.read_blocking(offset, 1 << 20)
        found += records_of(data.segments)
        offset = data.next_offset
    return found


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.02)


async def test_compacts_and_remembers(tmp_path: Path) -> None:
    logs = open_logs(tmp_path)
    many, one = make(logs, "many", 500, 8), make(logs, "one", 1, 50)
    cleaner = LogCleaner(logs, SystemClock(), lambda: QUICK)
    cleaner.start()
    try:
        await until(lambda: cleaner.statistics.runs == 2)
        assert [r.key for r in newest(many)] == [b"k%d" % i for i in range(500)] + [b"active"]
        assert len(newest(one)) == 2
        await until(lambda: len(read_offsets(str(tmp_path / CHECKPOINT))) == 2)
        ends = {tp.topic: offset for tp, offset in read_offsets(str(tmp_path / CHECKPOINT)).items()}
        assert ends == {"many": 4000, "one": 50}
        assert cleaner.dirtiest() is None
    finally:
        await cleaner.stop()
    logs.close()

    again = open_logs(tmp_path)
    cleaner = LogCleaner(again, SystemClock(), lambda: QUICK)
    cleaner.start()
    assert cleaner.dirtiest() is None, "what was compacted is known after a restart"
    await cleaner.stop()
    again.close()


async def test_a_killed_process_costs_one_try(tmp_path: Path) -> None:
    logs = open_logs(tmp_path)
    log = make(logs, "t", 1000, 30, value=bytes(100))
    settings = LogSettings(log_cleaner_backoff_ms=50, log_cleaner_io_max_bytes_per_second=2e6)
    cleaner = LogCleaner(logs, SystemClock(), lambda: settings)
    cleaner.start()
    try:
        await until(lambda: any(running.read for running in cleaner.statistics.running.values()))
        (pid,) = cleaner.process_ids
        os.kill(pid, signal.SIGKILL)
        await until(lambda: cleaner.statistics.failures == 1)
        settings = QUICK
        cleaner.reconfigure()
        await until(lambda: cleaner.statistics.runs == 1)
        assert len(newest(log)) == 1001
    finally:
        await cleaner.stop()
    assert not cleaner.process_ids
    logs.close()


async def test_a_damaged_log_stops_no_other(tmp_path: Path) -> None:
    logs = open_logs(tmp_path)
    bad, good = make(logs, "bad", 100, 50), make(logs, "good", 100, 5)
    path = Path(bad.segments.items[0].path("log"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    cleaner = LogCleaner(logs, SystemClock(), lambda: QUICK)
    cleaner.start()
    try:
        await until(lambda: cleaner.statistics.runs == 1 and bool(cleaner.statistics.uncleanable))
        assert len(newest(good)) == 101
        assert cleaner.statistics.uncleanable == {str(tmp_path): (1, bad.size)}
        assert path.read_bytes() == data
    finally:
        await cleaner.stop()
    logs.close()


async def test_a_log_made_anew_does_not_inherit_how_far_the_earlier_one_was_compacted(tmp_path: Path) -> None:
    """Not even when the broker is killed before the cleaner looks again."""
    logs = open_logs(tmp_path)
    make(logs, "t", 100, 8)
    make(logs, "other", 100, 8)
    cleaner = LogCleaner(logs, SystemClock(), lambda: QUICK)
    cleaner.start()
    try:
        await until(lambda: len(read_offsets(str(tmp_path / CHECKPOINT))) == 2)
        logs.delete(TopicPartition("t", 0))
        make(logs, "t", 1, 2)
        assert list(read_offsets(str(tmp_path / CHECKPOINT))) == [TopicPartition("other", 0)]
    finally:
        await cleaner.stop()
    logs.close()


async def test_a_disk_without_room_for_cleaning_is_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = VirtualClock()
    with disk(tmp_path, "small") as small:
        logs = open_logs(small.path)
        log = make(logs, "t", 4000, 2, value=bytes(500))
        small.fill()
        cleaner = LogCleaner(logs, clock, lambda: QUICK)
        cleaner.start()
        try:
            for failures, pause_s in ((1, 16), (2, 31), (3, 61)):
                await until(lambda wanted=failures: cleaner.statistics.failures == wanted)  # type: ignore[misc]
                assert cleaner.dirtiest() is None, "not before some time has passed"
                # Left behind, they would take the room of those who append.
                await until(lambda: not list(small.path.glob("*/*.cleaned")))
                if failures == 3:
                    small.make_room()
                clock.advance(pause_s)
            await until(lambda: cleaner.statistics.runs == 1)
        finally:
            await cleaner.stop()
        assert len(newest(log)) == 4001
        assert cleaner.statistics.uncleanable == {}
        assert caplog.text.count("no room to clean it") == 1
        logs.close()


async def test_a_process_without_a_broker_ends(tmp_path: Path) -> None:
    logs = open_logs(tmp_path)
    make(logs, "t", 1000, 30, value=bytes(100))
    slow = LogSettings(log_cleaner_io_max_bytes_per_second=1e6)
    cleaner = LogCleaner(logs, SystemClock(), lambda: slow)
    cleaner.start()
    await until(lambda: any(running.read for running in cleaner.statistics.running.values()))
    (pid,) = cleaner.process_ids
    await cleaner.stop()
    await until(lambda: not os.path.exists(f"/proc/{pid}"))
    logs.close()


async def test_a_deleted_topic_leaves_no_checkpoint_to_the_next_of_its_name(tmp_path: Path) -> None:
    """Below it nothing is looked at again: old values would outlive the markers that delete them."""
    logs = open_logs(tmp_path)
    make(logs, "t", 10, 20)
    cleaner = LogCleaner(logs, SystemClock(), lambda: QUICK)
    cleaner.start()
    try:
        await until(lambda: bool(read_offsets(str(tmp_path / CHECKPOINT))))
        logs.delete(TopicPartition("t", 0))
        await until(lambda: not read_offsets(str(tmp_path / CHECKPOINT)))
    finally:
        await cleaner.stop()
    log = make(logs, "t", 10, 30)
    assert cleaner._checkpoint.get(TopicPartition("t", 0), log) is None
    logs.close()


async def test_a_topic_that_is_deleted_while_it_is_cleaned_is_no_failure_of_the_disk(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logs = open_logs(tmp_path)
    make(logs, "t", 1000, 30, value=bytes(100))
    settings = LogSettings(log_cleaner_backoff_ms=50, log_cleaner_io_max_bytes_per_second=2e6)
    cleaner = LogCleaner(logs, SystemClock(), lambda: settings)
    cleaner.start()
    try:
        await until(lambda: any(running.read for running in cleaner.statistics.running.values()))
        logs.delete(TopicPartition("t", 0))
        logs.sweep_tick(SystemClock().now_ms() + 3_600_000)  # its files are gone, too
        settings = QUICK
        cleaner.reconfigure()
        await until(lambda: not cleaner.statistics.running)
    finally:
        await cleaner.stop()
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
    assert not logs.offline_dirs
    logs.close()
