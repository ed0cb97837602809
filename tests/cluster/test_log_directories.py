"""A broker with two log directories of which one, or both, fail: real file systems, clients, processes."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

from tests.support.broker import BrokerProcess
from tests.support.disks import Disk, disk
from tests.support.slow import slow
from tests.support.stored_values import stored
from tests.support.waiting import wait_until

pytestmark = pytest.mark.cluster


class Broker(BrokerProcess):
    """One that has the log directories `dirs`."""

    def __init__(self, directory: Path, zookeeper: str, *dirs: Path, **settings: str) -> None:
        wanted = {"log.dirs": ",".join(map(str, dirs))}
        wanted |= {name.replace("_", "."): text for name, text in settings.items()}
        super().__init__(directory, zookeeper, 1, settings=wanted)

    def command(self) -> list[str]:
        command = super().command()
        at = command.index("--data")
        return command[:at] + command[at + 2 :]

    def lines(self, text: str) -> int:
        return sum(text in line for line in self.output.splitlines())


@pytest.fixture
def start(tmp_path: Path, zookeeper: str) -> Iterator[Callable[..., Broker]]:
    """`start(*dirs)`: a broker with these log directories; started once, ended at the end."""
    made: list[Broker] = []

    def start_it(*dirs: Path, **settings: str) -> Broker:
        made.append(Broker(tmp_path / "broker", zookeeper, *dirs, **settings))
        made[-1].start()
        return made[-1]

    yield start_it
    for broker in made:
        broker.kill()


def remove(directory: Path) -> None:
    """Away with it, though the broker may write a checkpoint into it just now."""

    def gone() -> bool:
        shutil.rmtree(directory, ignore_errors=True)
        return not directory.exists()

    wait_until(gone, f"{directory} is gone")


def sent(broker: Broker, partition: int, value: bytes = b"x", *, timeout_ms: int = 30_000) -> int | None:
    """Code of the error that a single try to produce ends with; None when it was stored."""
    found: list[KafkaError | None] = []
    settings = {"bootstrap.servers": broker.bootstrap, "message.timeout.ms": timeout_ms, "retries": 0}
    producer = Producer({**settings, "topic.metadata.propagation.max.ms": 0})
    producer.produce("t", value, partition=partition, on_delivery=lambda error, _: found.append(error))
    producer.flush(60)
    return None if found[0] is None else found[0].code()


def readable(broker: Broker, partition: int) -> bool:
    """Whether a consumer gets a first record within some tries."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition("t", partition, 0)])
    try:
        found = consumer.consume(1, timeout=5)
        return any(message.error() is None for message in found)
    finally:
        consumer.close()


def create(broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("t", 2, 1)])["t"].result(60)


def leaders(broker: Broker) -> dict[int, int]:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    found = admin.list_topics("t", timeout=30).topics["t"]
    return {number: partition.leader for number, partition in found.partitions.items()}


def split(path: Path) -> tuple[int, int]:
    """Of two partitions the one in this directory, and the other."""
    here = 0 if (path / "t-0").is_dir() else 1
    assert (path / f"t-{here}").is_dir()
    return here, 1 - here


def test_a_lost_directory_takes_only_its_partitions_and_the_last_one_the_broker(
    start: Callable[..., Broker], tmp_path: Path, zookeeper: str
) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    broker = start(a, b, log_flush_offset_checkpoint_interval_ms="500")
    create(broker)
    lost, kept = split(a)
    assert [sent(broker, lost), sent(broker, kept)] == [None, None]
    remove(a)
    wait_until(lambda: leaders(broker) == {lost: -1, kept: 1}, "metadata without the lost partition")
    assert sent(broker, lost, timeout_ms=3000) is not None
    assert sent(broker, kept) is None
    client = KazooClient(hosts=zookeeper)
    client.start()
    try:
        wait_until(
            lambda: client.get_children("/log_dir_event_notification") == [], "the event was dealt with"
        )
    finally:
        client.stop()
        client.close()
    assert "log directories failed on brokers [1]" in broker.output
    remove(b)
    assert broker.wait(60) == 1
    assert "every log directory has failed" in broker.output.splitlines()[-1]
    assert broker.lines("has failed and is out of use") == 2


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[tuple[Disk, Path]]:
    """A disk that can fail, and a directory that does not."""
    with disk(tmp_path, "weak") as weak:
        sound = tmp_path / "sound"
        sound.mkdir()
        yield weak, sound


@pytest.mark.parametrize("found_by", ["read", pytest.param("write", marks=slow("the same by another way"))])
def test_a_disk_that_gives_errors(
    start: Callable[..., Broker], disks: tuple[Disk, Path], found_by: str
) -> None:
    weak, sound = disks
    broker = start(weak.path, sound, log_flush_offset_checkpoint_interval_ms="1000")
    create(broker)
    lost, kept = split(weak.path)
    values = [b"%d" % number for number in range(3)]
    assert [sent(broker, lost, value) for value in values] == [None] * 3
    assert sent(broker, kept, b"before") is None
    weak.fail()
    if found_by == "write":
        assert sent(broker, lost, b"never acknowledged", timeout_ms=3000) is not None
    elif found_by == "read":
        assert not readable(broker, lost)
    wait_until(lambda: leaders(broker) == {lost: -1, kept: 1}, "metadata without the lost partition")
    assert sent(broker, kept, b"after") is None
    assert stored(broker.bootstrap, kept) == [b"before", b"after"]
    assert broker.lines("has failed and is out of use") == 1
    assert broker.running
    broker.kill()
    weak.unmount()
    weak.mount()
    broker.start()
    wait_until(lambda: leaders(broker) == {lost: 1, kept: 1}, "all partitions are back")
    assert stored(broker.bootstrap, lost)[:3] == values
    assert len(stored(broker.bootstrap, lost)) == 3
    assert sent(broker, lost, b"again") is None


def test_a_disk_that_becomes_read_only_while_running_and_is_so_at_the_next_start(
    start: Callable[..., Broker], disks: tuple[Disk, Path]
) -> None:
    weak, sound = disks
    # Acknowledged is not on the disk yet: what a file system has not written when it stops is lost.
    broker = start(weak.path, sound, log_flush_interval_messages="1")
    create(broker)
    lost, kept = split(weak.path)
    assert [sent(broker, lost, b"1"), sent(broker, kept, b"1")] == [None, None]
    weak.go_read_only()
    assert sent(broker, lost, b"never acknowledged", timeout_ms=3000) is not None
    wait_until(lambda: leaders(broker) == {lost: -1, kept: 1}, "metadata without the lost partition")
    assert sent(broker, kept, b"2") is None
    assert broker.lines("has failed and is out of use") == 1
    assert broker.stop() == 0
    broker.start()
    assert "weak cannot be used: Read-only file system" in broker.output
    wait_until(lambda: leaders(broker) == {lost: -1, kept: 1}, "a start without the directory")
    assert stored(broker.bootstrap, kept) == [b"1", b"2"]
    assert broker.stop() == 0
    weak.unmount()
    weak.mount()
    broker.start()
    wait_until(lambda: leaders(broker) == {lost: 1, kept: 1}, "all partitions are back")
    assert stored(broker.bootstrap, lost) == [b"1"]
    assert sent(broker, lost, b"2") is None


def test_a_topic_deleted_while_its_disk_is_away_is_made_anew_and_the_old_one_never_read(
    start: Callable[..., Broker], disks: tuple[Disk, Path]
) -> None:
    weak, sound = disks
    broker = start(weak.path, sound)
    create(broker)
    lost, kept = split(weak.path)
    assert [sent(broker, lost, b"old"), sent(broker, kept, b"old")] == [None, None]
    weak.fail()
    assert sent(broker, lost, b"never", timeout_ms=3000) is not None
    wait_until(lambda: leaders(broker) == {lost: -1, kept: 1}, "metadata without the lost partition")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics(["t"])["t"].result(60)
    wait_until(lambda: "t" not in admin.list_topics(timeout=30).topics, "the topic is gone")
    create(broker)
    wait_until(lambda: leaders(broker) == {0: 1, 1: 1}, "the new topic is led")
    assert [sent(broker, 0, b"new 0"), sent(broker, 1, b"new 1")] == [None, None]
    broker.kill()
    weak.unmount()
    weak.mount()
    broker.start()
    wait_until(lambda: leaders(broker) == {0: 1, 1: 1}, "the new topic is led")
    assert [stored(broker.bootstrap, 0), stored(broker.bootstrap, 1)] == [[b"new 0"], [b"new 1"]]
    assert len(list(weak.path.glob(f"t-{lost}.*-stray"))) == 1
    assert broker.lines("it is kept as") == 1


@slow("the same by another way")
def test_a_broker_whose_only_disk_fails_ends_and_says_why(
    start: Callable[..., Broker], disks: tuple[Disk, Path]
) -> None:
    weak, _ = disks
    broker = start(weak.path, log_flush_offset_checkpoint_interval_ms="500")
    create(broker)
    assert sent(broker, 0, b"1") is None
    weak.fail()
    assert broker.wait(60) == 1
    assert "every log directory has failed" in broker.output.splitlines()[-1]
    assert "Input/output error" in broker.output.splitlines()[-1]
    assert "Traceback" not in broker.output
