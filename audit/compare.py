"""The first pass: every record of both sides once, and per lane how many agree.

Owns one Spark query. Records meet by (lane, expected position); where one of each side with the same digest
meets, they match. Counts, not records, come back. Only lanes where something is left over are looked at
again, by `classify`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from audit.lanes import Lane, Split
from audit.source import NAME, Job, data_source

_MEET = """
    SELECT lane, position, note,
           count_if(side = 0 AND note IS NULL) AS sources,
           count_if(side = 1 AND note IS NULL) AS targets,
           bit_xor(digest_high) AS high,
           bit_xor(digest_low) AS low
    FROM digests GROUP BY lane, position, note
"""
_COUNT = f"""
    SELECT lane,
           sum(sources) AS sources,
           sum(targets) AS targets,
           count_if(sources = 1 AND targets = 1 AND high = 0 AND low = 0) AS matched,
           collect_list(note) AS notes
    FROM ({_MEET}) GROUP BY lane
"""  # noqa: S608 (both texts are constants)


@dataclass(slots=True)
class LaneTally:
    """What the first pass found in one lane."""

    sources: int = 0
    targets: int = 0
    matched: int = 0
    gap_records: int = 0
    superseded: int = 0
    left_out: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return self.sources == self.targets == self.matched


def tally(spark: Any, job: Job) -> dict[int, LaneTally]:
    """Reads all splits of the job. A lane with a split that was not read to its end carries the problem."""
    return count_lanes(spark, load(spark, job), job.splits) if job.splits else {}


def count_lanes(spark: Any, rows: Any, splits: Sequence[Split]) -> dict[int, LaneTally]:
    """One query over `rows` (of `audit.source`). What was counted must be what was read."""
    rows.createOrReplaceTempView("digests")
    counted = spark.sql(_COUNT).collect()
    found = read_notes((text for row in counted for text in row.notes), splits)
    for row in counted:
        lane = found[row.lane]
        lane.matched = row.matched
        if (row.sources, row.targets) != (lane.sources, lane.targets) and not lane.problems:
            lane.problems.append(
                f"{lane.sources} and {lane.targets} records were read, "
                f"{row.sources} and {row.targets} were counted"
            )
    return found


def read_notes(notes: Iterable[str], splits: Sequence[Split]) -> dict[int, LaneTally]:
    """What splits say of themselves, by lane; each must have left its note."""
    found: dict[int, LaneTally] = defaultdict(LaneTally)
    noted: set[int] = set()
    for text in notes:
        note = json.loads(text)
        noted.add(note["split"])
        lane = found[note["lane"]]
        lane.left_out += note["left_out"]
        if note["side"]:
            lane.targets += note["records"]
            lane.superseded += note["gap_records"]
        else:
            lane.sources += note["records"]
            lane.gap_records += note["gap_records"]
        if note["problem"]:
            lane.problems.append(note["problem"])
    for split in splits:
        if split.number not in noted:
            found[split.lane].problems.append(f"{split.tp}: a range was not read at all")
    return found


def load(spark: Any, job: Job) -> Any:
    """The rows of `audit.source` for this job."""
    spark.dataSource.register(data_source(job))
    return spark.read.format(NAME).load()


def suspects(lanes: list[Lane], tallies: dict[int, LaneTally]) -> list[Lane]:
    """Lanes that were read completely and do not agree, and those without any record of offsets."""
    doubtful = {number for number, found in tallies.items() if not found.problems and not found.clean}
    return [lane for lane in lanes if lane.runs is None or lane.number in doubtful]
