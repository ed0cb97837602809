"""What a task makes of batches, of links whose records say where they have been."""

from dataclasses import replace
from typing import Any

import pyarrow as pa

from audit.digest import batch_digests
from audit.lanes import Ends, Lane, Split, split_lane, with_ledger
from audit.rows import _Gathered
from protocol.records import Record, build_batch
from protocol.records.header import iter_headers
from protocol.records.reading import read_records
from protocol.types import TopicPartition
from replicator.origin import ORIGIN_HEADER, Origin, Place
from transfer.endpoint import Chunk
from transfer.ledger import Lineage, PartitionLedger
from transfer.offset_map import OffsetMap, Run

TP = TopicPartition("t", 0)
HERE, THERE = Place("a", "t"), Place("b", "t")
LINK = Origin("a", "b")


def rows(split: Split, batch: bytes) -> tuple[list[dict[str, Any]], int]:
    """As the task gives them, and how many it left out."""
    gathered = _Gathered(split)
    for pos, header in iter_headers(memoryview(batch)):
        ignored = [ORIGIN_HEADER.encode()]
        gathered.add(batch_digests(memoryview(batch), pos, header, ignore_headers=ignored, way_in=ignored[0]))
    table = pa.Table.from_batches([gathered.take()])
    return table.to_pylist(), gathered.left_out


def record(offset: int, *way: Place, headers: tuple[tuple[str, bytes], ...] = ()) -> Record:
    own = [*headers, (ORIGIN_HEADER, ",".join(map(str, way)).encode())] if way else list(headers)
    return Record(offset, 1000 + offset, b"k", b"%d" % offset, own)


SOURCE = [
    record(0),
    record(1, THERE),  # came from there
    record(2, Place("c", "t"), headers=(("h", b"1"),)),
    record(3, Place("c", "t"), THERE),
    record(4, Place("b", "other")),
    record(5),
]


def copied() -> tuple[Lane, list[Record]]:
    """The link's ledger of it, and a target with three records of others."""
    batch = memoryview(build_batch(SOURCE))
    made, left_out = LINK.apply(Chunk(TP, batch, 0, 6))
    assert left_out == [1, 3]
    copies = [
        one for pos, header in iter_headers(made.batches) for one in read_records(made.batches, pos, header)
    ]
    own = [Record(0, 1, b"x", b"y"), Record(0, 2, b"x", b"y", [(ORIGIN_HEADER, b"c/t")])]
    there = [own[0], *copies[:2], *own, *copies[2:]]
    runs = OffsetMap()
    for source, target in ((0, 1), (2, 2), (4, 5), (5, 6)):
        runs.append(Run(source, target, 1))
    ledger = PartitionLedger(Lineage("a", "", *TP), Lineage("b", "", *TP), runs)
    lane = with_ledger(0, TP, ledger, Ends(0, 6), Ends(0, 7))
    return replace(lane, places=(str(THERE), str(HERE))), [
        replace(one, offset=offset) for offset, one in enumerate(there)
    ]


def test_records_that_a_link_with_origin_headers_does_not_copy_are_no_difference() -> None:
    lane, there = copied()
    source, target = split_lane(lane, 0, [], [])
    here, left_out = rows(source, build_batch(SOURCE))
    assert ([row["position"] for row in here], left_out) == ([1, 2, 5, 6], 2)
    copies, own = rows(target, build_batch(there))
    assert ([row["offset"] for row in copies], own) == ([1, 2, 5, 6], 3)
    assert [(row["digest_high"], row["digest_low"]) for row in here] == [
        (row["digest_high"], row["digest_low"]) for row in copies
    ]


def test_a_copy_that_came_twice_or_without_its_header_is_not_left_out() -> None:
    lane, there = copied()
    _, target = split_lane(lane, 0, [], [])
    there[0] = replace(there[1], offset=0)
    there[2] = replace(there[2], headers=[])
    copies, own = rows(target, build_batch(there))
    assert ([row["offset"] for row in copies], own) == ([0, 1, 2, 5, 6], 2)


def test_a_record_that_was_not_copied_without_a_reason_is_not_left_out() -> None:
    lane, _ = copied()
    source, _ = split_lane(replace(lane, runs=OffsetMap(0, 1)), 0, [], [])
    here, left_out = rows(source, build_batch(SOURCE))
    assert ([row["offset"] for row in here], left_out) == ([0, 2, 4, 5], 2)
