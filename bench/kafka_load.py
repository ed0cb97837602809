"""The client of `bench/broker.py`: one load against one broker.

    python bench/kafka_load.py produce|consume BOOTSTRAP TOPIC --size BYTES --mb N [--acks A] [--codec C]

Connects, prints `ready`, waits for a line on its input, runs the load, prints one JSON object:
`seconds`, `bytes` (of record values), `records`, and the round trips of requests as librdkafka saw them
(`p50_ms`, `p99_ms`: medians over windows of a quarter of a second).

All settings are librdkafka's defaults. Consuming is librdkafka's own work where its library can be reached
(`native_reader.py`): a Python consumer is the slowest part, its queue is full, and librdkafka then stops
fetching for a second (`fetch.queue.backoff.ms`, which `--queue-backoff-ms` sets). `--python` consumes so.
"""

import argparse
import json
import os
import random
import sys
import time
from statistics import median
from typing import Any

import native_reader
from confluent_kafka import Consumer, Producer, TopicPartition

CHUNK = 5_000
POLL_S = 0.2
STATISTICS_MS = 250


class RoundTrips:
    """Collects the broker's windows from librdkafka's statistics."""

    def __init__(self) -> None:
        self._p50: list[float] = []
        self._p99: list[float] = []

    def take(self, statistics: str) -> None:
        for broker in json.loads(statistics)["brokers"].values():
            window = broker["rtt"]
            if broker["nodeid"] >= 0 and window["p50"]:  # 0 also where it was beyond librdkafka's scale
                self._p50.append(window["p50"] / 1000)
                self._p99.append(window["p99"] / 1000)

    def result(self) -> dict[str, float | None]:
        if not self._p50:
            return {"p50_ms": None, "p99_ms": None}
        return {"p50_ms": median(self._p50), "p99_ms": median(self._p99)}


def main() -> None:
    options = arguments()
    load = produce if options.load == "produce" else consume
    print(json.dumps(load(options)), flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("load", choices=["produce", "consume"])
    parser.add_argument("bootstrap")
    parser.add_argument("topic")
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument("--mb", type=float, default=100)
    parser.add_argument("--acks", default="1")
    parser.add_argument("--codec", default="none")
    parser.add_argument("--queue-backoff-ms", type=int)
    parser.add_argument("--python", action="store_true", help="consume message by message in Python")
    return parser.parse_args()


def await_start() -> float:
    print("ready", flush=True)
    sys.stdin.readline()
    return time.perf_counter()


def values(size: int, codec: str) -> list[bytes]:
    """Random bytes where nothing compresses, and text of a few words where something shall."""
    if codec == "none":
        return [os.urandom(size) for _ in range(500)]
    words = [b"%x" % random.randrange(1 << 40) for _ in range(300)]
    return [b" ".join(random.choices(words, k=size // 8 + 1))[:size].ljust(size, b".") for _ in range(500)]


def produce(options: argparse.Namespace) -> dict[str, Any]:
    trips = RoundTrips()
    producer = Producer(
        {
            "bootstrap.servers": options.bootstrap,
            "acks": options.acks,
            "compression.type": options.codec,
            "statistics.interval.ms": STATISTICS_MS,
            "stats_cb": trips.take,
        }
    )
    producer.list_topics(options.topic, timeout=30)
    messages = [{"value": value} for value in values(options.size, options.codec)]
    chunk = (messages * (CHUNK // len(messages)))[: max(50, min(CHUNK, 4_000_000 // options.size))]
    total = max(len(chunk), int(options.mb * 1e6) // options.size)
    begin = await_start()
    sent = 0
    while sent < total:
        try:
            sent += producer.produce_batch(options.topic, chunk)
        except BufferError:
            producer.poll(0.01)
        producer.poll(0)
        while len(producer) > 60_000:  # default limit of the queue: 100,000 messages
            producer.poll(0.005)
    left = producer.flush(120)
    seconds = time.perf_counter() - begin
    if left:
        raise SystemExit(f"{left} messages were not delivered")
    return {"seconds": seconds, "bytes": sent * options.size, "records": sent, **trips.result()}


def consume(options: argparse.Namespace) -> dict[str, Any]:
    """By librdkafka alone where it can be reached, for Python would be what is measured (`native_reader`)."""
    if options.python or not native_reader.available():
        return consume_in_python(options)
    partitions, total = what_there_is(options)
    reader = native_reader.NativeReader(
        {"bootstrap.servers": options.bootstrap, "group.id": "bench", "enable.auto.commit": "false"}
    )
    begin = await_start()
    reader.assign(options.topic, partitions)
    got = 0
    while got < total:
        got += reader.read()
    seconds = time.perf_counter() - begin
    reader.close()
    return {
        "seconds": seconds,
        "bytes": got * options.size,
        "records": got,
        "p50_ms": None,
        "p99_ms": None,
    }


def what_there_is(options: argparse.Namespace) -> tuple[int, int]:
    """Partitions and records of the topic."""
    consumer = Consumer({"bootstrap.servers": options.bootstrap, "group.id": "bench"})
    partitions = consumer.list_topics(options.topic, timeout=30).topics[options.topic].partitions
    ends = [consumer.get_watermark_offsets(TopicPartition(options.topic, index)) for index in partitions]
    consumer.close()
    return len(partitions), sum(high - low for low, high in ends)


def consume_in_python(options: argparse.Namespace) -> dict[str, Any]:
    trips = RoundTrips()
    backoff_ms: int | None = options.queue_backoff_ms
    consumer = Consumer(
        {
            "bootstrap.servers": options.bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "statistics.interval.ms": STATISTICS_MS,
            "stats_cb": trips.take,
            **({} if backoff_ms is None else {"fetch.queue.backoff.ms": backoff_ms}),
        }
    )
    partitions, total = what_there_is(options)
    begin = await_start()
    consumer.assign([TopicPartition(options.topic, index, 0) for index in range(partitions)])
    got = 0
    while got < total:
        got += sum(message.error() is None for message in consumer.consume(10_000, POLL_S))
    seconds = time.perf_counter() - begin
    consumer.close()
    return {"seconds": seconds, "bytes": got * options.size, "records": got, **trips.result()}


if __name__ == "__main__":
    main()
