"""What is copied: records that look like JSON, in the batches that a row asks for.

Owns filling source topics. A topic is filled once and copied by all contenders.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Producer

from bench.brokers.limits import RowFailed

_VALUES = 2000
_FLUSHED_WITHIN_S = 300


@dataclass(frozen=True, kw_only=True)
class Data:
    """`count` records of `size` bytes each (values; keys of 8 bytes come on top)."""

    count: int
    size: int
    codec: str = "none"
    partitions: int = 6
    one_by_one: bool = False
    """Each record in a batch of its own."""

    @property
    def megabytes(self) -> float:
        return self.count * self.size / 1e6


def values(size: int) -> list[bytes]:
    """Different values of one size; they compress by a factor of three to four."""
    dice = random.Random(7)
    words = [f'"{dice.randrange(16**6):06x}": "{dice.choice(["east", "west", "north"])}"' for _ in range(400)]
    made = []
    for number in range(_VALUES):
        text = "{" + ", ".join([f'"id": {number}', *dice.choices(words, k=size // 16 + 1)]) + "}"
        made.append(text[:size].ljust(size).encode())
    return made


def fill(bootstrap: str, topic: str, data: Data) -> None:
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "compression.type": data.codec,
        "batch.size": 65536,
        "linger.ms": 50,
        "queue.buffering.max.kbytes": 262144,
    }
    if data.one_by_one:
        settings |= {"batch.num.messages": 1, "linger.ms": 0}
    producer = Producer(settings)
    made = values(data.size)
    for number in range(data.count):
        key, value = b"%08d" % number, made[number % _VALUES]
        while True:
            try:
                producer.produce(topic, key=key, value=value, partition=number % data.partitions)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    if producer.flush(_FLUSHED_WITHIN_S):
        raise RowFailed(f"the source topic could not be filled within {_FLUSHED_WITHIN_S} s")
