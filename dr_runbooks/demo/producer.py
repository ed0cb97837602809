"""Writes a table to a topic at a steady rate and remembers what was acknowledged, where and when.

A plain librdkafka producer with idempotence, as an application would have it. It rides out an outage: what is
not acknowledged is sent again by the library, in order, until the cluster is back.
"""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Callable, Iterator

from confluent_kafka import KafkaError, Message, Producer

from dr_runbooks.demo.data import Row
from dr_runbooks.demo.fingerprint import fingerprint

DELIVERY_TIMEOUT_MS = 300_000


class TableProducer(threading.Thread):
    """`acked_*[i]` belong together: the i-th acknowledgement. `failed` lists errors; empty is the promise."""

    def __init__(
        self, bootstrap_servers: str, topic: str, rows: Iterator[Row], total: int, rate_per_s: float
    ) -> None:
        super().__init__(name=f"produce-{topic}", daemon=True)
        self.topic = topic
        self.total = total
        self.sent = 0
        self.acked_partition = array("i")
        self.acked_offset = array("q")
        self.acked_at = array("d")
        self.sent_fingerprints = array("Q")
        self.failed: list[str] = []
        self._rows = rows
        self._rate = rate_per_s
        self._stop_now = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "client.id": f"isthmus-demo-{topic}",
                "enable.idempotence": True,
                "compression.type": "lz4",
                "linger.ms": 20,
                "partitioner": "murmur2_random",
                "message.timeout.ms": DELIVERY_TIMEOUT_MS,
                "queue.buffering.max.messages": 500_000,
                "queue.buffering.max.kbytes": 262_144,
                "reconnect.backoff.max.ms": 1000,
                "log_level": 0,
            }
        )

    @property
    def acked(self) -> int:
        return len(self.acked_at)

    def run(self) -> None:
        started = time.monotonic()
        for row in self._rows:
            self._send(row)
            self._producer.poll(0)
            ahead = self.sent / self._rate - (time.monotonic() - started)
            if ahead > 0.02:
                self._producer.poll(ahead)
            if self._stop_now.is_set():
                return
        while self._producer.flush(0.5) and not self._stop_now.is_set():
            pass

    def stop(self) -> None:
        """Give up: what is not acknowledged stays so."""
        self._stop_now.set()
        self.join()
        self._producer.purge()
        self._producer.flush(5)

    def _send(self, row: Row) -> None:
        on_delivery: Callable[[KafkaError | None, Message], None] = self._delivered
        while True:
            try:
                self._producer.produce(
                    self.topic, row.value, row.key, timestamp=row.timestamp_ms, on_delivery=on_delivery
                )
            except BufferError:
                self._producer.poll(0.1)  # the library's queue is full: an outage lasts
                if self._stop_now.is_set():
                    return
            else:
                break
        self.sent_fingerprints.append(fingerprint(row.value))
        self.sent += 1

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(str(error))
            return
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        self.acked_partition.append(partition)
        self.acked_offset.append(offset)
        self.acked_at.append(time.time())
