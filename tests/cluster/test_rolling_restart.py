"""Three brokers are restarted one after the other under load: clients with default settings see no failure.

Each stop hands leadership over first (controlled shutdown). librdkafka's producer and consumer count what
failed for good; our own client, which tries nothing again, counts what had to be tried again.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import Counter
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from broker.control import paths
from broker.control.nodes import decode_controller
from broker.control.zookeeper import ZooKeeper
from protocol.client import NO_RETRIES, ClusterClient
from protocol.errors import ErrorCode, ProtocolError
from protocol.errors import KafkaError as OurError
from protocol.records import Record, build_batch
from protocol.types import TopicPartition
from tests.support.broker import Cluster
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(
        os.environ.get("ISTHMUS_SLOW") != "1", reason="restarts three brokers under load: ISTHMUS_SLOW=1"
    ),
]
Make = Callable[[int], Cluster]
PARTITIONS = 6
SETTINGS = {
    "zookeeper.session.timeout.ms": "60000",  # nothing here may wait for a session to end
    "offsets.topic.replication.factor": "3",
    "min.insync.replicas": "2",
}
RETRIABLE = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
}


@pytest.fixture
def three(cluster: Make) -> Cluster:
    made = cluster(0)
    for number in (1, 2, 3):
        made.add(number, rack=f"r{number}", settings=SETTINGS)
    return made.start()


def in_sync(cluster: Cluster, topic: str) -> bool:
    known = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(topic, timeout=30)
    partitions = known.topics[topic].partitions.values()
    return len(partitions) == PARTITIONS and all(len(each.isrs) == 3 for each in partitions)


class Producing:
    """Writes numbers until told to end; what was not acknowledged and why."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.acknowledged: list[bytes] = []
        self.errors: Counter[str] = Counter()
        self._topic = topic
        self._end = threading.Event()
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "linger.ms": 2, "enable.idempotence": True}
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._end.is_set():
            self._producer.produce(self._topic, str(number).encode(), on_delivery=self._delivered)
            self._producer.poll(0.002)
            number += 1

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged.append(bytes(message.value() or b""))
        else:
            self.errors[error.name()] += 1

    def end(self) -> None:
        self._end.set()
        self._thread.join(60)
        assert self._producer.flush(60) == 0


class Consuming:
    """Reads in a group until told to end."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.places: dict[bytes, set[tuple[int | None, int | None]]] = {}
        self.errors: Counter[str] = Counter()
        self._end = threading.Event()
        settings = {"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
        self._consumer = Consumer(settings)
        self._consumer.subscribe([topic])
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._end.is_set():
            for message in self._consumer.consume(500, 0.2):
                error = message.error()
                if error is None:
                    place = (message.partition(), message.offset())
                    self.places.setdefault(bytes(message.value() or b""), set()).add(place)
                else:
                    self.errors[error.name()] += 1

    def end(self) -> None:
        self._end.set()
        self._thread.join(60)
        self._consumer.close()


class Trying:
    """One acks=all record after the other by a client that tries nothing again: what it was told."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.told: Counter[str] = Counter()
        self.unexpected: list[str] = []
        self._bootstrap, self._topic = bootstrap, topic
        self._end = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()

    async def _run(self) -> None:
        async with ClusterClient(self._bootstrap, retry=NO_RETRIES) as client:
            turn = 0
            while not self._end.is_set():
                turn += 1
                record = build_batch([Record(0, int(time.time() * 1000), None, b"-1", [])])
                try:
                    await client.produce(TopicPartition(self._topic, turn % PARTITIONS), record)
                    self.told["acknowledged"] += 1
                    continue
                except OurError as error:
                    self.told[error.code.name] += 1
                    if error.code not in RETRIABLE:
                        self.unexpected.append(repr(error))
                except (ProtocolError, OSError) as error:  # the broker has stopped
                    self.told[type(error).__name__] += 1
                client.forget_topic(self._topic)
                await asyncio.sleep(0.01)

    def end(self) -> None:
        self._end.set()
        self._thread.join(60)


async def the_controller(cluster: Cluster) -> int:
    zookeeper = await ZooKeeper.connect(cluster.zookeeper, session_timeout_ms=6000, wait_ms=10_000)
    try:
        node = await zookeeper.get(paths.CONTROLLER)
        return -1 if node is None else decode_controller(node.data)
    finally:
        await zookeeper.close()


def test_a_rolling_restart_fails_no_request(three: Cluster) -> None:
    bootstrap = ",".join(each.bootstrap for each in three.brokers.values())
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic("t", PARTITIONS, 3)]).values():
        future.result(60)
    wait_until(lambda: in_sync(three, "t"), "all in sync")
    producing, consuming, trying = (kind(bootstrap, "t") for kind in (Producing, Consuming, Trying))
    try:
        first = asyncio.run(the_controller(three))
        for number in (*(each for each in three.brokers if each != first), first):
            before = len(producing.acknowledged)
            assert three.brokers[number].stop() == 0
            at = len(producing.acknowledged)
            wait_until(lambda at=at: len(producing.acknowledged) > at + 100, "acknowledged without it")
            three.brokers[number].start()
            wait_until(lambda: in_sync(three, "t"), "all in sync again")
            assert len(producing.acknowledged) > before
    finally:
        for each in (producing, trying):
            each.end()
        try:
            wanted = set(producing.acknowledged)
            wait_until(lambda: wanted <= consuming.places.keys(), "all that was acknowledged is read")
        finally:
            consuming.end()
    assert not producing.errors
    assert not consuming.errors
    assert not trying.unexpected
    assert trying.told["acknowledged"] > 100
    twice = [value for value, places in consuming.places.items() if len(places) > 1 and value != b"-1"]
    assert not twice, "stored twice"
    print(f"a client that tries nothing again: {dict(trying.told)}")  # noqa: T201 - with pytest -s
