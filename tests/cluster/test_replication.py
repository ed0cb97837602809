"""Three real brokers and replicated topics: copies, high watermarks, in-sync replicas, and killed leaders."""

import asyncio
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_END, Consumer, ElectionType, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from protocol.client import Connection
from protocol.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.support.broker import BrokerProcess, Cluster
from tests.support.waiting import wait_until

pytestmark = pytest.mark.cluster
Make = Callable[[int], Cluster]
QUICK = {"replica.lag.time.max.ms": "2000", "replica.fetch.backoff.ms": "100"}


@pytest.fixture
def three(cluster: Make) -> Cluster:
    made = cluster(0)
    for number in (1, 2, 3):
        made.add(number, rack=f"r{number}", settings=QUICK)
    return made.start()


def admin(cluster: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap})


def create(cluster: Cluster, topic: str, partitions: int = 1, **config: str) -> None:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    new = NewTopic(topic, partitions, 3, config=settings)
    client = admin(cluster)
    for future in client.create_topics([new]).values():
        future.result(30)


def isr(cluster: Cluster, topic: str, partition: int = 0) -> tuple[int, list[int]]:
    known = admin(cluster).list_topics(topic, timeout=10).topics[topic].partitions[partition]
    return known.leader, sorted(known.isrs)


def sizes(cluster: Cluster, topic: str) -> dict[int, int]:
    """Bytes of the first segment of partition 0 at each broker."""
    found = {}
    for number, broker in cluster.brokers.items():
        path: Path = broker.directory / "data" / "log" / f"{topic}-0" / "00000000000000000000.log"
        found[number] = path.stat().st_size if path.exists() else -1
    return found


def produce(cluster: Cluster, topic: str, count: int, tag: str, **config: object) -> list[bytes]:
    """Values that were acknowledged by all in-sync replicas."""
    done: list[bytes] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is None:
            value = message.value()
            assert value is not None
            done.append(bytes(value))

    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 1, **config})
    for number in range(count):
        producer.produce(topic, f"{tag}-{number}".encode(), on_delivery=delivered)
        producer.poll(0)
    assert producer.flush(60) == 0
    return done


def consume(
    cluster: Cluster, topic: str, count: int, timeout_s: float = 30.0, *, start: int = 0
) -> list[bytes]:
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "g", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, 0, start)])
    found: list[bytes] = []
    deadline = time.monotonic() + timeout_s
    while len(found) < count and time.monotonic() < deadline:
        for message in consumer.consume(500, 0.5):
            assert message.error() is None, message.error()
            found.append(bytes(message.value() or b""))
    consumer.close()
    return found


def broker_of(cluster: Cluster, number: int) -> BrokerProcess:
    return cluster.brokers[number]


def test_followers_copy_and_join_the_isr(three: Cluster) -> None:
    create(three, "t", min_insync_replicas="2")
    wait_until(lambda: isr(three, "t")[1] == [1, 2, 3], "all in sync")
    values = produce(three, "t", 1000, "a")
    assert len(values) == 1000
    assert consume(three, "t", 1000) == values
    wait_until(lambda: len(set(sizes(three, "t").values())) == 1, "the same bytes")
    files = [
        (broker.directory / "data" / "log" / "t-0" / "00000000000000000000.log").read_bytes()
        for broker in three.brokers.values()
    ]
    assert files[0] == files[1] == files[2]


def test_a_killed_leader_loses_nothing_that_was_acknowledged(three: Cluster) -> None:
    create(three, "t", min_insync_replicas="2")
    wait_until(lambda: isr(three, "t")[1] == [1, 2, 3], "all in sync")
    acknowledged: list[bytes] = []
    stop = threading.Event()

    def load() -> None:
        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                acknowledged.append(bytes(message.value() or b""))

        producer = Producer(
            {
                "bootstrap.servers": ",".join(each.bootstrap for each in three.brokers.values()),
                "enable.idempotence": True,
                "linger.ms": 1,
            }
        )
        number = 0
        while not stop.is_set():
            producer.produce("t", str(number).encode(), on_delivery=delivered)
            producer.poll(0)
            number += 1
            if number % 50 == 0:
                time.sleep(0.01)
        producer.flush(60)

    def more(before: int) -> None:
        wait_until(lambda: len(acknowledged) > before + 200, "acknowledgements")

    thread = threading.Thread(target=load)
    thread.start()
    try:
        for _ in range(3):
            before = len(acknowledged)
            more(before)
            leader = isr(three, "t")[0]
            broker_of(three, leader).kill()
            before = len(acknowledged)
            more(before)
            broker_of(three, leader).start()
            wait_until(lambda: isr(three, "t")[1] == [1, 2, 3], "all in sync")
    finally:
        stop.set()
        thread.join(90)
    found = consume(three, "t", len(acknowledged))
    numbers = [int(value) for value in found]
    assert numbers == sorted(set(numbers)), "duplicates or another order"
    assert set(acknowledged) <= set(found)


def test_replicas_move_and_leaders_come_home(three: Cluster) -> None:
    """By the protocol's own requests, from Java's names for them: KIP-455 and KIP-460."""
    client = admin(three)
    new = NewTopic("m", 1, replica_assignment=[[1, 2]])
    for future in client.create_topics([new]).values():
        future.result(30)
    wait_until(lambda: isr(three, "m")[1] == [1, 2], "both in sync")
    values = produce(three, "m", 500, "a")
    asyncio.run(reassign(three, "m", [3, 2]))
    wait_until(lambda: isr(three, "m") == (3, [2, 3]) and not hosts(three, 1, "m"), "the move is done")
    assert consume(three, "m", 500) == values
    produce(three, "m", 10, "b")
    three.brokers[3].stop()
    wait_until(lambda: isr(three, "m") == (2, [2]), "broker 2 takes over")
    three.brokers[3].start()
    wait_until(lambda: isr(three, "m") == (2, [2, 3]), "broker 3 is back")
    client = admin(three)
    elect = client.elect_leaders(ElectionType.PREFERRED, [TopicPartition("m", 0)])
    assert elect.result(30) == {TopicPartition("m", 0): None}
    wait_until(lambda: isr(three, "m")[0] == 3, "broker 3 leads again")
    assert len(consume(three, "m", 510)) == 510


def hosts(cluster: Cluster, number: int, topic: str) -> bool:
    return (cluster.brokers[number].directory / "data" / "log" / f"{topic}-0").exists()


async def reassign(cluster: Cluster, topic: str, target: list[int]) -> None:
    partitions = [ReassignablePartition(partition_index=0, replicas=target)]
    topics = [ReassignableTopic(name=topic, partitions=partitions)]
    request = AlterPartitionReassignmentsRequest(topics=topics)
    controller = admin(cluster).list_topics(timeout=10).controller_id
    connection = await Connection.open("127.0.0.1", cluster.brokers[controller].port)
    try:
        response = await connection.send(request)
    finally:
        await connection.close()
    assert (response.error_code, response.responses[0].partitions[0].error_code) == (0, 0)


def test_consumers_read_from_the_replica_in_their_rack(cluster: Make) -> None:
    """By librdkafka's own count of fetches for each broker (KIP-392)."""
    made = cluster(0)
    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    for number in (1, 2, 3):
        made.add(number, rack=f"r{number}", settings={**QUICK, "replica.selector.class": selector})
    made.start()
    client = admin(made)
    new = NewTopic("near", 1, replica_assignment=[[1, 2, 3]])
    for future in client.create_topics([new]).values():
        future.result(30)
    wait_until(lambda: isr(made, "near") == (1, [1, 2, 3]), "all in sync")
    values = produce(made, "near", 300, "a")
    found, read_from = read_in(made, "near", "r3", 300)
    assert found == values
    assert read_from == {3}
    made.brokers[3].kill()
    values += produce(made, "near", 300, "b")
    found, read_from = read_in(made, "near", "r3", 600)
    assert found == values
    assert 3 not in read_from


def read_in(cluster: Cluster, topic: str, rack: str, count: int) -> tuple[list[bytes], set[int]]:
    """What a consumer in a rack reads, and from which brokers it got records."""
    read_from: set[int] = set()

    def statistics(text: str) -> None:
        for broker in json.loads(text)["brokers"].values():
            if broker["nodeid"] > 0 and broker["rxbytes"] > 0 and broker["toppars"]:
                read_from.add(broker["nodeid"])

    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "g",
            "client.rack": rack,
            "statistics.interval.ms": 100,
            "stats_cb": statistics,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    deadline = time.monotonic() + 60
    while len(found) < count and time.monotonic() < deadline:
        messages = consumer.consume(500, 0.5)
        found += [bytes(each.value() or b"") for each in messages if each.error() is None]
    read_from.clear()
    consumer.consume(1, 1.0)  # the statistics of a steady state
    consumer.close()
    return found, read_from


def test_deleted_records_stay_deleted_when_their_leader_dies(three: Cluster) -> None:
    create(three, "t", min_insync_replicas="2")
    wait_until(lambda: isr(three, "t")[1] == [1, 2, 3], "all in sync")
    produce(three, "t", 500, "a")
    leader = isr(three, "t")[0]
    client = admin(three)
    [future] = client.delete_records([TopicPartition("t", 0, OFFSET_END)]).values()  # all that is readable
    assert future.result(30).low_watermark == 500
    values = produce(three, "t", 100, "b")
    broker_of(three, leader).kill()
    wait_until(lambda: isr(three, "t")[0] != leader, "another leader")
    consumer = Consumer({"bootstrap.servers": three.bootstrap, "group.id": "g"})
    assert consumer.get_watermark_offsets(TopicPartition("t", 0), timeout=30) == (500, 600)
    consumer.close()
    broker_of(three, leader).start()
    wait_until(lambda: isr(three, "t")[1] == [1, 2, 3], "all in sync again")
    assert consume(three, "t", 100, start=500) == values
