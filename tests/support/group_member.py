"""A confluent-kafka consumer in a thread of its own, as in a service, that says what it holds."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from confluent_kafka import Consumer, TopicPartition

BOUND_S = 40.0


class GroupMember:
    """Polls from `start` to `stop`. `held` are the partitions it owns; `rebalances` counts assignments."""

    def __init__(self, bootstrap: str, group: str, topic: str, **settings: Any) -> None:
        self.held: set[int] = set()
        self.rebalances = 0
        self.lost = 0
        self.values: list[bytes] = []
        self.errors: list[str] = []
        self._topic = topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"member of {group}", daemon=True)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 300,
                "auto.commit.interval.ms": 200,
                "reconnect.backoff.max.ms": 500,
                "error_cb": lambda error: self.errors.append(str(error)),
            }
            | {name.replace("_", "."): value for name, value in settings.items()}
        )

    def start(self) -> GroupMember:
        self._thread.start()
        return self

    def stop(self) -> None:
        """Leave (a static member only goes away)."""
        self._stop.set()
        self._thread.join(BOUND_S)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        self._consumer.subscribe(
            [self._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )
        while not self._stop.is_set():
            message = self._consumer.poll(0.1)
            if message is None:
                continue
            if message.error() is None:
                self.values.append(message.value())
            else:
                self.errors.append(str(message.error()))
        self._consumer.close()

    def _assigned(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.rebalances += 1
        self.held |= {each.partition for each in partitions}

    def _revoked(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.held -= {each.partition for each in partitions}

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.lost += 1
        self._revoked(consumer, partitions)


def shared_out(members: Iterable[GroupMember], partitions: int) -> bool:
    """Whether the partitions are held, each by exactly one of the members, and nobody goes without."""
    held = [set(member.held) for member in members]
    return all(held) and sorted(each for one in held for each in one) == list(range(partitions))
