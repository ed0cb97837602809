"""A consumer group's one member that follows the client configuration file: the application to fail over.

It subscribes as the file says, remembers every record it was given and when, and moves when the file changes.
The old consumer is closed in the background, since its cluster may be gone.
"""

from __future__ import annotations

import threading
import time
from array import array
from pathlib import Path

from confluent_kafka import Consumer

from dr_runbooks.clients import ClientConfig, read_client_config
from dr_runbooks.demo.fingerprint import fingerprint

BATCH = 2000


class GroupReader(threading.Thread):
    """`read_*[i]` belong together: the i-th record that the application was given."""

    def __init__(self, config_file: Path, group: str) -> None:
        super().__init__(name=f"read-{group}", daemon=True)
        self.group = group
        self.read_fingerprints = array("Q")
        self.read_generation = array("i")
        self.first_read_at: dict[int, float] = {}
        """By configuration generation: when its first record arrived (epoch seconds)."""
        self.errors: list[str] = []
        self._file = config_file
        self._stop_now = threading.Event()
        self._closing: list[threading.Thread] = []

    @property
    def read(self) -> int:
        return len(self.read_fingerprints)

    def run(self) -> None:
        config = read_client_config(self._file)
        consumer = self._open(config)
        while not self._stop_now.is_set():
            fresh = read_client_config(self._file)
            if fresh.generation != config.generation:
                self._close_behind(consumer)
                config, consumer = fresh, self._open(fresh)
            self._take(consumer, config)
        consumer.close()

    def stop(self) -> None:
        """Commit, leave the group and end."""
        self._stop_now.set()
        self.join()
        for thread in self._closing:
            thread.join(timeout=5)

    def _open(self, config: ClientConfig) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": config.bootstrap_servers,
                "group.id": self.group,
                "client.id": "isthmus-demo-reader",
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 500,
                "session.timeout.ms": 10_000,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        consumer.subscribe(list(config.topics))
        return consumer

    def _take(self, consumer: Consumer, config: ClientConfig) -> None:
        for message in consumer.consume(BATCH, timeout=0.1):
            if message.error() is not None:
                self.errors.append(str(message.error()))
                continue
            if config.generation not in self.first_read_at:
                self.first_read_at[config.generation] = time.time()
            self.read_fingerprints.append(fingerprint(message.value() or b""))
            self.read_generation.append(config.generation)

    def _close_behind(self, consumer: Consumer) -> None:
        thread = threading.Thread(target=consumer.close, daemon=True)
        thread.start()
        self._closing.append(thread)
