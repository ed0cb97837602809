"""Each anomaly of a run whose sources let go of records is found in records that have it."""

from __future__ import annotations

import pytest

from tests.chaos.links.history import History
from tests.chaos.links.holes import ANOMALIES, judge
from tests.chaos.links.run import mirror_of
from tests.chaos.links.test_judge import HERE, THERE, Records, rows
from transfer.ledger import Gap

NAMES = ("a", "b", "c", "d")
GAP = Gap(1, 3, "retention passed")


def history() -> History:
    """Four records from offset 0 on, and one that was aborted."""
    made = History(acknowledged={name.encode(): HERE for name in NAMES}, aborted={b"x"})
    made.offsets = {name.encode(): offset for offset, name in enumerate(NAMES)}
    return made


@pytest.mark.parametrize(
    ("target", "gaps", "anomalies"),
    [
        (rows("a", "b", "c", "d"), [], set()),
        (rows("a", "d"), [GAP], set()),
        (rows("a", "d"), [GAP._replace(end=2)], {"lost"}),
        (rows("a", "c", "d"), [GAP], {"untrue"}),
        (rows("a", "c", "d"), [GAP._replace(reason="retention; perhaps copied before")], set()),
        (rows("a", "b", "c", "d", "a"), [], {"duplicate"}),
        (rows("b", "a", "c", "d"), [], {"reordered"}),
        (rows("a", "b", "x", "c", "d"), [], {"foreign"}),
        (rows("a", "b", "unsure", "c", "d"), [], set()),
        ([*rows("a", "b", "c"), (3, (b"d", hash("other")))], [], {"corrupt"}),
    ],
)
def test_what_is_missing_has_to_be_on_record(target: Records, gaps: list[Gap], anomalies: set[str]) -> None:
    left = rows("c", "d", start=2)
    found = judge({HERE: left, THERE: target}, history(), mirror_of, {HERE: gaps})
    assert set(found.findings) == set(ANOMALIES)
    assert {name for name, instances in found.findings.items() if instances} == anomalies
    assert found.missed == len({b"b", b"c"} - {row[0] for _, row in target}) - ("lost" in anomalies)


@pytest.mark.parametrize(("target", "anomalies"), [(rows("c", "d"), set()), (rows("a", "b", "d"), {"lost"})])
def test_of_a_compacted_topic_the_last_record_of_each_key_counts(
    target: Records, anomalies: set[str]
) -> None:
    made = history()
    made.keys = {b"a": b"1", b"b": b"2", b"c": b"1", b"d": b"2"}
    found = judge({HERE: rows("c", "d", start=2), THERE: target}, made, mirror_of, {})
    assert {name for name, instances in found.findings.items() if instances} == anomalies
