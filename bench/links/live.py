"""Copying what comes in: how late 1,000 records a second are at the target, and when a new topic is seen.

Latency runs from the producer's call to the consumer's at the target, both of librdkafka in this process
and without pauses of their own (`linger.ms` 0), so producing and consuming (half a millisecond each) are in
all contenders' figures. These clients go before everything else, as if they were on machines of their own:
what is asked is how late a record is, and not when this process had its turn. Nothing is set otherwise than
for catching up.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import struct
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import NamedTuple

from confluent_kafka import OFFSET_END, Consumer, Producer
from confluent_kafka import TopicPartition as Place

from bench.brokers.limits import RowFailed
from bench.links.catch_up import Figures, ends
from bench.links.sides import MM2, Ground, copying
from protocol.client import ClusterClient, NewTopic

RATE = 1000
_SIZE = 1000
_WARM_S = 10.0
_MEASURED_S = 20.0
_PARTITIONS = 6
_STAMP = struct.Struct(">q")
_FIRST = -15
"""Niceness, where that may be set (by root)."""


async def live(contender: str, between: Ground) -> Figures:
    """Latency, and seconds until a new topic's record is at the target: None where discovery is left at ten
    minutes (MirrorMaker 2 as it comes)."""
    topic = between.source.topic(_PARTITIONS)
    async with (
        ClusterClient(between.target.bootstrap) as client,
        copying(contender, between, f"{topic}(-new)?") as copier,
    ):
        at_target = copier.at_target(topic)
        with Feed(between.source.bootstrap, topic):
            while not await ends(client, at_target, _PARTITIONS):
                copier.cpu_s()
                await asyncio.sleep(0.1)
            arrivals = await asyncio.to_thread(_listen, between.target.bootstrap, at_target)
        figures = {**_percentiles([arrival.took_s for arrival in arrivals]), "resident_mb": copier.peak_mb()}
        figures["new_topic_s"] = (
            None if contender == MM2 else await _new_topic(client, between, copier.at_target, topic)
        )
        return figures


async def without_a_link(between: Ground) -> Figures:
    """Latency by a link that takes no time: what none can save. Both brokers get such records, each to a
    consumer of its own; who has arrived at the source goes on as the one that leaves next for the target."""
    sides = [(side.bootstrap, side.topic(_PARTITIONS)) for side in (between.source, between.target)]
    with contextlib.ExitStack() as feeds:
        for bootstrap, topic in sides:
            feeds.enter_context(Feed(bootstrap, topic))
        ways = await asyncio.gather(*(asyncio.to_thread(_listen, *side) for side in sides))
    onward = sorted(ways[1])
    left_at = [arrival.sent_s for arrival in onward]
    whole = []
    for sent_s, took_s in ways[0]:
        following = bisect_left(left_at, sent_s + took_s)
        if following < len(onward):
            whole.append(took_s + onward[following].took_s)
    return _percentiles(whole)


class _Arrival(NamedTuple):
    sent_s: float
    """By the monotonic clock."""
    took_s: float


def _percentiles(latencies: list[float]) -> Figures:
    if len(latencies) < RATE * _MEASURED_S / 2:
        raise RowFailed(f"only {len(latencies)} records in {_MEASURED_S:g} s: the machine is too busy")
    latencies.sort()
    return {
        "p50_ms": latencies[len(latencies) // 2] * 1000,
        "p99_ms": latencies[len(latencies) * 99 // 100] * 1000,
    }


@contextlib.contextmanager
def _first() -> Iterator[None]:
    """This thread, and those that it begins inside."""
    own = os.getpriority(os.PRIO_PROCESS, 0)
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, _FIRST)
    try:
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, own)


class Feed:
    """Produces at a steady rate, each record with the time of its call, until the body ends."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        with _first():
            self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
        self._topic = topic
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Feed:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        with _first():
            self._feed()

    def _feed(self) -> None:
        filler = b"x" * (_SIZE - _STAMP.size)
        begun, sent = time.monotonic(), 0
        while not self._ending.is_set():
            due = int((time.monotonic() - begun) * RATE)
            # What could not be sent in time is not made up for in one burst.
            begun, due = (
                (begun + (due - sent - RATE) / RATE, sent + RATE) if due - sent > RATE else (begun, due)
            )
            for number in range(sent, due):
                value = _STAMP.pack(time.monotonic_ns()) + filler
                self._producer.produce(self._topic, value=value, partition=number % _PARTITIONS)
            sent = due
            self._producer.poll(0)
            time.sleep(0.0005)
        self._producer.flush(30)


def _listen(bootstrap: str, topic: str) -> list[_Arrival]:
    with _first():
        return _heard(bootstrap, topic)


def _heard(bootstrap: str, topic: str) -> list[_Arrival]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False})
    consumer.assign([Place(topic, partition, OFFSET_END) for partition in range(_PARTITIONS)])
    found: list[_Arrival] = []
    begun = time.monotonic()
    try:
        while (now := time.monotonic()) < begun + _WARM_S + _MEASURED_S:
            message = consumer.poll(0.1)  # `consume` waits for more than the first one
            if message is not None and not message.error() and now > begun + _WARM_S:
                (sent,) = _STAMP.unpack_from(message.value() or b"")
                found.append(_Arrival(sent / 1e9, (time.monotonic_ns() - sent) / 1e9))
    finally:
        consumer.close()
    return found


async def _new_topic(
    client: ClusterClient, between: Ground, at_target: Callable[[str], str], topic: str
) -> float:
    name = f"{topic}-new"
    async with ClusterClient(between.source.bootstrap) as source:
        await source.create_topics([NewTopic(name, 1, 1)])
    producer = Producer({"bootstrap.servers": between.source.bootstrap})
    began = time.monotonic()
    producer.produce(name, value=b"first")
    await asyncio.to_thread(producer.flush, 30)
    while not await ends(client, at_target(name), 1):  # noqa: ASYNC110 (polls a broker)
        await asyncio.sleep(0.02)
    return time.monotonic() - began
