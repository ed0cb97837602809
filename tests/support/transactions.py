"""Transactions of librdkafka's producer against a side, and what readers of both levels see."""

import time
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from protocol.client import Connection
from protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.fetch_response import PartitionData

LEVELS = ("read_uncommitted", "read_committed")
TIMEOUT_S = 30.0


def producer(bootstrap: str, transactional_id: str, **settings: object) -> Producer:
    """An initialized transactional producer."""
    config = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "linger.ms": 0}
    made = Producer({**config, **{name.replace("_", "."): value for name, value in settings.items()}})
    made.init_transactions(TIMEOUT_S)
    return made


def write(made: Producer, topic: str, *values: str) -> None:
    """Begin a transaction where none is open is the caller's; returns when the broker has the values."""
    for value in values:
        made.produce(topic, value, partition=0)
    assert made.flush(TIMEOUT_S) == 0


def read_to_end(bootstrap: str, topic: str, level: str) -> tuple[list[str], int, float]:
    """(values, position at the end event, seconds until it came)."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": level,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",  # what was before may be deleted
        }
    )
    try:
        began = time.monotonic()
        consumer.assign([TopicPartition(topic, 0, 0)])
        values: list[str] = []
        while time.monotonic() - began < TIMEOUT_S:
            message = consumer.poll(1)
            if message is None:
                continue
            error = message.error()
            if error is None:
                values.append(message.value().decode())
            elif error.code() == KafkaError._PARTITION_EOF:
                return values, message.offset(), time.monotonic() - began
            elif not error.retriable():
                raise AssertionError(error)
        raise AssertionError(f"no end of {topic} for {level}, values so far: {values}")
    finally:
        consumer.close()


def read_until(bootstrap: str, topic: str, level: str, done: Callable[[list[str]], bool]) -> list[str]:
    """Read again until `done`: markers may come a moment after the end was answered."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        values = read_to_end(bootstrap, topic, level)[0]
        if done(values) or time.monotonic() > deadline:
            return values


async def raw_fetch(
    connection: Connection, topic: str, version: int, level: str, max_bytes: int = 1 << 20
) -> PartitionData:
    """One Fetch of partition 0 from the start, by name (up to v12)."""
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=max_bytes)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=max_bytes,
        isolation_level=LEVELS.index(level),
        topics=[FetchTopic(topic=topic, partitions=[partition])],
    )
    answer = await connection.send(request, version)
    found: PartitionData = answer.responses[0].partitions[0]
    assert found.error_code == 0
    return found
