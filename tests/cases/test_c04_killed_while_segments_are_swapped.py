"""C04: killed while cleaned segments replace old ones: a start finds the old or the new set, and no debris.

ISTHMUS_SLOW=1 kills fifteen times, as the case asks for, otherwise three times; and kills a broker with
50,000 keys at any time, after cleanings have come to their end.
"""

import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from tests.support.broker import BrokerProcess
from tests.support.slow import SLOW, slow
from tests.support.waiting import wait_until

pytestmark = pytest.mark.cluster
KILLS = 15 if SLOW else 3
KEYS = 500
MANY_KEYS, MANY_KILLS = 50_000, 8
TOPIC = "swapped"
SETTINGS = {
    "log.cleaner.backoff.ms": "50",
    "log.segment.delete.delay.ms": "1000",
    "log.cleaner.io.max.bytes.per.second": "20000000",
}
CONFIGS = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.bytes": "200000"}


class Writer(threading.Thread):
    """Counts up under every key, for ever; `acknowledged` is the newest count that the broker has."""

    def __init__(self, bootstrap: str, keys: int = KEYS, pause_s: float = 0.2) -> None:
        super().__init__(daemon=True)
        self._keys = keys
        self._pause_s = pause_s
        self.acknowledged: dict[bytes, int] = {}
        self.sent: dict[int, tuple[bytes, int]] = {}
        """Offset -> (key, count), as acknowledged."""
        self.failed: list[str] = []
        self._stop_now = threading.Event()
        self._producer = Producer({
            "bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "batch.size": 50_000,
            "message.timeout.ms": 120_000, "reconnect.backoff.max.ms": 200,
        })  # fmt: skip

    def run(self) -> None:
        count = 0
        while not self._stop_now.is_set():
            count += 1
            for n in range(self._keys):
                key = b"key-%d" % n
                self._producer.produce(
                    TOPIC, key=key, value=b"%d" % count + bytes(100), on_delivery=self._delivered
                )
                if not n % KEYS:
                    self._wait_for_room()
            self._producer.poll(0)
            self._stop_now.wait(self._pause_s)  # a steady load, not all that the machine can do
        if self._producer.flush(120):
            self.failed.append("not everything was delivered")

    def _wait_for_room(self) -> None:
        self._producer.poll(0)
        while len(self._producer) > 20 * KEYS:
            self._producer.poll(0.05)

    def _delivered(self, error: object, message: object) -> None:
        if error is not None:
            self.failed.append(str(error))
            return
        count = int(message.value().rstrip(b"\0"))  # type: ignore[attr-defined]
        key = message.key()  # type: ignore[attr-defined]
        self.acknowledged[key] = max(count, self.acknowledged.get(key, 0))
        self.sent[message.offset()] = key, count  # type: ignore[attr-defined]

    def stop(self) -> None:
        self._stop_now.set()
        self.join(150)
        assert not self.is_alive()


@pytest.fixture
def process(zookeeper: str, tmp_path: Path) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path / "broker", zookeeper, 1, settings=SETTINGS)
    broker.start()
    yield broker
    broker.kill()


def read_all(bootstrap: str) -> tuple[int, dict[int, tuple[bytes, int]]]:
    """Earliest offset, and what is at every offset up to where the end is now."""
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": "c04",
        "enable.auto.commit": False,
    })  # fmt: skip
    found: dict[int, tuple[bytes, int]] = {}
    try:
        earliest, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=30)
        consumer.assign([TopicPartition(TOPIC, 0, earliest)])
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            for message in consumer.consume(10_000, timeout=0.5):
                assert message.error() is None
                deadline = time.monotonic() + 60  # as long as it gets on
                found[message.offset()] = message.key(), int(message.value().rstrip(b"\0"))
            if max(found, default=-1) >= end - 1:
                return earliest, found
        raise AssertionError("the end does not come")
    finally:
        consumer.close()


def debris(directory: Path) -> list[str]:
    assert directory.is_dir()
    return [path.name for path in directory.iterdir() if path.suffix in (".cleaned", ".swap", ".deleted")]


@pytest.mark.timeout(180 + 60 * KILLS)
def test_killed_again_and_again(process: BrokerProcess) -> None:
    bootstrap = process.bootstrap
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, 1, config=CONFIGS)])[TOPIC].result(30)
    directory = process.directory / "data" / "log" / f"{TOPIC}-0"
    writer = Writer(bootstrap)
    writer.start()
    seen: dict[int, tuple[bytes, int]] = {}
    start_times, earliest = [], 0
    for _ in range(KILLS):
        wait_until(lambda: any(name.endswith(".cleaned") for name in debris(directory)), "a cleaning")
        time.sleep(random.uniform(0.02, 0.4))  # anywhere in it
        process.kill()
        process.start()
        used = psutil.Process(process.pid).cpu_times()  # the machine may be busy with other things
        start_times.append(used.user + used.system)
        first, found = read_all(bootstrap)
        assert first >= earliest
        earliest = first
        for offset, record in found.items():
            assert seen.setdefault(offset, record) == record, f"two values at offset {offset}"
    wait_until(lambda: "compacted up to" in process.output, "a cleaning comes to its end", bound_s=150)
    writer.stop()
    assert not writer.failed
    for offset, record in writer.sent.items():
        assert seen.setdefault(offset, record) == record, f"two values at offset {offset}"
    _, found = read_all(bootstrap)
    newest = {key: count for _, (key, count) in sorted(found.items())}
    assert newest == writer.acknowledged
    alter_quiet(admin)
    wait_until(lambda: not debris(directory), "nothing left of swaps", bound_s=30)
    assert len(found) < len(writer.sent), "something was compacted"
    assert start_times[-1] <= 2 * start_times[0] + 2


@pytest.mark.slow
@slow("takes minutes")
@pytest.mark.timeout(3600)
def test_killed_at_any_time_with_many_keys(process: BrokerProcess) -> None:
    """Every kill comes at a random moment after a cleaning that this broker has brought to its end."""
    admin = AdminClient({"bootstrap.servers": process.bootstrap})
    configs = {**CONFIGS, "segment.bytes": "3000000", "min.cleanable.dirty.ratio": "0.3"}
    admin.create_topics([NewTopic(TOPIC, 1, 1, config=configs)])[TOPIC].result(30)
    directory = process.directory / "data" / "log" / f"{TOPIC}-0"
    writer = Writer(process.bootstrap, MANY_KEYS, 2.0)
    writer.start()
    seen: dict[int, tuple[bytes, int]] = {}
    finished = 0
    for _ in range(MANY_KILLS):
        wait_until(lambda: "compacted up to" in process.output, "a cleaning comes to its end", bound_s=600)
        time.sleep(random.uniform(0, 3))  # anywhere
        process.kill()
        finished += process.output.count("compacted up to")
        process.start()
        _, found = read_all(process.bootstrap)
        for offset, record in found.items():
            assert seen.setdefault(offset, record) == record, f"two values at offset {offset}"
    writer.stop()
    assert not writer.failed
    for offset, record in writer.sent.items():
        assert seen.setdefault(offset, record) == record, f"two values at offset {offset}"
    _, found = read_all(process.bootstrap)
    assert {key: count for _, (key, count) in sorted(found.items())} == writer.acknowledged
    assert len(writer.acknowledged) == MANY_KEYS
    assert finished >= MANY_KILLS
    alter_quiet(admin)
    wait_until(lambda: not debris(directory), "nothing left of swaps", bound_s=60)


def alter_quiet(admin: AdminClient) -> None:
    """No more cleaning, so that what is left is left."""
    entry = ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(30)
