"""What of a group's offsets is written at the target."""

from protocol.client import Committed
from protocol.types import TopicPartition
from replicator.mirrors.groups import decide

TP = TopicPartition("t", 0)


def only(here: int, there: int | None, end: int, written: int | None = None):
    known = {} if there is None else {TP: Committed(there, 0, "")}
    mine = {} if written is None else {TP: written}
    commits, notes = decide({TP: Committed(here, 3, "")}, known, {TP: end}, mine)
    return commits.get(TP), notes


def test_offset_and_epoch_are_copied_as_they_are() -> None:
    assert only(5, None, 9) == (Committed(5, 3, ""), [])
    assert only(5, 5, 9) == (None, [])


def test_nothing_points_past_the_end_of_the_mirror() -> None:
    commit, notes = only(15, None, 9)
    assert commit == Committed(9, -1, "")
    assert "wait for records" in notes[0]


def test_a_position_goes_back_only_where_the_link_has_written_it() -> None:
    assert only(5, 8, 9, written=8)[0] == Committed(5, 3, "")
    commit, notes = only(5, 8, 9, written=7)
    assert commit is None
    assert "not taken back" in notes[0]
