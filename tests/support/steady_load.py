"""Clients that go on while brokers restart, with librdkafka's defaults: what failed, how long it stood still.

A producer writes numbers in turn to all partitions of a topic, and a consumer in a group reads them.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter, defaultdict
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaError, Message, Producer

EVERY_S = 0.002


class Load:
    """A thread that works until `end`; a context manager."""

    def __init__(self) -> None:
        self.errors: Counter[str] = Counter()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        self._over.set()
        self._thread.join(60)

    def _run(self) -> None:
        raise NotImplementedError


class Producing(Load):
    """`sent` are numbers; `acknowledged` those of which the client was told that they are stored."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, *, every_s: float = EVERY_S, **config: object
    ) -> None:
        super().__init__()
        self._every_s = every_s
        self.acknowledged: list[bytes] = []
        self._times: dict[int, list[float]] = defaultdict(list)
        self._topic, self._partitions = topic, partitions
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "linger.ms": 2, "enable.idempotence": True, **config}
        )

    def _run(self) -> None:
        number = 0
        while not self._over.is_set():
            try:
                self._producer.produce(
                    self._topic,
                    str(number).encode(),
                    partition=number % self._partitions,
                    on_delivery=self._delivered,
                )
                number += 1
            except BufferError:  # nothing is acknowledged
                self._producer.poll(0.1)
            if self._every_s > EVERY_S:
                self._over.wait(self._every_s)
            self._producer.poll(EVERY_S)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors[error.name()] += 1
            return
        self.acknowledged.append(bytes(message.value() or b""))
        self._times[message.partition() or 0].append(time.monotonic())

    def end(self) -> None:
        super().end()
        assert self._producer.flush(60) == 0

    def longest_gap_s(self, since: float, until: float) -> float:
        """Longest time between two acknowledgements of the same partition."""
        gaps = [0.0]
        for times in list(self._times.values()):
            within = [since, *(each for each in list(times) if since < each < until), until]
            gaps += [after - before for before, after in itertools.pairwise(within)]
        return max(gaps)


class Consuming(Load):
    """`places` are partition and offset of each number that was read."""

    def __init__(self, bootstrap: str, topic: str, **config: object) -> None:
        super().__init__()
        self.places: dict[bytes, set[tuple[int | None, int | None]]] = {}
        self._times: list[float] = []
        settings = {"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
        self._consumer = Consumer({**settings, **config})
        self._consumer.subscribe([topic])

    def _run(self) -> None:
        while not self._over.is_set():
            for message in self._consumer.consume(500, 0.1):
                error = message.error()
                if error is None:
                    place = (message.partition(), message.offset())
                    self.places.setdefault(bytes(message.value() or b""), set()).add(place)
                    self._times.append(time.monotonic())
                else:
                    self.errors[error.name()] += 1

    def end(self) -> None:
        super().end()
        self._consumer.close()

    def longest_gap_s(self, since: float, until: float) -> float:
        """Longest time without a new record of any partition."""
        within = [since, *(each for each in list(self._times) if since < each < until), until]
        return max(after - before for before, after in itertools.pairwise(within))
