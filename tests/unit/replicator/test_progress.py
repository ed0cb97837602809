"""Progress records: put together again whatever happened between two writes."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.types import TopicPartition
from replicator import entry_rows
from replicator.entry_rows import Entry, rows_of
from replicator.link_rows import First, initial_row_of
from replicator.progress import Progress
from transfer.epochs import Epochs
from transfer.ledger import Copied, Gap, Lineage, PartitionLedger, ProducerState, book_into
from transfer.offset_map import Run

TP = TopicPartition("orders", 2)


def entry():
    return Entry(PartitionLedger(Lineage("c1", "t1", "orders", 2), Lineage("c2", "t2", "east.orders", 2)))


def book(made, runs):
    for skip, length in runs:
        ledger = made.ledger
        source = ledger.next_source_offset + skip
        run = Run(source, ledger.runs.target_end, length)
        ledger.add(Copied((run,), source + length, length, length * 10, (source & 0xFFFF,)))


def written(made):
    """Writes as the store does: slices count once acknowledged."""
    rows, made.sealed = rows_of(made)
    return rows


@pytest.fixture(autouse=True)
def short_slices(monkeypatch):
    monkeypatch.setattr(entry_rows, "RUNS_PER_SLICE", 4)


@given(st.lists(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), max_size=12), max_size=8))
def test_the_last_written_state_is_read_back(steps):
    made, found = entry(), Progress()
    for runs in steps:
        book(made, runs)
        rows = written(made)
        assert len(rows[-1][1]) < 700  # however long the history
        found.apply(rows)
        back = found.entries()[TP]
        assert back.ledger == made.ledger
        assert back.sealed == made.sealed


@given(st.integers(0, 60), st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4)), max_size=12))
def test_slices_are_written_again_where_the_target_lost_records_and_went_on_before_anybody_saved(lost, more):
    """A write that lands before the end of the copy, and others behind it: the runs are as many as before."""
    made, found = entry(), Progress()
    book(made, [(1, 2)] * 20)
    found.apply(written(made))
    start, at = made.ledger.next_source_offset, made.ledger.runs.target_start + lost
    book_into(made.ledger, Copied((Run(start, at, 1),), start + 1, 1, 10, (1,)))
    book(made, more)
    assert made.ledger.gaps or at >= made.ledger.runs.target_start + 40
    found.apply(written(made))
    assert found.entries()[TP].ledger == made.ledger


@given(st.integers(0, 60), st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), max_size=12))
def test_slices_are_written_again_after_the_source_was_truncated(cut, more):
    made, found = entry(), Progress()
    book(made, [(1, 2)] * 20)
    found.apply(written(made))
    made.ledger.rewind(cut, "source truncated", 5)
    found.apply(written(made))
    book(made, [(1, 1), *more])
    found.apply(written(made))
    assert found.entries()[TP].ledger == made.ledger


def test_a_write_that_was_not_acknowledged_leaves_nothing_out_of_the_next():
    made, found = entry(), Progress()
    book(made, [(1, 1)] * 9)
    rows_of(made)  # lost
    book(made, [(1, 1)] * 9)
    found.apply(written(made))
    assert found.entries()[TP].ledger == made.ledger


def test_producer_epoch_gaps_and_first_start_are_kept():
    made, found = entry(), Progress()
    made.producer, made.epoch = ProducerState(7, 1, 99), 4
    made.ledger.add_gap(Gap(0, 5, "retention passed", 1))
    found.apply([*written(made), (b"link", b'{"initial":[["orders",2,7],["orders",3,-1]]}')])
    back = found.entries()[TP]
    assert (back.producer, back.epoch, back.ledger.gaps) == (made.producer, 4, made.ledger.gaps)
    assert found.initial == {TP: First(7), TopicPartition("orders", 3): First(-1)}
    noted = {TP: First(7, "s1"), TopicPartition("orders", 3): First(0, "s1")}
    found.apply([initial_row_of(noted, [])])
    assert found.initial == noted
    assert Progress().initial is None


def test_epochs_of_what_is_stored_are_kept_and_those_of_an_older_version_unknown():
    made, found = entry(), Progress()
    book(made, [(1, 5)] * 4)
    end = made.ledger.next_source_offset
    made.epoch, made.epochs = 4, Epochs([(2, 0), (4, end - 1), (6, end)])
    (row,) = written(made)
    found.apply([row])
    assert found.entries()[TP].epochs == Epochs([(2, 0), (4, end - 1)])
    older = json.loads(row[1])
    del older["epochs"]
    found.apply([(row[0], json.dumps(older).encode())])
    assert (found.entries()[TP].epoch, found.entries()[TP].epochs) == (4, Epochs())


def test_a_damaged_record_concerns_its_partition_alone(caplog):
    made, found = entry(), Progress()
    found.apply([*written(made), (b"partition/orders/3", b"{broken"), (b"partition/orders/4", b"null")])
    assert list(found.entries()) == [TP]
    assert "orders-3" in caplog.text


def test_a_missing_slice_is_damage_and_not_a_silent_hole(caplog):
    made, found = entry(), Progress()
    book(made, [(1, 1)] * 12)
    rows = written(made)
    found.apply(rows[1:])
    assert found.entries() == {}


def test_progress_is_kept_for_each_topic_of_the_target():
    made, other, found = entry(), entry(), Progress()
    other.ledger.target = made.ledger.target._replace(topic="orders", topic_id="t3")
    book(made, [(1, 2)] * 11)  # with slices of its own
    found.apply(written(made))
    assert found.into(TP, "orders") is None
    found.apply([entry_rows.former_row_of(made)])
    book(other, [(0, 3)])
    found.apply(written(other))
    assert found.entries()[TP].ledger == other.ledger
    back = found.into(TP, "east.orders")
    assert (back.ledger, back.sealed) == (made.ledger, made.sealed)
    assert found.into(TP, "orders").ledger == other.ledger
    assert found.into(TP._replace(partition=3), "orders") is None
