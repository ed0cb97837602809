"""What goes into objects comes out of them: both formats, through the real sink, store and source."""

import re

import pytest

from connectors import catalogue
from connectors.backup_sink import BackupSink, SinkResult
from connectors.backup_source import BackupSource
from connectors.errors import DamagedBackup
from connectors.manifest import BackupFormat, Manifest, PartitionBackup, TopicBackup
from connectors.object_store import ObjectStore
from protocol.records import Codec, Record, build_batch, iter_headers
from protocol.records.reading import read_records
from tests.support.batches import marker
from tests.unit.connectors.logs import RECORDS, T0, TP, chunk, numbered, placed
from transfer.endpoint import AbortedTransaction, Chunk, FaultKind, SourceFault
from transfer.ledger import Copied, Lineage, PartitionLedger
from transfer.offset_map import OffsetMap

pytestmark = pytest.mark.s3

FORMATS = pytest.mark.parametrize("kind", ["segment", "avro"])


class Written:
    """A one-partition backup made of chunks."""

    def __init__(self, store: ObjectStore, kind: BackupFormat, object_bytes: int = 1 << 20) -> None:
        self.store = store
        self.kind = kind
        self.sink = BackupSink(
            store,
            "b1",
            kind,
            object_bytes=object_bytes,
            part_bytes=1,
            avro_codec="deflate",
            run="0123456789abcdef",  # so that two runs can be compared
        )
        self.result = SinkResult((), ())
        self.copied: list[Copied] = []

    async def write(self, *chunks: Chunk, end: int | None = None) -> Manifest:
        until = chunks[-1].next_offset if end is None else end
        self.sink.begin(TP, until)
        self.copied = [await self.sink.write(TP, part) for part in chunks]
        self.result = await self.sink.finish(TP)
        lineage = Lineage("c", "", *TP)
        ledger = PartitionLedger(lineage, lineage, OffsetMap(chunks[0].first_offset))
        for copied in self.copied:
            ledger.add(copied)
        partition = PartitionBackup(
            partition=TP.partition,
            start_offset=chunks[0].first_offset,
            end_offset=until,
            records=sum(entry.records for entry in self.result.entries),
            objects=self.result.entries,
            ledger=ledger.to_json(),
        )
        topic = TopicBackup(
            name=TP.topic,
            topic_id="",
            replication_factor=1,
            configs={},
            effective={},
            partitions=(partition,),
        )
        return Manifest(
            backup_id="b1",
            cluster_id="c",
            format=self.kind,
            compression="deflate",
            started_ms=1,
            finished_ms=2,
            topics=(topic,),
            groups=(),
        )


async def read(store: ObjectStore, manifest: Manifest, from_offset: int = 0) -> list[Record]:
    source = BackupSource(store, manifest)
    found: list[Record] = []
    position = from_offset
    async for part in source.chunks(TP, from_offset):
        assert part.first_offset == position
        position = part.next_offset
        for pos, header in iter_headers(part.batches):
            found += [r for r in read_records(part.batches, pos, header) if r.offset >= part.first_offset]
    assert position == manifest.partition(TP).end_offset
    return found


@FORMATS
@pytest.mark.parametrize("codec", list(Codec))
async def test_every_field_of_every_record_comes_back(
    store: ObjectStore, kind: BackupFormat, codec: Codec
) -> None:
    manifest = await Written(store, kind).write(chunk([build_batch(RECORDS, codec=codec)]))
    assert await read(store, manifest) == RECORDS
    assert manifest.records == 5
    (entry,) = manifest.objects()
    assert (entry.first_offset, entry.last_offset, entry.batches) == (0, 4, 1)
    assert entry.max_timestamp == T0 + 7


async def test_segments_are_the_stored_bytes(store: ObjectStore) -> None:
    batches = [placed(numbered(3), 0), placed(numbered(2, 3, codec=Codec.ZSTD), 3)]
    manifest = await Written(store, "segment").write(chunk(batches))
    (entry,) = manifest.objects()
    assert await store.get(entry.key) == b"".join(batches)
    assert re.fullmatch(r"data/b1/[0-9a-f]{16}/orders/00003/0{20}\.segment", entry.key)


@FORMATS
async def test_ranges_are_cut_at_batches_and_the_same_way_each_time(
    store: ObjectStore, kind: BackupFormat
) -> None:
    batches = [numbered(50, start, size=400) for start in range(0, 1000, 50)]
    one_by_one = await Written(store, kind, 30_000).write(*(chunk([batch]) for batch in batches))
    at_once = await Written(store, kind, 30_000).write(chunk(batches))
    assert one_by_one.objects() == at_once.objects()
    assert len(at_once.objects()) > 1 or kind == "avro"
    assert [record.offset for record in await read(store, one_by_one, 333)] == list(range(333, 1000))
    validation = await catalogue.validate(store, one_by_one)
    assert (validation.records, validation.damaged, validation.exit_code) == (1000, (), 0)


@FORMATS
async def test_a_compacted_log_keeps_its_holes(store: ObjectStore, kind: BackupFormat) -> None:
    kept = [Record(offset, T0, b"k", b"%d" % offset) for offset in (2, 7, 8)]
    batch = build_batch(kept, base_offset=0, last_offset=11, preserve_offsets=True)
    written = Written(store, kind)
    manifest = await written.write(chunk([batch, numbered(1, 12)]))
    assert [record.offset for record in await read(store, manifest)] == [2, 7, 8, 12]
    assert manifest.records == 4
    assert written.copied[0].next_source_offset == 13


@FORMATS
async def test_a_log_that_begins_inside_a_batch(store: ObjectStore, kind: BackupFormat) -> None:
    manifest = await Written(store, kind).write(chunk([numbered(10)], first_offset=6))
    assert [record.offset for record in await read(store, manifest, 6)] == [6, 7, 8, 9]
    assert manifest.records == 4
    assert (await catalogue.validate(store, manifest)).damaged == ()


@FORMATS
async def test_what_lies_behind_the_end_is_not_taken(store: ObjectStore, kind: BackupFormat) -> None:
    manifest = await Written(store, kind).write(chunk([numbered(5), numbered(5, 5)]), end=5)
    assert [record.offset for record in await read(store, manifest)] == [0, 1, 2, 3, 4]


@FORMATS
async def test_markers_and_aborted_transactions_are_no_data(store: ObjectStore, kind: BackupFormat) -> None:
    def transactional(producer: int, offset: int) -> bytes:
        record = Record(offset, T0, b"p%d" % producer, b"v")
        return build_batch(
            [record],
            base_offset=offset,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )

    batches = [
        transactional(7, 0),
        transactional(8, 1),
        placed(bytes(marker(7, 0, commit=False)), 2),
        placed(bytes(marker(8, 0, commit=True)), 3),
    ]
    made = chunk(batches, aborted=[AbortedTransaction(7, 0)])
    manifest = await Written(store, kind).write(made)
    assert [(record.offset, record.key) for record in await read(store, manifest)] == [(1, b"p8")]


@FORMATS
async def test_a_damaged_batch_is_left_out_aloud(store: ObjectStore, kind: BackupFormat) -> None:
    broken = bytearray(numbered(5, 5))
    broken[-3] ^= 1
    written = Written(store, kind)
    manifest = await written.write(chunk([numbered(5), bytes(broken), numbered(5, 10)]))
    assert [record.offset for record in await read(store, manifest)] == [*range(5), *range(10, 15)]
    (gap,) = written.result.damaged
    assert (gap.start, gap.end) == (5, 10)
    assert "checksum" in gap.reason


@FORMATS
@pytest.mark.parametrize("how", ["changed", "shorter", "gone"])
async def test_damage_at_rest_is_found_and_named(store: ObjectStore, kind: BackupFormat, how: str) -> None:
    manifest = await Written(store, kind).write(chunk([numbered(100)]))
    (entry,) = manifest.objects()
    data = bytearray(await store.get(entry.key))
    if how == "changed":
        data[len(data) // 2] ^= 0xFF
        await store.put(entry.key, data)
    elif how == "shorter":
        await store.put(entry.key, data[:-10])
    else:
        await store.delete([entry.key])
    validation = await catalogue.validate(store, manifest)
    assert validation.exit_code == 3
    assert entry.key in validation.damaged[0]
    source = BackupSource(store, manifest)
    await source.open(TP, 0)
    fault = None
    while not isinstance(fault, SourceFault):
        for item in await source.read():
            fault = item
    assert fault.kind is FaultKind.FAILED
    assert entry.key in fault.message
    await source.aclose()


async def test_reading_in_the_middle_uses_the_index(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("connectors.backup_source.RANGE_BYTES", 100_000)
    batches = [numbered(100, start, size=2000) for start in range(0, 2000, 100)]
    manifest = await Written(store, "segment", 1 << 30).write(chunk(batches))
    asked: list[int] = []
    get = store.get

    async def watched(key: str, start: int = 0, length: int | None = None) -> bytes:
        if key.endswith(".segment"):
            asked.append(start)
        return await get(key, start, length)

    monkeypatch.setattr(store, "get", watched)
    assert [record.offset for record in await read(store, manifest, 1550)] == list(range(1550, 2000))
    assert min(asked) > 1_000_000


async def test_a_manifest_that_was_changed_is_refused(store: ObjectStore) -> None:
    manifest = await Written(store, "segment").write(chunk([numbered(5)]))
    await catalogue.write_manifest(store, manifest)
    assert await catalogue.read_manifest(store, "b1") == manifest
    data = await store.get("catalogue/b1.json")
    await store.put("catalogue/b1.json", data.replace(b'"records": 5', b'"records": 6'))
    with pytest.raises(DamagedBackup, match="checksum"):
        await catalogue.read_manifest(store, "b1")
    (entry,) = await catalogue.list_backups(store)
    assert (entry.backup_id, entry.manifest) == ("b1", None)
    assert "checksum" in entry.problem


async def test_a_backup_is_never_replaced(store: ObjectStore) -> None:
    manifest = await Written(store, "segment").write(chunk([numbered(5)]))
    await catalogue.write_manifest(store, manifest)
    with pytest.raises(Exception, match="exists already"):
        await catalogue.write_manifest(store, manifest.model_copy(update={"finished_ms": 99}))
