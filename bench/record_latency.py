"""Clients of `bench/broker.py` that look at single records: how long each one took.

    python bench/record_latency.py BOOTSTRAP TOPIC pair --records N    one at a time, producer to consumer
    python bench/record_latency.py BOOTSTRAP TOPIC steady              100 a second until a line comes in
    python bench/record_latency.py BOOTSTRAP TOPIC keys --mb N         few keys, many times, for the cleaner

The first two print one JSON object, `p50_ms` and `p99_ms`. librdkafka with its defaults, except that
`pair` and `steady` send at once (`linger.ms=0`).
"""

import argparse
import json
import os
import sys
import threading
import time
from statistics import quantiles

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

SIZE = 100
INTERVAL_S = 0.01


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bootstrap")
    parser.add_argument("topic")
    parser.add_argument("mode", choices=["pair", "steady", "keys"])
    parser.add_argument("--records", type=int, default=2000)
    parser.add_argument("--mb", type=float, default=100)
    parser.add_argument("--keys", type=int, default=50_000)
    options = parser.parse_args()
    if options.mode == "keys":
        write_keys(options.bootstrap, options.topic, options.mb, options.keys)
        return
    run = pair if options.mode == "pair" else steady
    times = sorted(run(options))
    cuts = quantiles(times, n=100)
    print(json.dumps({"p50_ms": cuts[49] * 1000, "p99_ms": cuts[98] * 1000, "count": len(times)}), flush=True)


def pair(options: argparse.Namespace) -> list[float]:
    """Seconds from `produce` to `poll` of each record; the first hundred warm up."""
    producer = Producer({"bootstrap.servers": options.bootstrap, "acks": "1", "linger.ms": 0})
    consumer = Consumer(
        {"bootstrap.servers": options.bootstrap, "group.id": "latency", "enable.auto.commit": False}
    )
    consumer.list_topics(options.topic, timeout=30)
    consumer.assign([TopicPartition(options.topic, 0, 0)])
    times = []
    for number in range(options.records + 100):
        began = time.perf_counter()
        producer.produce(options.topic, os.urandom(SIZE), partition=0)
        producer.poll(0)
        message = consumer.poll(30)
        if message is None or message.error():
            raise SystemExit(f"record {number} did not arrive")
        times.append(time.perf_counter() - began)
    producer.flush(10)
    consumer.close()
    return times[100:]


def steady(options: argparse.Namespace) -> list[float]:
    """Seconds from `produce` to the acknowledgement of each record."""
    producer = Producer({"bootstrap.servers": options.bootstrap, "acks": "1", "linger.ms": 0})
    producer.list_topics(options.topic, timeout=30)
    times: list[float] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise SystemExit(f"not delivered: {error}")
        times.append(message.latency() or 0.0)

    for _ in range(50):
        producer.produce(options.topic, os.urandom(SIZE), partition=0, on_delivery=delivered)
        producer.flush(10)
    times.clear()
    print("ready", flush=True)
    ended = threading.Event()

    def watch() -> None:
        sys.stdin.readline()
        ended.set()

    threading.Thread(target=watch, daemon=True).start()
    due = time.perf_counter()
    while not ended.is_set():
        producer.produce(options.topic, os.urandom(SIZE), partition=0, on_delivery=delivered)
        due += INTERVAL_S
        while (left := due - time.perf_counter()) > 0:
            producer.poll(left)
    producer.flush(30)
    return times


def write_keys(bootstrap: str, topic: str, mb: float, keys: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "1"})
    values = [os.urandom(1000) for _ in range(100)]
    for number in range(int(mb * 1000)):
        while True:
            try:
                producer.produce(topic, values[number % 100], key=b"%d" % (number % keys), partition=0)
                break
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
    producer.flush(60)


if __name__ == "__main__":
    main()
