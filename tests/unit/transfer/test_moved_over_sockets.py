"""A copy over real sockets between brokers that fail in all ways: what arrives is the source, in order.

Brokers lose requests and answers, write what they never answer for, or much later, leave partitions out of
their answers or name them twice, take bytes slowly, and give leaders away. The target has Kafka's rules for
sequences (KIP-98), and looks at each checksum. Chances are drawn from a seed.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import crc32c
import pytest
import uvloop

from protocol.api import ApiKey
from protocol.client import ClusterClient
from protocol.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from protocol.messages.init_producer_id_response import InitProducerIdResponse
from protocol.messages.produce_response import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from protocol.records import Record, build_batch, check_crc, read_header
from protocol.records.reading import read_records
from protocol.types import TopicPartition
from tests.support.fake_cluster import FAST, FakeCluster
from transfer.engine import Engine
from transfer.kafka.fetcher import FetchSettings
from transfer.kafka.sink import KafkaSink, ProduceSettings
from transfer.kafka.source import KafkaSource
from transfer.ledger import Copied, ProducerState

_NOT_LEADER, _NOT_ENOUGH, _NOT_ENOUGH_AFTER, _UNKNOWN = 6, 19, 20, -1
_NO_SUCH_SESSION, _OTHER_EPOCH = 70, 71
_BATCHES_PER_S = 60.0
_SIZES = (1, 100, 8120, 8121, 8122, 8123, 8124, 30_000, 300_000)
"""Of values: some make batches of about the size from which checksums are moved, some frames for slabs."""

Bare = Callable[[], asyncio.AbstractEventLoop]


def topic_id(name: str) -> bytes:
    return name.encode().rjust(16, b"-")


class _Session:
    """What a broker keeps of a reader (KIP-227)."""

    def __init__(self) -> None:
        self.epoch = 1
        self.asked: dict[TopicPartition, Any] = {}
        self.told: dict[TopicPartition, tuple[int, int]] = {}


class Source:
    """Logs that are complete, or grow, and brokers that seldom give them away."""

    def __init__(
        self, chance: random.Random, cluster: FakeCluster, batches: int, trouble: float, *, grows: bool
    ) -> None:
        self._chance, self._cluster, self._trouble = chance, cluster, trouble
        self._grows, self._began = grows, asyncio.get_running_loop().time()
        self._sessions: dict[tuple[int, int], _Session] = {}
        self.continued = 0
        """Requests of a session that name only what has changed."""
        self.served = 0
        """Batches, whole ones."""
        self.logs: dict[TopicPartition, list[bytes]] = {}
        self.values: dict[TopicPartition, list[int]] = {}
        for name, leaders in cluster.leaders.items():
            for index in leaders:
                tp, offset = TopicPartition(name, index), 0
                log, values = self.logs.setdefault(tp, []), self.values.setdefault(tp, [])
                for _ in range(batches):
                    some = [chance.randbytes(chance.choice(_SIZES)) for _ in range(chance.randint(1, 2))]
                    rows = [Record(number, 1, None, value) for number, value in enumerate(some)]
                    log.append(bytes(build_batch(rows, base_offset=offset, leader_epoch=0)))
                    values += map(crc32c.crc32c, some)
                    offset += len(some)
        cluster.on(ApiKey.FETCH, self._fetch)

    async def _fetch(self, node: int, request: Any) -> FetchResponse | None:
        chance = self._chance
        if chance.random() < self._trouble:
            return None
        names = {topic_id(name): name for name in self._cluster.leaders}
        named = {
            TopicPartition(topic.topic or names[topic.topic_id], part.partition): part
            for topic in request.topics
            for part in topic.partitions
        }
        session, session_id = None, 0
        if request.session_epoch == 0:
            session, session_id = _Session(), chance.randint(1, 1 << 30)
            self._sessions[node, session_id] = session
            session.asked = dict(named)
        elif request.session_epoch > 0:
            session_id = request.session_id
            session = self._sessions.get((node, session_id))
            if session is None or chance.random() < self._trouble:
                self._sessions.pop((node, session_id), None)
                return FetchResponse(error_code=_NO_SUCH_SESSION)
            if session.epoch != request.session_epoch:
                return FetchResponse(error_code=_OTHER_EPOCH)
            session.epoch += 1
            self.continued += 1
            for topic in request.forgotten_topics_data:
                for index in topic.partitions:
                    del session.asked[TopicPartition(topic.topic or names[topic.topic_id], index)]
            session.asked |= named
        found = self._rows(node, named if session is None else session.asked, request.max_bytes)
        if session is not None:
            found = [
                (tp, row) for tp, row in found if self._is_news(session, tp, row) or not request.session_epoch
            ]
        if not any(row.records or row.error_code for _, row in found):
            await asyncio.sleep(0.005)
        topics: dict[str, list[PartitionData]] = {}
        for tp, row in found:
            topics.setdefault(tp.topic, []).append(row)
        return FetchResponse(
            session_id=session_id,
            responses=[
                FetchableTopicResponse(topic=name, topic_id=topic_id(name), partitions=rows)
                for name, rows in topics.items()
            ],
        )

    @staticmethod
    def _is_news(session: _Session, tp: TopicPartition, row: PartitionData) -> bool:
        told = (row.high_watermark, row.last_stable_offset)
        before, session.told[tp] = session.told.get(tp), told
        return bool(row.records or row.error_code or told != before)

    def _rows(
        self, node: int, asked: dict[TopicPartition, Any], left: int
    ) -> list[tuple[TopicPartition, PartitionData]]:
        found = []
        for tp, part in asked.items():
            row = self._row(node, tp, part, left)
            left -= len(row.records or b"")
            found.append((tp, row))
            if self._chance.random() < self._trouble:
                found.append((tp, row))  # twice: no broker does
        return found

    def _row(self, node: int, tp: TopicPartition, part: Any, left: int) -> PartitionData:
        chance, log = self._chance, self.logs[tp]
        row = PartitionData(partition_index=tp.partition, records=b"")
        if self._cluster.leaders[tp.topic][tp.partition][0] != node:
            row.error_code = _NOT_LEADER
            return row
        if chance.random() < self._trouble:
            row.error_code = chance.choice((_NOT_LEADER, _UNKNOWN))
            return row
        if self._grows:
            log = log[: 1 + int((asyncio.get_running_loop().time() - self._began) * _BATCHES_PER_S)]
        end = read_header(log[-1]).next_offset
        row.high_watermark, row.last_stable_offset, row.log_start_offset = end, end, 0
        given, size = [], 0
        for batch in log:
            if read_header(batch).next_offset > part.fetch_offset:
                given.append(batch)
                size += len(batch)
                if size > part.partition_max_bytes:
                    break
        row.records = b"".join(given)
        if left <= 0:
            row.records = b""
        elif len(given) > 1 and chance.random() < 0.5:
            row.records = row.records[: -chance.randint(1, len(given.pop()) - 1)]
        self.served += len(given) if row.records else 0
        return row


class _Log:
    def __init__(self) -> None:
        self.values: list[int] = []
        self.next: dict[int, int] = {}
        self.known: dict[int, list[tuple[int, int, int]]] = {}
        """All of a producer; a broker has the last five. Who was interrupted sends more of them again."""


class Target:
    """Logs that fill, and brokers that do all that brokers do."""

    def __init__(self, chance: random.Random, cluster: FakeCluster, trouble: float) -> None:
        self._chance, self._cluster, self._trouble = chance, cluster, trouble
        self.logs: dict[TopicPartition, _Log] = {}
        self.faults: list[str] = []
        self._producers = 7
        cluster.on(ApiKey.PRODUCE, self._produce)
        cluster.on(ApiKey.INIT_PRODUCER_ID, self._producer)

    def _producer(self, node: int, request: object) -> InitProducerIdResponse:
        self._producers += 1
        return InitProducerIdResponse(producer_id=self._producers, producer_epoch=0)

    async def _produce(self, node: int, request: object) -> ProduceResponse | None:
        chance, trouble = self._chance, self._trouble
        names = {topic_id(name): name for name in self._cluster.leaders}
        parts = [
            (TopicPartition(topic.name or names[topic.topic_id], data.index), bytes(data.records))
            for topic in request.topic_data  # type: ignore[attr-defined]
            for data in topic.partition_data
        ]
        fate = chance.random()
        if fate < trouble:
            return None
        if fate < 2 * trouble:  # what is taken for lost arrives behind its repetition, or before
            asyncio.get_running_loop().call_later(chance.random() / 10, self._late, node, parts)
            return None
        if chance.random() < trouble:
            await asyncio.sleep(chance.random() / 20)
        rows: dict[str, list[PartitionProduceResponse]] = {}
        for tp, batch in parts:
            row = self._row(node, tp, batch)
            if chance.random() >= trouble:
                rows.setdefault(tp.topic, []).append(row)
                if chance.random() < trouble:
                    rows[tp.topic].append(row)
        if chance.random() < trouble:
            return None
        return ProduceResponse(
            responses=[
                TopicProduceResponse(name=name, topic_id=topic_id(name), partition_responses=some)
                for name, some in rows.items()
            ]
        )

    def _late(self, node: int, parts: list[tuple[TopicPartition, bytes]]) -> None:
        for tp, batch in parts:
            self._append(node, tp, batch)

    def _row(self, node: int, tp: TopicPartition, batch: bytes) -> PartitionProduceResponse:
        row = PartitionProduceResponse(index=tp.partition, base_offset=-1)
        if self._chance.random() < self._trouble:
            row.error_code = self._chance.choice((_NOT_LEADER, _NOT_ENOUGH, _UNKNOWN, _NOT_ENOUGH_AFTER))
            if row.error_code == _NOT_ENOUGH_AFTER:
                self._append(node, tp, batch)
            return row
        row.error_code, row.base_offset = self._append(node, tp, batch)
        return row

    def _append(self, node: int, tp: TopicPartition, batch: bytes) -> tuple[int, int]:
        if self._cluster.leaders[tp.topic][tp.partition][0] != node:
            return _NOT_LEADER, -1
        header = read_header(batch)
        if len(batch) != header.size or not check_crc(memoryview(batch), 0, header):
            self.faults.append(f"{tp}: a batch that is not what its checksum says")
            return 2, -1
        log = self.logs.setdefault(tp, _Log())
        known = log.known.setdefault(header.producer_id, [])
        for sequence, records, base in known:
            if (sequence, records) == (header.base_sequence, header.record_count):
                return 0, base
        following = log.next.get(header.producer_id)
        if following is not None and header.base_sequence != following:
            return (46 if header.base_sequence < following else 45), -1
        base = len(log.values)
        records_ = read_records(memoryview(batch), 0, header)
        log.values += [crc32c.crc32c(record.value or b"") for record in records_]
        known.append((header.base_sequence, header.record_count, base))
        log.next[header.producer_id] = header.base_sequence + header.record_count
        return 0, base


class Watching:
    """Notes what is booked."""

    def __init__(self) -> None:
        self.at: dict[TopicPartition, int] = {}
        self.producers: dict[TopicPartition, ProducerState | None] = {}
        self.failures: list[str] = []
        self.left = 0
        self.over = asyncio.Event()

    def copied(self, tp: TopicPartition, copied: Copied) -> None:
        if copied.first_source_offset != self.at.get(tp, 0):
            self.failures.append(f"{tp}: {copied.first_source_offset} behind {self.at.get(tp, 0)}")
        for run in copied.runs:
            if run.source != run.target:
                self.failures.append(f"{tp}: {run}")
        self.at[tp], self.producers[tp] = copied.next_source_offset, copied.producer

    def seen(self, chunk: object) -> None:
        pass

    def fault(self, fault: object) -> None:
        self.failures.append(repr(fault))
        self.over.set()

    def failed(self, tp: TopicPartition, error: Exception) -> None:
        if "was closed" not in str(error) and "abandoned" not in str(error):
            self.failures.append(f"{tp}: {error!r}")
            self.over.set()

    def finished(self, tp: TopicPartition) -> None:
        self.left -= 1
        if not self.left:
            self.over.set()


async def _copy(
    seed: int,
    *,
    trouble: float,
    batches: int,
    highest: tuple[int, int] = (18, 13),
    ids: bool = True,
    interrupted: bool = False,
    grows: bool = False,
    session_from: int = 1,
) -> int:
    """Requests of a session that named only what had changed."""
    chance = random.Random(seed)
    async with FakeCluster(2) as there, FakeCluster(2) as here:
        for cluster in (there, here):
            cluster.highest = {ApiKey.FETCH: highest[0], ApiKey.PRODUCE: highest[1]}
            for name, partitions in (("a", 3), ("b", 1)):
                leaders = [chance.randint(1, 2) for _ in range(partitions)]
                cluster.topic(name, leaders, topic_id=topic_id(name) if ids else bytes(16))
        for broker in here.brokers.values():
            broker.takes_slowly()
        source = Source(chance, there, batches, trouble / 2, grows=grows)
        target = Target(chance, here, trouble)
        async with (
            ClusterClient(there.bootstrap, retry=FAST) as from_there,
            ClusterClient(here.bootstrap, retry=FAST) as to_here,
        ):
            settings = FetchSettings(
                max_bytes=1 << 20, partition_max_bytes=1 << 19, session_from=session_from
            )
            reading = KafkaSource(from_there, settings)
            writing = KafkaSink(to_here, ProduceSettings(request_bytes=1 << 18))
            watching = Watching()
            watching.left = len(source.logs)
            engine = Engine(reading, writing, watching, max_bytes=4 << 20, partition_bytes=1 << 20)
            running = asyncio.create_task(engine.run())
            shaking = asyncio.create_task(_shake(chance, (there, here)) if trouble else asyncio.sleep(0))
            try:
                for tp, values in source.values.items():
                    await engine.start(tp, tp, 0, until=len(values))
                async with asyncio.timeout(60):
                    while interrupted and not watching.over.is_set():
                        await asyncio.sleep(0.05)
                        # Of a partition of which nothing is booked, nobody knows the producer.
                        for tp in [tp for tp in watching.at if tp in engine][:2]:
                            await _interrupt(engine, writing, watching, tp, until=len(source.values[tp]))
                    await watching.over.wait()
            finally:
                engine.stop()
                shaking.cancel()
                await asyncio.gather(running, shaking, return_exceptions=True)
                await reading.aclose()
                await writing.aclose()
        await asyncio.sleep(0.1 if trouble else 0)  # what is late is there then
    assert not target.faults + watching.failures, target.faults + watching.failures
    assert {tp: log.values for tp, log in target.logs.items()} == source.values
    assert trouble or source.served == sum(map(len, source.logs.values()))  # nothing twice
    return source.continued


async def _shake(chance: random.Random, clusters: tuple[FakeCluster, FakeCluster]) -> None:
    while True:
        await asyncio.sleep(chance.random() / 2)
        leaders = chance.choice(clusters).leaders[chance.choice("ab")]
        index = chance.choice(list(leaders))
        leader, epoch = leaders[index]
        leaders[index] = (3 - leader, epoch + 1)


async def _interrupt(
    engine: Engine, sink: KafkaSink, watching: Watching, tp: TopicPartition, *, until: int
) -> None:
    """Gives up what is on its way, and goes on behind what is booked as the same producer."""
    await sink.close(tp)
    await engine.stop_partition(tp, abandon=True)
    at = watching.at.get(tp, 0)
    if at < until:
        await sink.open(tp, watching.producers.get(tp), topic_id(tp.topic), at)
        await engine.start(tp, tp, at, until=until)


_LOOPS = pytest.mark.parametrize(
    "loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uv"]
)


@_LOOPS
@pytest.mark.parametrize("versions", [(11, 8), (12, 12), (13, 13), (18, 13)])
def test_all_arrives_in_order_whatever_brokers_do(loop: Bare, versions: tuple[int, int]) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(_copy(sum(versions), trouble=0.03, batches=30, highest=versions))


@_LOOPS
@pytest.mark.parametrize("trouble", [0.0, 0.03])
def test_what_is_written_meanwhile_comes_within_sessions(loop: Bare, trouble: float) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        continued = runner.run(_copy(3, trouble=trouble, batches=60, grows=True))
    assert continued > 5  # hundreds, but for a machine that does much else


@_LOOPS
def test_few_partitions_get_no_session(loop: Bare) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        assert not runner.run(_copy(4, trouble=0.0, batches=20, grows=True, session_from=5))


@_LOOPS
def test_without_topic_ids(loop: Bare) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(_copy(5, trouble=0.03, batches=30, highest=(18, 12), ids=False))


@_LOOPS
def test_partitions_that_are_given_up_and_begun_again_go_on_where_they_are_booked(loop: Bare) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(_copy(7, trouble=0.02, batches=30, interrupted=True))
