"""What every client of a run shares: the history it writes, numbers that are given once, when to stop.

A client is a thread with a name; it says by `beat` that it is alive. librdkafka's calls may hang for ever in
rare cases, so a client that is silent for long is left behind and another one takes its name.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, Message

from tests.chaos.history import History, Outcome, Place, Send, Transaction

INPUT, OUTPUT = "chaos", "chaos-out"
PARTITIONS = 3
CALL_S = 20.0
"""Bound of a blocking call."""

COMMON: Mapping[str, str | int | bool] = {
    "log_level": 0,
    "socket.timeout.ms": 10_000,
    "reconnect.backoff.max.ms": 500,
    "topic.metadata.refresh.interval.ms": 5_000,
}


class Ledger:
    """The history while it is written, by many threads."""

    def __init__(self) -> None:
        self.history = History()
        self._values = itertools.count(1)
        self._transactions = itertools.count(1)
        self._lock = threading.Lock()

    def send(
        self,
        name: str,
        place: Place,
        *,
        transaction: int | None = None,
        source: int | None = None,
        is_exact: bool = True,
    ) -> Send:
        with self._lock:
            send = Send(
                name,
                place,
                next(self._values),
                transaction=transaction,
                source=source,
                is_exact=is_exact,
            )
            self.history.sends.append(send)
        return send

    def begin(self) -> int:
        """The number of a new transaction."""
        number = next(self._transactions)
        self.history.transactions[number] = Transaction()
        return number


def told(send: Send) -> Callable[[KafkaError | None, Message], None]:
    """The callback that notes what the broker said of a send."""

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is None:
            offset = message.offset()
            send.offset = -1 if offset is None else offset
            send.outcome = Outcome.DONE
        # An error, a timeout among them, says nothing about whether it was stored.

    return delivered


@dataclass
class Client:
    name: str
    bootstrap: str
    ledger: Ledger
    chance: random.Random
    ended: threading.Event
    """Of the whole run."""
    pause_s: float
    left: bool = False
    """Nobody waits for this one any more."""
    beat_at: float = field(default_factory=time.monotonic)

    @property
    def goes_on(self) -> bool:
        self.beat()
        return not (self.left or self.ended.is_set())

    def beat(self) -> None:
        self.beat_at = time.monotonic()

    def place(self, topic: str = INPUT) -> Place:
        return Place(topic, self.chance.randrange(PARTITIONS))
