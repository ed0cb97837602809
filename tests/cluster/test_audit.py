"""The audit over real topics, real backups and a real link: it finds what was changed, and nothing else."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from audit.result import AuditResult, Counts, DifferenceClass
from audit.run import run_audit
from audit.session import spark_session
from audit.settings import (
    AuditSettings,
    BackupSide,
    ByContent,
    ClusterSide,
    LinkLedger,
    RestoreLedger,
    SameOffsets,
    TopicPair,
)
from audit.sides import ClusterView, TopicView
from broker.control.embedded_zookeeper import EmbeddedZooKeeper
from connectors.object_store import open_store
from protocol.client import ClusterClient, NewTopic
from protocol.records import Codec, Record
from protocol.types import TopicPartition
from tests.cluster.links import copied_to, create, fresh, produce, running, some
from tests.cluster.mirrors import mirror_link, mirroring, same_logs
from tests.cluster.vault import new_vault
from tests.support.broker import BrokerProcess, Cluster
from tests.support.s3 import S3Server
from tests.support.zookeeper import fresh_chroot

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(400),  # Spark starts in the first test, perhaps on a busy machine
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

T0 = 1_356_998_400_000
COUNT = 300


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with spark_session() as session:
        yield session


@pytest.fixture(scope="module")
def west(zookeeper_server: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two brokers, so that one of them can be lost."""
    cluster = Cluster(tmp_path_factory.mktemp("west"), fresh_chroot(zookeeper_server))
    cluster.add(1)
    cluster.add(2)
    cluster.start()
    yield cluster
    cluster.close()


@pytest.fixture
async def here(broker: BrokerProcess) -> AsyncIterator[ClusterClient]:
    async with ClusterClient(broker.bootstrap) as client:
        yield client


@pytest.fixture
async def there(west: Cluster) -> AsyncIterator[ClusterClient]:
    async with ClusterClient(west.bootstrap) as client:
        yield client


def records() -> list[Record]:
    """Every third has headers, some keys and values are null or empty."""
    made = []
    for n in range(COUNT):
        headers: list[tuple[str, bytes | None]] = [("h", b"%d" % n), ("g", None)] if n % 3 == 0 else []
        key = None if n % 10 == 1 else b"" if n % 10 == 2 else b"key-%d" % (n % 17)
        value = None if n % 10 == 3 else b"" if n % 10 == 4 else b"value-%d" % n
        made.append(Record(n, T0 + n * 1000, key, value, headers))
    return made


def without(at: int) -> list[Record]:
    return [record for record in records() if record.offset != at]


def changed(at: int, **fields: Any) -> list[Record]:
    made = records()
    made[at] = replace(made[at], **fields)
    return made


def swapped(one: int, other: int) -> list[Record]:
    made = records()
    made[one], made[other] = made[other], made[one]
    return made


SAME = records()
CHANGES: dict[str, tuple[list[Record], Counts]] = {
    "same": (SAME, Counts()),
    "lost": (without(150), Counts(lost=1, misaligned=149)),
    "duplicated": (SAME[:100] + SAME[95:], Counts(duplicate=5, misaligned=200)),
    "swapped": (swapped(150, 151), Counts(reordered=1, misaligned=1)),
    "swapped far": (swapped(20, 250), Counts(reordered=2)),
    "foreign": ([*SAME[:100], Record(0, T0, b"x", b"y"), *SAME[100:]], Counts(foreign=1, misaligned=200)),
    "value changed": (changed(100, value=b"other"), Counts(corrupt=1)),
    "value null to empty": (changed(103, value=b""), Counts(corrupt=1)),
    "value empty to null": (changed(104, value=None), Counts(corrupt=1)),
    "key null to empty": (changed(101, key=b""), Counts(corrupt=1)),
    "key empty to null": (changed(102, key=None), Counts(corrupt=1)),
    "header value": (changed(99, headers=[("h", b"other"), ("g", None)]), Counts(corrupt=1)),
    "header null to empty": (changed(99, headers=[("h", b"99"), ("g", b"")]), Counts(corrupt=1)),
    "header order": (changed(99, headers=[("g", None), ("h", b"99")]), Counts(corrupt=1)),
    "header added": (changed(100, headers=[("origin", b"east")]), Counts(corrupt=1)),
    "time": (changed(100, timestamp=T0), Counts(corrupt=1)),
}


async def fill(client: ClusterClient, topic: str, made: list[Record], codec: Codec, size: int) -> None:
    await create(client, topic, retention_ms="-1")
    for at in range(0, len(made), size):
        await produce(client, topic, made[at : at + size], codec=codec)


async def audited(spark: Any, **settings: Any) -> AuditResult:
    made = AuditSettings.model_validate({"stall_s": 20, "settle_s": 3, **settings})
    return await asyncio.to_thread(run_audit, made, spark)


def difference(counts: Counts) -> dict[str, int]:
    """Without what says how much was compared."""
    apart = {"compared", "matched", "pending_source", "pending_target"}
    return {name: value for name, value in counts.model_dump().items() if value and name not in apart}


async def test_each_change_is_found_and_counted_exactly(
    spark: Any, broker: BrokerProcess, west: Cluster, here: ClusterClient, there: ClusterClient
) -> None:
    """One topic per change; compressed otherwise and in other batches, which must not matter."""
    source = fresh("source")
    await fill(here, source, SAME, Codec.NONE, 7)
    names = {}
    for name, (made, _) in CHANGES.items():
        names[name] = fresh("target")
        await fill(there, names[name], made, Codec.LZ4, 50)
    common = {
        "source": ClusterSide(bootstrap=broker.bootstrap, name="east"),
        "target": ClusterSide(bootstrap=west.bootstrap, name="west"),
        "topics": [TopicPair(source=source, target=target) for target in names.values()],
        "split_records": 160,
    }
    same_size = [
        TopicPair(source=source, target=names[n]) for n, (m, _) in CHANGES.items() if len(m) == COUNT
    ]
    by_offset = await audited(spark, **{**common, "topics": same_size}, alignment=SameOffsets())
    by_content = await audited(spark, **common, alignment=ByContent())
    for result in (by_offset, by_content):
        assert result.incomplete == ()
        assert result.exit_code == 3
        found = {partition.target_topic: partition.counts for partition in result.partitions}
        for name, (_, expected) in CHANGES.items():
            if (counts := found.get(names[name])) is None:
                continue
            if result is by_content:  # nothing can be at another place than the ledger says
                expected = expected.model_copy(update={"misaligned": 0})
            assert difference(counts) == difference(expected), f"{name}, by {result.alignment}"
            assert counts.compared == COUNT, name
    corrupt = [d for d in by_offset.differences if d.kind is DifferenceClass.CORRUPT]
    assert {(d.target_topic, d.source_offset, d.target_offset) for d in corrupt} >= {
        (names["value changed"], 100, 100),
        (names["value null to empty"], 103, 103),
    }
    assert next(d for d in corrupt if d.target_topic == names["value changed"]).timestamp == T0 + 100_000

    pair = TopicPair(source=source, target=names["header added"])
    ignoring = await audited(spark, **{**common, "topics": [pair]}, ignore_headers=["origin"])
    assert (ignoring.exit_code, difference(ignoring.totals)) == (0, {})
    assert ignoring.totals.compared == ignoring.totals.matched == COUNT
    pair = TopicPair(source=source, target=names["duplicated"])
    tolerant = await audited(spark, **{**common, "topics": [pair]}, tolerate=["duplicate"])
    assert (tolerant.exit_code, difference(tolerant.totals)) == (0, {"duplicate": 5})


async def test_a_link_is_audited_by_its_ledger(
    spark: Any, broker: BrokerProcess, west: Cluster, here: ClusterClient, there: ClusterClient
) -> None:
    from tests.cluster.links import Pair

    topic = fresh("linked")
    await create(here, topic, 2, retention_ms="-1")
    link = Pair("ours", broker.bootstrap, west.bootstrap).link(topic)
    target = f"{link.source.alias}.{topic}"
    async with running(link):
        for partition in range(2):
            await produce(here, topic, records(), partition, Codec.ZSTD)
            await copied_to(there, link, topic, COUNT, partition)
        # Somebody else writes to the copy: a record twice, and one of their own.
        await produce(there, target, [records()[0], Record(0, T0, b"x", b"y")])
        await produce(here, topic, some(50))
        await copied_to(there, link, topic, COUNT + 50)
    await produce(here, topic, some(10), 1)  # not copied any more
    result = await audited(
        spark,
        source=ClusterSide(bootstrap=broker.bootstrap),
        target=ClusterSide(bootstrap=west.bootstrap),
        topics=[TopicPair(source=topic, target=target)],
        alignment=LinkLedger(
            source_alias=link.source.alias, target_alias=link.target.alias, bootstrap=west.bootstrap
        ),
    )
    assert result.incomplete == ()
    assert difference(result.totals) == {"duplicate": 1, "foreign": 1}
    assert result.totals.compared == result.totals.matched == 2 * COUNT + 50
    assert result.totals.pending_source == 10
    assert result.exit_code == 3
    assert {(d.kind, d.source_offset, d.target_offset) for d in result.differences} == {
        (DifferenceClass.DUPLICATE, None, COUNT),
        (DifferenceClass.FOREIGN, None, COUNT + 1),
    }
    assert '"exit_code": 3' in result.to_json()


@pytest.mark.s3
@pytest.mark.parametrize("kind", ["segment", "avro"])
async def test_backups_and_restores_are_audited(
    spark: Any,
    broker: BrokerProcess,
    west: Cluster,
    here: ClusterClient,
    there: ClusterClient,
    tmp_path_factory: pytest.TempPathFactory,
    kind: str,
) -> None:
    topic = fresh("backed")
    await fill(here, topic, records(), Codec.GZIP, 50)
    await here.delete_records({TopicPartition(topic, 0): 20})
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        vault = new_vault(server)
        manifest = await vault.backup(broker.bootstrap, topic, format=kind, object_bytes=2_000)
        report = await vault.restore(west.bootstrap, prefix=f"{kind}.")
        held = BackupSide(store=vault.store, backup_id="b1")
        pair = TopicPair(source=topic, target=f"{kind}.{topic}")
        ledger = RestoreLedger(store=vault.store, backup_id="b1", restore_id=report.restore_id)
        restored = await audited(
            spark,
            source=held,
            target=ClusterSide(bootstrap=west.bootstrap),
            topics=[pair],
            alignment=ledger,
        )
        assert (restored.exit_code, difference(restored.totals)) == (0, {})
        assert restored.totals.compared == restored.totals.matched == COUNT - 20
        against_cluster = await audited(
            spark,
            source=ClusterSide(bootstrap=broker.bootstrap),
            target=held,
            topics=[TopicPair(source=topic, target=topic)],
            alignment=SameOffsets(),
        )
        assert (against_cluster.exit_code, difference(against_cluster.totals)) == (0, {})
        assert against_cluster.totals.matched == COUNT - 20

        entry = manifest.objects()[-1]
        async with open_store(vault.store) as store:
            data = bytearray(await store.get(entry.key))
            data[-5] ^= 0xFF
            await store.put(entry.key, data)
        damaged = await audited(
            spark,
            source=held,
            target=ClusterSide(bootstrap=west.bootstrap),
            topics=[pair],
            alignment=ledger,
        )
        assert damaged.exit_code == 1
        assert entry.key in damaged.incomplete[0] or "checksum" in damaged.incomplete[0]
        assert damaged.totals.compared == 0


async def test_a_mirror_is_compared_by_offset_and_its_gap_is_not_forgotten(
    spark: Any, broker: BrokerProcess, west: Cluster, here: ClusterClient, there: ClusterClient
) -> None:
    topic = fresh("mirrored")
    await create(here, topic)
    await produce(here, topic, some(10))
    link = mirror_link(broker.bootstrap, west.bootstrap, topic)
    settings = {
        "source": ClusterSide(bootstrap=broker.bootstrap, name="east"),
        "target": ClusterSide(bootstrap=west.bootstrap, name="west"),
        "topics": [TopicPair(source=topic, target=topic)],
        "alignment": LinkLedger(
            source_alias="east", target_alias="west", bootstrap=west.bootstrap, identical=True
        ),
    }
    async with mirroring(link):
        await same_logs(here, there, topic)
    clean = await audited(spark, **settings)
    assert (clean.exit_code, clean.totals.matched, clean.incomplete) == (0, 10, ())
    views = [(await ClusterView(client, 3).topics({topic}))[topic] for client in (here, there)]
    assert [isinstance(view, TopicView) and view.is_mirror for view in views] == [False, True]
    for _ in range(2):
        await produce(here, topic, some(10))
    await here.delete_records({TopicPartition(topic, 0): 20})
    async with mirroring(link):
        await same_logs(here, there, topic)
    found = await audited(spark, **settings)
    assert (found.exit_code, difference(found.totals)) == (3, {"gap_expired": 10})
    assert found.totals.matched == 10


async def test_heads_that_expired_are_counted_apart(
    spark: Any, broker: BrokerProcess, west: Cluster, here: ClusterClient, there: ClusterClient
) -> None:
    source, target = fresh("old"), fresh("old-copy")
    await fill(here, source, records(), Codec.NONE, 50)
    await fill(there, target, records(), Codec.NONE, 50)
    await here.delete_records({TopicPartition(source, 0): 30})
    await there.delete_records({TopicPartition(target, 0): 70})
    for alignment in (SameOffsets(), ByContent()):
        result = await audited(
            spark,
            source=ClusterSide(bootstrap=broker.bootstrap),
            target=ClusterSide(bootstrap=west.bootstrap),
            topics=[TopicPair(source=source, target=target)],
            alignment=alignment,
        )
        assert (result.totals.expired_source, result.totals.expired_target) == (0, 40)
        assert result.totals.lost == result.totals.foreign == 0
        assert (result.exit_code, result.totals.matched) == (0, COUNT - 70)


async def test_on_compacted_topics_the_last_value_of_each_key_must_be_there(
    spark: Any, broker: BrokerProcess, west: Cluster, here: ClusterClient, there: ClusterClient
) -> None:
    """Which earlier ones are left is chance; an old tombstone may be gone."""
    source, target, empty = fresh("keyed"), fresh("keyed-copy"), fresh("keyed-empty")
    made = [Record(n, T0 + n, b"key-%d" % (n % 10), None if n == 19 else b"%d" % n) for n in range(20)]
    for client, topic in ((here, source), (there, target), (there, empty)):
        await create(client, topic, cleanup_policy="compact")
    await produce(here, source, made)
    await produce(there, target, [record for record in made if record.offset not in (3, 15, 19)])
    result = await audited(
        spark,
        source=ClusterSide(bootstrap=broker.bootstrap),
        target=ClusterSide(bootstrap=west.bootstrap),
        topics=[TopicPair(source=source, target=target), TopicPair(source=source, target=empty)],
        alignment=ByContent(),
    )
    assert result.incomplete == ()
    assert [difference(part.counts) for part in result.partitions] == [
        {"lost": 1, "compacted": 2},
        {"lost": 9, "compacted": 11},
    ]
    assert (result.exit_code, result.differences[0].source_offset) == (3, 15)


@pytest.fixture
def lost_broker(west: Cluster) -> Iterator[Callable[[], None]]:
    """Kills broker 2 of west; it is back after the test."""
    yield west.brokers[2].kill
    if not west.brokers[2].running:
        west.brokers[2].start()


async def test_what_cannot_be_read_is_incomplete_and_never_empty(
    spark: Any,
    broker: BrokerProcess,
    west: Cluster,
    here: ClusterClient,
    there: ClusterClient,
    lost_broker: Callable[[], None],
) -> None:
    """C23: a partition whose broker is down, and a topic that really is gone."""
    topic, gone = fresh("spread"), fresh("gone")
    keep = {"retention.ms": "-1"}
    await here.create_topics([NewTopic(topic, 3, 1, keep), NewTopic(gone, 1, 1)])
    await there.create_topics([NewTopic(topic, configs=keep, assignment={0: [1], 1: [2], 2: [1]})])
    for partition in range(3):
        for client in (here, there):
            await produce(client, topic, records(), partition)
    settings: dict[str, Any] = {
        "source": ClusterSide(bootstrap=broker.bootstrap, name="east"),
        "target": ClusterSide(bootstrap=west.brokers[1].bootstrap, name="west"),
        "topics": [TopicPair(source=topic, target=topic)],
        "alignment": SameOffsets(),
    }
    lost_broker()
    result = await audited(spark, **settings)
    assert result.exit_code == 1
    assert len(result.incomplete) == 1
    assert f"{topic}-1 of west: not readable" in result.incomplete[0]
    assert result.totals.compared == result.totals.matched == 2 * COUNT
    assert difference(result.totals) == {}

    settings["topics"] = [TopicPair(source=gone, target=gone)]
    result = await audited(spark, **settings)
    assert (result.exit_code, result.incomplete) == (3, ())
    assert result.missing_topics == (f"{gone} does not exist in west",)
