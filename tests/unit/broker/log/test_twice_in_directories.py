"""One partition name in two log directories: a topic made anew while a disk was away, and what cannot be
decided.
"""

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.log import LogConfig, LogDirError, LogManager
from broker.log.errors import StorageFailed
from protocol.types import ZERO_UUID, TopicPartition, new_topic_id
from tests.support.batches import batch, records_of
from tests.support.clock import VirtualClock

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
OLD, NEW = new_topic_id(), new_topic_id()
Open = Callable[[], LogManager]


@pytest.fixture
def start(tmp_path: Path, clock: VirtualClock) -> Open:
    return lambda: LogManager([tmp_path / "a", tmp_path / "b"], 1, "c", clock)


def filled(start: Open, tmp_path: Path) -> Path:
    """`t` with one partition in each directory; returns the directory of `t-0`."""
    logs = start()
    logs.load()
    for tp in (A, B):
        logs.get_or_create(tp, OLD, LogConfig()).append(batch([b"old"]), 0)
    where = Path(logs.log_dir(A))
    logs.close()
    return where


def values(logs: LogManager, tp: TopicPartition) -> list[bytes | None]:
    log = logs.get(tp)
    assert log is not None
    return [record.value for record in records_of(log.read_blocking(0, 1 << 20).segments)]


def test_a_topic_deleted_while_its_directory_is_out_of_use_is_made_anew_elsewhere(
    start: Open, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    where = filled(start, tmp_path)
    logs = start()
    logs.load()
    logs.fail_dir(str(where), "Input/output error")
    with pytest.raises(StorageFailed):
        logs.get_or_create(A, OLD, LogConfig())
    with caplog.at_level(logging.WARNING):
        logs.delete(A)
    assert "t-0 is deleted, but its files may be in" in caplog.text
    logs.get_or_create(A, NEW, LogConfig()).append(batch([b"new"]), 0)
    assert not logs.is_offline(A)
    assert Path(logs.log_dir(A)) != where
    logs.close()
    caplog.clear()
    logs = start()
    with caplog.at_level(logging.WARNING):
        logs.load()
        assert "of different topics" in caplog.text
        logs.get_or_create(A, NEW, LogConfig(), is_new=False)
    assert values(logs, A) == [b"new"]
    assert "kept as" in caplog.text
    logs.close()
    strays = list(where.glob("t-0.*-stray"))
    assert len(strays) == 1
    assert (strays[0] / f"{0:020}.log").stat().st_size > 0


def test_a_topic_made_anew_without_the_deletion_being_heard_of(start: Open, tmp_path: Path) -> None:
    """This broker was told of the new topic alone: another id says that the old one is gone."""
    where = filled(start, tmp_path)
    logs = start()
    logs.load()
    logs.fail_dir(str(where), "Input/output error")
    logs.get_or_create(A, NEW, LogConfig()).append(batch([b"new"]), 0)
    assert values(logs, A) == [b"new"]
    logs.close()


def test_a_directory_that_comes_back_without_anybody_having_made_the_topic_anew(
    start: Open, tmp_path: Path
) -> None:
    where = filled(start, tmp_path)
    (tmp_path / "away").mkdir()
    shutil.move(where, tmp_path / "away" / "d")
    where.write_text("no disk")
    logs = start()
    logs.load()
    with pytest.raises(StorageFailed):
        logs.get_or_create(A, OLD, LogConfig(), is_new=False)
    with pytest.raises(StorageFailed):
        logs.get_or_create(A, OLD, LogConfig())  # an order that comes later does not make it new
    logs.close()
    where.unlink()
    shutil.move(tmp_path / "away" / "d", where)
    logs = start()
    logs.load()
    logs.get_or_create(A, OLD, LogConfig(), is_new=False)
    assert values(logs, A) == [b"old"]
    logs.close()


@pytest.mark.parametrize("wanted", [OLD, NEW], ids=["old", "new"])
def test_the_controller_says_which_of_two_counts(start: Open, tmp_path: Path, wanted: bytes) -> None:
    where = filled(start, tmp_path)
    logs = start()
    logs.load()
    logs.fail_dir(str(where), "Input/output error")
    logs.get_or_create(A, NEW, LogConfig()).append(batch([b"new"]), 0)
    logs.close()
    for _ in range(2):  # as often as it is started before a controller speaks
        logs = start()
        logs.load()
        logs.checkpoint_tick()
        logs.close()
    logs = start()
    logs.load()
    logs.get_or_create(A, wanted, LogConfig(), is_new=False)
    assert values(logs, A) == [b"old" if wanted == OLD else b"new"]
    assert logs.topic_id(A) == wanted
    logs.close()
    assert len(list(tmp_path.glob("*/t-0.*-stray"))) == 1
    logs = start()
    logs.load()
    assert values(logs, A) == [b"old" if wanted == OLD else b"new"]
    logs.close()


def test_two_that_nobody_names_are_both_set_aside(start: Open, tmp_path: Path) -> None:
    where = filled(start, tmp_path)
    logs = start()
    logs.load()
    logs.fail_dir(str(where), "Input/output error")
    logs.get_or_create(A, NEW, LogConfig())
    logs.close()
    logs = start()
    logs.load()
    logs.set_aside(A)
    logs.close()
    assert len(list(tmp_path.glob("*/t-0.*-stray"))) == 2


@pytest.mark.parametrize("metadata", [True, False])
def test_two_of_one_topic_are_no_start_but_advice(start: Open, tmp_path: Path, metadata: bool) -> None:
    where = filled(start, tmp_path)
    other = tmp_path / ("b" if where.name == "a" else "a")
    shutil.copytree(where / "t-0", other / "t-0")
    if not metadata:
        (other / "t-0" / "partition.metadata").unlink()
    logs = start()
    with pytest.raises(LogDirError, match=r"t-0 is in two log directories: .* Then move the other out of"):
        logs.load()
    logs.close()
    assert (where / "t-0").is_dir()
    assert (other / "t-0").is_dir()
    shutil.rmtree(other / "t-0")
    logs = start()
    logs.load()
    logs.get_or_create(A, ZERO_UUID, LogConfig(), is_new=False)
    assert values(logs, A) == [b"old"]
    logs.close()


def test_one_directory_taken_away_is_one_partition(
    start: Open, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logs = start()
    logs.load()
    for index in range(4):
        logs.get_or_create(TopicPartition("t", index), OLD, LogConfig())
    gone: list[TopicPartition] = []
    logs.on_offline(gone.extend)
    log = logs.get(A)
    assert log is not None
    shutil.rmtree(log.directory)
    with caplog.at_level(logging.ERROR), pytest.raises(OSError, match="No such file"):
        log.truncate_fully(5)
    assert gone == [A]
    assert logs.offline_dirs == {}
    assert "other partitions are not affected" in caplog.text
    logs.close()
