"""Both passes on Spark: the same copies as lanes of one job, and what the first pass lets through."""

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from audit.classify import classify
from audit.compare import count_lanes
from audit.result import DifferenceClass as Kind
from tests.unit.audit.copies import copies, lane, rows

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]


def frame(spark: Any) -> Any:
    tables = [rows(lane(copy, n), copy.source, copy.target) for n, copy in enumerate(copies())]
    notes = [
        {
            "lane": number,
            "side": 0,
            "position": -(1 << 62) - number,
            "note": f'{{"split": {number}, "side": 0, "gap_records": 0, "problem": ""}}',
        }
        for number in range(len(tables))
    ]
    filled = [dict.fromkeys(tables[0].column_names, 0) | note for note in notes]
    tables.append(pa.Table.from_pylist(filled, schema=tables[0].schema))
    # Spark 4.3 drops chunks of a table that has several.
    return spark.createDataFrame(pa.concat_tables(tables).combine_chunks())


def test_the_first_pass_counts_what_agrees(spark: Any) -> None:
    tallies = count_lanes(spark, frame(spark))
    for number, copy in enumerate(copies()):
        tally = tallies[number]
        assert (tally.sources, tally.targets) == (len(copy.source), len(copy.target)), copy.name
        assert tally.clean == (copy.runs is not None and not copy.expected), copy.name


def test_the_second_pass_classifies_what_is_left(spark: Any) -> None:
    lanes = [lane(copy, number) for number, copy in enumerate(copies())]
    found = classify(spark, frame(spark), lanes, examples=5)
    assert len(found.notes) == len(lanes)
    got: dict[int, Counter[Kind]] = {made.number: Counter() for made in lanes}
    for (number, kind, _, _), count in found.counts.items():
        got[number][kind] += count
    for made, copy in zip(lanes, copies(), strict=True):
        result = dict(got[made.number])
        if made.runs is None:
            result.pop(Kind.MISALIGNED, None)
        assert result == copy.expected, copy.name
    assert Counter(example.kind for example in found.examples).most_common(1)[0][1] <= 5
    corrupt = {(e.source_offset, e.target_offset) for e in found.examples if e.kind is Kind.CORRUPT}
    assert corrupt == {(7, 7)}
