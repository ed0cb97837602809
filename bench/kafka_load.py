"""The client of `bench/broker.py`: one load against one broker, librdkafka with default settings.

    python bench/kafka_load.py produce|consume BOOTSTRAP TOPIC --size BYTES --mb N [--acks A] [--codec C]

Connects, prints `ready`, waits for a line on its input, runs the load, prints one JSON object:
`seconds`, `bytes` (of record values), `records`.
"""

import argparse
import json
import os
import random
import sys
import time
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

CHUNK = 5_000
POLL_S = 0.2


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
    producer = Producer(
        {"bootstrap.servers": options.bootstrap, "acks": options.acks, "compression.type": options.codec}
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
    return {"seconds": seconds, "bytes": sent * options.size, "records": sent}


def consume(options: argparse.Namespace) -> dict[str, Any]:
    consumer = Consumer(
        {"bootstrap.servers": options.bootstrap, "group.id": "bench", "enable.auto.commit": False}
    )
    metadata = consumer.list_topics(options.topic, timeout=30)
    partitions = metadata.topics[options.topic].partitions
    ends = [consumer.get_watermark_offsets(TopicPartition(options.topic, index)) for index in partitions]
    total = sum(high - low for low, high in ends)
    begin = await_start()
    consumer.assign([TopicPartition(options.topic, index, 0) for index in partitions])
    got = 0
    while got < total:
        got += sum(message.error() is None for message in consumer.consume(10_000, POLL_S))
    seconds = time.perf_counter() - begin
    consumer.close()
    return {"seconds": seconds, "bytes": got * options.size, "records": got}


if __name__ == "__main__":
    main()
