"""Copies of compacted topics with known differences, as rows of the audit's data source."""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa

from audit.lanes import Ends, Lane, with_ledger, without_ledger
from audit.result import DifferenceClass as Kind
from tests.unit.audit.copies import TP
from transfer.ledger import Lineage, PartitionLedger
from transfer.offset_map import OffsetMap, Run

Log = Mapping[int, tuple[str, str | None]]
"""Key and value by offset; None: no value."""


class Keyed(NamedTuple):
    name: str
    source: Log
    target: Log
    expected: Mapping[Kind, int]
    explained: int
    """Records on one side only that compaction explains."""
    end: int = 6
    """Of the copy, which has the source's offsets, at both sides. What is behind is not compared."""
    ledger: bool = True


WHOLE: Log = {0: ("a", "1"), 1: ("b", "1"), 2: ("a", "2"), 3: ("c", "1"), 4: ("b", None), 5: ("d", "1")}


def but(*gone: int, log: Log = WHOLE, **put: tuple[str, str | None]) -> Log:
    kept = {offset: record for offset, record in log.items() if offset not in gone}
    return kept | {int(at.removeprefix("at")): record for at, record in put.items()}


KEYED = [
    Keyed("alike", WHOLE, WHOLE, {}, 0),
    Keyed("cleaned at the target", WHOLE, but(0, 1), {}, 2),
    Keyed("cleaned at the source", but(0, 1), WHOLE, {}, 2),
    Keyed("cleaned otherwise at each side", but(0), but(1), {}, 2),
    Keyed("an old tombstone is gone", WHOLE, but(1, 4), {}, 2),
    Keyed("a last value is lost", WHOLE, but(0, 2), {Kind.LOST: 1}, 1),
    Keyed("a key is lost", WHOLE, but(3), {Kind.LOST: 1}, 0),
    Keyed("all is lost", WHOLE, {}, {Kind.LOST: 3}, 3),
    Keyed("the source has lost a last value", but(5), WHOLE, {Kind.FOREIGN: 1}, 0),
    Keyed("another value in its place", WHOLE, but(at0=("a", "x")), {Kind.CORRUPT: 1}, 0),
    Keyed("a later one behind the cut at the target", WHOLE, but(3, at6=("c", "2")), {}, 1),
    Keyed("a later one behind the cut at the source", but(3, at6=("c", "2")), WHOLE, {}, 1),
    Keyed("a later one that was not copied yet", but(at6=("c", "2")), but(3), {Kind.LOST: 1}, 0),
    Keyed("never copied", but(at6=("a", "3")), but(2), {Kind.LOST: 1}, 0, end=3),
    Keyed("lost, by content", WHOLE, but(0, 3), {Kind.LOST: 1}, 1, ledger=False),
]


def keyed_lane(number: int, case: Keyed) -> Lane:
    log_ends = [
        Ends(0, max(case.end, *log, -1) + 1 if log else case.end) for log in (case.source, case.target)
    ]
    if not case.ledger:
        made = without_ledger(number, TP, TP, *log_ends)
    else:
        ledger = PartitionLedger(Lineage("a", "", *TP), Lineage("b", "", *TP), OffsetMap())
        ledger.runs.append(Run(0, 0, case.end))
        made = with_ledger(number, TP, ledger, *log_ends)
    return replace(made, compacted=True)


def keyed_rows(number: int, case: Keyed) -> pa.Table:
    """As the tasks make them."""
    rows = [
        {
            "lane": number,
            "side": side if offset < case.end else side + 2,
            "position": offset,
            "offset": offset,
            "digest_high": hash((key, value)),
            "digest_low": 0,
            "timestamp": 1000,
            "key": hash(("key", key)) & -2 | (value is None),
            "note": None,
        }
        for side, log in ((0, case.source), (1, case.target))
        for offset, (key, value) in sorted(log.items())
    ]
    longs = ("position", "offset", "digest_high", "digest_low", "timestamp", "key")
    columns = {
        "lane": pa.int32(),
        "side": pa.int32(),
        **dict.fromkeys(longs, pa.int64()),
        "note": pa.string(),
    }
    columns = {name: columns[name] for name in rows[0]} if rows else columns
    return pa.Table.from_pylist(rows, schema=pa.schema(list(columns.items())))
