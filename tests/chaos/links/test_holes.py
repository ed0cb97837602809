"""Each anomaly of a run whose sources let go of records is found in records that have it."""

from __future__ import annotations

import pytest

from tests.chaos.links.history import History
from tests.chaos.links.holes import ANOMALIES, judge
from tests.chaos.links.run import mirror_of
from tests.chaos.links.test_judge import HERE, THERE, Records, rows

NAMES = ("a", "b", "c", "d")


def history() -> History:
    """Four records from offset 0 on, and one that was aborted."""
    made = History(acknowledged={name.encode(): HERE for name in NAMES}, aborted={b"x"})
    made.offsets = {name.encode(): offset for offset, name in enumerate(NAMES)}
    return made


@pytest.mark.parametrize(
    ("target", "gaps", "anomalies"),
    [
        (rows("a", "b", "c", "d"), [], set()),
        (rows("a", "d"), [(1, 3)], set()),
        (rows("a", "d"), [(1, 2)], {"lost"}),
        (rows("a", "c", "d"), [(1, 3)], {"untrue"}),
        (rows("a", "b", "c", "d", "a"), [], {"duplicate"}),
        (rows("b", "a", "c", "d"), [], {"reordered"}),
        (rows("a", "b", "x", "c", "d"), [], {"foreign"}),
        (rows("a", "b", "unsure", "c", "d"), [], set()),
        ([*rows("a", "b", "c"), (3, (b"d", hash("other")))], [], {"corrupt"}),
    ],
)
def test_what_is_missing_has_to_be_on_record(
    target: Records, gaps: list[tuple[int, int]], anomalies: set[str]
) -> None:
    left = rows("c", "d", start=2)
    found = judge({HERE: left, THERE: target}, history(), mirror_of, {HERE: gaps})
    assert set(found.findings) == set(ANOMALIES)
    assert {name for name, instances in found.findings.items() if instances} == anomalies
    assert found.missed == sum(end - start for start, end in gaps)
