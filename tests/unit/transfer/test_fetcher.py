"""The connections that read from one broker."""

import asyncio
from collections import Counter

import pytest

from protocol.codec import decode
from protocol.errors import ErrorCode, ProtocolError
from protocol.frames import encode_response
from protocol.messages.fetch_request import FetchRequest
from protocol.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from protocol.records import Record, build_batch
from protocol.types import TopicPartition
from transfer.kafka.fetcher import BrokerFetcher, FetchSettings
from transfer.kafka.reading import Reading


class Connection:
    """Answers that there is nothing, once; its session ends then."""

    closed = retired = False

    def version_of(self, request, newest=None):
        return 12

    async def frame(self, request, version, body):
        if self.retired:
            raise AssertionError("asked again")
        self.retired = True
        return memoryview(b"".join(encode_response(FetchResponse(), version, 1))[4:])

    async def close(self):
        self.closed = True


async def test_a_session_that_ends_is_left_for_a_new_one():
    """KIP-368: a broker drops the connection of who asks on."""
    dialled, faults = [], []

    async def dial(lane):
        dialled.append(Connection())
        await asyncio.sleep(0)
        return dialled[-1]

    async def nothing(*_):
        pass

    reading = Reading(TopicPartition("a", 0), 0, leader=1)
    settings = FetchSettings(connections_per_broker=1)
    fetcher = BrokerFetcher(dial, settings, lambda: [reading], nothing, nothing, faults.append)
    async with asyncio.timeout(10):
        while len(dialled) < 3:
            await asyncio.sleep(0)
    await fetcher.close()
    assert not faults


class Filled:
    """Has a batch of so many bytes for whoever asks, by Kafka's limits: the first one whatever its size
    (KIP-74), then whole ones within the partition's and the answer's limit."""

    closed = retired = False

    def __init__(self, sizes: dict[int, int], left: dict[int, int]) -> None:
        self._sizes, self._left = sizes, left
        """Bytes of a batch; records that are behind it."""
        self.served: list[list[int]] = []
        """Partitions with data, by answer."""

    def version_of(self, request, newest=None):
        return 12

    async def frame(self, request, version, body):
        asked = decode(FetchRequest, version, memoryview(b"".join(body)))
        answer = FetchableTopicResponse(topic="a")
        room, served = asked.max_bytes, []
        for part in asked.topics[0].partitions:
            index, at = part.partition, part.fetch_offset
            end = at + 1 + self._left[index]
            row = PartitionData(
                partition_index=index, high_watermark=end, last_stable_offset=end, log_start_offset=0
            )
            row.records, size = b"", self._sizes[index]
            if not served or size <= min(part.partition_max_bytes, room):
                record = Record(0, 1, None, bytes(size))
                row.records = bytes(build_batch([record], base_offset=at, leader_epoch=0))
                served.append(index)
                room -= size
            answer.partitions.append(row)
        self.served.append(served)
        await asyncio.sleep(0)
        return memoryview(b"".join(encode_response(FetchResponse(responses=[answer]), version, 1))[4:])

    async def close(self):
        self.closed = True


async def _served(broker: Filled, readings: list[Reading], settings: FetchSettings, answers: int) -> None:
    async def dial(lane):
        return broker

    async def nothing(*_):
        pass

    fetcher = BrokerFetcher(dial, settings, lambda: readings, nothing, nothing, pytest.fail)
    async with asyncio.timeout(10):
        while len(broker.served) < answers:
            await asyncio.sleep(0)
    await fetcher.close()


@pytest.mark.parametrize("connections", [1, 2])
async def test_who_catches_up_has_his_turn_though_others_fill_each_answer(connections):
    readings = [Reading(TopicPartition("a", index), 0, leader=1) for index in range(6)]
    broker = Filled(dict.fromkeys(range(6), 1000), dict.fromkeys(range(6), 100))
    settings = FetchSettings(max_bytes=2000, partition_max_bytes=1000, connections_per_broker=connections)
    await _served(broker, readings, settings, 30)
    counts = Counter(index for served in broker.served for index in served)
    assert min(counts[index] for index in range(6)) >= 7, counts


async def test_a_batch_beyond_the_limit_comes_though_others_always_have_something_new():
    readings = [Reading(TopicPartition("a", index), 0, leader=1) for index in range(4)]
    broker = Filled({0: 10, 1: 10, 2: 5000, 3: 7000}, {0: 0, 1: 0, 2: 100, 3: 100})
    settings = FetchSettings(max_bytes=4000, partition_max_bytes=1000, connections_per_broker=1)
    await _served(broker, readings, settings, 20)
    counts = Counter(index for served in broker.served for index in served)
    assert counts[2] >= 4, counts
    assert counts[3] >= 4, counts
    assert min(counts[0], counts[1]) >= 5, counts


class Patient:
    """Has one record in some partitions; who asks for others and would wait, waits until the end."""

    closed = retired = False

    def __init__(self, *filled: int) -> None:
        self._filled = set(filled)
        self.polls = 0
        """Requests that wait now."""

    def version_of(self, request, newest=None):
        return 12

    async def frame(self, request, version, body):
        asked = decode(FetchRequest, version, memoryview(b"".join(body)))
        answer = FetchableTopicResponse(topic="a")
        for part in asked.topics[0].partitions:
            if part.partition in self._filled and part.fetch_offset == 0:
                batch = bytes(build_batch([Record(0, 1, None, b"x")], base_offset=0, leader_epoch=0))
                row = PartitionData(partition_index=part.partition, records=batch)
                row.high_watermark = row.last_stable_offset = 1
                answer.partitions.append(row)
        if not answer.partitions and asked.max_wait_ms:
            self.polls += 1
            try:
                await asyncio.Event().wait()
            finally:
                self.polls -= 1
        return memoryview(b"".join(encode_response(FetchResponse(responses=[answer]), version, 1))[4:])

    async def close(self):
        self.closed = True


@pytest.mark.parametrize("connections", [1, 2])
async def test_a_new_partition_is_read_though_every_connection_waits_for_others(connections):
    broker, arrived = Patient(2, 3), asyncio.Queue()
    readings = [Reading(TopicPartition("a", index), 0, leader=1) for index in range(2)]

    async def dial(lane):
        return broker

    async def nothing(*_):
        pass

    settings = FetchSettings(connections_per_broker=connections)
    fetcher = BrokerFetcher(dial, settings, lambda: readings, arrived.put, nothing, pytest.fail)
    async with asyncio.timeout(10):
        while sum(reading.asked for reading in readings) < 2 or broker.polls < connections:
            await asyncio.sleep(0)
        readings += [Reading(TopicPartition("a", index), 0, leader=1) for index in (2, 3)]
        fetcher.added()
        found = await arrived.get()
    assert [reading.tp.partition for reading, _ in found] == [2, 3]
    assert broker.polls == connections
    await fetcher.close()


class Going(Patient):
    """Tells how far partition 0 is, then cannot be reached a few times, then does not know the topic."""

    answers = 0

    async def frame(self, request, version, body):
        self.answers += 1
        if 2 <= self.answers < 5:
            raise ProtocolError("away")
        row = PartitionData(partition_index=0, high_watermark=0, last_stable_offset=0, records=b"")
        if self.answers >= 5:
            row.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        answer = FetchableTopicResponse(topic="a", partitions=[row])
        await asyncio.sleep(0)
        return memoryview(b"".join(encode_response(FetchResponse(responses=[answer]), version, 1))[4:])


async def test_how_long_nobody_saw_what_was_written_counts_from_the_last_answer_that_told():
    broker, refused = Going(), asyncio.Event()
    reading = Reading(TopicPartition("a", 0), 0, leader=1)

    async def dial(lane):
        return broker

    async def trouble(reading, what):
        if reading.refused_at:
            refused.set()

    settings = FetchSettings(connections_per_broker=1)
    fetcher = BrokerFetcher(dial, settings, lambda: [reading], trouble, trouble, pytest.fail)
    async with asyncio.timeout(10):
        await refused.wait()
    heard_at, refused_at = reading.heard_at, reading.refused_at
    assert refused_at - heard_at > 0.05 + 0.1  # at least two pauses between requests
    assert reading.unseen_s(refused_at + 100) == refused_at - heard_at
    await fetcher.close()
