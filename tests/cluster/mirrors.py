"""What tests of mirrors share: a link with identical offsets, writers and readers, logs byte for byte."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

import confluent_kafka
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from prometheus_client import CollectorRegistry

from protocol.client import EARLIEST, LATEST, ClusterClient
from protocol.types import TopicPartition
from replicator.connected import LinkStatus
from replicator.mirrors.running import run_mirrors
from replicator.settings import LinkSettings
from tests.cluster.links import create, eventually, fresh, produce, some


def quiet(text: str) -> None:
    """A change of roles tells nobody how far it is."""
    del text


def mirror_link(source: str, target: str, pattern: str, *, back: bool = False, **settings) -> LinkSettings:
    """From east to west, or `back`; `source` and `target` are the bootstraps of the link's ends."""
    aliases = ("west", "east") if back else ("east", "west")
    return LinkSettings.model_validate(
        {
            "source": {"alias": aliases[0], "bootstrap": source},
            "target": {"alias": aliases[1], "bootstrap": target},
            "topics": [pattern],
            "groups": [pattern],
            "offsets": "identical",
            "naming": "identity",
            "refresh_topics_interval_s": 0.3,
            "sync_group_offsets_interval_s": 0.3,
            **settings,
        }
    )


@dataclass
class RunningMirrors:
    status: LinkStatus
    stop_event: asyncio.Event
    task: asyncio.Task[int]
    registry: CollectorRegistry

    async def stop(self) -> int:
        """The exit code."""
        self.stop_event.set()
        async with asyncio.timeout(60):
            return await self.task

    def to_json(self) -> dict:
        return self.status.to_json()


@contextlib.asynccontextmanager
async def mirroring(settings: LinkSettings) -> AsyncIterator[RunningMirrors]:
    """Runs the link; at the end it is stopped if the test has not done so."""
    status, stop = LinkStatus(settings.name), asyncio.Event()
    registry = CollectorRegistry()
    task = asyncio.create_task(run_mirrors(settings, stop, registry, status))
    running = RunningMirrors(status, stop, task, registry)
    try:
        yield running
    finally:
        if not task.done():
            await running.stop()


async def ends(client: ClusterClient, topic: str, partitions: int = 1) -> list[int]:
    tps = [TopicPartition(topic, index) for index in range(partitions)]
    found = await client.list_offsets(dict.fromkeys(tps, LATEST))
    return [found[tp].offset for tp in tps]


async def log_bytes(client: ClusterClient, topic: str, partition: int = 0) -> bytes:
    """All readable batches of a partition, control batches too, as its leader stores them."""
    tp = TopicPartition(topic, partition)
    position = (await client.list_offsets({tp: EARLIEST}))[tp].offset
    end = (await client.list_offsets({tp: LATEST}))[tp].offset
    parts = []
    while position < end:
        fetched = await client.fetch(tp, position, max_wait_ms=200)
        stop, position_after, _ = _whole(fetched.records)
        if stop:
            parts.append(bytes(fetched.records[:stop]))
            position = position_after
    return b"".join(parts)


def _whole(records: memoryview) -> tuple[int, int, int]:
    from transfer.kafka.positions import last_batch

    return last_batch(records)


async def same_logs(east: ClusterClient, west: ClusterClient, topic: str, partitions: int = 1) -> None:
    """Until both sides hold the same bytes."""

    async def same() -> bool:
        if topic not in (await west.metadata(None)).topics:
            return False
        before = await ends(east, topic, partitions)
        if before != await ends(west, topic, partitions):
            return False
        for index in range(partitions):
            copy, original = await log_bytes(west, topic, index), await log_bytes(east, topic, index)
            if before != await ends(east, topic, partitions):
                return False  # the source went on meanwhile: Kafka writes markers behind its answer
            assert copy == original
        return True

    await eventually(same, f"{topic} the same on both sides", 60)


def transactional(bootstrap: str, name: str) -> confluent_kafka.Producer:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": name, "transaction.timeout.ms": 600_000}
    )
    producer.init_transactions(30)
    return producer


def idempotent(bootstrap: str) -> confluent_kafka.Producer:
    return confluent_kafka.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})


def write(
    producer: confluent_kafka.Producer, topic: str, values: list[str], partition: int = 0
) -> list[confluent_kafka.KafkaError | None]:
    """Writes and waits; what became of each."""
    outcomes: list[confluent_kafka.KafkaError | None] = []
    for value in values:
        producer.produce(topic, value, partition=partition, on_delivery=lambda e, _: outcomes.append(e))
    assert producer.flush(30) == 0
    return outcomes


def read(
    bootstrap: str,
    topic: str,
    count: int,
    *,
    group: str = "nobody",
    partition: int = 0,
    start: int | None = None,
) -> list[tuple[int, str]]:
    """(offset, value) of `count` committed records; from the group's commit unless `start` is given."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
        }
    )
    try:
        at = confluent_kafka.OFFSET_STORED if start is None else start
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, at)])
        found = []
        while len(found) < count:
            message = consumer.poll(30)
            assert message is not None, f"{len(found)} of {count} records: {found[-3:]}"
            assert message.error() is None, message.error()
            found.append((message.offset(), message.value().decode()))
        if start is None:
            consumer.commit(
                offsets=[confluent_kafka.TopicPartition(topic, partition, found[-1][0] + 1)],
                asynchronous=False,
            )
        return found
    finally:
        consumer.close()


async def mirrored_once(east: ClusterClient, west: ClusterClient, link: LinkSettings, topic: str) -> None:
    """Runs the link until both logs are the same, and ends it well."""
    async with mirroring(link) as running:
        await same_logs(east, west, topic)
        assert await running.stop() == 0


async def mirrored(pair, clients, name: str, count: int) -> tuple[str, LinkSettings]:
    """A topic of one partition with `count` records, the same on both sides; its link has ended."""
    east, west = clients
    topic = fresh(name)
    await create(east, topic)
    await produce(east, topic, some(count))
    link = mirror_link(pair.east, pair.west, topic)
    await mirrored_once(east, west, link, topic)
    return topic, link


def clean_often(bootstrap: str) -> None:
    entry = ConfigEntry("log.cleaner.backoff.ms", "100", incremental_operation=AlterConfigOpType.SET)
    broker = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.incremental_alter_configs([broker]).values():
        future.result(30)
