"""Clients that behave: producers of all codecs, a group that rebalances, readers anywhere, admins.

Owns one thread for each. A thread ends when `stop` is set; what goes wrong inside one ends up in
`Load.failures`, with its name. Every value says who sent it and its number, so that a reader can tell whether
it got the record that was acknowledged at that offset.
"""

from __future__ import annotations

import random
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.soak.ledger import Ledger

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS = 3
KEYS = 500
PER_SECOND = 150
"""Records of each producer; the soak is about time and faults, not about speed."""
KEPT_BYTES = 4 << 20
"""Of each partition: after two minutes as much is deleted as is written, so that memory may be judged."""
COMPACTED = "soak-compacted"
SHORT = "soak-short"
TRANSACTIONS = "soak-transactions"
_TRANSACTIONS_ANSWER_S = 10.0


class Load:
    def __init__(self, bootstrap: str, ledger: Ledger) -> None:
        self.bootstrap = bootstrap
        self.ledger = ledger
        self.stop = threading.Event()
        self.failures: list[str] = []
        self.counts: dict[str, int] = {}
        self.transactions = "not tried"
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        self._create_topics()
        for codec in CODECS:
            self._thread(f"producer-{codec}", partial(self._produce, codec))
        self._thread("producer-compacted", self._produce_keys)
        self._thread("producer-short", lambda: self._produce("lz4", SHORT, note=False))
        self._thread("transactions", self._transact)
        for number in range(3):
            self._thread(f"member-{number}", partial(self._consume_in_group, number))
        for number in range(2):
            self._thread(f"reader-{number}", partial(self._read_anywhere, number))
        self._thread("admin", self._create_and_delete)

    def end(self) -> None:
        """Raises nothing; a thread that does not end is a failure."""
        self.stop.set()
        deadline = time.monotonic() + 60
        for thread in self._threads:
            thread.join(max(0.1, deadline - time.monotonic()))
            if thread.is_alive():
                self.failures.append(f"{thread.name} does not end")

    def _thread(self, name: str, work: Callable[[], None]) -> None:
        def run() -> None:
            try:
                work()
            except Exception:
                self.failures.append(f"{name}: {traceback.format_exc(limit=3)}")

        thread = threading.Thread(target=run, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _count(self, what: str, number: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + number

    def _client(self, **more: Any) -> dict[str, Any]:
        named = {key.replace("_", "."): value for key, value in more.items()}
        return {"bootstrap.servers": self.bootstrap, **named}

    def _create_topics(self) -> None:
        small = {
            "segment.bytes": "1048576", "retention.bytes": str(KEPT_BYTES), "file.delete.delay.ms": "1000"
        }  # fmt: skip
        wanted = [NewTopic(f"soak-{codec}", PARTITIONS, 1, config=small) for codec in CODECS]
        wanted.append(NewTopic(SHORT, 1, 1, config={**small, "retention.bytes": "1048576"}))
        wanted.append(NewTopic(TRANSACTIONS, 1, 1, config=small))
        wanted.append(
            NewTopic(
                COMPACTED, 1, 1,
                config={**small, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"},
            )
        )  # fmt: skip
        admin = AdminClient(self._client())  # kept: what it was asked dies with it
        for done in admin.create_topics(wanted, operation_timeout=30).values():
            done.result(30)

    # -- producers

    def _produce(self, codec: str, topic: str = "", note: bool = True) -> None:
        topic = topic or f"soak-{codec}"
        idempotent = codec in ("lz4", "zstd")
        producer = Producer(
            self._client(compression_type=codec, enable_idempotence=idempotent, acks="all", linger_ms=20)
        )

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                self.ledger.refused[str(error)] += 1
            elif note:
                self.ledger.note(topic, message.partition(), message.offset(), message.value())

        number = 0
        while not self.stop.wait(0.1):
            for _ in range(PER_SECOND // 10):
                size = random.choice((10, 100, 1000, 5000))
                value = (
                    b"%s %d " % (codec.encode(), number) + random.randbytes(size // 2) + b"x" * (size // 2)
                )
                producer.produce(topic, value, key=b"%d" % number, on_delivery=delivered)
                number += 1
            producer.poll(0)
        if producer.flush(60):
            self.failures.append(f"{topic}: {len(producer)} records without an answer")
        self._count("produced", number)

    def _produce_keys(self) -> None:
        producer = Producer(self._client(acks="all", linger_ms=20, enable_idempotence=True))

        def delivered(error: Any, message: Any) -> None:
            if error is None:
                self.ledger.note_key(COMPACTED, message.key(), message.value())
            else:
                self.ledger.refused[str(error)] += 1

        number = 0
        while not self.stop.wait(0.1):
            for _ in range(PER_SECOND // 10):
                key = b"%d" % random.randrange(KEYS)
                producer.produce(COMPACTED, b"%d " % number + b"y" * 800, key=key, on_delivery=delivered)
                number += 1
            producer.poll(0)
        producer.flush(60)

    def _transact(self) -> None:
        producer = Producer(self._client(transactional_id="soak", transaction_timeout_ms=30000))
        try:
            producer.init_transactions(_TRANSACTIONS_ANSWER_S)
        except KafkaException as error:
            self.transactions = f"not offered by this broker: {error}"
            return
        self.transactions = "running"
        number = 0
        while not self.stop.wait(0.2):
            producer.begin_transaction()
            values = [b"transaction %d.%d" % (number, at) for at in range(10)]
            noted: list[tuple[int, int, bytes]] = []
            for value in values:
                producer.produce(
                    TRANSACTIONS, value,
                    on_delivery=lambda error, message, noted=noted: error or noted.append(
                        (message.partition(), message.offset(), message.value())
                    ),
                )  # fmt: skip
            if number % 4 == 3:
                producer.abort_transaction(30)
            else:
                producer.commit_transaction(30)
                for partition, offset, value in noted:
                    self.ledger.note(TRANSACTIONS, partition, offset, value)
            number += 1
        self._count("transactions", number)

    # -- readers

    def _consume_in_group(self, member: int) -> None:
        """Members 1 and 2 leave and come back, so the group rebalances every few seconds."""
        stays_s = (1e9, 7.0, 11.0)[member]
        while not self.stop.is_set():
            consumer = Consumer(
                self._client(
                    group_id="soak", auto_offset_reset="earliest", session_timeout_ms=10000,
                    partition_assignment_strategy="cooperative-sticky", auto_commit_interval_ms=1000,
                )
            )  # fmt: skip
            consumer.subscribe([f"soak-{codec}" for codec in CODECS])
            leaves = time.monotonic() + stays_s
            while not self.stop.is_set() and time.monotonic() < leaves:
                self._take(consumer.consume(200, 0.5), "consumed in the group")
            consumer.close()
            self._count("group joins")

    def _read_anywhere(self, number: int) -> None:
        dice = random.Random(number)
        consumer = Consumer(self._client(group_id=f"reader-{number}", enable_auto_commit=False))
        while not self.stop.wait(0.2):
            tp = TopicPartition(f"soak-{dice.choice(CODECS)}", dice.randrange(PARTITIONS))
            low, high = consumer.get_watermark_offsets(tp, 30)
            tp.offset = dice.randint(low, high)
            consumer.assign([tp])
            self._take(consumer.consume(500, 1.0), "read anywhere")
        consumer.close()

    def _take(self, messages: list[Any], what: str) -> None:
        for message in messages:
            if message.error() is None:
                self.ledger.check(message.topic(), message.partition(), message.offset(), message.value())
        self._count(what, len(messages))

    # -- admins

    def _create_and_delete(self) -> None:
        admin, producer, number = AdminClient(self._client()), Producer(self._client()), 0
        while not self.stop.wait(2.0):
            name = f"soak-passing-{number}"
            admin.create_topics([NewTopic(name, 4, 1)])[name].result(30)
            for _ in range(20):
                producer.produce(name, b"z" * 100)
            producer.flush(30)
            admin.delete_topics([name])[name].result(30)
            number += 1
        self._count("topics created and deleted", number)
