"""Acknowledged differences: read back from the progress topic, and open again when they change."""

from hypothesis import given
from hypothesis import strategies as st

from protocol.types import TopicPartition
from replicator.acknowledgements import (
    Acknowledgement,
    Difference,
    Kind,
    differences_of,
    open_differences,
    row_of,
)
from replicator.progress import Progress
from transfer.ledger import Gap, Lineage, PartitionLedger, Superseded

TP = TopicPartition("orders", 2)
ANN = Acknowledgement("ann@desk", "INC-42: restored", 5)


def ledger(*gaps, former=(), superseded=()):
    made = PartitionLedger(Lineage("c1", "t1", *TP), Lineage("c2", "t2", "east.orders", 2))
    made.gaps, made.former_gaps, made.superseded = list(gaps), list(former), list(superseded)
    return made


def after(*rows):
    found = Progress()
    found.apply(rows)
    return found.acknowledged


GAP = Gap(10, 20, "retention passed", 1)


def test_an_acknowledged_gap_is_not_open_and_stays_on_record():
    made = ledger(GAP, superseded=[Superseded(3, 4, "source truncated", 2)])
    everything = differences_of(TP, made)
    assert len(everything) == 2
    known = after(row_of(everything[0], ANN))
    assert known == {everything[0]: ANN}
    assert open_differences({TP: made}, known) == everything[1:]
    assert made.differences == 2


def test_a_gap_that_grew_is_open_again_and_one_of_a_former_topic_is_not():
    known = after(row_of(differences_of(TP, ledger(GAP))[0], ANN))
    grown = GAP._replace(end=25)
    assert [one.end for one in open_differences({TP: ledger(grown)}, known)] == [25]
    assert open_differences({TP: ledger(former=[GAP])}, known) == []  # the topic was created again since
    other = TopicPartition("orders", 3)
    assert len(open_differences({other: ledger(GAP)}, known)) == 1


TEXT = st.text(max_size=20)


@given(st.integers(0, 1 << 62), st.integers(0, 1 << 62), TEXT, TEXT, TEXT, st.sampled_from(Kind))
def test_any_row_is_read_back(start, end, reason, by, why, kind):
    difference = Difference(TP, kind, start, end, reason, 7)
    assert after(row_of(difference, Acknowledgement(by, why, 9))) == {difference: Acknowledgement(by, why, 9)}


def test_rows_that_cannot_be_read_leave_their_difference_open():
    key, value = row_of(differences_of(TP, ledger(GAP))[0], ANN)
    assert after((key, value[:-2]), (b"acknowledged/x", value), (key, None)) == {}
