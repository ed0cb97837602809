"""A producer at work that remembers what was acknowledged, and a look whether all of that is there."""

from __future__ import annotations

import threading
import time
from typing import Any, Self

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.support.waiting import wait_until

_NOT_TOLD = -1


class Load:
    """Unique values with acks=all, a few hundred a second, to every partition of a topic in turn."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, tag: str, **settings: Any) -> None:
        self._log: list[tuple[str, tuple[int, int]]] = []  # only grows: two threads look at it
        self.refused: list[str] = []
        self._topic, self._partitions, self._tag = topic, partitions, tag
        self._settings = {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 1,
            "message.timeout.ms": 120_000,
            "request.timeout.ms": 3000,  # over a cut link no answer comes: look elsewhere soon
            "socket.timeout.ms": 5000,
            "log_level": 0,
            **settings,
        }
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(180)

    @property
    def acknowledged(self) -> dict[str, tuple[int, int]]:
        """Partition and offset (-1: not told) by value, as of now."""
        return dict(self._log[:])

    def more(self, count: int = 100) -> None:
        """Wait until so many more than now were acknowledged, in every partition at least one."""
        before = len(self._log)

        def enough() -> bool:
            fresh = self._log[before:]
            return len(fresh) >= count and len({spot[0] for _, spot in fresh}) == self._partitions

        wait_until(enough, f"{count} acknowledgements in all partitions of {self._topic}", bound_s=90.0)

    def _run(self) -> None:
        producer = Producer(self._settings)
        number = 0
        while not self._stop.is_set():
            if len(producer) < 2000:
                producer.produce(
                    self._topic,
                    f"{self._tag}-{number}".encode(),
                    partition=number % self._partitions,
                    on_delivery=self._delivered,
                )
                number += 1
            producer.poll(0.003)
        producer.flush(120)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.refused.append(error.name())
            return
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        # librdkafka tells no offset of a batch that it repeated and that is there already.
        spot = (partition, _NOT_TOLD if offset is None else offset)
        self._log.append((bytes(message.value() or b"").decode(), spot))


def read_all(
    bootstrap: str, topic: str, partitions: int, **settings: Any
) -> dict[str, list[tuple[int, int]]]:
    """Where each value stands, from the beginning to the end that the partitions have now."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "log_level": 0,
            **settings,
        }
    )
    ends = {
        number: consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=60)[1]
        for number in range(partitions)
    }
    consumer.assign([TopicPartition(topic, number, 0) for number in ends])
    found: dict[str, list[tuple[int, int]]] = {}
    left = {number for number, end in ends.items() if end}
    deadline = time.monotonic() + 90
    while left:
        assert time.monotonic() < deadline, f"partitions {left} of {topic} could not be read to {ends}"
        for message in consumer.consume(1000, 0.5):
            assert message.error() is None, message.error()
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            found.setdefault(bytes(message.value() or b"").decode(), []).append((partition, offset))
            if offset + 1 >= ends[partition]:
                left.discard(partition)
    consumer.close()
    return found


def assert_nothing_lost(load: Load, found: dict[str, list[tuple[int, int]]], *, once: bool = True) -> None:
    """Every acknowledged value is where its acknowledgement said, and with `once` nowhere else."""
    acknowledged = load.acknowledged
    lost = [value for value in acknowledged if value not in found]
    assert not lost, f"{len(lost)} of {len(acknowledged)} acknowledged records are gone: {lost[:5]}"
    moved = {
        value: (spot, found[value])
        for value, spot in acknowledged.items()
        if not _is_there(spot, found[value]) or (once and len(found[value]) > 1)
    }
    assert not moved, f"elsewhere or twice: {list(moved.items())[:5]}"


def _is_there(spot: tuple[int, int], found: list[tuple[int, int]]) -> bool:
    partition, offset = spot
    return any(at[0] == partition for at in found) if offset == _NOT_TOLD else spot in found
