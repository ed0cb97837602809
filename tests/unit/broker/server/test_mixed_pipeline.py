"""One connection, many requests at once, of all kinds: every answer in its place, every record at its offset.

Some appends are answered at once (one function for all partitions), some by the general way, some wait for
the disk, some are refused, some have no answer; readers wait between them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any

from protocol.codec import decode_from
from protocol.errors import ErrorCode
from protocol.frames import encode_request
from protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.fetch_response import FetchResponse
from protocol.messages.metadata_request import MetadataRequest
from protocol.messages.metadata_response import MetadataResponse
from protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.produce_response import ProduceResponse
from tests.support.served import Served, batch

ROUNDS = 40
IN_A_ROUND = 30
BOUND_S = 60.0
PRODUCE = 9
"""The first version whose plain requests go the short way."""
FETCH = 12
TOPICS = ("plain", "waits", "stamps")
PARTITIONS = 2


@dataclass
class Asked:
    response: Any
    version: int
    expected: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    """Code and base offset by partition."""
    number: int = 0


class Client:
    """What it sends, and what has to come back: the log's ends are counted here as well."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.ends: Counter[tuple[str, int]] = Counter()
        self.asked: list[Asked] = []
        self.number = 0

    def requests(self, count: int) -> bytes:
        return b"".join(self._next() for _ in range(count))

    def _next(self) -> bytes:
        kind = self.random.choice(("produce", "produce", "produce", "mute", "fetch", "metadata"))
        return bytes(getattr(self, f"_{kind}")())

    def _framed(self, request: Any, version: int, asked: Asked | None) -> bytes:
        self.number += 1
        if asked is not None:
            asked.number = self.number
            self.asked.append(asked)
        return b"".join(bytes(part) for part in encode_request(request, version, self.number, "mixed"))

    def _batches(self, asked: Asked, *, refusals: bool) -> list[TopicProduceData]:
        random, topics = self.random, []
        for topic in random.sample(TOPICS, random.randint(1, len(TOPICS))):
            parts = []
            for index in random.sample(range(PARTITIONS), random.randint(1, PARTITIONS)):
                values = [b"v" * random.choice((1, 100, 20_000))] * random.randint(1, 3)
                data = bytearray(batch(*values))
                at = topic, index
                if refusals and random.random() < 0.15:
                    data[-1] ^= 1
                    asked.expected[at] = ErrorCode.CORRUPT_MESSAGE, -1
                else:
                    asked.expected[at] = ErrorCode.NONE, self.ends[at]
                    self.ends[at] += len(values)
                parts.append(PartitionProduceData(index=index, records=bytes(data)))
            topics.append(TopicProduceData(name=topic, partition_data=parts))
        return topics

    def _produce(self) -> bytes:
        asked = Asked(ProduceResponse, PRODUCE)
        topics = self._batches(asked, refusals=True)
        if self.random.random() < 0.2:
            missing = PartitionProduceData(index=PARTITIONS, records=batch(b"x"))
            topics.append(TopicProduceData(name="nowhere", partition_data=[missing]))
            asked.expected["nowhere", PARTITIONS] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1
        acks = self.random.choice((1, -1))
        return self._framed(ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=topics), PRODUCE, asked)

    def _mute(self) -> bytes:
        topics = self._batches(Asked(ProduceResponse, PRODUCE), refusals=False)
        return self._framed(ProduceRequest(acks=0, timeout_ms=30_000, topic_data=topics), PRODUCE, None)

    def _fetch(self) -> bytes:
        topic, index = self.random.choice(TOPICS), self.random.randrange(PARTITIONS)
        wanted = FetchPartition(
            partition=index, fetch_offset=self.random.randint(0, self.ends[topic, index]),
            partition_max_bytes=self.random.choice((1, 200_000)),
        )  # fmt: skip
        request = FetchRequest(
            max_wait_ms=self.random.choice((0, 20)), min_bytes=1, max_bytes=1 << 20,
            topics=[FetchTopic(topic=topic, partitions=[wanted])],
        )  # fmt: skip
        return self._framed(request, FETCH, Asked(FetchResponse, FETCH))

    def _metadata(self) -> bytes:
        return self._framed(MetadataRequest(topics=[]), 9, Asked(MetadataResponse, 9))


async def test_every_answer_comes_in_its_place(node: Served) -> None:
    node.topics.create("plain", partitions=PARTITIONS)
    node.topics.create("waits", partitions=PARTITIONS, flush_messages=1)
    node.topics.create("stamps", partitions=PARTITIONS, message_timestamp_type="LogAppendTime")
    client = Client(Random(20261128))
    reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
    try:
        async with asyncio.timeout(BOUND_S):
            for _ in range(ROUNDS):
                first = len(client.asked)
                writer.write(client.requests(IN_A_ROUND))
                for asked in client.asked[first:]:
                    size = int.from_bytes(await reader.readexactly(4))
                    check(asked, await reader.readexactly(size))
    finally:
        writer.close()
        await writer.wait_closed()
    stored = {(t, i): node.broker.replicas.leader(t, i).log for t in TOPICS for i in range(PARTITIONS)}
    assert {at: log.end_offset for at, log in stored.items()} == dict(client.ends)
    assert all(log.high_watermark == log.end_offset for log in stored.values())


def check(asked: Asked, frame: bytes) -> None:
    assert int.from_bytes(frame[:4]) == asked.number
    response, end = decode_from(asked.response, asked.version, frame, 5)
    assert end == len(frame)
    if asked.response is ProduceResponse:
        found = {
            (topic.name, part.index): (part.error_code, part.base_offset)
            for topic in response.responses
            for part in topic.partition_responses
        }
        assert found == asked.expected
