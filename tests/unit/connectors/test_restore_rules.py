"""The rules of a restore that need no cluster: translation, held settings, going on, names, results."""

import asyncio

import pytest
from pydantic import ValidationError

from connectors.errors import RestoreError
from connectors.group_offsets import GroupStatus, RestoredGroup, RestoredOffset, TranslationTable
from connectors.held_settings import expiring, final, held, wanted_overrides
from connectors.manifest import GroupOffset, ObjectEntry, PartitionBackup, TopicBackup
from connectors.object_store import ObjectStoreSettings
from connectors.restore_report import default_restore_id
from connectors.resume import ResumingSink
from connectors.settings import RestoreSettings, matches
from protocol.client import Fetched
from protocol.types import TopicPartition
from tests.unit.connectors.logs import TP, chunk, numbered, placed
from transfer.endpoint import Chunk
from transfer.ledger import Copied, Lineage, PartitionLedger
from transfer.offset_map import OffsetMap, Run
from transfer.rewrite import plan


def table(*runs: Run, covered: int) -> TranslationTable:
    ledger = PartitionLedger(Lineage("a", "", "t", 0), Lineage("b", "", "new.t", 0), OffsetMap(100, 0))
    for run in runs:
        ledger.runs.append(run)
    ledger.runs.cover_to(covered)
    return TranslationTable({"t": "new.t"}, {TopicPartition("t", 0): ledger})


@pytest.mark.parametrize(
    ("source", "target", "clamped"),
    [
        (100, 0, False),
        (150, 50, False),
        (200, 100, False),  # in the hole: the first record behind it
        (260, 110, False),
        (300, 150, False),  # the end
        (301, 150, True),
        (5000, 150, True),
        (7, 0, False),  # expired before the backup: its beginning
    ],
)
def test_offsets_are_translated_and_never_pass_the_data(source: int, target: int, clamped: bool) -> None:
    made = table(Run(100, 0, 100), Run(250, 100, 50), covered=300).translate(
        GroupOffset(topic="t", partition=0, offset=source)
    )
    assert made is not None
    assert (made.topic, made.offset, made.clamped) == ("new.t", target, clamped)


def test_offsets_of_other_partitions_are_left_out() -> None:
    assert table(covered=100).translate(GroupOffset(topic="t", partition=1, offset=0)) is None


def test_a_clamped_group_says_where_and_how_far() -> None:
    offset = RestoredOffset(topic="new.t", partition=0, source_offset=800, offset=500, clamped=True)
    group = RestoredGroup(group="g", target_group="g", status=GroupStatus.CLAMPED, offsets=(offset,))
    assert "new.t-0 to 500" in group.problem
    assert "source offset 800" in group.problem


def topic(configs: dict[str, str], effective: dict[str, str], *entries: ObjectEntry) -> TopicBackup:
    lineage = Lineage("c", "", "t", 0)
    partition = PartitionBackup(
        partition=0,
        start_offset=0,
        end_offset=10,
        records=10,
        objects=entries,
        ledger=PartitionLedger(lineage, lineage).to_json(),
    )
    return TopicBackup(
        name="t",
        topic_id="",
        replication_factor=3,
        configs=configs,
        effective=effective,
        partitions=(partition,),
    )


def entry(max_timestamp: int, max_batch_bytes: int = 100) -> ObjectEntry:
    return ObjectEntry(
        key="k",
        bytes=1,
        sha256="",
        records=10,
        batches=1,
        first_offset=0,
        last_offset=9,
        first_timestamp=0,
        max_timestamp=max_timestamp,
        max_batch_bytes=max_batch_bytes,
    )


def test_nothing_goes_while_restoring_and_everything_is_as_before_afterwards() -> None:
    configs = {"retention.ms": "60000", "min.insync.replicas": "2", "cleanup.policy": "compact"}
    made = topic(configs, {"min.insync.replicas": "2", "max.message.bytes": "1000"}, entry(5, 5000))
    holding = held(made, replication_factor=1)
    assert holding["retention.ms"] == "-1"
    assert holding["cleanup.policy"] == "delete"
    assert holding["message.timestamp.type"] == "CreateTime"
    assert holding["min.insync.replicas"] == "1"
    assert int(holding["max.message.bytes"]) > 5000
    after = final(configs, holding)
    assert {key: value for key, value in after.items() if value is not None} == configs
    assert after["max.message.bytes"] is None


def test_replicas_of_the_old_cluster_are_no_setting_of_the_new_one() -> None:
    made = topic({"leader.replication.throttled.replicas": "0:1", "retention.ms": "-1"}, {})
    assert wanted_overrides(made) == {"retention.ms": "-1"}


def test_records_that_retention_will_take_are_counted() -> None:
    made = topic({}, {}, entry(1_000), entry(9_000))
    assert expiring(made, retention_ms=5_000, now_ms=10_000) == 10
    assert expiring(made, retention_ms=-1, now_ms=10_000) == 0


class Memory:
    """A sink that appends to a list, as a topic would."""

    def __init__(self) -> None:
        self.end = 0
        self.log: list[bytes] = []

    async def write(self, tp: TopicPartition, chunk: Chunk) -> Copied:
        outs, _ = plan(chunk)
        runs = []
        for out in outs:
            self.log.append(bytes(out.payload))
            for source, length in out.sources:
                runs.append(Run(source, self.end, length))
                self.end += length
        records = sum(out.record_count for out in outs)
        size = sum(out.source_size for out in outs)
        return Copied(
            tuple(runs), chunk.next_offset, records, size, tuple(crc for o in outs for crc in o.source_crcs)
        )

    async def aclose(self) -> None:
        self.log.clear()


class Tail:
    """A client that serves the target's last batch."""

    def __init__(self, batch: bytes) -> None:
        self._batch = batch

    async def fetch(self, tp: TopicPartition, offset: int) -> Fetched:
        return Fetched(tp, memoryview(self._batch), 0, 0, 0)


CHUNKS = [
    chunk([numbered(10), numbered(10, 10)]),
    chunk([numbered(10, 20), numbered(10, 30)]),
    chunk([numbered(10, 40)]),
]


@pytest.mark.parametrize("there", [0, 10, 20, 30, 40, 50])
async def test_what_is_there_is_booked_and_not_written_again(there: int) -> None:
    inner = Memory()
    inner.end = there
    last = placed(numbered(10, max(there - 10, 0)), max(there - 10, 0))
    sink = ResumingSink(inner, Tail(last))  # type: ignore[arg-type]
    sink.present(TP, 0, there)
    ledger = PartitionLedger(Lineage("a", "", *TP), Lineage("b", "", *TP))
    for part in CHUNKS:
        ledger.add(await sink.write(TP, part))
    assert len(inner.log) == 5 - there // 10
    assert list(ledger.runs) == [Run(0, 0, 50)]
    assert (ledger.records, ledger.batches, ledger.next_source_offset) == (50, 5, 50)


async def test_a_chunk_that_comes_while_the_last_present_one_is_looked_at_stays_behind() -> None:
    inner, tail = Memory(), Tail(placed(numbered(10), 0))
    inner.end = 10
    answer = asyncio.Event()
    ask = tail.fetch

    async def later(tp: TopicPartition, offset: int) -> Fetched:
        await answer.wait()
        return await ask(tp, offset)

    tail.fetch = later  # type: ignore[method-assign]
    sink = ResumingSink(inner, tail)  # type: ignore[arg-type]
    sink.present(TP, 0, 10)
    parts = [chunk([numbered(10, start)]) for start in (0, 10, 20)]
    early = [asyncio.ensure_future(sink.write(TP, part)) for part in parts[:2]]
    await asyncio.sleep(0)
    answer.set()
    copied = await asyncio.gather(*early, sink.write(TP, parts[2]))
    assert [run for each in copied for run in each.runs] == [Run(0, 0, 10), Run(10, 10, 10), Run(20, 20, 10)]


@pytest.mark.parametrize(
    ("there", "last", "why"),
    [
        (15, placed(numbered(5, 10), 10), "ends inside"),
        (20, placed(numbered(10, 777), 10), "is not the backup's"),
        (60, placed(numbered(10, 50), 50), None),
    ],
)
async def test_a_target_that_somebody_else_wrote_is_refused(there: int, last: bytes, why: str | None) -> None:
    sink = ResumingSink(Memory(), Tail(last))  # type: ignore[arg-type]
    sink.present(TP, 0, there)
    if why is None:  # more than the backup has: everything is recognised, and the count will tell
        assert sum([(await sink.write(TP, part)).records for part in CHUNKS]) == 50
        return

    async def write_all() -> None:
        for part in CHUNKS:
            await sink.write(TP, part)

    with pytest.raises(RestoreError, match=why):
        await write_all()


def test_the_same_command_has_the_same_restore_id() -> None:
    one = default_restore_id("cluster", {"a": "x.a", "b": "x.b"})
    assert one == default_restore_id("cluster", {"b": "x.b", "a": "x.a"})
    assert one != default_restore_id("other", {"a": "x.a", "b": "x.b"})
    assert one != default_restore_id("cluster", {"a": "a", "b": "b"})


def test_settings_say_what_is_wrong() -> None:
    store = ObjectStoreSettings(bucket="bucket")
    made = RestoreSettings(
        backup_id="b", bootstrap="h:1", store=store, prefix="new.", rename={"a": "z"}, groups=("g-.*",)
    )
    assert (made.target_topic("a"), made.target_topic("b")) == ("z", "new.b")
    assert matches("g-1", made.groups)
    assert not matches("xg-1", made.groups)
    for wrong in ({"backup_id": "a/b"}, {"groups": ["("]}, {"rename": {"a": "b c"}}, {"toipcs": ["x"]}):
        with pytest.raises(ValidationError):
            RestoreSettings.model_validate({"backup_id": "b", "bootstrap": "h:1", "store": store} | wrong)
