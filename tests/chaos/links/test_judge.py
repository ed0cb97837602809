"""Each anomaly of a link run is found in records that have it, and none in those that have none."""

from __future__ import annotations

import pytest

from tests.chaos.links.history import History, Moment, Place
from tests.chaos.links.judge import ANOMALIES, judge
from tests.chaos.links.load import Row
from tests.chaos.links.one_name import circled, of_origin
from tests.chaos.links.run import mirror_of

HERE: Place = ("east", "load-a", 0)
THERE: Place = ("west", "east.load-a", 0)
Records = list[tuple[int, Row]]


def rows(*texts: str, start: int = 0, step: int = 1) -> Records:
    """Records at offsets that lie `step` apart; the value's name is the text."""
    return [(start + index * step, (text.encode(), hash(text))) for index, text in enumerate(texts)]


def found(
    source: Records, target: Records, history: History | None = None, committed: int = 0, translated: int = 0
) -> set[str]:
    findings = judge(
        {HERE: source, THERE: target},
        history or History(),
        mirror_of,
        {("g", HERE): committed},
        {("g", THERE): translated},
    )
    assert set(findings) == set(ANOMALIES)
    return {name for name, instances in findings.items() if instances}


def test_nothing_is_wrong_with_an_exact_copy_whose_offsets_differ() -> None:
    history = History(acknowledged={b"a": HERE, b"c": HERE}, aborted={b"x"})
    history.tried = [Moment(1, "g", HERE, 2), Moment(5, "g", HERE, 4)]
    history.shown = [Moment(2, "g", THERE, 11), Moment(6, "g", THERE, 12)]
    source, target = rows("a", "b", "c", step=2), rows("a", "b", "c", start=10)
    assert not found(source, target, history, committed=4, translated=12)
    assert not found(source, target, history, committed=3, translated=12)


@pytest.mark.parametrize(
    ("target", "anomalies"),
    [
        (rows("a", "c"), {"lost"}),
        (rows("a", "b", "b", "c"), {"duplicate"}),
        (rows("a", "b", "c", "a"), {"duplicate"}),
        (rows("b", "a", "c"), {"reordered", "inexact"}),
        (rows("a", "b", "x", "c"), {"foreign"}),
        ([(0, (b"a", hash("a"))), (1, (b"b", hash("a"))), (2, (b"c", hash("c")))], {"corrupt"}),
    ],
)
def test_what_differs_has_its_name(target: Records, anomalies: set[str]) -> None:
    assert found(rows("a", "b", "c"), target) == anomalies


def test_what_was_acknowledged_and_is_not_there_is_the_source_s_fault() -> None:
    history = History(acknowledged={b"a": HERE, b"z": HERE})
    assert found(rows("a"), rows("a"), history) == {"unacknowledged"}


def test_a_position_past_what_the_group_had_read_by_then_is_a_skip() -> None:
    history = History(tried=[Moment(1, "g", HERE, 1), Moment(9, "g", HERE, 3)])
    history.shown = [Moment(2, "g", THERE, 2)]
    assert found(rows("a", "b", "c"), rows("a", "b", "c"), history) == {"skipped"}
    history.shown = [Moment(9.5, "g", THERE, 2)]
    assert not found(rows("a", "b", "c"), rows("a", "b", "c"), history)


def test_in_the_end_positions_are_exact() -> None:
    assert found(rows("a", "b", "c"), rows("a", "b", "c"), committed=2, translated=1) == {"inexact"}
    assert found(rows("a", "b", "c"), rows("a", "b", "c"), committed=1, translated=2) == {"inexact"}


def test_two_values_at_one_offset_are_seen() -> None:
    history = History()
    history.saw(THERE, 4, b"a")
    history.saw(THERE, 4, b"a")
    assert not found([], [], history)
    history.saw(THERE, 4, b"b")
    assert found([], [], history) == {"changed"}


def test_where_both_sides_write_to_one_topic_each_record_counts_where_it_was_produced() -> None:
    east = rows("east/w/1", "west/w/1", "east/w/2", "west/w/2")
    west = rows("west/w/1", "east/w/1", "west/w/2", "east/w/2", "east/w/2")
    content = {HERE: of_origin(east, "east"), THERE: of_origin(west, "east")}
    findings = judge(content, History(), mirror_of, {}, {})
    assert {name for name, instances in findings.items() if instances} == {"duplicate"}
    topics = {"east": {"load-a": 1}, "west": {"load-a": 1}}
    assert not list(circled(content, topics)), "what is there twice has not come back"
    back = {HERE: of_origin([*east, *rows("east/w/1", start=9)], "east")}
    assert list(circled(back, topics)) == ["east/w/1 at east in load-a-0"]
