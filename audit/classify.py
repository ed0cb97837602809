"""The second pass: the records that do not agree, gathered by Spark and judged lane by lane.

Owns the queries. In lanes with a ledger only what does not match at its expected position goes on, so the
judgement costs what the differences are, not what the topic is. Lanes without one go there whole: a task then
holds one partition's digests in memory (about 150 bytes a record).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from audit.judge import Rows, Verdict, judge
from audit.lanes import Lane
from audit.result import DifferenceClass
from audit.session import without_pandas_warning
from transfer.offset_map import Run

_LEFT = """
    SELECT r.* FROM rows r LEFT SEMI JOIN (
        SELECT lane, position FROM rows GROUP BY lane, position
        HAVING NOT (count_if(side = 0) = 1 AND count_if(side = 1) = 1
                    AND bit_xor(digest_high) = 0 AND bit_xor(digest_low) = 0)
    ) b ON r.lane = b.lane AND r.position = b.position"""
_CONTEXT = """
    SELECT DISTINCT s.lane, 2 AS side, 0L AS position, 0L AS offset, s.digest_high, s.digest_low,
                    0L AS timestamp, CAST(NULL AS string) AS note
    FROM rows s LEFT SEMI JOIN (SELECT * FROM left_over WHERE side = 1 AND note IS NULL) t
        ON s.lane = t.lane AND s.digest_high = t.digest_high AND s.digest_low = t.digest_low
    WHERE s.side = 0 AND s.note IS NULL"""
_VERDICTS = (
    "lane int, kind string, at_head boolean, at_tail boolean, records long, "
    "source_offset long, target_offset long, timestamp long, note string"
)
_CONTENT_SIDE = 2
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
    """Counts by (lane, class, at the head, at the tail), and some examples."""

    counts: dict[tuple[int, DifferenceClass, bool, bool], int] = field(default_factory=dict)
    examples: list[Example] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """JSON notes of the splits that were read again."""


def classify(spark: Any, rows: Any, lanes: list[Lane], examples: int) -> Classified:
    """Judges every record that is left over in `rows` (of `audit.source`, these lanes only)."""
    result = Classified()
    with _left_over(spark, rows, lanes) as left:
        runs = {lane.number: _runs(lane) for lane in lanes}
        with without_pandas_warning():
            judged = left.groupBy("lane").applyInArrow(_judging(runs, examples), _VERDICTS)
        for row in judged.collect():
            if row.note is not None:
                result.notes.append(row.note)
                continue
            kind = DifferenceClass(row.kind)
            if row.records is not None:
                result.counts[row.lane, kind, row.at_head, row.at_tail] = row.records
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
    if not numbers:
        yield rows
        return
    kept = rows.persist(StorageLevel.MEMORY_AND_DISK)
    column = rows["lane"]
    kept.where(column.isin(numbers)).createOrReplaceTempView("rows")
    left = spark.sql(_LEFT).persist(StorageLevel.MEMORY_AND_DISK)
    left.createOrReplaceTempView("left_over")
    try:
        yield left.unionByName(spark.sql(_CONTEXT)).unionByName(kept.where(~column.isin(numbers)))
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


def _judging(runs: dict[int, list[Run]], examples: int) -> Callable[[pa.Table], pa.Table]:
    """The function that a task applies to one lane's rows."""

    def apply(table: pa.Table) -> pa.Table:
        lane = table.column("lane")[0].as_py()
        notes = [
            {"lane": lane, "note": note} for note in table.column("note").to_pylist() if note is not None
        ]
        records = table.filter(table.column("note").is_null())
        verdicts = judge(*split_sides(records), runs[lane])
        told = [row for verdict in verdicts for row in _told(lane, verdict, examples)]
        return pa.Table.from_pylist(notes + told, schema=_SCHEMA)

    return apply


def split_sides(table: pa.Table) -> tuple[Rows, Rows]:
    """Left-over rows of source and target, and which contents of the target the source has."""
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
        return Rows(offsets[at], positions[at], high[at], low[at], timestamps[at], known[at])

    return rows(0), rows(1)


def _told(lane: int, verdict: Verdict, examples: int) -> list[dict[str, object]]:
    """Counts of a verdict, then its first records; those have no count."""
    common: dict[str, object] = {"lane": lane, "kind": verdict.kind.value}
    told = [
        common | {"at_head": head, "at_tail": tail, "records": count}
        for head in (False, True)
        for tail in (False, True)
        if (count := int(np.count_nonzero((verdict.at_head == head) & (verdict.at_tail == tail))))
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
        for index in range(min(examples, len(verdict.timestamps)))
    ]
    return told


_SCHEMA = pa.schema(
    [
        ("lane", pa.int32()),
        ("kind", pa.string()),
        ("at_head", pa.bool_()),
        ("at_tail", pa.bool_()),
        ("records", pa.int64()),
        ("source_offset", pa.int64()),
        ("target_offset", pa.int64()),
        ("timestamp", pa.int64()),
        ("note", pa.string()),
    ]
)
