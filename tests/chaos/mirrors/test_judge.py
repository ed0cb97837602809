"""The judge of mirrors finds each kind of what may go wrong, and nothing where nothing does."""

from __future__ import annotations

import pytest

from tests.chaos.mirrors.history import History
from tests.chaos.mirrors.judge import ANOMALIES, Cut, judge

AT = ("load-a", 0)
ROWS = [(0, b"w0/1"), (1, b"w1/2"), (2, b"w0/3")]
SAVED = Cut("east", AT, 3, 5, frozenset([b"w0/4"]))


def history() -> History:
    """Of clients that wrote, saw and read all of ROWS."""
    made = History(acknowledged={name: AT for _, name in ROWS})
    for offset, name in ROWS:
        made.read["group-1"].add(name)
        for side in ("east", "west"):
            made.saw(side, AT, offset, name)
    return made


def names(found: dict[str, list[str]]) -> list[str]:
    return [name for name in ANOMALIES if found[name]]


def verdict(rows, made, cuts=(), stored=None):
    return judge({AT: rows}, {AT: rows if stored is None else stored}, list(cuts), made, ["group-1"])


def test_nothing_is_wrong_with_a_log_that_everybody_saw() -> None:
    assert names(verdict(ROWS, history()).anomalies) == []


@pytest.mark.parametrize(
    ("rows", "wrong"),
    [
        (ROWS[:2], ["lost", "changed"]),
        ([*ROWS, (3, b"w1/2")], ["duplicate"]),
        ([(0, b"w0/3"), (1, b"w1/2"), (2, b"w0/1")], ["reordered", "changed"]),
        ([*ROWS, (3, b"w0/9")], ["unread"]),
    ],
    ids=["lost", "twice", "exchanged", "not read"],
)
def test_what_is_wrong_with_a_log(rows, wrong) -> None:
    assert names(verdict(rows, history()).anomalies) == wrong


def test_what_was_cut_off_and_saved_is_not_lost_nor_changed() -> None:
    made = history()
    made.acknowledged[b"w0/4"] = AT
    made.saw("east", AT, 3, b"w0/4")
    found = verdict(ROWS, made, [SAVED])
    assert (names(found.anomalies), found.saved) == ([], 1)
    assert names(verdict(ROWS, made).anomalies) == ["lost", "changed"]


def test_the_other_side_may_not_have_shown_what_was_cut_off() -> None:
    made = history()
    made.saw("west", AT, 3, b"w0/4")
    assert names(verdict(ROWS, made, [SAVED]).anomalies) == ["changed"]


def test_a_failover_may_abort_what_the_old_side_committed_and_nothing_else_may() -> None:
    made = history()
    made.acknowledged[b"t0/5"] = AT
    made.transactional.add(b"t0/5")
    stored = [*ROWS, (3, b"t0/5")]
    found = verdict(ROWS, made, [SAVED], stored)
    assert (names(found.anomalies), found.given_up) == ([], 1)
    assert names(verdict(ROWS, made, (), stored).anomalies) == ["lost"]


def test_what_a_client_aborted_is_not_read() -> None:
    made = history()
    made.aborted.add(b"w1/2")
    assert names(verdict(ROWS, made).anomalies) == ["foreign"]
