"""The loads that are compared, and what our side must reach of Kafka's: plain data.

Ratios are ours divided by Kafka's in the same run. None as `must_*`: shown, not demanded.
"""

from __future__ import annotations

from dataclasses import dataclass

LIBRDKAFKA = "librdkafka"
JAVA = "java"
PRODUCE = "produce"
FETCH = "consume"
# Zero copy is what Kafka does too; the aim is 1.0.
FETCH_CPU = 0.7
SIZES = {"100 B": 100, "1 KB": 1000, "10 KB": 10_000}


@dataclass(frozen=True, kw_only=True)
class Case:
    load: str
    size: int
    client: str = LIBRDKAFKA
    partitions: int = 6
    acks: str = "1"
    codec: str = "none"
    must_mb_s: float | None = None
    must_cpu: float | None = None
    backoff_ms: int | None = None
    """librdkafka's `fetch.queue.backoff.ms`; None is its default."""
    share: float = 1.0
    """Of the data of a run: what a client reads slowly would take most of the time."""

    @property
    def name(self) -> str:
        size = next(label for label, size in SIZES.items() if size == self.size)
        words = ["fetch" if self.load == FETCH else "produce", size]
        if self.load == PRODUCE:
            words.append(f"acks={self.acks}")
        words.append(self.codec)
        if self.partitions != 6:
            words.append(f"{self.partitions} partition")
        if self.backoff_ms is not None:
            words.append(f"backoff {self.backoff_ms} ms")
        return " ".join(words) + (" (java)" if self.client == JAVA else "")


def _produce(size: int, **options: object) -> Case:
    return Case(load=PRODUCE, size=size, must_mb_s=1.0, must_cpu=1.0, **options)  # type: ignore[arg-type]


def _fetch(size: int, **options: object) -> Case:
    return Case(load=FETCH, size=size, must_mb_s=1.0, must_cpu=FETCH_CPU, **options)  # type: ignore[arg-type]


CASES = (
    _produce(1000),
    _produce(1000, codec="lz4"),
    _produce(1000, codec="zstd"),
    _produce(1000, acks="all", partitions=1),
    _produce(100, acks="all"),
    _produce(10_000),
    _produce(1000, client=JAVA),
    _produce(1000, client=JAVA, codec="lz4"),
    _produce(100, client=JAVA),
    _fetch(1000),
    _fetch(1000, codec="lz4"),
    _fetch(1000, client=JAVA),
    Case(load=FETCH, size=1000, backoff_ms=1),
    Case(load=FETCH, size=1000, codec="lz4", backoff_ms=1),
    Case(load=FETCH, size=100, share=0.2),
    Case(load=FETCH, size=10_000),
)
