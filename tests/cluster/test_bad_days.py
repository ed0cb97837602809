"""Bad days of a cluster: each ends in a clear refusal or a safe repair, never in a silent difference."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from tests.support.broker import BrokerProcess, Cluster
from tests.support.clock_shim import ClockShim
from tests.support.commands import isthmus
from tests.support.slow import slow
from tests.support.three_brokers import QUICK, StartThree, consume, create, in_sync, leader, produce
from tests.support.waiting import wait_until

pytestmark = pytest.mark.cluster
brokers_starting = slow("half a minute of brokers starting")
Make = Callable[[int], Cluster]


def values(count: int, tag: str) -> list[bytes]:
    return [f"{tag}-{number}".encode() for number in range(count)]


def assert_equal_replicas(cluster: Cluster, topic: str) -> None:
    done = isthmus("replicas", "compare", "--cluster", cluster.bootstrap, "--topic", topic, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(len(each["replicas"]) == 3 for each in json.loads(done.stdout))


def log_directory(broker: BrokerProcess) -> Path:
    return broker.directory / "data" / "log"


def put_back(broker: BrokerProcess, copy: Path) -> None:
    """An operator restores an old copy of the broker's log directory."""
    shutil.rmtree(log_directory(broker))
    shutil.copytree(copy, log_directory(broker))


@brokers_starting
def test_a_follower_whose_disk_went_back_in_time_is_repaired(start_three: StartThree, tmp_path: Path) -> None:
    """Its old log ends in an epoch that others have gone on from."""
    made = start_three()
    create(made, "t", (1, 2, 3))
    written = produce(made, "t", values(200, "a"))
    made.brokers[3].stop()
    shutil.copytree(log_directory(made.brokers[3]), tmp_path / "copy")
    made.brokers[3].start()
    written += produce(made, "t", values(200, "b"))
    made.brokers[1].kill()  # another epoch
    wait_until(lambda: leader(made, "t") in (2, 3), "another leader")
    written += produce(made, "t", values(200, "c"))
    made.brokers[1].start()
    wait_until(lambda: in_sync(made, "t") == [1, 2, 3], "all in sync")
    made.brokers[3].kill()
    put_back(made.brokers[3], tmp_path / "copy")
    made.brokers[3].start()
    assert "is not as this broker's last run left it" in made.brokers[3].output
    wait_until(lambda: in_sync(made, "t") == [1, 2, 3], "all in sync")
    assert consume(made, "t", 600) == written
    assert_equal_replicas(made, "t")


def test_a_member_of_the_isr_with_an_older_disk_does_not_lead(
    start_three: StartThree, tmp_path: Path
) -> None:
    """All are killed in sync; the preferred leader comes back first, with an older copy of a clean stop."""
    made = start_three()
    create(made, "t", (1, 2, 3))
    written = produce(made, "t", values(100, "a"))
    made.brokers[1].stop()
    shutil.copytree(log_directory(made.brokers[1]), tmp_path / "copy")
    made.brokers[1].start()
    wait_until(lambda: in_sync(made, "t") == [1, 2, 3], "all in sync")
    written += produce(made, "t", values(100, "b"))
    for number in (3, 2, 1):
        made.brokers[number].kill()
    put_back(made.brokers[1], tmp_path / "copy")
    made.brokers[1].start()
    assert "is not as this broker's last run left it" in made.brokers[1].output
    # Until a controller has looked, the leader of before the kill stands there; it must not become 1.
    wait_until(lambda: leader(made, "t") == -1, "nobody leads who would lose what was acknowledged")
    for number in (2, 3):
        made.brokers[number].start()
    wait_until(lambda: in_sync(made, "t") == [1, 2, 3], "all in sync")
    assert consume(made, "t", 200) == written
    assert_equal_replicas(made, "t")


@brokers_starting
def test_a_directory_that_was_moved_after_a_clean_stop_is_no_older_one(
    start_three: StartThree, tmp_path: Path
) -> None:
    made = start_three()
    create(made, "t", (1, 2, 3))
    produce(made, "t", values(10, "a"))
    made.brokers[1].stop()
    shutil.copytree(log_directory(made.brokers[1]), tmp_path / "copy")
    put_back(made.brokers[1], tmp_path / "copy")
    made.brokers[1].start()
    assert "is not as" not in made.brokers[1].output


@pytest.mark.parametrize(
    ("path", "data", "said"),
    [
        ("/cluster/id", b"solr", "is not what Kafka writes there"),
        ("/cluster/id", b'{"version":"1"}', "is not what Kafka writes there"),
        ("/migration", b'{"version":0,"kraft_controller_id":3000}', "KRaft"),
    ],
)
def test_a_foreign_tree_is_refused_and_left_alone(
    zookeeper: str, tmp_path: Path, path: str, data: bytes, said: str
) -> None:
    hosts, _, chroot = zookeeper.partition("/")
    client = KazooClient(hosts)
    client.start(30)
    try:
        client.create(f"/{chroot}{path}", data, makepath=True)
        before = sorted(client.get_children(f"/{chroot}"))
        broker = BrokerProcess(tmp_path, zookeeper, 1)
        broker.launch()
        assert broker.wait(60) == 1
        assert said in broker.output
        assert "Traceback" not in broker.output
        assert sorted(client.get_children(f"/{chroot}")) == before
    finally:
        client.stop()
        client.close()


@brokers_starting
def test_the_clock_of_one_broker_is_an_hour_ahead(cluster: Make, tmp_path: Path) -> None:
    """It leads, stamps records with its own time, and hands over to one whose clock is right."""
    shim = ClockShim(tmp_path)
    shim.set(ahead_s=3600)
    made = cluster(0)
    for number in (1, 2, 3):
        made.add(number, settings=QUICK)
    with shim.loaded():
        made.brokers[2].start()
    for number in (1, 3):
        made.brokers[number].start()
    create(made, "stamped", (2, 1, 3), config={"message.timestamp.type": "LogAppendTime"})
    create(made, "t", (1, 2, 3), (2, 3, 1))
    stamped = produce(made, "stamped", values(100, "a"))
    written = produce(made, "t", values(100, "a"), partition=0)
    other = produce(made, "t", values(100, "a"), partition=1)
    made.brokers[2].kill()
    wait_until(lambda: leader(made, "stamped") in (1, 3), "another leader")
    stamped += produce(made, "stamped", values(100, "b"))
    with shim.loaded():
        made.brokers[2].start()
    for topic in ("stamped", "t"):
        wait_until(lambda: in_sync(made, topic) == [1, 2, 3], f"{topic} in sync")  # noqa: B023
        assert_equal_replicas(made, topic)
    assert consume(made, "stamped", 200) == stamped
    assert consume(made, "t", 100) == written
    assert consume(made, "t", 100, partition=1) == other
