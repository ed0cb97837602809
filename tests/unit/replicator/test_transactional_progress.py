"""Progress in transactions: what stands in them, what the book has meanwhile, what readers take for true."""

import asyncio
import time

import pytest
from prometheus_client import CollectorRegistry

from protocol.client import EARLIEST, ClientError, Fetched, ListedOffset, RetryPolicy
from protocol.records import Record, build_batch, decode_batches
from protocol.types import TopicPartition
from replicator import entry_rows, transactional_progress
from replicator.book import Book, State
from replicator.entry_rows import Entry, rows_of
from replicator.internal_topics import InternalTopic, batches_of
from replicator.metrics import LinkMetrics
from replicator.partitions import Partitions
from replicator.progress import Progress, ProgressStore
from replicator.transactional_progress import Decisions, TransactionalProgress, fence
from transfer.endpoint import DisorderError, FaultKind, SourceFault
from transfer.epochs import Epochs
from transfer.ledger import Copied, Lineage, PartitionLedger
from transfer.offset_map import Run

TP = TopicPartition("orders", 0)
TARGET = TopicPartition("east.orders", 0)
SLICE = 8
COMMIT, ABORT = b"\0\0\0\1", b"\0\0\0\0"


class Store:
    name = "progress"
    epoch = 3

    def __init__(self, ids=()):
        self.progress = Progress(transactional_ids=dict(ids))
        self.forgotten = []

    def batches(self, rows):
        return batches_of(rows)

    async def refresh(self):
        return self.progress

    async def forget_transactional_ids(self, names):
        self.forgotten += names


@pytest.fixture
def book():
    made = Book(LinkMetrics("east->west", CollectorRegistry()), 30.0, lambda: None)
    made.once = True
    account = made.account(TP, TARGET)
    made.adopt(account, Entry(PartitionLedger(Lineage("c1", "s", *TP), Lineage("c2", "t", *TARGET))), [])
    account.state = State.RUNNING
    return made


@pytest.fixture(autouse=True)
def short_slices(monkeypatch):
    for module in (entry_rows, transactional_progress):
        monkeypatch.setattr(module, "RUNS_PER_SLICE", SLICE)


@pytest.fixture
def progress(book):
    return TransactionalProgress(book, Store(), lambda: "me")


def copied(first, target, count=10, epoch=-1):
    return Copied((Run(first, target, count),), first + count, count, 100, (1,), epoch=epoch)


def stored(*rounds):
    """What a reader has after all of these batches."""
    found = Progress()
    for batches in rounds:
        for batch in batches:
            found.apply((record.key, record.value) for record in decode_batches(batch))
    return found.entry(TP)


def test_progress_says_what_will_be_and_the_book_what_is(book, progress):
    batches = progress.batches({TARGET: [copied(0, 0), copied(10, 10)]})
    assert stored(batches).ledger.next_source_offset == 20
    assert book.accounts[TP].entry.ledger.next_source_offset == 0


def test_what_was_passed_without_data_is_stored_behind_an_earlier_transaction(book, progress):
    """Aborted records and markers at a log's end: a planned failover waits for them, and nobody writes."""
    one = copied(0, 0, epoch=3)
    book.take_dirty()
    rounds = [progress.batches({TARGET: [one]})]
    progress.ended(committed=True)
    book.copied(TP, one)
    assert not book.take_dirty()  # the transaction has stored it
    book.copied(TP, Copied((), 12, 0, 0, (), epoch=4))
    assert list(book.take_dirty()) == [TP]
    progress._wanted.add(TP)
    rounds.append(progress.batches({}))
    assert stored(*rounds).ledger.next_source_offset == 12
    assert list(stored(*rounds).ledger.runs) == [Run(0, 0, 10)]
    assert (stored(*rounds).epoch, stored(*rounds).epochs) == (4, Epochs([(3, 0), (4, 10)]))


def test_epochs_of_a_transaction_count_once_it_is_committed(book, progress):
    rounds = [progress.batches({TARGET: [copied(0, 0, epoch=3), copied(10, 10, epoch=4)]})]
    assert stored(*rounds).epochs == Epochs([(3, 0), (4, 10)])
    assert book.accounts[TP].entry.epochs == Epochs()
    progress.ended(committed=False)
    assert stored(progress.batches({TARGET: [copied(0, 11, epoch=5)]})).epochs == Epochs([(5, 0)])


def test_after_an_abort_the_book_counts(book, progress):
    progress.batches({TARGET: [copied(0, 0)]})
    progress.ended(committed=False)
    again = stored(progress.batches({TARGET: [copied(0, 11)]}))
    assert list(again.ledger.runs) == [Run(0, 11, 10)]
    assert again.ledger.records == 10


def test_what_the_book_has_not_heard_of_yet_survives_an_abort_of_somebody_else(book, progress):
    """A write in several parts is booked at its end; parts of it are committed before that."""
    rounds = [progress.batches({TARGET: [copied(0, 0)]})]
    progress.ended(committed=True)
    progress._wanted.add(TP)
    progress.batches({})
    progress.ended(committed=False)
    rounds.append(progress.batches({TARGET: [copied(10, 11)]}))
    assert list(stored(*rounds).ledger.runs) == [Run(0, 0, 10), Run(10, 11, 10)]


async def test_a_partition_whose_data_was_aborted_stores_nothing_until_it_begins_anew(book, progress):
    progress.batches({TARGET: [copied(0, 0)]})
    progress.ended(committed=True)
    book.take_dirty()
    saving = asyncio.create_task(progress.save([TP]))
    await asyncio.sleep(0)
    progress.batches({TARGET: [copied(10, 10)]})
    progress.ended(committed=False)
    await saving
    assert not progress.pending
    assert progress.holds_back(TP)
    assert list(book.dirty) == [TP]  # it is told so, and not that it is stored
    progress.forget(TP)
    assert not progress.holds_back(TP)


def test_slices_that_were_aborted_are_stored_again(book, progress):
    for number in range(SLICE * 2 + 5):
        book.copied(TP, copied(number * 10, number * 11))
    progress._wanted.add(TP)
    progress.batches({})
    progress.ended(committed=False)
    entry = stored(progress.batches({}))
    progress.ended(committed=True)
    assert entry.ledger == book.accounts[TP].entry.ledger
    assert entry.sealed == book.accounts[TP].entry.sealed == 2


@pytest.mark.parametrize("first", [20, 5])
def test_a_write_that_does_not_continue_what_is_stored_stops_the_transaction_and_is_counted(
    book, progress, first
):
    progress.batches({TARGET: [copied(0, 0)]})
    progress.ended(committed=True)
    jumped = copied(first, 10)._replace(first_source_offset=first)
    with pytest.raises(DisorderError, match=f"begins at source offset {first}, .* ends at 10") as caught:
        progress.batches({TARGET: [jumped]})
    progress.ended(committed=False)
    account = book.accounts[TP]
    assert account.read_again
    assert book.metrics.disorders._value.get() == 1
    book.failed(TP, caught.value)
    assert book.metrics.disorders._value.get() == 1
    assert (account.state, "report it with this line" in account.reason) == (State.WAITING, True)


def test_a_long_history_is_stored_in_slices_as_by_others(book, progress):
    rounds, expected = [], []
    for number in range(SLICE * 2 + 5):
        one = copied(number * 10, number * 11)
        expected.append(one.runs[0])
        rounds.append(progress.batches({TARGET: [one]}))
        progress.ended(committed=True)
        book.copied(TP, one)
    entry = stored(*rounds)
    assert list(entry.ledger.runs) == expected
    assert entry.ledger == book.accounts[TP].entry.ledger
    assert entry.sealed == book.accounts[TP].entry.sealed == 2


def test_a_history_that_was_cut_goes_on_from_its_last_whole_slice(book, progress):
    test_a_long_history_is_stored_in_slices_as_by_others(book, progress)
    entry = book.accounts[TP].entry
    entry.ledger.rewind(5 * 10, "source truncated", 1)
    progress.forget(TP)
    after = stored(progress.batches({TARGET: [copied(50, 10**6)]}))
    assert after.sealed == 0
    assert list(after.ledger.runs)[-2:] == [Run(40, 44, 10), Run(50, 10**6, 10)]


def test_a_target_that_lost_records_shows_as_the_same_gap_in_both(book, progress, monkeypatch):
    for first in (0, 10):
        progress.batches({TARGET: [copied(first, first)]})
        progress.ended(committed=True)
        book.copied(TP, copied(first, first))
    lost = copied(20, 15)._replace(at_ms=time.time_ns() // 1_000_000)
    entry = stored(progress.batches({TARGET: [lost]}))
    progress.ended(committed=True)
    later = time.time_ns() + 5_000_000_000
    monkeypatch.setattr(time, "time_ns", lambda: later)
    book.copied(TP, lost)
    assert entry.ledger.gaps == book.accounts[TP].entry.ledger.gaps  # who acknowledges one means both
    assert [(gap.start, gap.end) for gap in entry.ledger.gaps] == [(15, 20)]
    assert list(entry.ledger.runs) == list(book.accounts[TP].entry.ledger.runs)


def test_what_was_given_up_may_not_be_stored(book, progress):
    book.drop(TP)
    with pytest.raises(LookupError):
        progress.batches({TARGET: [copied(0, 0)]})


async def test_saving_waits_for_the_commit(book, progress):
    asked = []
    progress.ask = lambda: asked.append(1)
    saving = asyncio.create_task(progress.save([TP]))
    await asyncio.sleep(0)
    assert progress.pending
    assert asked
    progress.batches({})
    progress.ended(committed=False)
    await asyncio.sleep(0)
    assert progress.pending
    assert not saving.done()
    assert stored(progress.batches({})).ledger.source == Lineage("c1", "s", *TP)
    progress.ended(committed=True)
    await saving
    assert not progress.pending


async def test_what_is_to_be_stored_after_the_rows_of_a_transaction_were_made_is_for_the_next_one(
    book, progress
):
    """A save that nobody waits for any more has asked for the same partition before."""
    progress._wanted.add(TP)
    progress.batches({})
    book.copied(TP, Copied((), 12, 0, 0, ()))
    saving = asyncio.create_task(progress.save([TP]))
    await asyncio.sleep(0)
    progress.ended(committed=True)
    await asyncio.sleep(0)
    assert progress.pending
    assert not saving.done()
    assert stored(progress.batches({})).ledger.next_source_offset == 12
    progress.ended(committed=True)
    await saving


async def test_producers_of_those_who_are_gone_are_fenced():
    taken = []

    class Client:
        async def init_transactional_producer(self, name, timeout_ms):
            taken.append(name)

    store, begun = Store({"link.a": "a", "link.b": "b", "link.b.1": "b"}), []
    await fence(Client(), store, lambda: {"a", "b"}, begins=lambda: begun.append("nobody"))
    await fence(Client(), store, lambda: {"a"}, begins=lambda: begun.append(len(taken)))
    assert begun == [0, 1]
    assert taken == store.forgotten == ["link.b", "link.b.1"]


async def test_a_worker_that_comes_back_while_others_are_fenced_stays_on_record():
    """`a` was paused and registers anew while `z` is fenced; `c` joins meanwhile and is not fenced at all."""
    store, taken, living = Store(), [], {"b"}
    store.progress.apply((b"transactional-id/link." + owner, owner) for owner in (b"a", b"z", b"c"))

    class Client:
        async def init_transactional_producer(self, name, timeout_ms):
            taken.append(name)
            if name == "link.z":
                store.progress.apply([(b"transactional-id/link.a", b"a")])
                living.add("c")

    await fence(Client(), store, lambda: living)
    assert taken == ["link.a", "link.z"]
    assert store.forgotten == ["link.z"]


class Log:
    """A client of a topic with the given batches."""

    retry = RetryPolicy()

    def __init__(self, *batches):
        self.batches = list(batches)

    async def list_offsets(self, spots, *, retry=retry):
        return {
            tp: ListedOffset(0 if spot == EARLIEST else len(self.batches), -1, -1)
            for tp, spot in spots.items()
        }

    async def fetch(self, tp, offset, **_):
        return Fetched(tp, memoryview(self.batches[offset]), len(self.batches), 0, 0)


def row(offset, producer, key, value=b"v", *, control=False):
    return build_batch(
        [Record(0, 1, key, value)],
        base_offset=offset,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=-1 if control else 0,
        transactional=producer >= 0,
        control=control,
    )


async def test_rows_of_a_transaction_count_when_it_is_committed_and_others_at_once():
    log = Log(row(0, 1, b"a"), row(1, 2, b"b"), row(2, -1, b"lease"))
    topic = InternalTopic(log, "links")
    assert await topic.read_new() == [(b"lease", b"v")]
    log.batches += [row(3, 2, ABORT, control=True), row(4, 1, COMMIT, control=True), row(5, 2, b"c")]
    assert await topic.read_new() == [(b"a", b"v")]
    log.batches.append(row(6, 2, COMMIT, control=True))
    assert await topic.read_new() == [(b"c", b"v")]


def head_at(position, log_offset, producer):
    """Progress of the partition at a position, in a transaction."""
    entry = Entry(PartitionLedger(Lineage("c1", "s", *TP), Lineage("c2", "t", *TARGET)), once=True)
    entry.ledger.add(copied(0, 0, position))
    [(key, value)] = rows_of(entry, epoch=3)[0]
    return row(log_offset, producer, key, value)


async def test_of_transactions_that_overlap_the_newer_row_counts_whichever_marker_comes_first():
    log = Log(row(0, 1, b"p", b"old"), row(1, 2, b"p", b"new"), row(2, 2, COMMIT, control=True))
    log.batches += [
        row(3, 1, COMMIT, control=True),
        row(4, 1, b"p", b"newest"),
        row(5, 1, COMMIT, control=True),
    ]
    assert await InternalTopic(log, "links").read_new() == [(b"p", b"new"), (b"p", b"newest")]


async def test_of_an_aborted_newer_row_nothing_is_left():
    log = Log(row(0, 1, b"p", b"old"), row(1, 2, b"p", b"new"), row(2, 2, ABORT, control=True))
    log.batches.append(row(3, 1, COMMIT, control=True))
    assert await InternalTopic(log, "links").read_new() == [(b"p", b"old")]


@pytest.mark.parametrize("read_by_another", [False, True])
async def test_a_partition_begins_behind_what_its_last_owner_committed_also_before_the_marker(
    book, read_by_another
):
    log = Log(head_at(100, 0, 1), row(1, 1, COMMIT, control=True), head_at(200, 2, 1))
    store = ProgressStore(log, "links")
    began = []
    partitions = Partitions(None, None, None, None, {}, book, store, None)
    partitions.stored = (await store.refresh()).entries()

    async def open_it(account):
        began.append(partitions.stored[account.tp].ledger.next_source_offset)

    partitions._open = open_it
    account = book.accounts[TP]
    account.entry = None
    if read_by_another:
        log.batches.append(row(3, 1, COMMIT, control=True))
        await store.refresh()
    bringing_up = asyncio.create_task(partitions._bring_up(account))
    await asyncio.sleep(0.25)
    assert bool(began) == read_by_another
    if not read_by_another:
        log.batches.append(row(3, 1, COMMIT, control=True))
    await bringing_up
    assert began == [200]


async def test_other_partitions_and_later_transactions_are_not_waited_for():
    log = Log(head_at(100, 0, 1), row(1, 1, ABORT, control=True), row(2, 1, b"partition/other/0"))
    store = ProgressStore(log, "links")
    await store.refresh()
    await Decisions(store).wait(TP)


async def test_a_transaction_that_nobody_decides_is_named_and_waited_for_again(monkeypatch):
    monkeypatch.setattr(transactional_progress, "_DECIDED_S", 0.2)
    log = Log(head_at(100, 0, 7))
    store = ProgressStore(log, "links")
    await store.refresh()
    decisions = Decisions(store)
    with pytest.raises(ClientError, match=r"orders-0 .* producer 7 in links-0 \(from offset 0 on\)"):
        await decisions.wait(TP)
    monkeypatch.undo()
    log.batches.append(row(1, 7, COMMIT, control=True))
    await asyncio.gather(*(decisions.wait(TP) for _ in range(3)))
    assert store.progress.entry(TP).ledger.next_source_offset == 100


async def test_a_gap_at_the_source_begins_where_stored_progress_ends(book):
    """The book knows less while the outcome of a transaction is not known: it would count what is copied as
    missing, and `on_gap: stop` would wait for somebody who acknowledges a gap that is stored nowhere."""
    log = Log(head_at(100, 0, 1), row(1, 1, COMMIT, control=True))
    store = ProgressStore(log, "links")
    partitions = Partitions(None, None, None, None, {}, book, store, None, stop_at_gaps=True)
    account = book.accounts[TP]
    account.read_again = True
    book.fault(SourceFault(TP, FaultKind.RETENTION, 50, 120, "gone"))
    await partitions._let_go(account)
    assert not partitions._held(account)
    await partitions._read_again(account)
    assert [(gap.start, gap.end) for gap in account.entry.ledger.gaps] == [(100, 120)]
    assert partitions._held(account)
    assert account.resume_at == -1


async def test_a_start_that_fails_as_nobody_has_thought_of_is_said_and_not_tried_all_the_time(book, caplog):
    partitions = Partitions(None, None, None, None, {}, book, ProgressStore(Log(), "links"), None)
    tried = []

    async def open_it(account):
        tried.append(account.tp)
        raise AttributeError("a fault of ours")

    partitions._open = open_it
    account = book.accounts[TP]
    account.state = State.WAITING
    for _ in range(50):
        partitions._start_or_pause(account)
        await asyncio.sleep(0.005)
    await partitions.close()
    assert len(tried) == 1
    assert "a fault of ours" in account.reason
    assert "cannot start" in caplog.text
