"""The clients of fault runs, of librdkafka, with what each of them has to be set to; and what they write."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

CALL_S = 20.0
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
COMMON: Mapping[str, str | int | bool] = {
    "log_level": 0,
    "socket.timeout.ms": 10_000,
    "reconnect.backoff.max.ms": 500,
    "topic.metadata.refresh.interval.ms": 3_000,
}


def idempotent(bootstrap: str, number: int) -> Producer:
    """Never gives up; one request in flight, or librdkafka may write twice (issue 4953). The number says
    which codec, and how long it collects."""
    return Producer(
        {
            **COMMON,
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "max.in.flight.requests.per.connection": 1,
            "message.timeout.ms": 0,
            "compression.type": CODECS[number],
            "linger.ms": (0, 5, 20, 50, 100)[number],
        }
    )


def transactional(bootstrap: str, name: str, number: int) -> Producer:
    """Ready to begin. Raises KafkaException."""
    producer = Producer(
        {
            **COMMON,
            "bootstrap.servers": bootstrap,
            "transactional.id": f"chaos-{name}",
            "transaction.timeout.ms": 10_000,
            "compression.type": CODECS[number + 1],
            "linger.ms": 2,
        }
    )
    producer.init_transactions(CALL_S)
    return producer


def abort(producer: Producer) -> None:
    """Raises KafkaException, also where the producer must not be used again: librdkafka 2.16 drops what waits
    to be sent again and gives its sequence numbers to the next transaction, and a broker that has them takes
    that for repeated. Another producer has another epoch."""
    if producer.flush(2):
        raise KafkaException(KafkaError(KafkaError._PURGE_QUEUE))
    producer.abort_transaction(CALL_S)


def committed_reader(bootstrap: str, group: str) -> Consumer:
    """Of committed records, from the beginning where nothing is committed."""
    return Consumer(
        {
            **COMMON,
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "session.timeout.ms": 10_000,
            "fetch.wait.max.ms": 100,
        }
    )


def send(
    producer: Producer,
    chance: random.Random,
    topic: str,
    partition: int,
    name: bytes,
    told: Callable[[KafkaError | None, Message], None],
    keys: int = 0,
) -> bytes | None:
    """A record of that name, with or without padding, key and headers; returns the key, always one of as many
    as `keys` says where it says so."""
    padding = chance.choice([b"", b"x" * 50, b"abc" * 300, chance.randbytes(500)])
    key = chance.choice([None, b"", b"key-%d" % chance.randrange(50)])
    if keys:
        key = b"key-%d" % chance.randrange(keys)
    headers = [("h", name), ("empty", b""), ("null", None)][: chance.randrange(4)]
    producer.produce(
        topic,
        value=name + b" " + padding,
        key=key,
        partition=partition,
        headers=headers,
        on_delivery=told,
    )
    return key


def place_of(message: Message) -> tuple[str, int]:
    topic, partition = message.topic(), message.partition()
    assert topic is not None
    assert partition is not None
    return topic, partition


def offset_of(message: Message) -> int:
    offset = message.offset()
    assert offset is not None
    return offset
