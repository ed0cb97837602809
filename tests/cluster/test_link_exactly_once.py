"""Links that copy exactly once, through kills, pauses and a change of mind: every record committed once.

The judge is librdkafka. Two of them run always, with one kill; with ISTHMUS_SLOW=1 all, with twenty.
"""

import asyncio
import random
import signal

import confluent_kafka
import pytest

from protocol.client import LATEST, ClusterClient, Isolation, ProducerId
from protocol.errors import ErrorCode
from protocol.records import Record, build_batch
from protocol.types import TopicPartition
from replicator import transactional_progress
from replicator.entry_rows import rows_of
from replicator.link_report import link_report
from replicator.preflight import Level, check_link
from replicator.progress import ProgressStore, read_ledgers
from replicator.settings import LinkSettings
from tests.cluster.links import (
    LinkProcess,
    Pair,
    consumed,
    create,
    eventually,
    fresh,
    produce,
    running,
    some,
    two_brokers,
)
from tests.support.apache_kafka import apache_kafka
from tests.support.broker import BrokerProcess
from tests.support.slow import SLOW, slow
from tests.support.zookeeper import fresh_chroot
from transfer.ledger import Copied
from transfer.offset_map import Run

KILLS = 20 if SLOW else 1
PARTITIONS = 4
LONG_S = 120.0
pytestmark = pytest.mark.timeout(1800 if SLOW else 180)
needs_time = slow("takes minutes")


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("isthmus", marks=pytest.mark.cluster),
        pytest.param("apache", marks=[pytest.mark.interop, pytest.mark.slow]),
        pytest.param("isthmus to apache", marks=[pytest.mark.interop, pytest.mark.slow]),
        pytest.param("apache to isthmus", marks=[pytest.mark.interop, pytest.mark.slow]),
    ],
)
def pair(request, tmp_path_factory):
    """Two clusters of one broker each: ours, Apache Kafka's, and one of each."""
    if request.param == "apache":
        with apache_kafka("once-east") as east, apache_kafka("once-west") as west:
            yield Pair("apache", east, west)
        return
    server = request.getfixturevalue("zookeeper_server")
    with two_brokers(server, tmp_path_factory.mktemp("pair")) as ours:
        if request.param == "isthmus":
            yield ours
            return
        with apache_kafka("once-other") as theirs:
            ends = (ours.east, theirs) if request.param == "isthmus to apache" else (theirs, ours.west)
            yield Pair(request.param, *ends)


async def settled(client: ClusterClient, topic: str, partitions: int = 1) -> None:
    """Waits until no transaction is open."""
    tps = [TopicPartition(topic, n) for n in range(partitions)]

    async def same() -> bool:
        high = await client.list_offsets(dict.fromkeys(tps, LATEST))
        stable = await client.list_offsets(dict.fromkeys(tps, LATEST), isolation=Isolation.READ_COMMITTED)
        return all(high[tp].offset == stable[tp].offset for tp in tps)

    await eventually(same, f"no transaction is open in {topic}", LONG_S)


class Load:
    """Numbered records into all partitions, in small batches, until told to stop."""

    def __init__(self, client: ClusterClient, topic: str, seed: int) -> None:
        self._client = client
        self._topic = topic
        self._random = random.Random(seed)
        self.sent = [0] * PARTITIONS
        self._stop = asyncio.Event()

    async def run(self) -> None:
        while not self._stop.is_set():
            partition = self._random.randrange(PARTITIONS)
            count = self._random.randint(1, 60)
            await self._batch(partition, count)
            await asyncio.sleep(0.005)

    async def _batch(self, partition: int, count: int) -> None:
        first = self.sent[partition]
        records = [
            record.__class__(0, record.timestamp, b"%d" % (first + n), b"x" * 40)
            for n, record in enumerate(some(count))
        ]
        await produce(self._client, self._topic, records, partition)
        self.sent[partition] += count

    def stop(self) -> None:
        self._stop.set()


async def assert_exact(west: ClusterClient, pair: Pair, link: LinkSettings, topic: str, load: Load) -> None:
    """Each record once and in order, as a consumer reads it; offsets translate exactly; nothing hangs."""
    for partition, sent in enumerate(load.sent):
        await copied_to_long(west, link, topic, sent, partition)
    ledgers = await read_ledgers(west, link.name)
    mirror = f"{link.source.alias}.{topic}"
    for partition, sent in enumerate(load.sent):
        found = await asyncio.to_thread(_read, pair.west, mirror, partition, sent)
        assert [number for _, number in found] == list(range(sent)), partition
        ledger = ledgers[TopicPartition(topic, partition)]
        assert ledger.records == sent
        assert not ledger.differences
        assert [ledger.runs.to_target(n) for n in range(sent)] == [(offset, True) for offset, _ in found]
    await settled(west, mirror, PARTITIONS)
    await settled(west, link.progress_topic)


async def copied_to_long(
    client: ClusterClient, link: LinkSettings, topic: str, end: int, partition: int
) -> None:
    async def arrived() -> bool:
        ledger = (await read_ledgers(client, link.name)).get(TopicPartition(topic, partition))
        return ledger is not None and ledger.next_source_offset >= end

    await eventually(arrived, f"{topic}-{partition} copied up to {end}", LONG_S)


def _read(bootstrap: str, topic: str, partition: int, count: int) -> list[tuple[int, int]]:
    """(offset, number) of all that is committed; waits a moment for what should not be there."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
    consumer = confluent_kafka.Consumer(
        settings | {"isolation.level": "read_committed", "enable.partition.eof": True}
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, confluent_kafka.OFFSET_BEGINNING)])
        found: list[tuple[int, int]] = []
        while True:
            message = consumer.poll(60)
            assert message is not None, f"only {len(found)} of {count} records of {topic}-{partition}"
            error = message.error()
            if error is None:
                found.append((message.offset(), int(message.key())))
            elif error.code() != confluent_kafka.KafkaError._PARTITION_EOF:
                raise AssertionError(error)
            elif len(found) >= count:
                return found
    finally:
        consumer.close()


async def test_what_is_copied_is_committed_with_its_progress(pair, clients):
    east, west = clients
    topic = fresh("plain")
    await create(east, topic, 1)
    await produce(east, topic, some(50))
    link = pair.link(topic, exactly_once=True)
    async with running(link) as run:
        await copied_to_long(west, link, topic, 50, 0)
        await produce(east, topic, some(50, "w"))
        await copied_to_long(west, link, topic, 100, 0)
        mirror = f"{link.source.alias}.{topic}"
        found = await consumed(pair.west, mirror, 100)
        assert [value for _, _, value in found] == [
            *(b"v-%d" % n for n in range(50)),
            *(b"w-%d" % n for n in range(50)),
        ]
        ledger = (await read_ledgers(west, link.name))[TopicPartition(topic, 0)]
        assert [ledger.runs.to_target(n).offset for n in range(100)] == [offset for offset, _, _ in found]
        assert run.metric("isthmus_link_transactions_total", outcome="committed") >= 2
        assert run.status.to_json()["guarantee"]["delivery"] == "exactly once"

        async def said() -> bool:
            return any(
                one["guarantee"].get("delivery") == "exactly once"
                for one in (await link_report(link)).workers
            )

        await eventually(said, "links status tells the guarantee", LONG_S)
        about = [one for one in await check_link(east, west, link) if one.check == "exactly once"]
        assert [one.level for one in about] == [Level.OK]
        assert await run.stop() == 0
    await settled(west, mirror)
    await settled(west, link.progress_topic)


async def test_what_the_last_owner_committed_counts_although_its_marker_is_late(pair, clients, monkeypatch):
    """The last owner is a producer of the test: it has written records and progress, and no marker comes."""
    monkeypatch.setattr(transactional_progress, "_DECIDED_S", 1.0)
    east, west = clients
    topic = fresh("late")
    await create(east, topic, 1)
    await produce(east, topic, some(50))
    link = pair.link(topic, exactly_once=True)
    async with running(link) as run:
        await copied_to_long(west, link, topic, 50, 0)
        assert await run.stop() == 0
    await produce(east, topic, some(20, "w"))
    mirror, name = TopicPartition(f"{link.source.alias}.{topic}", 0), fresh("owner")
    producer = await west.init_transactional_producer(name, 60_000)
    await copy_in_transaction(west, link, TopicPartition(topic, 0), mirror, name, producer)
    async with running(link) as run:

        async def waits() -> bool:
            return "neither committed nor aborted" in str(run.partition(topic))

        await eventually(waits, "the link says which transaction it waits for", LONG_S)
        await west.end_transaction(name, producer, commit=True)
        await copied_to_long(west, link, topic, 70, 0)
        found = await consumed(pair.west, mirror.topic, 70)
        assert [value for _, _, value in found] == [
            *(b"v-%d" % n for n in range(50)),
            *(b"w-%d" % n for n in range(20)),
        ]
        ledger = (await read_ledgers(west, link.name))[TopicPartition(topic, 0)]
        assert (ledger.records, ledger.differences) == (70, 0)
        assert await run.stop() == 0


async def copy_in_transaction(
    west: ClusterClient,
    link: LinkSettings,
    tp: TopicPartition,
    mirror: TopicPartition,
    name: str,
    producer: ProducerId,
) -> None:
    """The first ten records behind 50, and progress that says so; the transaction stays open."""
    progress = TopicPartition(link.progress_topic, 0)
    store = ProgressStore(west, link.progress_topic)
    entry = (await store.refresh()).entry(tp)
    assert entry is not None
    codes = await west.add_to_transaction(name, producer, [mirror, progress])
    assert set(codes.values()) == {ErrorCode.NONE}
    batch = in_transaction(some(10, "w"), producer)
    base = await west.produce(mirror, batch, transactional_id=name)
    entry.ledger.add(Copied((Run(50, base, 10),), 60, 10, len(batch), (1,)))
    rows, _ = rows_of(entry, store.highest_epoch)
    heads = in_transaction([Record(0, 1, key, value) for key, value in rows], producer)
    await west.produce(progress, heads, transactional_id=name)


def in_transaction(records: list[Record], producer: ProducerId) -> bytes:
    number, epoch = producer
    return build_batch(records, producer_id=number, producer_epoch=epoch, base_sequence=0, transactional=True)


async def test_killed_at_any_moment(pair, clients, tmp_path):
    east, west = clients
    topic = fresh("kills")
    await create(east, topic, PARTITIONS)
    link = pair.link(topic, exactly_once=True, number=random.randrange(10**6, 10**7))
    load = Load(east, topic, 1)
    loading = asyncio.create_task(load.run())
    moments = random.Random(2)
    process = LinkProcess(link, str(tmp_path / "link.log"))
    await process.start()
    try:
        for _ in range(KILLS):
            before = sum(load.sent)
            await copied_to_long(west, link, topic, 1, 0)
            await asyncio.sleep(moments.uniform(0.0, 1.0))  # any moment of a transaction
            await process.kill()
            await process.start()
            await eventually(lambda before=before: _more(load, before), "load goes on", LONG_S)
            await copied_to_long(west, link, topic, max(load.sent[1] - 1, 1), 1)
        load.stop()
        await loading
        await assert_exact(west, pair, link, topic, load)
        assert await process.stop() == 0
    finally:
        loading.cancel()
        await process.kill()


async def _more(load: Load, before: int) -> bool:
    return sum(load.sent) > before


@needs_time
async def test_an_owner_that_was_paused_is_fenced(pair, clients, tmp_path):
    east, west = clients
    topic = fresh("paused")
    await create(east, topic, PARTITIONS)
    link = pair.link(
        topic,
        exactly_once=True,
        number=random.randrange(10**6, 10**7),
        worker_session_timeout_s=6,
        transaction_interval_s=1.0,  # most moments lie in a transaction
    )
    load = Load(east, topic, 3)
    loading = asyncio.create_task(load.run())
    first, second = (LinkProcess(link, str(tmp_path / f"{name}.log")) for name in ("first", "second"))
    try:
        await first.start()
        await copied_to_long(west, link, topic, 1, 0)
        first.signal(signal.SIGSTOP)
        await second.start()
        behind = list(load.sent)
        for partition in range(PARTITIONS):
            await copied_to_long(west, link, topic, behind[partition], partition)
        first.signal(signal.SIGCONT)
        await asyncio.sleep(2.0)  # it does what it can
        load.stop()
        await loading
        await assert_exact(west, pair, link, topic, load)
    finally:
        loading.cancel()
        await first.kill()
        await second.kill()


@needs_time
async def test_switched_on_and_off_again(pair, clients, tmp_path):
    east, west = clients
    topic = fresh("switch")
    await create(east, topic, PARTITIONS)
    link = pair.link(topic, number=random.randrange(10**6, 10**7))
    load = Load(east, topic, 4)
    loading = asyncio.create_task(load.run())
    try:
        for once in (False, True, False, True):
            settings = link.model_copy(update={"exactly_once": once})
            process = LinkProcess(settings, str(tmp_path / "link.log"))
            await process.start()
            behind = load.sent[2]
            await copied_to_long(west, link, topic, behind + 20, 2)
            await process.kill()
        load.stop()
        await loading
        async with running(link.model_copy(update={"exactly_once": True})):
            await assert_exact(west, pair, link, topic, load)
    finally:
        loading.cancel()
        await process.kill()


@pytest.mark.cluster
@needs_time
async def test_a_target_that_is_killed_again_and_again(zookeeper_server, tmp_path):
    with two_brokers(zookeeper_server, tmp_path / "east") as ours:
        target = BrokerProcess(tmp_path / "target", fresh_chroot(zookeeper_server), 1)
        target.start()
        pair = Pair("isthmus", ours.east, target.bootstrap)
        topic, moments = fresh("target"), random.Random(5)
        link = pair.link(topic, exactly_once=True, number=random.randrange(10**6, 10**7))
        process = LinkProcess(link, str(tmp_path / "link.log"))
        async with ClusterClient(pair.east) as east, ClusterClient(pair.west) as west:
            await create(east, topic, PARTITIONS)
            load = Load(east, topic, 6)
            loading = asyncio.create_task(load.run())
            try:
                await process.start()
                for number in range(KILLS // 2):
                    await copied_to_long(west, link, topic, load.sent[0], 0)
                    await asyncio.sleep(moments.uniform(0.0, 1.0))  # any moment of a transaction
                    await asyncio.to_thread(target.kill)
                    if number % 3 == 2:
                        await process.kill()
                    await asyncio.to_thread(target.start)
                    if not process.lives:
                        await process.start()
                load.stop()
                await loading
                await assert_exact(west, pair, link, topic, load)
            finally:
                loading.cancel()
                await process.kill()
                target.kill()
