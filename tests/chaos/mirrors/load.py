"""Clients that follow the roles: they write to and read in groups from the side that is written to, and read
both sides all the time. Where nobody is to write (`active` is empty) they wait.

Each is a thread that goes on whatever happens and notes what it knows for certain. Must not know faults.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from confluent_kafka import (
    OFFSET_BEGINNING,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)

from tests.chaos.links.clients import (
    CALL_S,
    CODECS,
    abort,
    committed_reader,
    idempotent,
    offset_of,
    place_of,
    send,
    transactional,
)
from tests.chaos.links.history import name_of
from tests.chaos.links.threads import Threads
from tests.chaos.mirrors.history import History, Place, now_ms
from tests.chaos.mirrors.topics import keeps

GROUPS = ("group-1", "group-2")
_LAST_WORDS_S = 20.0
"""So long a producer tries on at a side that is not the one to write to any more."""
_LONG = 0.15
"""Of transactions."""


@dataclass
class Load:
    """`active` says which side is written to, `topics` what to, with partitions, `life` which life of a side
    this is, empty while none of its topics counts; all are asked each time."""

    bootstraps: Mapping[str, str]
    active: Callable[[], str]
    topics: Callable[[], Mapping[str, int]]
    life: Callable[[str], str]
    history: History
    seed: int
    pause_s: float
    threads: Threads = field(default_factory=Threads)
    _busy: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self) -> None:
        for number in range(len(CODECS)):
            self.threads.writer(f"w{number}", self._write, number)
        for number in range(2):
            self.threads.writer(f"t{number}", self._transact, number)
        for number, group in enumerate(GROUPS):
            self.threads.other(group, self._consume, number)
        for side in self.bootstraps:
            self.threads.other(side, self._follow)
        self.threads.start()

    # -- writers

    def is_quiet(self) -> bool:
        """Nobody writes, and nothing is on its way."""
        return not self._busy

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        with self._lock:
            self._busy += 1
        try:
            yield
        finally:
            with self._lock:
                self._busy -= 1

    def _send(
        self,
        producer: Producer,
        chance: random.Random,
        place: Place,
        name: bytes,
        told: Callable[[KafkaError | None, Message], None],
    ) -> None:
        keys = keeps(place[0]).keys
        key = send(producer, chance, *place, name, told, keys=keys)
        if keys:
            self.history.keys[name] = key

    def _place(self, chance: random.Random) -> Place:
        topics = self.topics()
        topic = chance.choice(list(topics))
        return topic, chance.randrange(topics[topic])

    def _is_over(self, side: str) -> bool:
        return self.threads.writing.is_set() or self.active() != side

    def _write(self, client: str, number: int) -> None:
        """While one side is the one to write to."""
        side = self.active()
        if not side:
            time.sleep(0.2)
            return
        with self._writing():
            producer = idempotent(self.bootstraps[side], number)
            chance = random.Random(f"{self.seed} {client} {time.monotonic_ns()}")
            while not self._is_over(side):
                for _ in range(chance.choice([1, 1, 5, 40])):
                    name, place = f"{client}/{self.history.next_number()}".encode(), self._place(chance)
                    with contextlib.suppress(BufferError):
                        self._send(producer, chance, place, name, self._noting(name, place))
                producer.poll(0)
                time.sleep(self.pause_s * chance.uniform(0.2, 1.8))
            if self.active() == side:
                producer.flush(100)
            else:
                threading.Thread(target=self._last_words, args=(producer,), daemon=True).start()

    def _noting(self, name: bytes, place: Place) -> Callable[[KafkaError | None, Message], None]:
        at_ms = now_ms()

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                self.history.is_acknowledged(name, place, at_ms)

        return delivered

    def _last_words(self, producer: Producer) -> None:
        """What waited for a side that is not written to any more: refused, or taken by a side that has come
        back too early; then given up, or it would go on when that side has its role again."""
        with self._writing():
            producer.flush(_LAST_WORDS_S)
            producer.purge()
            producer.flush(5)

    def _transact(self, client: str, number: int) -> None:
        """Some stay open for seconds, and so while roles change."""
        side = self.active()
        if not side:
            time.sleep(0.2)
            return
        with self._writing():
            producer = transactional(self.bootstraps[side], client, number)
            chance = random.Random(f"{self.seed} {client} {time.monotonic_ns()}")
            while not self._is_over(side):
                producer.begin_transaction()
                places: dict[bytes, tuple[Place, int]] = {}
                for _ in range(chance.choice([1, 3, 20])):
                    name, place = f"{client}/{self.history.next_number()}".encode(), self._place(chance)
                    self._send(producer, chance, place, name, lambda error, message: None)
                    places[name] = place, now_ms()
                if chance.random() < _LONG:
                    producer.flush(2)
                    time.sleep(chance.uniform(1, 8))
                if chance.random() < 0.25:
                    self.history.aborted.update(places)
                    abort(producer)
                else:
                    producer.commit_transaction(CALL_S)
                    self.history.transactional.update(places)
                    for name, (place, at_ms) in places.items():
                        self.history.is_acknowledged(name, place, at_ms)
                self.history.transactions += 1
                time.sleep(self.pause_s * chance.uniform(0.2, 3))

    # -- readers

    def _consume(self, group: str, number: int) -> None:
        """A group reads and commits where it is written to, then at the other side; the second lags."""
        side = self.active()
        if not side:
            time.sleep(0.2)
            return
        consumer = committed_reader(self.bootstraps[side], group)
        try:
            consumer.subscribe(["^load-.*"])
            while not self.threads.ended.is_set() and self.active() == side:
                next_offset: dict[Place, int] = {}
                lags = number > 0 and not self.threads.writing.is_set()
                for message in consumer.consume(40 if lags else 300, 0.5):
                    if message.error() is None:
                        self.history.read[group].add(name_of(message.value() or b""))
                        next_offset[place_of(message)] = offset_of(message) + 1
                if next_offset:
                    offsets = [TopicPartition(*place, offset) for place, offset in next_offset.items()]
                    consumer.commit(offsets=offsets, asynchronous=False)
                if lags:
                    self.threads.ended.wait(0.3)
        finally:
            consumer.close()

    def _follow(self, side: str) -> None:
        """All of one side by assignment, whoever is written to; from the beginning again where it is cut."""
        life = self.life(side)
        if not life:
            time.sleep(0.2)
            return
        consumer = committed_reader(self.bootstraps[side], "unused")
        position: dict[Place, int] = {}
        try:
            while not self.threads.ended.is_set():
                wanted = {(topic, index) for topic, n in self.topics().items() for index in range(n)}
                if wanted != position.keys():
                    position = {place: position.get(place, OFFSET_BEGINNING) for place in wanted}
                    consumer.assign([TopicPartition(*place, at) for place, at in position.items()])
                messages = consumer.consume(500, 0.5)
                if self.life(side) != life:  # of which life they are nobody knows
                    return
                for message in messages:
                    if message.error() is None and place_of(message) in position:
                        position[place_of(message)] = offset_of(message) + 1
                        name = name_of(message.value() or b"")
                        self.history.saw(life, place_of(message), offset_of(message), name)
        finally:
            consumer.close()
