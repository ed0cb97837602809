"""The book: what follows from what the engine reports."""

import pytest
from prometheus_client import CollectorRegistry

from protocol.types import TopicPartition
from replicator.book import Book, State
from replicator.entry_rows import Entry
from replicator.metrics import LinkMetrics
from transfer.endpoint import FaultKind, PositionLostError, RefusedError, SourceFault
from transfer.epochs import Epochs
from transfer.ledger import Copied, Lineage, PartitionLedger
from transfer.offset_map import Run

TP = TopicPartition("orders", 0)
TARGET = TopicPartition("east.orders", 0)


@pytest.fixture
def registry():
    return CollectorRegistry()


@pytest.fixture
def book(registry):
    made = Book(LinkMetrics("east->west", registry), 30.0, lambda: None)
    account = made.account(TP, TARGET)
    entry = Entry(PartitionLedger(Lineage("c1", "s", *TP), Lineage("c2", "t", *TARGET)))
    made.adopt(account, entry, [])
    account.state = State.RUNNING
    made.copied(TP, Copied((Run(0, 0, 100),), 100, 100, 5000, (1,)))
    return made


def fault(kind, resume):
    return SourceFault(TP, kind, 100, resume, "said so")


def gaps(book):
    return [(gap.start, gap.end, gap.reason) for gap in book.accounts[TP].entry.ledger.gaps]


def test_retention_makes_a_gap_up_to_where_the_source_goes_on(book, registry):
    book.fault(fault(FaultKind.RETENTION, 130))
    account = book.accounts[TP]
    assert account.state is State.WAITING
    book.copied(TP, Copied((Run(100, 100, 5),), 105, 5, 10, (2,)))  # was on its way
    book.settle(account)
    assert gaps(book) == [(105, 130, "retention passed")]
    assert account.entry.ledger.next_source_offset == 130
    labels = {"link": "east->west", "topic": "orders", "partition": "0"}
    assert registry.get_sample_value("isthmus_link_gap_offsets", labels) == 25
    assert TP in book.dirty


def test_truncation_goes_back_to_the_epoch_that_was_there(book):
    """The next request names it, so that a leader that parted from us even earlier says so."""
    entry = book.accounts[TP].entry
    for epoch, start in [(3, 100), (5, 110)]:
        book.copied(TP, Copied((Run(start, start, 10),), start + 10, 10, 10, (1,), epoch=epoch))
    assert (entry.epoch, entry.epochs) == (5, Epochs([(3, 100), (5, 110)]))
    book.fault(fault(FaultKind.TRUNCATED, 105))
    book.settle(book.accounts[TP])
    assert (entry.epoch, entry.epochs) == (3, Epochs([(3, 100)]))
    book.fault(fault(FaultKind.TRUNCATED, 90))
    book.settle(book.accounts[TP])
    assert (entry.epoch, entry.epochs) == (-1, Epochs())


def test_truncation_goes_back_and_says_what_was_replaced(book):
    book.fault(fault(FaultKind.TRUNCATED, 80))
    book.settle(book.accounts[TP])
    ledger = book.accounts[TP].entry.ledger
    assert gaps(book) == []  # the source's new records are copied; the old copies belong to nothing
    assert [(s.start, s.end, s.reason) for s in ledger.superseded] == [(80, 100, "source truncated")]
    assert book.differences == 1
    assert ledger.next_source_offset == 80
    book.copied(TP, Copied((Run(80, 100, 5),), 85, 5, 10, (2,)))
    assert ledger.runs.to_target(82).offset == 102
    assert book.differences == 1


def test_a_deleted_topic_is_gone_and_no_gap(book):
    book.fault(fault(FaultKind.DELETED, 100))
    book.settle(book.accounts[TP])
    assert (book.accounts[TP].state, gaps(book)) == (State.GONE, [])


def test_a_refused_batch_waits_long_a_lost_producer_gets_a_new_one(book, caplog):
    book.failed(TP, RefusedError(TARGET, 100, "too large", 10))
    account = book.accounts[TP]
    assert account.state is State.REFUSED
    assert book.refused == [account]
    book.failed(TP, PositionLostError("who are you"))
    assert (account.state, account.new_producer) == (State.WAITING, True)
    said = [(each.levelname, each.getMessage()) for each in caplog.records]
    assert [level for level, _ in said] == ["ERROR", "WARNING"], "what mends itself is no error"
    assert "stands still" in said[0][1]
    assert "waits a moment" in said[1][1]


def test_a_target_that_appends_before_its_end_has_lost_records(book):
    book.copied(TP, Copied((Run(100, 90, 5),), 105, 5, 10, (2,)))
    assert gaps(book) == [(90, 100, "target lost acknowledged records")]
    assert book.accounts[TP].entry.ledger.runs.to_target(101).offset == 91


def test_what_could_not_be_stored_is_stored_next_time(book):
    first = book.take_dirty()
    assert list(first) == [TP]
    assert book.take_dirty() == {}
    book.put_back(first)
    assert list(book.take_dirty()) == [TP]


def test_progress_ages_while_it_cannot_be_stored(book, registry):
    def age():
        book.observe()
        return registry.get_sample_value("isthmus_link_progress_age_seconds", {"link": "east->west"})

    book.dirty[TP] -= 50
    taken = book.take_dirty()
    assert age() >= 50, "it is on its way, and not stored"
    book.mark(TP)
    book.put_back(taken)
    assert age() >= 50, "another try makes it no younger"
    book.take_dirty()
    book.stored()
    assert age() == 0


@pytest.mark.parametrize(
    ("kind", "unseen_s", "known"),
    [
        (FaultKind.RECREATED, 0.6, 100),
        (FaultKind.DELETED, 0.6, 100),
        (FaultKind.RECREATED, 60.0, -1),
        (FaultKind.DELETED, 60.0, -1),
        (FaultKind.FAILED, 0.0, -1),
    ],
)
def test_all_is_only_known_to_be_copied_of_what_was_looked_at_until_it_went(book, kind, unseen_s, known):
    """A topic that is written, deleted and made again while its cluster cannot be reached leaves a gap."""
    account = book.accounts[TP]
    account.seen_end = 100
    book.fault(SourceFault(TP, kind, 100, 100, "said so", unseen_s))
    assert account.known_end == known
    account.seen_end = 130  # so much at least is known to be missing
    assert account.known_end == 130


def test_what_was_on_its_way_when_nobody_looked_does_not_make_it_all(book):
    account = book.accounts[TP]
    account.seen_end = 105
    book.fault(SourceFault(TP, FaultKind.RECREATED, 105, 0, "said so", 60.0))
    book.copied(TP, Copied((Run(100, 100, 5),), 105, 5, 10, (2,)))
    assert account.known_end == -1
