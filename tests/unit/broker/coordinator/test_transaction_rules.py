"""The transaction state machine: single rules, and a model that plays producers against each other."""

from dataclasses import replace

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker.coordinator.transactions import ending_v2, rules
from broker.coordinator.transactions.records import (
    read_image,
    read_transactional_id,
    transaction_record,
)
from broker.coordinator.transactions.states import ENDING, IDLE, MOVES, TxnState
from broker.coordinator.transactions.transaction import Image, Transaction
from protocol.errors import ErrorCode, KafkaError
from protocol.types import TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 3)
FRESH = Image(7)
OPEN = Image(7, 2, 1000, TxnState.ONGOING, frozenset({A}), 100, 100)


def code_of(call: object, *arguments: object) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        call(*arguments)  # type: ignore[operator]
    return caught.value.code


def test_a_new_instance_gets_the_next_epoch() -> None:
    first = rules.initialized(FRESH, 1000, None, -1, 5)
    assert (first.producer_id, first.epoch, first.state) == (7, 0, TxnState.EMPTY)
    assert rules.initialized(first, 1000, None, -1, 6).epoch == 1


def test_the_same_instance_may_repeat_its_question() -> None:
    """KIP-360: the answer to the first got lost."""
    before = replace(FRESH, epoch=4)
    after = rules.initialized(before, 1000, (7, 4), -1, 5)
    assert after.epoch == 5
    assert rules.initialized(after, 1000, (7, 4), -1, 6).epoch == 5
    assert code_of(rules.initialized, after, 1000, (7, 3), -1, 6) is ErrorCode.PRODUCER_FENCED
    assert code_of(rules.initialized, after, 1000, (8, 5), -1, 6) is ErrorCode.PRODUCER_FENCED


def test_epochs_that_run_out_give_a_new_producer_id() -> None:
    worn = replace(FRESH, epoch=32_766)
    assert worn.epoch_exhausted
    new = rules.initialized(worn, 1000, (7, 32_766), 99, 5)
    assert (new.producer_id, new.epoch, new.last_producer_id) == (99, 0, 7)
    again = rules.initialized(new, 1000, (7, 32_766), -1, 6)
    assert (again.producer_id, again.epoch) == (99, 0)


def test_an_open_transaction_is_fenced_first() -> None:
    aborting = rules.initialized(OPEN, 1000, None, -1, 200)
    assert (aborting.state, aborting.epoch) == (TxnState.PREPARE_ABORT, 3)
    assert code_of(rules.initialized, aborting, 1000, None, -1, 201) is ErrorCode.CONCURRENT_TRANSACTIONS
    done = rules.completed(aborting, 202)
    assert rules.initialized(done, 1000, None, -1, 203).epoch == 4
    transaction = Transaction("x", done)
    assert code_of(rules.check_producer, transaction, 7, 2) is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("commit", [True, False])
def test_the_end_may_be_repeated_and_not_changed(commit: bool) -> None:
    ending = rules.ended(OPEN, commit, 200)
    assert ending is not None
    assert code_of(rules.ended, ending, commit, 201) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert code_of(rules.ended, ending, not commit, 201) is ErrorCode.INVALID_TXN_STATE
    done = rules.completed(ending, 202)
    assert rules.ended(done, commit, 203) is None
    assert code_of(rules.ended, done, not commit, 203) is ErrorCode.INVALID_TXN_STATE
    assert code_of(rules.ended, FRESH, commit, 203) is ErrorCode.INVALID_TXN_STATE


def test_members() -> None:
    rules.check_member_of(OPEN, A)
    assert code_of(rules.check_member_of, OPEN, B) is ErrorCode.TRANSACTION_ABORTABLE
    assert rules.extended(OPEN, [A], 300) is None
    both = rules.extended(OPEN, [A, B], 300)
    assert both is not None
    assert (both.partitions, both.start_ms) == ({A, B}, 100)
    rules.check_member_of(both, B)


def test_time() -> None:
    assert not rules.has_timed_out(OPEN, 1100)
    assert rules.has_timed_out(OPEN, 1101)
    quiet = replace(FRESH, update_ms=100)
    assert rules.has_expired(quiet, 200, 100)
    assert not rules.has_expired(quiet, 199, 100)
    assert not rules.has_expired(OPEN, 10**15, 100)


def test_late_requests_are_known_by_their_connection() -> None:
    """KAFKA-17754: what comes over a connection that its producer has given up was sent before."""
    transaction = Transaction("x", OPEN)
    old, new = object(), object()
    assert not transaction.is_stale(old)
    assert not transaction.is_stale(new)
    assert transaction.is_stale(old)
    assert not transaction.is_stale(new)


@pytest.mark.parametrize("image", [FRESH, OPEN, replace(OPEN, partitions=frozenset({A, B}))])
def test_records(image: Image) -> None:
    record = transaction_record("tx-ü", image, 5)
    assert record.key is not None
    assert record.value is not None
    assert read_transactional_id(record.key) == "tx-ü"
    assert read_image(record.value) == image
    assert record.value[:2] == b"\0\0"
    assert transaction_record("tx-ü", None, 5).value is None


class Producers(RuleBasedStateMachine):
    """Old and new instances, late repetitions, time-outs against one id; the model is what was promised."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000
        self.fresh = 100
        self.transaction = Transaction("x", Image(self.fresh, timeout_ms=50))
        self.instances: list[tuple[int, int]] = []
        self.open: set[TopicPartition] = set()
        self.promised: bool | None = None
        """What was decided for the transaction whose markers are not written yet."""

    def become(self, image: Image) -> None:
        assert self.transaction.image.state in MOVES[image.state]
        self.transaction.pending = image
        self.transaction.accept()

    @rule(expected=st.one_of(st.none(), st.integers(0, 5)), step=st.integers(0, 30))
    def init(self, expected: int | None, step: int) -> None:
        self.now += step
        self.fresh += 1
        known = None if expected is None or not self.instances else self.instances[-1 - expected % 3 :][0]
        try:
            image = rules.initialized(self.transaction.image, 50, known, self.fresh, self.now)
        except KafkaError as error:
            if error.code not in (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.PRODUCER_FENCED):
                raise
            return
        self.become(image)
        if image.state is TxnState.PREPARE_ABORT:
            self.promised = False
        else:
            self.instances.append((image.producer_id, image.epoch))

    @precondition(lambda self: self.instances)
    @rule(which=st.integers(0, 3), partition=st.sampled_from([A, B]))
    def add(self, which: int, partition: TopicPartition) -> None:
        who = self.instances[-1 - which % len(self.instances)]
        try:
            transaction = rules.check_producer(self.transaction, *who)
            image = rules.extended(transaction.image, [partition], self.now)
        except KafkaError:
            return
        assert who == self.instances[-1]
        if image is not None:
            self.become(image)
        self.open.add(partition)

    @precondition(lambda self: self.instances)
    @rule(which=st.integers(0, 3), commit=st.booleans())
    def end(self, which: int, commit: bool) -> None:
        who = self.instances[-1 - which % len(self.instances)]
        try:
            image = rules.ended(rules.check_producer(self.transaction, *who).image, commit, self.now)
        except KafkaError:
            return
        assert who == self.instances[-1]
        if image is not None:
            assert self.promised is None
            self.promised = commit
            self.become(image)

    @rule(step=st.integers(0, 60))
    def time_out(self, step: int) -> None:
        self.now += step
        if rules.has_timed_out(self.transaction.image, self.now):
            self.become(rules.fenced(self.transaction.image, self.now))
            self.promised = False

    @precondition(lambda self: self.transaction.image.state in ENDING)
    @rule()
    def markers_are_written(self) -> None:
        assert self.transaction.image.partitions == self.open
        assert (self.transaction.image.state is TxnState.PREPARE_COMMIT) == self.promised
        self.become(rules.completed(self.transaction.image, self.now))
        self.promised = None
        self.open.clear()

    @rule()
    def the_coordinator_is_restarted(self) -> None:
        record = transaction_record("x", self.transaction.image, self.now)
        assert record.value is not None
        self.transaction = Transaction("x", read_image(record.value))

    @invariant()
    def what_is_open_has_partitions(self) -> None:
        image = self.transaction.image
        assert image.partitions == self.open
        assert bool(image.partitions) == (image.state not in IDLE)
        assert (image.state in ENDING) == (self.promised is not None)
        assert image.epoch <= 32_767


Producers.TestCase.settings = hypothesis_settings(max_examples=60, stateful_step_count=30, deadline=None)
TestProducers = Producers.TestCase


# -- transactions of version 2 (KIP-890) -------------------------------------------------------------------


def end_v2(image: Image, producer_id: int, epoch: int, commit: bool, fresh_id: int = 99) -> Image | None:
    repeated = ending_v2.is_repetition(image, producer_id, epoch)
    return ending_v2.ended(image, repeated, commit, fresh_id, 300)


def test_epochs_that_run_out_at_an_end_give_a_new_producer_id() -> None:
    worn = replace(OPEN, epoch=32_766)
    ending = end_v2(worn, 7, 32_766, True)
    assert ending is not None
    assert (ending.producer_id, ending.epoch) == (7, 32_767), "the markers still carry the old id"
    assert ending_v2.successor(ending) == (99, 0)
    assert code_of(end_v2, ending, 7, 32_766, True) is ErrorCode.CONCURRENT_TRANSACTIONS
    done = rules.completed(ending, 301)
    assert (done.producer_id, done.epoch, done.last_producer_id) == (99, 0, 7)
    assert end_v2(done, 7, 32_766, True) is None
    assert ending_v2.successor(done) == (99, 0)
    assert code_of(end_v2, done, 7, 32_766, False) is ErrorCode.INVALID_TXN_STATE
    following = rules.extended(done, [A], 302, client_version=2)
    assert following is not None
    assert code_of(end_v2, following, 7, 32_766, True) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    again = rules.initialized(done, 1000, (7, 32_766), -1, 303)
    assert (again.producer_id, again.epoch) == (99, 0), "it asks with what it had: the answer got lost"


@pytest.mark.parametrize("commit", [True, False])
def test_the_next_end_waits_for_the_markers_of_the_one_before(commit: bool) -> None:
    ending = end_v2(OPEN, 7, 2, True)
    assert ending is not None
    assert code_of(end_v2, ending, 7, 3, commit) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert code_of(end_v2, ending, 7, 4, commit) is ErrorCode.PRODUCER_FENCED
    assert code_of(end_v2, ending, 7, 2, False) is ErrorCode.INVALID_TXN_STATE


def test_a_fence_at_the_last_epoch_leaves_none() -> None:
    worn = replace(OPEN, epoch=32_766)
    fenced = rules.fenced(worn, 300, 0, 99)
    assert (fenced.producer_id, fenced.epoch, fenced.next_producer_id) == (7, 32_767, -1)
    done = rules.completed(fenced, 301)
    new = rules.initialized(done, 1000, None, 99, 302)
    assert (new.producer_id, new.epoch) == (99, 0)


def test_a_fence_at_the_last_epoch_gives_a_producer_of_version_2_another_id() -> None:
    """Kafka's coordinator has this test too: the producer's own abort is told the new id, not epoch 32,767,
    with which no marker could end a transaction any more.
    """
    worn = replace(OPEN, epoch=32_766)
    fenced = rules.fenced(worn, 300, 2, 99)
    assert (fenced.producer_id, fenced.epoch, fenced.next_producer_id) == (7, 32_767, 99)
    assert rules.initialized(worn, 1000, None, 99, 300, 2).next_producer_id == 99
    done = rules.completed(fenced, 301)
    assert (done.state, done.producer_id, done.epoch) == (TxnState.COMPLETE_ABORT, 99, 0)
    assert end_v2(done, 7, 32_766, False) is None
    assert ending_v2.successor(done) == (99, 0)
    assert code_of(end_v2, done, 7, 32_766, True) is ErrorCode.INVALID_TXN_STATE
    again = rules.initialized(done, 1000, (7, 32_766), -1, 302, 2)
    assert (again.producer_id, again.epoch) == (99, 0)


@pytest.mark.parametrize("client_version", [0, 2])
def test_records_of_value_version_1(client_version: int) -> None:
    image = replace(
        OPEN,
        last_producer_id=6,
        next_producer_id=8,
        client_version=client_version,
        state=TxnState.PREPARE_COMMIT,
    )
    record = transaction_record("x", image, 5, level=1)
    assert record.value is not None
    assert record.value[:2] == b"\0\1"
    assert read_image(record.value) == image
    plain = transaction_record("x", image, 5, level=0)
    assert plain.value is not None
    assert read_image(plain.value) == replace(
        image, last_producer_id=-1, next_producer_id=-1, client_version=0
    )


class Network(RuleBasedStateMachine):
    """One producer of version 2 and a network that keeps its requests and brings them again at any time.

    Whatever comes late, each transaction ends once, as its producer said, and none is begun by nobody.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.image = rules.initialized(Image(7), 1000, None, -1, 0)
        self.sent: list[tuple[int, int, bool]] = []
        self.open = False
        self.wanted: list[bool] = []
        self.found: list[bool] = []
        self.identity = (7, self.image.epoch)

    def tick(self) -> int:
        self.now += 1
        return self.now

    def take(self, image: Image) -> None:
        assert self.image.state in MOVES[image.state]
        self.image = image

    @rule()
    @precondition(lambda self: self.image.state not in ENDING)
    def writes(self) -> None:
        image = rules.extended(self.image, [A], self.tick(), 2)
        if image is not None:
            self.take(image)
        self.open = True

    @rule(commit=st.booleans())
    @precondition(lambda self: self.open and self.image.state is TxnState.ONGOING)
    def ends(self, commit: bool) -> None:
        self.wanted.append(commit)
        self.sent.append((*self.identity, commit))
        image = end_v2(self.image, *self.identity, commit, fresh_id=self.image.producer_id + 1)
        assert image is not None
        self.take(image)
        self.identity = ending_v2.successor(image)
        self.found.append(commit)
        self.open = False

    @rule()
    @precondition(lambda self: self.image.state in ENDING)
    def markers_are_written(self) -> None:
        self.take(rules.completed(self.image, self.tick()))

    @rule(data=st.data())
    @precondition(lambda self: bool(self.sent))
    def comes_late(self, data: st.DataObject) -> None:
        late = data.draw(st.sampled_from(self.sent))
        try:
            image = end_v2(self.image, *late)
        except KafkaError:
            return
        assert image is None, "a late end has ended something"
        assert ending_v2.successor(self.image) == self.identity

    @rule()
    @precondition(lambda self: not self.open and self.image.state in IDLE and self.image.epoch < 32_700)
    def many_transactions_pass(self) -> None:
        self.image = replace(self.image, epoch=32_763)
        self.identity = (self.image.producer_id, 32_763)
        self.sent.clear()

    @invariant()
    def what_was_said_has_happened(self) -> None:
        assert self.found == self.wanted


Network.TestCase.settings = hypothesis_settings(max_examples=60, stateful_step_count=40, deadline=None)
TestNetwork = Network.TestCase
