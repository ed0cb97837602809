"""What tests of moved and elected replicas do to a cluster of three brokers, and look at."""

from __future__ import annotations

import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.broker import Cluster
from tests.support.waiting import wait_until

QUICK = {"replica.lag.time.max.ms": "2000", "replica.fetch.backoff.ms": "100"}
_ROOT = Path(__file__).resolve().parents[2]


class StartThree(Protocol):
    """The fixture `start_three`."""

    def __call__(
        self, settings: Mapping[str, str] | None = None, arguments: Sequence[str] = ()
    ) -> Cluster: ...


def three_brokers(
    cluster: Cluster, settings: Mapping[str, str] | None = None, arguments: Sequence[str] = ()
) -> Cluster:
    """Three running brokers in racks r1 to r3."""
    for number in (1, 2, 3):
        cluster.add(number, rack=f"r{number}", settings={**QUICK, **(settings or {})}, arguments=arguments)
    return cluster.start()


def admin(cluster: Cluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap})


def create(
    cluster: Cluster, topic: str, *replicas: Sequence[int], config: Mapping[str, str] | None = None
) -> None:
    """A topic with these replicas by partition, all of them in sync."""
    new = NewTopic(topic, len(replicas), replica_assignment=[list(each) for each in replicas])
    new.config = dict(config or {})
    client = admin(cluster)
    for future in client.create_topics([new]).values():
        future.result(30)
    for index, wanted in enumerate(replicas):
        wait_until(lambda: in_sync(cluster, topic, index) == sorted(wanted), f"{topic}-{index} in sync")  # noqa: B023


def leader(cluster: Cluster, topic: str, partition: int = 0) -> int:
    return admin(cluster).list_topics(topic, timeout=10).topics[topic].partitions[partition].leader


def in_sync(cluster: Cluster, topic: str, partition: int = 0) -> list[int]:
    return sorted(admin(cluster).list_topics(topic, timeout=10).topics[topic].partitions[partition].isrs)


def produce(
    cluster: Cluster, topic: str, values: Sequence[bytes], *, partition: int = 0, **config: object
) -> list[bytes]:
    """Values that were acknowledged (`acks=all` unless `config` says otherwise)."""
    done: list[bytes] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is None:
            done.append(bytes(message.value() or b""))

    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 1, **config})
    for value in values:
        producer.produce(topic, value, partition=partition, on_delivery=delivered)
        producer.poll(0)
    assert producer.flush(60) == 0
    return done


def consume(cluster: Cluster, topic: str, count: int, partition: int = 0) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "look"})
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[bytes] = []

    def more() -> bool:
        messages = consumer.consume(500, 0.5)
        found.extend(bytes(each.value() or b"") for each in messages if each.error() is None)
        return len(found) >= count

    try:
        wait_until(more, f"{count} records of {topic}")
    finally:
        consumer.close()
    return found


def stored_bytes(cluster: Cluster, broker: int, topic: str, partition: int = 0) -> int:
    """Size of a replica's segments, -1 without one, also when it goes while it is looked at."""
    folder = cluster.brokers[broker].directory / "data" / "log" / f"{topic}-{partition}"
    try:
        return sum(path.stat().st_size for path in folder.glob("*.log")) if folder.exists() else -1
    except FileNotFoundError:
        return -1


def metric(url: str, name: str) -> float:
    with urllib.request.urlopen(url, timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))
