"""Clients that nobody here wrote produce to a broker process and consume from it, with default settings."""

from __future__ import annotations

import asyncio
import itertools
import time
import warnings
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from tests.support.apache_kafka import kafka_tool
from tests.support.broker import BrokerProcess

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # how kafka-python reads its own files
    from kafka import KafkaConsumer, KafkaProducer

pytestmark = pytest.mark.cluster

COUNT = 500
BOUND_S = 30.0
_numbers = itertools.count()


@pytest.fixture
def topic() -> str:
    """A name that no other test of this module uses; the broker makes the topic when it is asked for."""
    return f"clients-{next(_numbers)}"


def messages(count: int = COUNT) -> list[tuple[bytes, bytes]]:
    return [(b"key-%d" % (number % 17), b"value-%d" % number) for number in range(count)]


def produce(broker: BrokerProcess, topic: str, rows: list[tuple[bytes, bytes]], **settings: Any) -> list[Any]:
    """Through librdkafka; returns the delivered messages."""
    delivered: list[Any] = []

    def report(error: KafkaError | None, message: Any) -> None:
        assert error is None, error
        delivered.append(message)

    names = {name.replace("_", "."): value for name, value in settings.items()}
    producer = Producer({"bootstrap.servers": broker.bootstrap, **names})
    for key, value in rows:
        producer.produce(topic, key=key, value=value, on_delivery=report)
    assert producer.flush(BOUND_S) == 0
    return delivered


def consume(broker: BrokerProcess, topic: str, count: int, group: str) -> list[Any]:
    """Through librdkafka, in a group, until `count` messages have come."""
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found: list[Any] = []
    deadline = time.monotonic() + BOUND_S
    while len(found) < count and time.monotonic() < deadline:
        # An error is no failure: the topic may be younger than the subscription.
        found += [message for message in consumer.consume(1000, 0.5) if message.error() is None]
    consumer.close()
    return found


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_confluent_kafka_with_every_codec(broker: BrokerProcess, topic: str, codec: str) -> None:
    delivered = produce(broker, topic, messages(), compression_type=codec)
    assert sorted(message.offset() for message in delivered) == list(range(COUNT))
    found = consume(broker, topic, COUNT, topic)
    assert sorted(message.value() for message in found) == sorted(value for _, value in messages())
    assert all(message.timestamp()[1] > 0 for message in found)


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_confluent_kafka_with_every_acks(broker: BrokerProcess, topic: str, acks: str) -> None:
    produce(broker, topic, messages(1), acks="all")  # acks=0 says nothing when the topic is not there yet
    produce(broker, topic, messages(), acks=acks)
    assert len(consume(broker, topic, COUNT + 1, topic)) == COUNT + 1


def test_an_idempotent_producer(broker: BrokerProcess, topic: str) -> None:
    produce(broker, topic, messages(), enable_idempotence=True)
    found = consume(broker, topic, COUNT, topic)
    assert [message.value() for message in found] == [value for _, value in messages()]


def test_a_group_goes_on_where_it_was(broker: BrokerProcess, topic: str) -> None:
    produce(broker, topic, messages())
    assert len(consume(broker, topic, COUNT, topic)) == COUNT
    produce(broker, topic, [(b"k", b"later")])
    assert [message.value() for message in consume(broker, topic, 1, topic)] == [b"later"]


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("count", [0, 3])
def test_the_end_of_a_partition_is_told(
    broker: BrokerProcess, topic: str, isolation: str, count: int
) -> None:
    produce(broker, topic, messages(max(count, 1)))
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": topic,
            "enable.partition.eof": True,
            "isolation.level": isolation,
        }
    )
    start = 0 if count else 1  # from the end, the partition is as good as empty
    consumer.assign([TopicPartition(topic, 0, start)])
    end = None
    deadline = time.monotonic() + BOUND_S
    while end is None and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None and message.error() is not None:
            assert message.error().code() == KafkaError._PARTITION_EOF
            end = message.offset()
    consumer.close()
    assert end == max(count, 1)


def test_kafka_python(broker: BrokerProcess, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap)
    futures = [producer.send(topic, key=key, value=value) for key, value in messages()]
    producer.flush(BOUND_S)
    assert sorted(future.get(BOUND_S).offset for future in futures) == list(range(COUNT))
    producer.close()
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=broker.bootstrap,
        group_id=topic,
        auto_offset_reset="earliest",
        consumer_timeout_ms=BOUND_S * 1000,
        metadata_max_age_ms=1000,  # a subscription may be forgotten: see test_groups.py
    )
    found = list(itertools.islice(consumer, COUNT))
    consumer.close()
    assert sorted(row.value for row in found) == sorted(value for _, value in messages())


async def test_aiokafka(broker: BrokerProcess, topic: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
        for key, value in messages():
            await producer.send(topic, key=key, value=value)
        await producer.flush()
    settings = {"bootstrap_servers": broker.bootstrap, "group_id": topic, "auto_offset_reset": "earliest"}
    found = []
    async with AIOKafkaConsumer(topic, **settings) as consumer, asyncio.timeout(BOUND_S):
        async for row in consumer:
            found.append(row.value)
            if len(found) == COUNT:
                break
    assert sorted(found) == sorted(value for _, value in messages())


# -- Apache Kafka's own tools

TOOLS = "org.apache.kafka.tools"


@pytest.fixture
def bootstrap(broker: BrokerProcess) -> tuple[str, str]:
    return "--bootstrap-server", broker.bootstrap


@pytest.mark.interop
@pytest.mark.slow
def test_console_producer_and_consumer(bootstrap: tuple[str, str], topic: str) -> None:
    lines = [f"line {number}" for number in range(COUNT)]
    kafka_tool(f"{TOOLS}.ConsoleProducer", *bootstrap, "--topic", topic, text="\n".join(lines) + "\n")
    group = ("--group", topic)
    limits = ("--max-messages", str(COUNT), "--timeout-ms", str(int(BOUND_S * 1000)))
    output = kafka_tool(
        f"{TOOLS}.consumer.ConsoleConsumer", *bootstrap, "--topic", topic, "--from-beginning", *group, *limits
    )
    assert [line for line in output.splitlines() if line.startswith("line ")] == lines


@pytest.mark.interop
@pytest.mark.slow
def test_topics_tool_and_offsets_tool(broker: BrokerProcess, bootstrap: tuple[str, str], topic: str) -> None:
    topics = f"{TOOLS}.TopicCommand"
    settings = ("--config", "retention.ms=3600000")
    kafka_tool(topics, *bootstrap, "--create", "--topic", topic, "--partitions", "3", *settings)
    described = kafka_tool(topics, *bootstrap, "--describe", "--topic", topic)
    assert "PartitionCount: 3" in described
    assert "retention.ms=3600000" in described
    assert described.count("Leader: 1") == 3
    sent = produce(broker, topic, messages())
    per_partition = {part: sum(message.partition() == part for message in sent) for part in range(3)}
    offsets = kafka_tool(f"{TOOLS}.GetOffsetShell", *bootstrap, "--topic", topic)
    assert set(offsets.split()) == {f"{topic}:{part}:{count}" for part, count in per_partition.items()}
    kafka_tool(topics, *bootstrap, "--delete", "--topic", topic)
    assert topic not in kafka_tool(topics, *bootstrap, "--list").splitlines()


@pytest.mark.interop
@pytest.mark.slow
def test_perf_tool(broker: BrokerProcess, topic: str) -> None:
    output = kafka_tool(
        f"{TOOLS}.ProducerPerformance",
        *("--topic", topic, "--num-records", "20000", "--record-size", "500", "--throughput", "-1"),
        *("--producer-props", f"bootstrap.servers={broker.bootstrap}"),
    )
    assert "20000 records sent" in output
    assert len(consume(broker, topic, 20_000, topic)) == 20_000
