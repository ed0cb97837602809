"""Pairs of logs with known differences, as rows of the audit's data source; equal texts are equal records."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from audit.lanes import Ends, Lane, with_ledger, without_ledger
from audit.positions import Positions
from audit.result import DifferenceClass as Kind
from protocol.types import TopicPartition
from transfer.ledger import Lineage, PartitionLedger
from transfer.offset_map import OffsetMap, Run

TP = TopicPartition("t", 0)
RECORDS = 60


class Copy(NamedTuple):
    name: str
    source: list[str]
    target: list[str]
    runs: tuple[tuple[int, int, int], ...] | None
    """The ledger's runs; None = content decides."""
    expected: dict[Kind, int]


def base() -> list[str]:
    return [f"r{n}" for n in range(RECORDS)]


def swapped(one: int, other: int) -> list[str]:
    values = base()
    values[one], values[other] = values[other], values[one]
    return values


def lane(copy: Copy, number: int = 0) -> Lane:
    ends = Ends(0, len(copy.source)), Ends(0, len(copy.target))
    if copy.runs is None:
        return without_ledger(number, TP, TP, *ends)
    ledger = PartitionLedger(Lineage("a", "", *TP), Lineage("b", "", *TP), OffsetMap())
    for run in copy.runs:
        ledger.runs.append(Run(*run))
    ledger.runs.cover_to(len(copy.source))
    return with_ledger(number, TP, ledger, *ends)


def rows(made: Lane, source: Sequence[str], target: Sequence[str]) -> pa.Table:
    parts = []
    for side, values in ((0, source), (1, target)):
        offsets = np.arange(len(values), dtype=np.int64)
        runs = made.runs.encode() if made.runs is not None else b""
        positions = Positions(runs, ()).expected(offsets) if side == 0 else offsets
        digests = np.array([hash(("digest", value)) for value in values], dtype=np.int64)
        columns: dict[str, Any] = {
            "lane": pa.array([made.number] * len(values), pa.int32()),
            "side": pa.array([side] * len(values), pa.int32()),
            "position": positions,
            "offset": offsets,
            "digest_high": digests,
            "digest_low": ~digests,
            "timestamp": offsets + 1000,
            "key": np.zeros(len(values), np.int64),
            "note": pa.nulls(len(values), pa.string()),
        }
        parts.append(pa.table(columns))
    return pa.concat_tables(parts)


def copies() -> list[Copy]:
    """Every difference with a ledger, and again by content, where nothing can be misaligned."""
    records = base()
    whole = ((0, 0, RECORDS),)
    without_20 = ((0, 0, 20), (21, 20, RECORDS - 21))
    shifted = ((0, 0, 10), (10, 13, RECORDS - 10))
    lost = [*records[:20], *records[21:]]
    late = [*records[:5], *records[6:], records[5]]
    replayed = [*records[:10], *records[7:10], *records[10:]]
    strangers = [*records[:10], "x", "y", "z", *records[10:]]
    wrong = [*records[:7], "x", *records[8:]]
    made = [
        Copy("clean", records, records, whole, {}),
        Copy("neighbours swapped", records, swapped(30, 31), whole, {Kind.REORDERED: 1, Kind.MISALIGNED: 1}),
        Copy("swapped at a distance", records, swapped(10, 40), whole, {Kind.REORDERED: 2}),
        Copy("one late", records, late, whole, {Kind.REORDERED: 1, Kind.MISALIGNED: RECORDS - 6}),
        Copy("corrupt", records, wrong, whole, {Kind.CORRUPT: 1}),
        Copy("lost, off the ledger", records, lost, without_20, {Kind.LOST: 1}),
        Copy(
            "lost, though on the ledger",
            records,
            lost,
            whole,
            {Kind.LOST: 1, Kind.MISALIGNED: RECORDS - 21},
        ),
        Copy("replayed", records, replayed, shifted, {Kind.DUPLICATE: 3}),
        Copy("foreign", records, strangers, shifted, {Kind.FOREIGN: 3}),
        Copy("same content at the source", ["same"] * RECORDS, ["same"] * RECORDS, whole, {}),
        Copy("target empty", records, [], whole, {Kind.LOST: RECORDS}),
        Copy("reversed", records, records[::-1], None, {Kind.REORDERED: RECORDS - 1}),
    ]
    by_content = [
        copy._replace(
            name=f"{copy.name}, by content",
            runs=None,
            expected={kind: n for kind, n in copy.expected.items() if kind is not Kind.MISALIGNED},
        )
        for copy in made
        if copy.runs is not None
    ]
    return [*made, *by_content]
