"""Clients that read partitions of their choice, and the last reader of a whole topic.

What a call returned is one `Poll` for each partition in it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from confluent_kafka import Consumer, Message, TopicPartition

from tests.chaos.clients import CALL_S, COMMON, INPUT, OUTPUT, PARTITIONS, Client
from tests.chaos.history import Place, Poll


def consumer_of(bootstrap: str, group: str, *, committed_only: bool, **settings: str | int) -> Consumer:
    return Consumer(
        {
            **COMMON,
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "isolation.level": "read_committed" if committed_only else "read_uncommitted",
            "auto.offset.reset": "error",
            "enable.partition.eof": False,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )


def by_place(messages: Iterable[Message]) -> dict[Place, list[tuple[int, int]]]:
    """(offset, value) of what are records and not errors."""
    found: dict[Place, list[tuple[int, int]]] = {}
    for message in messages:
        topic, partition = message.topic(), message.partition()
        offset, value = message.offset(), message.value()
        if message.error() is None and None not in (topic, partition, offset, value):
            assert topic is not None
            assert partition is not None
            assert offset is not None
            assert value is not None
            found.setdefault(Place(topic, partition), []).append((offset, int(value)))
    return found


class Reader:
    """Reads partitions by assignment."""

    def __init__(self, client: Client, name: str, *, committed_only: bool) -> None:
        self._client = client
        self._name = name
        self._committed_only = committed_only
        self._fresh: set[Place] = set()
        self._consumer = consumer_of(client.bootstrap, "chaos", committed_only=committed_only)

    def from_start(self) -> None:
        self._assign({Place(topic, each): 0 for topic in (INPUT, OUTPUT) for each in range(PARTITIONS)})

    def from_end(self) -> None:
        """Asked for here, and not left to the client as OFFSET_END: an answer about the end that comes from
        an earlier leader has librdkafka ask once more, and go there, though it is reading already
        (`rd_kafka_toppar_handle_Offset`, "outdated offset response"). Raises KafkaException.
        """
        places = [Place(INPUT, each) for each in range(PARTITIONS)]
        self._assign(
            {
                place: self._consumer.get_watermark_offsets(TopicPartition(*place), timeout=CALL_S)[1]
                for place in places
            }
        )

    def _assign(self, offsets: Mapping[Place, int]) -> None:
        self._consumer.assign([TopicPartition(*place, offset) for place, offset in offsets.items()])
        self._fresh = set(offsets)

    def read(self, wait_s: float) -> None:
        messages = self._consumer.consume(200, wait_s)
        at = time.monotonic()
        for place, records in by_place(messages).items():
            is_first = place in self._fresh
            self._client.ledger.history.polls.append(
                Poll(self._name, place, records, self._committed_only, positioned=is_first, at=at)
            )
            self._fresh.discard(place)

    def close(self) -> None:
        self._consumer.close()


def read_committed(client: Client) -> None:
    """From the beginning again whenever it must be made anew."""
    _read(client, committed_only=True)


def read_uncommitted(client: Client) -> None:
    _read(client, committed_only=False)


def _read(client: Client, *, committed_only: bool) -> None:
    reader = Reader(client, client.name, committed_only=committed_only)
    reader.from_start()
    try:
        while client.goes_on:
            reader.read(0.2)
    finally:
        reader.close()


def read_all(
    bootstrap: str, topic: str, *, committed_only: bool, timeout_s: float = 120.0
) -> dict[Place, list[tuple[int, int]]]:
    """Every record of a healed topic up to its end, by partition. Raises AssertionError."""
    consumer = consumer_of(bootstrap, "chaos", committed_only=committed_only)
    found: dict[Place, list[tuple[int, int]]] = {Place(topic, each): [] for each in range(PARTITIONS)}
    try:
        everything = [TopicPartition(topic, each, 0) for each in range(PARTITIONS)]
        ends = {each.partition: consumer.get_watermark_offsets(each, timeout=30)[1] for each in everything}
        consumer.assign(everything)
        deadline = time.monotonic() + timeout_s
        while True:
            for place, records in by_place(consumer.consume(1000, 0.5)).items():
                found[place] += records
            positions = {each.partition: each.offset for each in consumer.position(everything)}
            if all(max(0, positions[each]) >= ends[each] for each in ends):
                return found
            assert time.monotonic() < deadline, f"{topic}: read up to {positions} of {ends}"
    finally:
        consumer.close()
