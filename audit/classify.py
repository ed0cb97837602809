"""The second pass: the records that do not agree, gathered by Spark and judged lane by lane.

Owns the queries. In lanes with a ledger only what does not match at its expected position goes on, so the
judgement costs what the differences are, not what the topic is. Lanes without one go there whole: a task then
holds one partition's digests in memory (about 150 bytes a record).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from audit.judge import Longs, Rows, Verdict, judge
from audit.lanes import Lane
from audit.result import DifferenceClass
from audit.session import without_pandas_warning
from transfer.offset_map import Run

_LEFT = """
    SELECT r.* FROM rows r LEFT SEMI JOIN (
        SELECT lane, position FROM rows WHERE side < 2 GROUP BY lane, position
        HAVING NOT (count_if(side = 0) = 1 AND count_if(side = 1) = 1
                    AND bit_xor(digest_high) = 0 AND bit_xor(digest_low) = 0)
    ) b ON r.lane = b.lane AND r.position = b.position
    WHERE r.side < 2"""
_CONTEXT = """
    SELECT DISTINCT s.lane, 4 AS side, 0L AS position, 0L AS offset, s.digest_high, s.digest_low,
                    0L AS timestamp, 0L AS key, CAST(NULL AS string) AS note
    FROM rows s LEFT SEMI JOIN (SELECT * FROM left_over WHERE side = 1 AND note IS NULL) t
        ON s.lane = t.lane AND s.digest_high = t.digest_high AND s.digest_low = t.digest_low
    WHERE s.side = 0 AND s.note IS NULL"""
_WITH_LATER = """
    SELECT j.*, l.source, l.target, l.source_ever, l.target_ever FROM judged j LEFT JOIN (
        SELECT lane, key & -2L AS key,
               max(CASE WHEN side = 0 THEN offset END) AS source,
               max(CASE WHEN side = 1 THEN offset END) AS target,
               max(CASE WHEN side % 2 = 0 THEN offset END) AS source_ever,
               max(CASE WHEN side % 2 = 1 THEN offset END) AS target_ever
        FROM every_row WHERE note IS NULL AND key <> 0 GROUP BY lane, key & -2L
    ) l ON j.lane = l.lane AND j.key & -2L = l.key"""
"""Where the last record of each key is, in the compared ranges and behind them."""
_WITHOUT = "SELECT *, -1L AS source, -1L AS target, -1L AS source_ever, -1L AS target_ever FROM judged"
_VERDICTS = (
    "lane int, kind string, at_head boolean, at_tail boolean, removable boolean, records long, "
    "source_offset long, target_offset long, timestamp long, note string"
)
_CONTENT_SIDE = 4
"""Rows of this side are no records: the source has their content somewhere."""


@dataclass(frozen=True, slots=True)
class Example:
    """One difference, by lane number."""

    kind: DifferenceClass
    lane: int
    source_offset: int | None
    target_offset: int | None
    timestamp: int


@dataclass(slots=True)
class Classified:
    """Counts by (lane, class, at the head, at the tail, removable: see `judge`), and some examples."""

    counts: dict[tuple[int, DifferenceClass, bool, bool, bool], int] = field(default_factory=dict)
    examples: list[Example] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """JSON notes of the splits that were read again."""


def classify(spark: Any, rows: Any, lanes: list[Lane], examples: int) -> Classified:
    """Judges every record that is left over in `rows` (of `audit.source`, these lanes only)."""
    result = Classified()
    with _left_over(spark, rows, lanes) as left:
        runs = {lane.number: _runs(lane) for lane in lanes}
        content = frozenset(lane.number for lane in lanes if lane.runs is None)
        with without_pandas_warning():
            judged = left.groupBy("lane").applyInArrow(_judging(runs, content, examples), _VERDICTS)
        for row in judged.collect():
            if row.note is not None:
                result.notes.append(row.note)
                continue
            kind = DifferenceClass(row.kind)
            if row.records is not None:
                result.counts[row.lane, kind, row.at_head, row.at_tail, row.removable] = row.records
                continue
            offsets = _offset(row.source_offset), _offset(row.target_offset)
            result.examples.append(Example(kind, row.lane, *offsets, row.timestamp))
    result.examples = _first(result.examples, lanes, examples)
    return result


@contextmanager
def _left_over(spark: Any, rows: Any, lanes: list[Lane]) -> Iterator[Any]:
    """What has to be judged, and every note. Rows that several queries need are read once and kept."""
    from pyspark import StorageLevel

    numbers = [lane.number for lane in lanes if lane.runs is not None]
    kept = rows.persist(StorageLevel.MEMORY_AND_DISK)
    kept.createOrReplaceTempView("every_row")
    column = rows["lane"]
    kept.where(column.isin(numbers)).createOrReplaceTempView("rows")
    left = spark.sql(_LEFT).persist(StorageLevel.MEMORY_AND_DISK)
    left.createOrReplaceTempView("left_over")
    try:
        judged = left.unionByName(spark.sql(_CONTEXT)).unionByName(kept.where(~column.isin(numbers)))
        judged.createOrReplaceTempView("judged")
        yield spark.sql(_WITH_LATER if any(lane.compacted for lane in lanes) else _WITHOUT)
    finally:
        left.unpersist()
        kept.unpersist()


def _first(found: list[Example], lanes: list[Lane], limit: int) -> list[Example]:
    """At most `limit` of each class; what only counts as found in a lane without a ledger is no example."""
    content = {lane.number for lane in lanes if lane.runs is None}
    chosen: list[Example] = []
    for kind in DifferenceClass:
        of_kind = [
            example
            for example in found
            if example.kind is kind and not (kind is DifferenceClass.MISALIGNED and example.lane in content)
        ]
        of_kind.sort(key=lambda e: (e.lane, e.source_offset if e.source_offset is not None else -1))
        chosen += of_kind[:limit]
    return chosen


def _offset(value: int) -> int | None:
    return None if value < 0 else value


def _runs(lane: Lane) -> list[Run]:
    return [] if lane.runs is None else list(lane.runs.between(*lane.source_range))


def _judging(
    runs: dict[int, list[Run]], content: Container[int], examples: int
) -> Callable[[pa.Table], pa.Table]:
    """The function that a task applies to one lane's rows."""

    def apply(table: pa.Table) -> pa.Table:
        lane = table.column("lane")[0].as_py()
        notes = [
            {"lane": lane, "note": note} for note in table.column("note").to_pylist() if note is not None
        ]
        records = table.filter(table.column("note").is_null())
        sides = split_sides(records, None if lane in content else runs[lane])
        verdicts = judge(*sides, runs[lane])
        told = [row for verdict in verdicts for row in _told(lane, verdict, examples)]
        return pa.Table.from_pylist(notes + told, schema=_SCHEMA)

    return apply


def split_sides(table: pa.Table, runs: list[Run] | None) -> tuple[Rows, Rows]:
    """Left-over rows of source and target, and which contents of the target the source has. `runs` as for
    `judge`; None where content decides."""
    table = table.sort_by("offset")
    side = table.column("side").to_numpy()
    offsets, positions, high, low, timestamps = (
        table.column(name).to_numpy()
        for name in ("offset", "position", "digest_high", "digest_low", "timestamp")
    )
    content = high ^ (low << 1)  # 64 of 128 bits, good enough to tell a duplicate from a foreign record
    known = np.isin(content, content[(side == 0) | (side == _CONTENT_SIDE)])

    def rows(which: int) -> Rows:
        at = side == which
        columns = offsets[at], positions[at], high[at], low[at], timestamps[at], known[at]
        return Rows(*columns, np.zeros(len(columns[0]), bool))

    source, target = rows(0), rows(1)
    _mark_removable(source, target, table, runs)
    return source, target


def _mark_removable(source: Rows, target: Rows, table: pa.Table, runs: list[Run] | None) -> None:
    """Compaction drops a record for a later one of its key, and one without a value for its age. With a
    ledger the later one may also stand at the other side, or behind what is compared; and it explains nothing
    that the ledger does not know, nor another record in the same place."""
    side = table.column("side").to_numpy()

    def columns(which: int, *names: str) -> list[Longs]:
        return [
            pc.fill_null(table.column(name), none).to_numpy()[side == which]
            for name, none in ((name, 0 if name == "key" else -1) for name in names)
        ]

    key, last, other = columns(0, "key", "source", "target_ever")
    source.removable[:] = (key != 0) & ((key & 1 == 1) | (last > source.offsets))
    if runs is not None:
        source.removable[:] |= (key != 0) & (other > source.positions)
        source.removable[:] &= (source.positions >= 0) & ~np.isin(source.positions, target.offsets)
    key, last, other = columns(1, "key", "target", "source_ever")
    target.removable[:] = (key != 0) & ((key & 1 == 1) | (last > target.offsets))
    if runs is not None:
        origins = _origins(target.offsets, runs)
        target.removable[:] |= (key != 0) & (other > origins)
        target.removable[:] &= (origins >= 0) & ~np.isin(target.offsets, source.positions)


def _origins(offsets: Longs, runs: list[Run]) -> Longs:
    """Source offsets of what stands at target offsets; -1 for what the ledger does not know."""
    found = np.full(len(offsets), -1, np.int64)
    for run in runs:
        low, high = np.searchsorted(offsets, [run.target, run.target + run.length])
        found[low:high] = offsets[low:high] - run.target + run.source
    return found


def _told(lane: int, verdict: Verdict, examples: int) -> list[dict[str, object]]:
    """Counts of a verdict, then its first records; those have no count."""
    common: dict[str, object] = {"lane": lane, "kind": verdict.kind.value}
    told = [
        common | {"at_head": head, "at_tail": tail, "removable": removable, "records": count}
        for head, tail, removable in product((False, True), repeat=3)
        if (
            count := int(
                np.count_nonzero(
                    (verdict.at_head == head) & (verdict.at_tail == tail) & (verdict.removable == removable)
                )
            )
        )
    ]
    told += [
        common
        | {
            "at_head": bool(verdict.at_head[index]),
            "at_tail": bool(verdict.at_tail[index]),
            "source_offset": int(verdict.source_offsets[index]),
            "target_offset": int(verdict.target_offsets[index]),
            "timestamp": int(verdict.timestamps[index]),
        }
        for index in np.flatnonzero(~verdict.removable)[:examples].tolist()
    ]
    return told


_SCHEMA = pa.schema(
    [
        ("lane", pa.int32()),
        ("kind", pa.string()),
        ("at_head", pa.bool_()),
        ("at_tail", pa.bool_()),
        ("removable", pa.bool_()),
        ("records", pa.int64()),
        ("source_offset", pa.int64()),
        ("target_offset", pa.int64()),
        ("timestamp", pa.int64()),
        ("note", pa.string()),
    ]
)
