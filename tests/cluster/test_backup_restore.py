"""Backup and restore between real clusters through a real S3 API."""

import asyncio
import re
from collections.abc import Iterator

import confluent_kafka
import pytest

from connectors import catalogue
from connectors.errors import BackupError, NoSuchBackup, NoSuchTopic, NotHeld, RestoreRefused
from connectors.group_offsets import GroupStatus
from connectors.manifest import Manifest, encode
from connectors.object_store import open_store
from connectors.restore_report import read_report
from protocol.client import ClusterClient, Committed, ConfigSource, NewTopic
from protocol.records import Codec, Record
from protocol.types import TopicPartition, uuid_to_text
from tests.cluster.links import content, create, fresh, produce, some
from tests.cluster.vault import Vault
from tests.support.apache_kafka import apache_kafka
from tests.support.broker import BrokerProcess

pytestmark = [pytest.mark.cluster, pytest.mark.s3]

T0 = 1_356_998_400_000


@pytest.fixture(scope="module")
def kafka() -> Iterator[str]:
    with apache_kafka("backup", "log.cleaner.backoff.ms=200", "log.initial.task.delay.ms=100") as bootstrap:
        yield bootstrap


ODD = [
    Record(0, T0, b"key", b"value", [("a", b"1"), ("a", None), ("b", b"")]),
    Record(0, T0 + 5, None, b"no key"),
    Record(0, T0 + 3, b"", b""),
    Record(0, T0 + 7, b"tombstone", None),
]


async def overrides(client: ClusterClient, topic: str) -> dict[str, str | None]:
    entries = (await client.describe_configs([topic]))[topic]
    return {key: entry.value for key, entry in entries.items() if entry.source is ConfigSource.TOPIC}


@pytest.mark.parametrize("kind", ["segment", "avro"])
async def test_a_restored_topic_is_the_same(
    broker: BrokerProcess,
    target: BrokerProcess,
    here: ClusterClient,
    there: ClusterClient,
    vault: Vault,
    kind: str,
) -> None:
    topic, group = fresh("orders"), fresh("group")
    await create(here, topic, 3, retention_ms="-1")
    await produce(here, topic, ODD)
    for codec in Codec:
        await produce(here, topic, some(200, codec.name, T0), codec=codec)
    await produce(here, topic, some(30, "other", T0), partition=1)  # partition 2 stays empty
    await here.commit(group, {TopicPartition(topic, 0): Committed(123, -1, "note")})
    manifest = await vault.backup(broker.bootstrap, topic, format=kind, object_bytes=5_000)
    report = await vault.restore(target.bootstrap)

    assert (report.exit_code, report.problems) == (0, ())
    for partition in range(3):
        assert await content(there, topic, partition) == await content(here, topic, partition)
    metadata = (await there.metadata([topic])).topics[topic]
    assert sorted(metadata.partitions) == [0, 1, 2]
    assert await overrides(there, topic) == {"retention.ms": "-1"}
    assert await there.committed(group) == {TopicPartition(topic, 0): Committed(123, -1, "note")}

    (backed,) = manifest.topics
    assert backed.topic_id == uuid_to_text((await here.metadata([topic])).topics[topic].topic_id)
    assert manifest.records == report.records == 4 + 5 * 200 + 30
    assert len(manifest.objects()) > 2 or kind == "avro"
    async with open_store(vault.store) as store:
        assert (await catalogue.validate(store, manifest)).records == manifest.records
        assert [entry.backup_id for entry in await catalogue.list_backups(store)] == ["b1"]
        assert await read_report(store, "b1", report.restore_id) == report
    (restored,) = report.topics
    for part in restored.partitions:
        ledger = part.read_ledger()
        assert ledger.source.topic_id == backed.topic_id
        assert ledger.target.topic_id == uuid_to_text(metadata.topic_id)
        assert part.read_back == ledger.runs.records == ledger.runs.target_end


async def test_a_backup_ends_while_producers_go_on(
    broker: BrokerProcess, here: ClusterClient, vault: Vault
) -> None:
    topic, group = fresh("busy"), fresh("group")
    await create(here, topic)
    await produce(here, topic, some(500))
    stop = asyncio.Event()

    async def write() -> int:
        written = 500
        while not stop.is_set():
            await produce(here, topic, some(100))
            written += 100
            await here.commit(group, {TopicPartition(topic, 0): Committed(written)})
        return written

    writer = asyncio.create_task(write())
    try:
        manifest = await vault.backup(broker.bootstrap, topic, stall_s=20)
    finally:
        stop.set()
        written = await writer
    (partition,) = manifest.topics[0].partitions
    assert 500 <= partition.end_offset <= written
    assert partition.records == partition.end_offset
    for found in manifest.groups:
        assert found.offsets[0].offset <= partition.end_offset, "the data covers the offsets"


async def test_a_backup_begins_at_the_log_start(
    broker: BrokerProcess, target: BrokerProcess, here: ClusterClient, there: ClusterClient, vault: Vault
) -> None:
    topic, group = fresh("trimmed"), fresh("group")
    tp = TopicPartition(topic, 0)
    await create(here, topic)
    await produce(here, topic, some(100))
    await produce(here, topic, some(100, "w"))
    await here.delete_records({tp: 130})  # in the middle of a batch
    await here.commit(group, {tp: Committed(150)})
    manifest = await vault.backup(broker.bootstrap, topic)
    (partition,) = manifest.topics[0].partitions
    assert (partition.start_offset, partition.records) == (130, 70)
    report = await vault.restore(target.bootstrap)
    assert report.exit_code == 0
    assert await content(there, topic) == await content(here, topic)
    assert (await there.committed(group))[tp].offset == 20


async def test_topics_groups_and_names_may_change(
    broker: BrokerProcess, target: BrokerProcess, here: ClusterClient, there: ClusterClient, vault: Vault
) -> None:
    one, two, group, left = fresh("one"), fresh("two"), fresh("reader"), fresh("left")
    for topic in (one, two):
        await create(here, topic)
        await produce(here, topic, some(10))
    for name in (group, left):
        await here.commit(name, {TopicPartition(one, 0): Committed(4), TopicPartition(two, 0): Committed(5)})
    await vault.backup(broker.bootstrap, one, two)
    report = await vault.restore(
        target.bootstrap,
        prefix="copy.",
        rename={two: f"{two}.renamed"},
        groups=[re.escape(group)],
        rename_groups={group: f"{group}.new"},
    )
    assert report.exit_code == 0
    assert {topic.target for topic in report.topics} == {f"copy.{one}", f"{two}.renamed"}
    assert await there.committed(f"{group}.new") == {
        TopicPartition(f"copy.{one}", 0): Committed(4),
        TopicPartition(f"{two}.renamed", 0): Committed(5),
    }
    assert await there.committed(left) == {}


async def test_a_restore_refuses_before_it_writes(
    broker: BrokerProcess, target: BrokerProcess, here: ClusterClient, there: ClusterClient, vault: Vault
) -> None:
    full, narrow, absent = fresh("full"), fresh("narrow"), fresh("absent")
    for topic in (full, narrow, absent):
        await create(here, topic, 2)
        await produce(here, topic, some(5))
    await create(there, full, 2)
    await produce(there, full, some(3, "theirs"))
    await create(there, narrow, 1)
    await vault.backup(broker.bootstrap, full, narrow, absent)
    with pytest.raises(RestoreRefused) as refused:
        await vault.restore(target.bootstrap)
    text = str(refused.value)
    assert f"{full} exists and holds 3 records" in text
    assert f"{narrow} exists with 1 partition, the backup has 2" in text
    assert absent not in (await there.metadata(None)).topics
    assert len(await content(there, full)) == 3
    with pytest.raises(NotHeld, match="holds no topic nowhere"):
        await vault.restore(target.bootstrap, topics=["nowhere"])
    with pytest.raises(RestoreRefused, match="belongs to the cluster itself"):
        await vault.restore(target.bootstrap, rename={absent: "__consumer_offsets"})
    with pytest.raises(NoSuchBackup, match="there is no backup b2"):
        await vault.restore(target.bootstrap, backup_id="b2")


async def test_an_empty_topic_of_the_user_keeps_its_settings(
    broker: BrokerProcess, target: BrokerProcess, here: ClusterClient, there: ClusterClient, vault: Vault
) -> None:
    topic = fresh("made")
    await create(here, topic, retention_ms="-1")
    await produce(here, topic, some(50, time_ms=T0))
    await create(there, topic, retention_ms="7200000", segment_bytes="1048576")
    await vault.backup(broker.bootstrap, topic)
    report = await vault.restore(target.bootstrap)
    assert report.exit_code == 0
    assert not report.topics[0].created
    assert await overrides(there, topic) == {"retention.ms": "7200000", "segment.bytes": "1048576"}


async def test_unknown_topics_and_taken_names_end_a_backup_early(
    broker: BrokerProcess, here: ClusterClient, vault: Vault
) -> None:
    topic = fresh("known")
    await create(here, topic)
    with pytest.raises(NoSuchTopic, match="has no topic not-there"):
        await vault.backup(broker.bootstrap, topic, "not-there")
    await vault.backup(broker.bootstrap, topic)
    with pytest.raises(BackupError, match="b1 exists already"):
        await vault.backup(broker.bootstrap, topic)


async def test_settings_come_back_as_they_were(
    broker: BrokerProcess, target: BrokerProcess, here: ClusterClient, there: ClusterClient, vault: Vault
) -> None:
    """C21: overrides with special values, none at all, one that the target refuses."""
    special, plain = fresh("special"), fresh("plain")
    wanted = {
        "retention.ms": "-1",
        "retention.bytes": "-1",
        "cleanup.policy": "compact,delete",
        "min.insync.replicas": "2",
        "max.message.bytes": "2000000",
        "segment.ms": "3600000",
        "message.timestamp.type": "LogAppendTime",
    }
    await here.create_topics(
        [NewTopic(special, 1, 1, {**wanted, "min.insync.replicas": "1"}), NewTopic(plain, 1, 1)]
    )
    await produce(here, special, [Record(0, T0, b"k%d" % n, b"v") for n in range(20)])
    await here.alter_configs({special: {"min.insync.replicas": "2"}})
    await produce(here, plain, some(20))
    manifest = await vault.backup(broker.bootstrap, special, plain)
    await replace_manifest(vault, with_setting(manifest, special, "no.such.setting", "17"))
    before = (
        [row[1:] for row in await content(here, special)],
        [row[0] for row in await content(here, special)],
    )
    report = await vault.restore(target.bootstrap)

    assert report.exit_code == 3
    assert len(report.problems) == 1
    assert "no.such.setting=17" in report.problems[0]
    (refused,) = next(topic for topic in report.topics if topic.source == special).refused
    assert (refused.key, refused.value) == ("no.such.setting", "17")
    assert await overrides(there, special) == wanted
    assert await overrides(there, plain) == {}
    restored = await content(there, special)
    assert ([row[1:] for row in restored], [row[0] for row in restored]) == before, "time of append is kept"


def with_setting(manifest: Manifest, name: str, key: str, value: str) -> Manifest:
    topics = tuple(
        topic.model_copy(update={"configs": topic.configs | {key: value}}) if topic.name == name else topic
        for topic in manifest.topics
    )
    return manifest.model_copy(update={"topics": topics})


async def replace_manifest(vault: Vault, manifest: Manifest) -> None:
    async with open_store(vault.store) as store:
        await store.put(f"catalogue/{manifest.backup_id}.json", encode(manifest))


async def test_groups_never_pass_the_data_and_live_ones_are_left_alone(
    broker: BrokerProcess, target: BrokerProcess, here: ClusterClient, there: ClusterClient, vault: Vault
) -> None:
    """C22, with offsets that were saved for data which the backup does not hold."""
    topic, ahead, live, behind = fresh("t"), fresh("ahead"), fresh("live"), fresh("behind")
    tps = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    await create(here, topic, 2)
    for partition in range(2):
        await produce(here, topic, some(500), partition=partition)
    await here.commit(ahead, {tps[0]: Committed(800), tps[1]: Committed(300)})
    await here.commit(live, {tps[0]: Committed(10)})
    await here.commit(behind, {tps[1]: Committed(7)})
    await vault.backup(broker.bootstrap, topic)
    await create(there, "warm-up")
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": target.bootstrap, "group.id": live, "enable.auto.commit": False}
    )
    joined = asyncio.Event()
    loop = asyncio.get_running_loop()
    consumer.subscribe(["warm-up"], on_assign=lambda *_: loop.call_soon_threadsafe(joined.set))
    try:
        async with asyncio.timeout(30):
            while not joined.is_set():
                await asyncio.to_thread(consumer.poll, 0.1)
        report = await vault.restore(target.bootstrap)
    finally:
        consumer.close()
    status = {group.group: group.status for group in report.groups}
    assert status == {ahead: GroupStatus.CLAMPED, live: GroupStatus.ACTIVE, behind: GroupStatus.COMMITTED}
    assert report.exit_code == 3
    assert any(ahead in text and "to 500 (source offset 800)" in text for text in report.problems)
    assert any(live in text and "left alone" in text for text in report.problems)
    assert await there.committed(ahead) == {tps[0]: Committed(500), tps[1]: Committed(300)}
    assert await there.committed(live) == {}
    assert (await there.committed(behind))[tps[1]].offset == 7
    for group in report.groups:
        if group.status is not GroupStatus.ACTIVE:
            assert all(offset.read_back == offset.offset for offset in group.offsets)


@pytest.mark.interop
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["segment", "avro"])
async def test_transactions_and_compaction_of_apache_kafka(
    kafka: str, target: BrokerProcess, there: ClusterClient, vault: Vault, kind: str
) -> None:
    """Aborted records, markers at the very end, and holes are no reason to hang, and no data."""
    paid, compacted, group = fresh("paid"), fresh("compacted"), fresh("group")
    async with ClusterClient(kafka) as here:
        await create(here, paid)
        tight = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}
        await here.create_topics([NewTopic(compacted, 1, 1, tight)])
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": kafka, "transactional.id": fresh("tx"), "compression.type": "zstd"}
        )
        await asyncio.to_thread(producer.init_transactions, 30)
        for n in range(6):
            await asyncio.to_thread(producer.begin_transaction)
            for i in range(50):
                producer.produce(paid, key=b"%d" % n, value=b"%d-%d" % (n, i), timestamp=T0 + i)
            await asyncio.to_thread(producer.flush, 30)
            finish = producer.abort_transaction if n % 2 else producer.commit_transaction
            await asyncio.to_thread(finish, 30)
        for n in range(8):
            await produce(here, compacted, some(40, f"round{n}"))
            await asyncio.sleep(0.15)  # older than segment.ms, so the next batch rolls the segment
        first = TopicPartition(compacted, 0)
        async with asyncio.timeout(60):
            while len(await content(here, compacted)) > 200:
                await asyncio.sleep(0.5)
        await here.commit(group, {TopicPartition(paid, 0): Committed(204), first: Committed(100)})
        manifest = await vault.backup(kafka, paid, compacted, format=kind, stall_s=30)
        assert manifest.exit_code == 0
        report = await vault.restore(target.bootstrap, prefix=f"{kind}.")
        assert (report.exit_code, report.problems) == (0, ())
        wanted = [b"%d-%d" % (n, i) for n in (0, 2, 4) for i in range(50)]
        assert [row[2] for row in await content(there, f"{kind}.{paid}")] == wanted
        restored = await content(there, f"{kind}.{compacted}")
        assert restored == await content(here, compacted)
        assert (await overrides(there, f"{kind}.{compacted}"))["cleanup.policy"] == "compact"
        offsets = await there.committed(group)
        # 204 is behind four transactions of 50 and their markers, two of which were committed.
        assert offsets[TopicPartition(f"{kind}.{paid}", 0)].offset == 100
