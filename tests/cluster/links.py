"""What tests of links share: two clusters, links in this process or as processes, records in and out."""

import asyncio
import contextlib
import itertools
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import confluent_kafka
import pytest
from prometheus_client import CollectorRegistry

from broker.control.embedded_zookeeper import EmbeddedZooKeeper
from protocol.client import EARLIEST, LATEST, ClusterClient, Isolation, NewTopic
from protocol.records import Codec, Record, build_batch, decode_batches
from protocol.types import TopicPartition
from replicator.connected import LinkStatus
from replicator.progress import read_ledgers
from replicator.settings import LinkSettings
from replicator.worker import run_link
from tests.support.apache_kafka import apache_kafka
from tests.support.broker import BrokerProcess
from tests.support.slow import slow
from tests.support.zookeeper import fresh_chroot

_numbers = itertools.count(1)

Content = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


@dataclass
class Pair:
    """Two clusters. Names are new for each test, so that tests share brokers and nothing else."""

    kind: str
    east: str
    west: str

    def link(
        self, pattern: str, *, back: bool = False, number: int | None = None, **settings
    ) -> LinkSettings:
        """A link east to west (`back`: west to east) for topics that match; aliases carry a number."""
        tag = next(_numbers) if number is None else number
        ends = [
            {"alias": f"east{tag}", "bootstrap": self.east},
            {"alias": f"west{tag}", "bootstrap": self.west},
        ]
        if back:
            ends.reverse()
        return LinkSettings.model_validate(
            {
                "source": ends[0],
                "target": ends[1],
                "topics": [pattern],
                "groups": [pattern],
                "progress_interval_s": 0.3,
                **settings,
            }
        )


@contextlib.contextmanager
def two_brokers(zookeeper_server: EmbeddedZooKeeper, folder: Path) -> Iterator[Pair]:
    """Two clusters of one broker of ours each, on one ZooKeeper server."""
    brokers = [BrokerProcess(folder / name, fresh_chroot(zookeeper_server), 1) for name in ("east", "west")]
    try:
        for broker in brokers:
            broker.start()
        yield Pair("isthmus", *(broker.bootstrap for broker in brokers))
    finally:
        for broker in brokers:
            broker.kill()


BOTH_SOURCES = pytest.mark.parametrize(
    "pair",
    [
        pytest.param("isthmus", marks=pytest.mark.cluster),
        pytest.param("apache", marks=[pytest.mark.interop, slow("a start of Apache Kafka as the source")]),
    ],
    indirect=True,
    scope="module",
)
"""Of a module: its `pair` is made with a source of ours, and with Apache Kafka as the source."""


@contextlib.contextmanager
def two_clusters(source: str, zookeeper_server: EmbeddedZooKeeper, folder: Path) -> Iterator[Pair]:
    """Two clusters of one broker; the source is ours, or Apache Kafka's."""
    with two_brokers(zookeeper_server, folder) as ours:
        if source == "isthmus":
            yield ours
            return
        with apache_kafka(fresh("source")) as east:
            yield Pair("apache", east, ours.west)


def fresh(prefix: str) -> str:
    """A topic or group name that no other test uses."""
    return f"{prefix}-{os.getpid()}-{next(_numbers)}"


@dataclass
class Running:
    """A link that runs in this process."""

    settings: LinkSettings
    status: LinkStatus
    registry: CollectorRegistry
    stop_event: asyncio.Event
    task: asyncio.Task[int]

    async def stop(self) -> int:
        """The exit code."""
        self.stop_event.set()
        async with asyncio.timeout(30):
            return await self.task

    def metric(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, {"link": self.settings.name, **labels}) or 0.0

    def partition(self, topic: str, partition: int = 0) -> dict:
        return self.status.to_json().get("partitions", {}).get(f"{topic}-{partition}", {})


@contextlib.asynccontextmanager
async def running(settings: LinkSettings) -> AsyncIterator[Running]:
    """Runs a link; at the end it is stopped if the test has not done so."""
    status, registry, stop = LinkStatus(settings.name), CollectorRegistry(), asyncio.Event()
    task = asyncio.create_task(run_link(settings, stop, registry, status))
    link = Running(settings, status, registry, stop, task)
    try:
        yield link
    finally:
        if not task.done():
            await link.stop()


class LinkProcess:
    """A link in a process of its own."""

    def __init__(self, settings: LinkSettings, log: str) -> None:
        self._settings = settings
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Returns once it would hear a signal, or has ended."""
        with open(self._log, "ab") as log:  # noqa: ASYNC230 (a test may block for a moment)
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tests.cluster.link_process",
                self._settings.model_dump_json(),
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )
        assert self._process.stdout is not None
        async with asyncio.timeout(60):
            await self._process.stdout.readline()

    @property
    def pid(self) -> int:
        """Of the process; 0 before it was started."""
        return self._process.pid if self._process is not None else 0

    @property
    def lives(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def kill(self) -> None:
        """SIGKILL, and waits until it is gone."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def stop(self) -> int:
        """SIGTERM; the exit code."""
        self.signal(signal.SIGTERM)
        return await self.ended()

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    async def ended(self) -> int:
        """Until it has ended; the exit code."""
        assert self._process is not None
        async with asyncio.timeout(60):
            return await self._process.wait()


async def eventually(check: Callable[[], Awaitable[bool]], what: str, timeout_s: float = 30.0) -> None:
    """Waits until `check` holds."""
    end = time.monotonic() + timeout_s
    while not await check():
        if time.monotonic() > end:
            raise AssertionError(f"not within {timeout_s:g} s: {what}")
        await asyncio.sleep(0.1)


async def create(client: ClusterClient, name: str, partitions: int = 1, **configs: str) -> None:
    await client.create_topics(
        [NewTopic(name, partitions, 1, {key.replace("_", "."): value for key, value in configs.items()})]
    )


async def produce(
    client: ClusterClient, topic: str, records: list[Record], partition: int = 0, codec: Codec = Codec.NONE
) -> int:
    """Writes one batch; its base offset."""
    return await client.produce(TopicPartition(topic, partition), build_batch(records, codec=codec))


def some(count: int, tag: str = "v", time_ms: int | None = None) -> list[Record]:
    """Records with distinct values."""
    now = time.time_ns() // 1_000_000 if time_ms is None else time_ms
    return [Record(0, now + i, b"k%d" % (i % 7), f"{tag}-{i}".encode()) for i in range(count)]


async def content(client: ClusterClient, topic: str, partition: int = 0) -> list[Content]:
    """Everything readable (committed) in a partition, in order."""
    return [
        (record.timestamp, record.key, record.value, tuple(record.headers))
        for record in await records(client, topic, partition)
    ]


async def records(client: ClusterClient, topic: str, partition: int = 0) -> list[Record]:
    """Readable records of a partition; of transactional topics only committed ones."""
    tp = TopicPartition(topic, partition)
    if topic not in (await client.metadata(None)).topics:
        return []
    position = (await client.list_offsets({tp: EARLIEST}))[tp].offset
    end = (await client.list_offsets({tp: LATEST}, isolation=Isolation.READ_COMMITTED))[tp].offset
    found: list[Record] = []
    while position < end:
        fetched = await client.fetch(tp, position, isolation=Isolation.READ_COMMITTED, max_wait_ms=200)
        assert not fetched.aborted, "use a consumer for topics with aborted records"
        batch = [record for record in decode_batches(fetched.records) if record.offset >= position]
        if not batch:
            break
        found += batch
        position = batch[-1].offset + 1
    return found


async def consumed(bootstrap: str, topic: str, count: int) -> list[tuple[int, bytes | None, bytes | None]]:
    """(offset, key, value) of the first `count` committed records, as librdkafka reads them."""

    def read() -> list[tuple[int, bytes | None, bytes | None]]:
        settings = {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
        consumer = confluent_kafka.Consumer(settings | {"isolation.level": "read_committed"})
        try:
            consumer.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
            found = []
            while len(found) < count:
                message = consumer.poll(20)
                assert message is not None, f"only {len(found)} of {count} records"
                assert message.error() is None, message.error()
                found.append((message.offset(), message.key(), message.value()))
            return found
        finally:
            consumer.close()

    return await asyncio.to_thread(read)


async def committed(bootstrap: str, topic: str, partition: int = 0) -> list[Content]:
    """As `content`, as librdkafka reads it: also of topics with aborted records."""

    def read() -> list[Content]:
        settings = {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
        consumer = confluent_kafka.Consumer(
            settings | {"isolation.level": "read_committed", "enable.partition.eof": True}
        )
        try:
            at = confluent_kafka.TopicPartition(topic, partition, confluent_kafka.OFFSET_BEGINNING)
            consumer.assign([at])
            found: list[Content] = []
            while True:
                message = consumer.poll(60)
                assert message is not None, f"{topic}-{partition}: no end behind {len(found)} records"
                error = message.error()
                if error is not None and error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                    return found
                assert error is None, error
                headers = tuple((name, value) for name, value in message.headers() or ())
                found.append((message.timestamp()[1], message.key(), message.value(), headers))
        finally:
            consumer.close()

    return await asyncio.to_thread(read)


async def copied_to(
    client: ClusterClient, link: LinkSettings, topic: str, end: int, partition: int = 0
) -> None:
    """Waits until the stored ledger has arrived at source offset `end`, and what it tells of can be read."""

    async def arrived() -> bool:
        ledger = (await read_ledgers(client, link.name)).get(TopicPartition(topic, partition))
        return ledger is not None and ledger.next_source_offset >= end

    await eventually(arrived, f"{topic}-{partition} copied up to {end}")
    if link.exactly_once:
        # The marker in the progress topic may be there before the one in the mirror.
        await _nothing_open(client, TopicPartition(link.names().at_target(topic), partition))


async def _nothing_open(client: ClusterClient, tp: TopicPartition) -> None:
    """Waits for a moment only: another producer may keep one open."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(2):
            while True:
                ends = [
                    (await client.list_offsets({tp: LATEST}, isolation=each))[tp].offset
                    for each in (Isolation.READ_COMMITTED, Isolation.READ_UNCOMMITTED)
                ]
                if ends[0] == ends[1]:
                    return
                await asyncio.sleep(0.05)
