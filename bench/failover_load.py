"""The producer of `bench/failover.py`: acks=all, one record every few milliseconds, in turn over partitions.

    python bench/failover_load.py BOOTSTRAP TOPIC:PARTITION,… [--every-ms 5]

Reads commands from its input: `begin` starts a window once all is acknowledged, `report` ends it and prints
one JSON object. In it `gap_ms` is the longest time without an acknowledgement in any one partition, up to the
end of the window, `slowest_ms` the longest that a record waited for its acknowledgement, `all_gap_ms`
the longest time without an acknowledgement in all of them. librdkafka's defaults otherwise.
"""

from __future__ import annotations

import argparse
import json
import select
import sys
import time
from collections import defaultdict
from functools import partial
from itertools import pairwise
from typing import Any

from confluent_kafka import KafkaError, Message, Producer


class Window:
    """When records were sent and acknowledged, by partition."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.acknowledged: dict[int, list[float]] = defaultdict(list)
        self.slowest = 0.0
        self.sent = 0
        self.errors: dict[str, int] = defaultdict(int)

    def delivered(self, key: int, sent: float, error: KafkaError | None, _: Message) -> None:
        now = time.monotonic()
        if error is not None:
            self.errors[error.name()] += 1
            return
        self.slowest = max(self.slowest, now - sent)
        self.acknowledged[key].append(now)

    def report(self) -> dict[str, Any]:
        every = sorted(time for times in self.acknowledged.values() for time in times)
        now = time.monotonic()
        gaps = [longest([self.began, *times, now]) for times in self.acknowledged.values()]
        return {
            "gap_ms": 1000 * max(gaps, default=0.0),
            "all_gap_ms": 1000 * longest([self.began, *every, now]),
            "slowest_ms": 1000 * self.slowest,
            "sent": self.sent,
            "acknowledged": len(every),
            "errors": dict(self.errors),
        }


def longest(times: list[float]) -> float:
    return max(after - before for before, after in pairwise(times))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bootstrap")
    parser.add_argument("partitions")
    parser.add_argument("--every-ms", type=float, default=5.0)
    parser.add_argument("--debug", default="", help="librdkafka's debug contexts, on standard error")
    options = parser.parse_args()
    partitions = [
        (topic, int(index))
        for topic, _, index in (text.rpartition(":") for text in options.partitions.split(","))
    ]
    settings = {"bootstrap.servers": options.bootstrap, "acks": "all", "linger.ms": 0}
    producer = Producer(
        settings | ({"debug": options.debug, "log_level": 7} if options.debug else {"log_level": 0})
    )
    window, turn, due = Window(), 0, time.monotonic()
    print("ready", flush=True)
    while True:
        producer.poll(max(due - time.monotonic(), 0))
        if time.monotonic() >= due:
            due = max(due + options.every_ms / 1000, time.monotonic() - 1)
            topic, index = partitions[turn % len(partitions)]
            sent = time.monotonic()
            producer.produce(
                topic,
                b"x" * 100,
                partition=index,
                on_delivery=partial(window.delivered, turn % len(partitions), sent),
            )
            window.sent += 1
            turn += 1
        if select.select([sys.stdin], [], [], 0)[0]:
            command = sys.stdin.readline().strip()
            if command == "begin":
                producer.flush(60)
                window, due = Window(), time.monotonic()
                print("begun", flush=True)
            elif command == "report":
                producer.flush(60)
                print(json.dumps(window.report()), flush=True)
            else:
                return


if __name__ == "__main__":
    main()
