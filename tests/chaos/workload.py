"""Real clients under load, each in a thread, each keeping what it did and saw.

Idempotent producers with acks=all, transactional ones, and consumers that read by assignment. What a client
is not told stays unknown; a client that is fenced or fatally failed is made anew, as an application would.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.chaos.history import History, Outcome, Poll, Send

_PAUSE_S = 0.002
_FLUSH_S = 20.0


class Workload:
    """`start`, then `stop`; then `history` is whole but for the last reading."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, seed: int) -> None:
        self.history = History()
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = partitions
        self._seed = seed
        self._values = itertools.count(1)
        self._transactions = itertools.count(1)
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self.failures: list[str] = []

    def start(self, producers: int = 2, transactional: int = 1, consumers: int = 1) -> None:
        jobs: list[tuple[str, Callable[[str], None]]] = [
            *((f"p{number}", self._produce) for number in range(producers)),
            *((f"t{number}", self._transact) for number in range(transactional)),
            *((f"c{number}", self._consume) for number in range(consumers)),
            *((f"u{number}", self._consume) for number in range(consumers)),
        ]
        for name, job in jobs:
            thread = threading.Thread(target=self._guarded, args=(name, job), name=name, daemon=True)
            thread.start()
            self._threads.append(thread)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(120)
            if thread.is_alive():
                self.failures.append(f"client {thread.name} does not end")

    @property
    def acknowledged(self) -> int:
        return sum(send.outcome is Outcome.DONE for send in self.history.sends)

    def _guarded(self, name: str, job: Callable[[str], None]) -> None:
        while not self._stop.is_set():
            try:
                job(name)
            except KafkaException as error:  # fatal for this client: the next one goes on
                known = error.args[0]
                if not (isinstance(known, KafkaError)):
                    self.failures.append(f"{name}: {error!r}")
                time.sleep(0.2)
            except Exception as error:  # reported at the end
                self.failures.append(f"{name}: {error!r}")
                return

    # -- writing

    def _sent(self, send: Send) -> Callable[[KafkaError | None, Message], None]:
        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                offset = message.offset()
                send.offset = -1 if offset is None else offset
                send.outcome = Outcome.DONE
            # An error, a timeout among them, says nothing about whether it was stored.

        return delivered

    def _new_send(self, name: str, chance: random.Random, transaction: int | None = None) -> Send:
        with self._lock:
            send = Send(name, chance.randrange(self._partitions), next(self._values), transaction=transaction)
            self.history.sends.append(send)
        return send

    def _produce(self, name: str) -> None:
        chance = random.Random(f"{self._seed}{name}")
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "client.id": name,
                "enable.idempotence": True,
                "linger.ms": 1,
                "message.timeout.ms": 60_000,
                "log_level": 0,
            }
        )
        while not self._stop.is_set():
            send = self._new_send(name, chance)
            producer.produce(
                self._topic, str(send.value).encode(), partition=send.partition, on_delivery=self._sent(send)
            )
            producer.poll(0)
            time.sleep(_PAUSE_S)
        producer.flush(_FLUSH_S)

    def _transact(self, name: str) -> None:
        chance = random.Random(f"{self._seed}{name}")
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "transactional.id": f"chaos-{name}",
                "transaction.timeout.ms": 10_000,
                "linger.ms": 1,
                "log_level": 0,
            }
        )
        producer.init_transactions(30)
        while not self._stop.is_set():
            number = next(self._transactions)
            producer.begin_transaction()
            for _ in range(chance.randrange(1, 6)):
                send = self._new_send(name, chance, number)
                producer.produce(
                    self._topic,
                    str(send.value).encode(),
                    partition=send.partition,
                    on_delivery=self._sent(send),
                )
            self._end(producer, number, commit=chance.random() < 0.8)

    def _end(self, producer: Producer, number: int, *, commit: bool) -> None:
        """An end that was tried and not confirmed leaves the outcome unknown."""
        self.history.transactions[number] = Outcome.UNKNOWN
        try:
            if commit:
                producer.commit_transaction(20)
                self.history.transactions[number] = Outcome.DONE
                return
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
        producer.abort_transaction(20)
        self.history.transactions[number] = Outcome.FAILED

    # -- reading

    def _consume(self, name: str) -> None:
        """`c…` reads committed data, `u…` all; from the beginning again whenever it must be made anew."""
        committed = name.startswith("c")
        consumer = _consumer(self._bootstrap, committed=committed)
        consumer.assign([TopicPartition(self._topic, each, 0) for each in range(self._partitions)])
        fresh = set(range(self._partitions))
        try:
            while not self._stop.is_set():
                for partition, records in _by_partition(consumer.consume(200, 0.2)).items():
                    self.history.polls.append(
                        Poll(name, partition, records, committed, positioned=partition in fresh)
                    )
                    fresh.discard(partition)
        finally:
            consumer.close()


def _consumer(bootstrap: str, *, committed: bool) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "chaos",
            "enable.auto.commit": False,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "auto.offset.reset": "error",
            "enable.partition.eof": False,
            "log_level": 0,
        }
    )


def _by_partition(messages: list[Message]) -> dict[int, list[tuple[int, int]]]:
    found: dict[int, list[tuple[int, int]]] = {}
    for message in messages:
        offset, partition, value = message.offset(), message.partition(), message.value()
        if message.error() is None and offset is not None and partition is not None and value is not None:
            found.setdefault(partition, []).append((offset, int(value)))
    return found


def read_all(
    bootstrap: str, topic: str, partitions: int, *, committed: bool, timeout_s: float = 120.0
) -> dict[int, list[tuple[int, int]]]:
    """Every record of a healed topic up to its end, by partition. Raises AssertionError."""
    consumer = _consumer(bootstrap, committed=committed)
    found: dict[int, list[tuple[int, int]]] = {each: [] for each in range(partitions)}
    try:
        everything = [TopicPartition(topic, each, 0) for each in range(partitions)]
        ends = {each.partition: consumer.get_watermark_offsets(each, timeout=30)[1] for each in everything}
        consumer.assign(everything)
        deadline = time.monotonic() + timeout_s
        while True:
            for partition, records in _by_partition(consumer.consume(1000, 0.5)).items():
                found[partition] += records
            positions = {each.partition: each.offset for each in consumer.position(everything)}
            if all(positions[each] >= ends[each] for each in ends):
                return found
            assert time.monotonic() < deadline, f"read up to {positions} of {ends}"
    finally:
        consumer.close()
