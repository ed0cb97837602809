"""The judge of mirrors finds each kind of what may go wrong, and nothing where nothing does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.mirrors.history import History, Written, checksum
from tests.chaos.mirrors.judge import ANOMALIES, Cut, judge
from tests.chaos.mirrors.run import cut_from
from tests.chaos.mirrors.topics import End

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


# -- topics that let go of records


def left(place, rows, sent):
    """A history of clients that sent these to a topic that lets go: name → (key, time, mark)."""
    made = History(acknowledged=dict.fromkeys(sent, place))
    made.keys = {name: key for name, (key, _, _) in sent.items()}
    made.written = {name: Written(at_ms, mark) for name, (_, at_ms, mark) in sent.items()}
    made.read["group-1"] = {name for _, name in rows}
    return made


KEYS, YOUNG, LAST = ("load-keys", 0), ("load-young", 0), ("load-last", 0)
OLD_MS = 1_000_000


def of(place, rows, made, end=None, lives=(), stored=None):
    return judge(
        {place: rows}, {place: rows if stored is None else stored}, [], made, ["group-1"], end, lives
    )


@pytest.mark.parametrize(
    ("rows", "lost"),
    [
        ([(1, b"w1/2")], ["w0/1", "w0/9"]),
        ([(1, b"w1/2"), (9, b"w0/9")], []),
        ([(0, b"w0/1"), (9, b"w0/9")], ["w1/2"]),
        ([(0, b"w0/1"), (1, b"w1/2"), (9, b"w0/9")], []),
    ],
    ids=["a key without any", "the last of each", "only older ones of a key", "all"],
)
def test_of_a_compacted_topic_the_last_record_of_each_key_has_to_be_there(rows, lost) -> None:
    sent = {b"w0/1": (b"a", 0, 1), b"w1/2": (b"b", 0, 5), b"w0/9": (b"a", 0, 9)}
    found = of(KEYS, rows, left(KEYS, rows, sent))
    assert [text.rpartition(" ")[2] for text in found.anomalies["lost"]] == lost


@pytest.mark.parametrize(
    ("saved", "lost"),
    [
        (["w1/5", "w0/9"], ["w0/3"]),
        (["w1/5"], ["w0/3", "w0/7", "w0/9"]),
        (["w0/9"], ["w0/3", "w0/7", "w1/5"]),
        ([], ["w0/3", "w0/7", "w0/9", "w1/5"]),
    ],
    ids=["in the stretch", "no later one", "before what is saved", "nothing saved"],
)
def test_what_a_side_had_of_its_own_is_compacted_by_what_it_had_of_its_own(saved, lost) -> None:
    """Records 3 (on both sides), 5, 7 and 9 (on one), all of key `a` but 5; the log has older ones."""
    rows = [(0, b"w0/1"), (1, b"w1/2")]
    sent = {b"w0/1": (b"a", 0, 1), b"w1/2": (b"b", 0, 2)}
    sent |= {b"w0/3": (b"a", 0, 3), b"w1/5": (b"b", 0, 6), b"w0/7": (b"a", 0, 8), b"w0/9": (b"a", 0, 9)}
    cut = Cut("east", KEYS, 3, 9, frozenset(name.encode() for name in saved))
    found = judge({KEYS: rows}, {KEYS: rows}, [cut], left(KEYS, rows, sent), ["group-1"])
    assert sorted(found.anomalies["lost"]) == [f"{KEYS} {name}" for name in lost]


def test_an_older_record_of_a_key_does_not_stand_for_a_later_one() -> None:
    sent = {b"w0/1": (b"a", 0, 3), b"w1/9": (b"a", 0, 9)}
    rows = [(0, b"w0/1")]
    assert names(of(KEYS, rows, left(KEYS, rows, sent)).anomalies) == ["lost"]
    sent[b"w0/1"] = (b"a", 0, 9)  # acknowledged when the other had been sent already: either may be the last
    found = of(KEYS, rows, left(KEYS, rows, sent))
    assert (names(found.anomalies), found.let_go) == ([], 1)


@pytest.mark.parametrize(
    ("place", "end"),
    [
        (YOUNG, End(now_ms=OLD_MS + 31_000)),
        (LAST, End(bytes={LAST: 150_000})),
        (YOUNG, End(now_ms=OLD_MS, trimmed={YOUNG: 1})),
    ],
    ids=["too old", "too much", "deleted by request"],
)
def test_a_log_may_have_lost_its_beginning_where_its_rules_say_so(place, end) -> None:
    sent = {b"w0/1": (None, OLD_MS, 2), b"w0/4": (None, OLD_MS, 5)}
    rows = [(3, b"w0/4")]
    made = left(place, rows, sent)
    assert names(of(place, rows, made, end).anomalies) == []
    assert names(of(place, rows, made, End(now_ms=OLD_MS + 29_000, bytes={LAST: 149_000})).anomalies) == [
        "lost"
    ]
    # Not from the middle: something older is there, or nothing at all may go.
    sent[b"w0/9"] = (None, OLD_MS, 9)
    assert names(of(place, rows, left(place, rows, sent), end).anomalies) == ["lost"]


def test_what_was_seen_may_have_gone_and_may_not_be_another_record() -> None:
    sent = {b"w0/1": (b"a", 0, 1), b"w0/9": (b"a", 0, 9)}
    rows = [(9, b"w0/9")]
    made = left(KEYS, rows, sent)
    made.saw("west", KEYS, 0, b"w0/1")
    assert names(of(KEYS, rows, made).anomalies) == []
    made.saw("west", KEYS, 9, b"w0/1")
    assert names(of(KEYS, rows, made).anomalies) == ["changed"]


def test_a_life_that_is_over_has_offsets_of_its_own() -> None:
    made = history()
    made.saw("east", AT, 1, b"w0/3")
    assert names(of(AT, ROWS, made).anomalies) == ["changed"]
    made = history()
    made.seen = {("east#2", AT, 1): [checksum(b"w0/3")]}
    assert names(of(AT, ROWS, made, lives={"east", "east#2"}).anomalies) == []
    made.saw("east#2", AT, 1, b"w1/2")
    assert names(of(AT, ROWS, made, lives={"east", "east#2"}).anomalies) == ["changed"]


def test_a_mirror_that_was_deleted_may_have_other_records_at_its_offsets_once() -> None:
    made = history()
    made.seen = {("west", AT, 1): [checksum(b"w0/3"), checksum(ROWS[1][1])]}
    assert names(of(AT, ROWS, made).anomalies) == ["changed"]
    assert names(of(AT, ROWS, made, End(remade={("west", AT[0]): 1})).anomalies) == []
    assert names(of(AT, ROWS, made, End(remade={("west#2", AT[0]): 1})).anomalies) == ["changed"]
    made.saw("west", AT, 1, b"w0/4")
    assert names(of(AT, ROWS, made, End(remade={("west", AT[0]): 1})).anomalies) == ["changed"]


def test_of_a_topic_that_was_deleted_nothing_is_asked() -> None:
    made = history()
    made.acknowledged[b"w0/7"] = ("load-new-1", 0)
    assert names(of(AT, ROWS, made).anomalies) == ["lost"]
    assert names(of(AT, ROWS, made, End(deleted=frozenset(["load-new-1"]))).anomalies) == []


def test_what_a_failover_aborted_is_given_up_where_it_was_not_copied_back() -> None:
    made = history()
    made.acknowledged[b"t0/5"] = AT
    made.transactional.add(b"t0/5")
    assert names(of(AT, ROWS, made).anomalies) == ["lost"]
    made.set_aside.add(b"t0/5")
    found = of(AT, ROWS, made)
    assert (names(found.anomalies), found.given_up) == ([], 1)


@pytest.mark.parametrize("begun_before", ["", ".2"], ids=["first file", "after a killed command"])
@pytest.mark.parametrize(("topic", "start"), [("load-young", 17_192), ("load-a", 17_440)])
def test_what_retention_took_before_a_cut_was_cut_off_too(topic: str, start: int, begun_before: str) -> None:
    """Of a topic that keeps all nothing may be missing in front of what was saved."""
    path = Path(f"saved/{topic}-0/{17_192:020d}{begun_before}.log")
    assert cut_from({"topic": topic, "from_offset": 17_440, "path": path}) == start
