"""Log directories: whose they are, who else has them, which partitions go where."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.log import LogConfig, LogDirError, LogManager
from protocol.types import TopicPartition, new_topic_id

OpenManager = Callable[..., LogManager]


def test_a_directory_says_whose_it_is(manager: OpenManager, tmp_path: Path) -> None:
    manager().close()
    lines = (tmp_path / "d" / "meta.properties").read_text().splitlines()
    assert {"version=0", "broker.id=1", "cluster.id=c"} <= set(lines)
    with pytest.raises(LogDirError, match="belongs to broker 1, not to broker 2"):
        manager(broker_id=2)
    with pytest.raises(LogDirError, match="belongs to cluster c"):
        manager(cluster_id="other")
    (tmp_path / "d" / "meta.properties").write_text("version=0\n")
    with pytest.raises(LogDirError, match=r"meta\.properties"):
        manager()


def test_a_directory_in_use_is_refused_by_name(manager: OpenManager, tmp_path: Path) -> None:
    manager()
    with pytest.raises(LogDirError, match=f"{tmp_path}/d is in use by another process"):
        manager()


def test_a_lock_of_another_process_is_respected_and_ends_with_it(
    manager: OpenManager, tmp_path: Path
) -> None:
    """POSIX record locks, as a JVM takes them."""
    take = "import fcntl, sys; f = open(sys.argv[1], 'a'); fcntl.lockf(f, fcntl.LOCK_EX)"
    code = f"{take}; print(1, flush=True); input()"
    (tmp_path / "d").mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "d" / ".lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        with pytest.raises(LogDirError, match="in use"):
            manager()
        holder.communicate(b"\n")
    manager()


def test_what_cannot_be_a_directory(manager: OpenManager, tmp_path: Path) -> None:
    (tmp_path / "d").write_text("a file")
    with pytest.raises(LogDirError, match=f"{tmp_path}/d cannot be used"):
        manager()


def test_refusing_one_directory_frees_the_others(manager: OpenManager, tmp_path: Path) -> None:
    manager("b", cluster_id="other").close()
    with pytest.raises(LogDirError, match="belongs to cluster other"):
        manager("a", "b")
    manager("a")


def test_new_partitions_go_where_fewest_are(manager: OpenManager, tmp_path: Path) -> None:
    logs = manager("a", "b", "c")
    for i in range(7):
        logs.get_or_create(TopicPartition("t", i), new_topic_id(), LogConfig())
    found = sorted(len(list((tmp_path / name).glob("t-*"))) for name in "abc")
    assert found == [2, 2, 3]
    homes = {tp: logs.log_dir(tp) for tp in logs}
    logs.close()
    again = manager("c", "a", "b")
    assert {tp: again.log_dir(tp) for tp in again} == homes


def test_a_partition_in_two_directories_is_a_mistake_to_be_told(manager: OpenManager, tmp_path: Path) -> None:
    logs = manager("a", "b")
    logs.get_or_create(TopicPartition("t", 0), new_topic_id(), LogConfig())
    logs.close()
    for name in "ab":
        (tmp_path / name / "t-0").mkdir(exist_ok=True)
    with pytest.raises(LogDirError, match="t-0 is in two log directories"):
        manager("a", "b")
