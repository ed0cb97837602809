"""Both passes on Spark: the same copies as lanes of one job, and what the first pass lets through."""

import json
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from audit.classify import classify
from audit.compare import count_lanes
from audit.lanes import Split
from audit.result import DifferenceClass as Kind
from tests.unit.audit.compacted import KEYED, keyed_lane, keyed_rows
from tests.unit.audit.copies import TP, copies, lane, rows

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]


def frame(spark: Any, *, missing: int = 0) -> Any:
    """`missing`: so many records less are said to have been read of both sides of lane 3."""
    tables = [rows(lane(copy, n), copy.source, copy.target) for n, copy in enumerate(copies())]
    notes = [
        {
            "lane": number,
            "side": side,
            "position": -(1 << 62) - number * 2 - side,
            "note": json.dumps(
                {
                    "split": number * 2 + side,
                    "lane": number,
                    "side": side,
                    "records": table.column("side").to_pylist().count(side) - missing * (number == 3),
                    "gap_records": 0,
                    "left_out": 0,
                    "problem": "",
                }
            ),
        }
        for number, table in enumerate(tables)
        for side in (0, 1)
    ]
    filled = [dict.fromkeys(tables[0].column_names, 0) | note for note in notes]
    tables.append(pa.Table.from_pylist(filled, schema=tables[0].schema))
    # Spark 4.3 drops chunks of a table that has several.
    return spark.createDataFrame(pa.concat_tables(tables).combine_chunks())


def test_the_first_pass_counts_what_agrees(spark: Any) -> None:
    tallies = count_lanes(spark, frame(spark), [])
    for number, copy in enumerate(copies()):
        tally = tallies[number]
        assert (tally.sources, tally.targets) == (len(copy.source), len(copy.target)), copy.name
        assert tally.clean == (copy.runs is not None and not copy.expected), copy.name


def test_records_that_were_read_and_not_counted_are_no_agreement(spark: Any) -> None:
    """The same ones of both sides would look like none; and so would a range that nobody read."""
    splits = [Split(number, number // 2, number % 2, TP, 0, 60) for number in range(2 * len(copies()) + 1)]
    tallies = count_lanes(spark, frame(spark, missing=1), splits)
    assert [number for number, tally in tallies.items() if tally.problems] == [3, len(copies())]
    assert "59 and 59 records were read, 60 and 60 were counted" in tallies[3].problems[0]


def test_the_second_pass_classifies_what_is_left(spark: Any) -> None:
    lanes = [lane(copy, number) for number, copy in enumerate(copies())]
    found = classify(spark, frame(spark), lanes, examples=5)
    assert len(found.notes) == 2 * len(lanes)
    got: dict[int, Counter[Kind]] = {made.number: Counter() for made in lanes}
    for (number, kind, *_), count in found.counts.items():
        got[number][kind] += count
    for made, copy in zip(lanes, copies(), strict=True):
        result = dict(got[made.number])
        if made.runs is None:
            result.pop(Kind.MISALIGNED, None)
        assert result == copy.expected, copy.name
    assert Counter(example.kind for example in found.examples).most_common(1)[0][1] <= 5
    corrupt = {(e.source_offset, e.target_offset) for e in found.examples if e.kind is Kind.CORRUPT}
    assert corrupt == {(7, 7)}


def test_what_compaction_explains_is_told_from_what_is_lost(spark: Any) -> None:
    tables = [keyed_rows(number, case) for number, case in enumerate(KEYED)]
    made = spark.createDataFrame(pa.concat_tables(tables).combine_chunks())
    found = classify(spark, made, [keyed_lane(number, case) for number, case in enumerate(KEYED)], examples=5)
    for number, case in enumerate(KEYED):
        real: Counter[Kind] = Counter()
        explained = 0
        for (lane_number, kind, _, _, removable), count in found.counts.items():
            if lane_number == number:
                real[kind] += 0 if removable else count
                explained += count if removable else 0
        if not case.ledger:
            real.pop(Kind.MISALIGNED)
        assert (+real, explained) == (Counter(case.expected), case.explained), case.name
