"""Clients of a link run, on both sides: writers of all kinds, groups, readers of mirrors, watchers.

Each is a thread that goes on whatever happens and notes in the history what it knows for certain. Must not
know faults. librdkafka may hang in rare cases (docs/status.md): a thread that does not end is left behind.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from replicator.origin import ORIGIN_HEADER
from tests.chaos.links.clients import (
    CALL_S,
    CODECS,
    COMMON,
    abort,
    committed_reader,
    idempotent,
    offset_of,
    place_of,
    send,
    transactional,
)
from tests.chaos.links.history import History, Place, name_of
from tests.chaos.links.threads import Threads
from tests.chaos.mirrors.topics import keeps


@dataclass
class Load:
    """One side's clients. `topics` is asked each time: topics come and partitions grow."""

    side: str
    other: str
    bootstrap: str
    other_bootstrap: str
    topics: Callable[[], Mapping[str, int]]
    history: History
    seed: int
    pause_s: float
    one_name: bool = False
    """Topics are called the same at the other side, which writes to them too."""
    watches_groups: bool = True
    """At the other side."""
    threads: Threads = field(default_factory=Threads)

    def __post_init__(self) -> None:
        self.threads.of = self.side

    @property
    def groups(self) -> list[str]:
        return [f"group-{self.side}-{number}" for number in (1, 2)]

    def start(self) -> None:
        for number in range(len(CODECS)):
            self.threads.writer(f"w{number}", self._write, number)
        for number in range(2):
            self.threads.writer(f"t{number}", self._transact, number)
        for number, group in enumerate(self.groups):
            self.threads.other(group, self._consume, group, number)
        self.threads.other(f"mirror of {self.side}", self._read_mirror)
        if self.watches_groups:
            self.threads.other(f"watcher of {self.side}", self._watch)
        self.threads.start()

    # -- writers

    def _place(self, chance: random.Random) -> Place:
        topics = self.topics()
        topic = chance.choice(list(topics))
        return self.side, topic, chance.randrange(topics[topic])

    def _send(
        self,
        producer: Producer,
        chance: random.Random,
        client: str,
        told: Callable[[bytes, Place], Callable[[KafkaError | None, Message], None]],
    ) -> bytes:
        place = self._place(chance)
        with self.history.lock:
            self.history.sent += 1
            number = self.history.sent
        name = f"{self.side}/{client}/{number}".encode()
        keys = keeps(place[1]).keys
        key = send(producer, chance, place[1], place[2], name, told(name, place), keys=keys)
        if keys and key is not None:
            self.history.keys[name] = key
        return name

    def _write(self, client: str, number: int) -> None:
        producer = idempotent(self.bootstrap, number)
        chance = random.Random(f"{self.seed} {self.side} {client}")

        def told(name: bytes, place: Place) -> Callable[[KafkaError | None, Message], None]:
            def delivered(error: KafkaError | None, message: Message) -> None:
                if error is None:
                    self.history.acknowledged[name] = place
                    self.history.offsets[name] = offset_of(message)

            return delivered

        while not self.threads.writing.is_set():
            for _ in range(chance.choice([1, 1, 5, 40])):
                with contextlib.suppress(BufferError):
                    self._send(producer, chance, client, told)
            producer.poll(0)
            time.sleep(self.pause_s * chance.uniform(0.2, 1.8))
        producer.flush(100)

    def _transact(self, client: str, number: int) -> None:
        producer = transactional(self.bootstrap, f"{self.side}-{client}", number)
        chance = random.Random(f"{self.seed} {self.side} {client} {time.monotonic_ns()}")
        places: dict[bytes, Place] = {}

        def told(name: bytes, place: Place) -> Callable[[KafkaError | None, Message], None]:
            places[name] = place

            def delivered(error: KafkaError | None, message: Message) -> None:
                if error is None:
                    self.history.offsets[name] = offset_of(message)

            return delivered

        while not self.threads.writing.is_set():
            places.clear()
            producer.begin_transaction()
            names = [self._send(producer, chance, client, told) for _ in range(chance.choice([1, 3, 20]))]
            if chance.random() < 0.25:
                self.history.aborted.update(names)
                abort(producer)
            else:
                producer.commit_transaction(CALL_S)
                self.history.acknowledged.update(places)
            self.history.transactions += 1
            time.sleep(self.pause_s * chance.uniform(0.2, 3))

    # -- readers

    def _consume(self, _: str, group: str, number: int) -> None:
        """A group where it lives: reads and commits; the second one lags behind."""
        consumer = committed_reader(self.bootstrap, group)
        try:
            consumer.subscribe(["^load-.*"])
            next_offset: dict[tuple[str, int], int] = {}
            while not self.threads.ended.is_set():
                for message in consumer.consume(300 if number == 0 else 20, 0.5):
                    if message.error() is None:
                        next_offset[place_of(message)] = offset_of(message) + 1
                if next_offset:
                    self._commit(consumer, group, next_offset)
                    next_offset = {}
                if number:
                    self.threads.ended.wait(0.3)
        finally:
            consumer.close()

    def _commit(self, consumer: Consumer, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        wanted = [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
        for each in wanted:
            self.history.commit_tried(group, (self.side, each.topic, each.partition), each.offset)
        consumer.commit(offsets=wanted, asynchronous=False)

    def _read_mirror(self, _: str) -> None:
        """What the other side has of this side's topics, by assignment, again and again from where it was."""
        consumer = committed_reader(self.other_bootstrap, "unused")
        position: dict[tuple[str, int], int] = {}
        try:
            while not self.threads.ended.is_set():
                wanted = {
                    (topic if self.one_name else f"{self.side}.{topic}", partition)
                    for topic, count in self.topics().items()
                    for partition in range(count)
                }
                if wanted - position.keys():
                    position |= dict.fromkeys(wanted - position.keys(), OFFSET_BEGINNING)
                    consumer.assign(
                        [TopicPartition(topic, number, at) for (topic, number), at in position.items()]
                    )
                for message in consumer.consume(500, 0.5):
                    if message.error() is None:
                        self._saw(message, position)
        finally:
            consumer.close()

    def _saw(self, message: Message, position: dict[tuple[str, int], int]) -> None:
        at, offset = place_of(message), offset_of(message)
        place = (self.other, *at)
        if offset < position[at]:
            self.history.changed.append(f"{place}: offset {offset} came after {position[at] - 1}")
        position[at] = offset + 1
        self.history.saw(place, offset, message.value() or b"")

    def _watch(self, _: str) -> None:
        """Where this side's groups stand at the other side."""
        consumers = {group: committed_reader(self.other_bootstrap, group) for group in self.groups}
        try:
            while not self.threads.ended.wait(0.5):
                for group, consumer in consumers.items():
                    with contextlib.suppress(KafkaException):
                        for place, offset in self._committed(consumer, self.other).items():
                            self.history.position_shown(group, place, offset)
        finally:
            for consumer in consumers.values():
                consumer.close()

    def standing(self, side: str) -> dict[tuple[str, Place], int]:
        """Where this side's groups stand at a side, by group and place. Raises KafkaException."""
        found: dict[tuple[str, Place], int] = {}
        for group in self.groups:
            consumer = committed_reader(self.bootstrap if side == self.side else self.other_bootstrap, group)
            try:
                for place, offset in self._committed(consumer, side).items():
                    found[group, place] = offset
            finally:
                consumer.close()
        return found

    def _committed(self, consumer: Consumer, side: str) -> dict[Place, int]:
        """Of this side's topics, or their copies. librdkafka's admin client would tell all, but its requests
        may end the process where brokers come and go (an assertion in `rd_kafka_enq_once_del_source_return`).
        """
        before = "" if side == self.side else f"{self.side}."
        wanted = [
            TopicPartition(f"{before}{topic}", partition)
            for topic, count in self.topics().items()
            for partition in range(count)
        ]
        return {
            (side, each.topic, each.partition): each.offset
            for each in consumer.committed(wanted, timeout=5)
            if each.error is None and each.offset >= 0
        }


def read_all(
    bootstrap: str, topic: str, partition: int, bound_s: float = 300.0, *, isolation: str = "read_committed"
) -> list[tuple[int, Row]]:
    """(offset, row) of all records of a partition. Raises AssertionError past the bound."""
    consumer = Consumer(
        {
            **COMMON,
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )
    rows: list[tuple[int, Row]] = []
    deadline = time.monotonic() + bound_s
    try:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        while time.monotonic() < deadline:
            for message in consumer.consume(1000, 2.0):
                error = message.error()
                if error is None:
                    rows.append((offset_of(message), row_of(message)))
                elif error.code() == KafkaError._PARTITION_EOF:
                    return rows
        raise AssertionError(f"{topic}-{partition} at {bootstrap} is not read to its end in {bound_s:g} s")
    finally:
        consumer.close()


Row = tuple[bytes, int]
"""Name of the value, and a hash of all that a record has: time, key, value, headers but the link's own."""


def row_of(message: Message) -> Row:
    value = message.value() or b""
    headers = tuple((name, text) for name, text in message.headers() or () if name != ORIGIN_HEADER)
    return name_of(value), hash((message.timestamp(), message.key(), value, headers))
