"""A wall clock that jumps by hours, and a process that stands still, under clients that go on all the time.

The broker's clock is moved (see `tests.support.clock_shim`), the clients' is not. Nothing acknowledged is
lost, no member of a group is thrown out, retention and expiry delete what they would delete if the time had
really passed and nothing else. With ISTHMUS_ORACLE=1 Apache Kafka is asked for the same.
"""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.broker import BrokerProcess
from tests.support.clock_shim import ClockShim
from tests.support.sides import SIDES, Side, StartSide
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
HOUR_S = 3600
SETTINGS = {
    "log.retention.check.interval.ms": "300",
    "log.cleaner.backoff.ms": "200",
    "offsets.retention.minutes": "60",
    "offsets.retention.check.interval.ms": "500",
    "producer.id.expiration.ms": str(HOUR_S * 1000),
    "group.min.session.timeout.ms": "1000",
}
FOR_EVER = {"message.timestamp.after.max.ms": str((1 << 63) - 1), "segment.ms": "1000"}
KEPT = {**FOR_EVER, "retention.ms": str(24 * HOUR_S * 1000)}
STAMPED = {"message.timestamp.type": "LogAppendTime", "retention.ms": "-1"}
COMPACTED = {**FOR_EVER, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
SHORT = {**FOR_EVER, "retention.ms": str(HOUR_S * 1000)}


class Load(threading.Thread):
    """Numbers into some topics, in order, for ever; `acknowledged` are those that a topic has taken."""

    def __init__(self, bootstrap: str, topics: tuple[str, ...]) -> None:
        super().__init__(daemon=True)
        self.acknowledged: dict[str, list[int]] = {topic: [] for topic in topics}
        self.failed: list[str] = []
        self._stop_now = threading.Event()
        self._producer = Producer({
            "bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5,
            "message.timeout.ms": 120_000, "reconnect.backoff.max.ms": 200, "log_level": 2,
        })  # fmt: skip

    def run(self) -> None:
        number = 0
        while not self._stop_now.wait(0.02):
            for topic in self.acknowledged:
                self._producer.produce(
                    topic, key=b"%d" % (number % 20), value=b"%d" % number, on_delivery=self._delivered
                )
            number += 1
            self._producer.poll(0)
        if self._producer.flush(120):
            self.failed.append("not everything was delivered")

    def _delivered(self, error: object, message: object) -> None:
        if error is not None:
            self.failed.append(str(error))
        else:
            self.acknowledged[message.topic()].append(int(message.value()))  # type: ignore[attr-defined]

    def goes_on(self) -> bool:
        """Waits until every topic has taken more."""
        before = {topic: len(numbers) for topic, numbers in self.acknowledged.items()}
        wait_until(
            lambda: all(len(numbers) > before[topic] + 20 for topic, numbers in self.acknowledged.items()),
            f"the load goes on (failed: {self.failed[:3]})",
        )
        return True

    def stop(self) -> None:
        self._stop_now.set()
        self.join(150)
        assert not self.is_alive()
        assert not self.failed


class Member(threading.Thread):
    """One member of a group that reads a topic; counts how often it was given partitions, or lost them."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.assigned = self.lost = 0
        self.read: list[int] = []
        self._stop_now = threading.Event()
        self._consumer = Consumer({
            "bootstrap.servers": bootstrap, "group.id": "member", "auto.offset.reset": "earliest",
            "session.timeout.ms": 6000, "heartbeat.interval.ms": 500, "auto.commit.interval.ms": 300,
            "log_level": 2,
        })  # fmt: skip
        self._consumer.subscribe([topic], on_assign=self._on_assign, on_revoke=self._on_revoke)

    def _on_assign(self, consumer: object, partitions: object) -> None:
        self.assigned += 1

    def _on_revoke(self, consumer: object, partitions: object) -> None:
        if not self._stop_now.is_set():
            self.lost += 1

    def run(self) -> None:
        while not self._stop_now.is_set():
            for message in self._consumer.consume(500, timeout=0.2):
                if message.error() is None:
                    self.read.append(int(message.value()))

    def stop(self) -> None:
        self._stop_now.set()
        self.join(60)
        self._consumer.close()


def read_all(bootstrap: str, topic: str) -> list[int]:
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": "check", "enable.auto.commit": False,
        "isolation.level": "read_committed", "log_level": 2,
    })  # fmt: skip
    try:
        first, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
        consumer.assign([TopicPartition(topic, 0, first)])
        found: list[int] = []
        position = first
        deadline = time.monotonic() + 60
        while position < end and time.monotonic() < deadline:
            for message in consumer.consume(1000, timeout=0.5):
                assert message.error() is None
                found.append(int(message.value()))
            position = max(position, consumer.position([TopicPartition(topic, 0)])[0].offset)
        assert position >= end
        return found
    finally:
        consumer.close()


def log_start(bootstrap: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "start"})
    try:
        first, _ = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
        return int(first)
    finally:
        consumer.close()


@pytest.fixture
def shim(tmp_path: Path) -> ClockShim:
    return ClockShim(tmp_path)


@pytest.fixture(params=SIDES)
def side(request: pytest.FixtureRequest, start_side: StartSide, shim: ClockShim) -> Iterator[Side]:
    with shim.loaded(), start_side(request.param, "clock", SETTINGS) as side:
        yield side


@pytest.mark.timeout(600)
def test_the_wall_clock_jumps_by_hours_and_back(side: Side, shim: ClockShim) -> None:
    bootstrap = side.bootstrap
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = {"kept": KEPT, "stamped": STAMPED, "compacted": COMPACTED, "short": SHORT, "txn": KEPT}
    for created in admin.create_topics([NewTopic(n, 1, 1, config=c) for n, c in topics.items()]).values():
        created.result(60)
    early = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in (1, 2):  # closed segments that are an hour old when the clock says so
        early.produce("short", value=b"%d" % number, timestamp=int(time.time() * 1000) + 2000 * number)
        early.flush(60)
    transactional = Producer({
        "bootstrap.servers": bootstrap, "transactional.id": "t", "transaction.timeout.ms": 60_000,
        "log_level": 2,
    })  # fmt: skip
    transactional.init_transactions(60)
    load = Load(bootstrap, ("kept", "stamped", "compacted"))
    member = Member(bootstrap, "kept")
    load.start()
    member.start()
    wait_until(lambda: len(member.read) > 20, "the member reads")
    committed: list[int] = []
    for number, ahead_h in enumerate((3, -3, 0, 0)):
        transactional.begin_transaction()
        transactional.produce("txn", value=b"%d" % number)
        transactional.flush(60)
        shim.set(ahead_s=ahead_h * HOUR_S)
        load.goes_on()
        before = len(member.read)
        wait_until(lambda before=before: len(member.read) > before + 20, "the member reads on")  # type: ignore[misc]
        if ahead_h == 3:
            wait_until(lambda: log_start(bootstrap, "short") == 2, "what is too old by the new clock goes")
            assert log_start(bootstrap, "kept") == 0
        try:
            transactional.commit_transaction(60)
            committed.append(number)
        except KafkaException:  # by the wall clock it was open for hours, as in Kafka: looked at below
            transactional = Producer({
                "bootstrap.servers": bootstrap, "transactional.id": "t", "log_level": 2,
            })  # fmt: skip
            transactional.init_transactions(60)
    assert {1, 3} <= set(committed), "the clock was not set forward while these were open"
    load.stop()
    for topic in ("kept", "stamped"):
        assert read_all(bootstrap, topic) == load.acknowledged[topic]
    newest = {number % 20: number for number in load.acknowledged["compacted"]}
    assert set(newest.values()) <= set(read_all(bootstrap, "compacted"))
    assert read_all(bootstrap, "txn") == committed
    wait_until(lambda: member.read == load.acknowledged["kept"], "the member has read everything, once")
    assert (member.assigned, member.lost) == (1, 0)
    member.stop()
    group = Consumer({"bootstrap.servers": bootstrap, "group.id": "member"})
    (position,) = group.committed([TopicPartition("kept", 0)], timeout=60)
    group.close()
    assert position.offset == len(load.acknowledged["kept"])


@pytest.mark.timeout(400)
def test_a_process_that_stands_still_longer_than_all_timeouts(zookeeper: str, tmp_path: Path) -> None:
    """Its sessions with ZooKeeper, its members' and its transactions' time are over when it wakes up."""
    quick = {
        "zookeeper.session.timeout.ms": "2000",
        "group.min.session.timeout.ms": "1000",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    }
    broker = BrokerProcess(tmp_path / "broker", zookeeper, 1, settings=quick)
    try:
        broker.start()
        bootstrap = broker.bootstrap
        admin = AdminClient({"bootstrap.servers": bootstrap})
        for created in admin.create_topics([NewTopic("kept", 1, 1), NewTopic("txn", 1, 1)]).values():
            created.result(60)
        transactional = Producer({
            "bootstrap.servers": bootstrap, "transactional.id": "t", "transaction.timeout.ms": 3000,
            "log_level": 2,
        })  # fmt: skip
        transactional.init_transactions(60)
        transactional.begin_transaction()
        transactional.produce("txn", value=b"1")
        transactional.flush(60)
        load = Load(bootstrap, ("kept",))
        member = Member(bootstrap, "kept")
        load.start()
        member.start()
        wait_until(lambda: len(member.read) > 20, "the member reads")
        broker.pause()
        time.sleep(9)  # what is tested: longer than a session, a member's time and a transaction's
        broker.resume()
        load.goes_on()
        wait_until(lambda: "txn" in admin.list_topics(timeout=10).topics, "the broker is registered again")
        later = Producer({"bootstrap.servers": bootstrap, "transactional.id": "t", "log_level": 2})
        later.init_transactions(60)
        later.begin_transaction()
        later.produce("txn", value=b"2")
        later.commit_transaction(60)
        load.stop()
        assert read_all(bootstrap, "kept") == load.acknowledged["kept"]
        assert read_all(bootstrap, "txn") == [2]
        wait_until(
            lambda: set(member.read) >= set(load.acknowledged["kept"]), "the member has read everything"
        )
        member.stop()
    finally:
        broker.kill()
