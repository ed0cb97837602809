"""Transactions of a link against a coordinator in memory: who is answered when, and what is never doubled."""

import asyncio
import contextlib

import pytest

from protocol.client import ClientError, ProducerId
from protocol.errors import ErrorCode, KafkaError
from protocol.records import Record, build_batch, read_header
from protocol.records.reading import read_records
from protocol.types import TopicPartition
from tests.support.jumping_loop import run_jumping
from transfer.endpoint import AbortedError, Chunk, OutcomeUnknownError, RefusedError, TransferError
from transfer.kafka import transactional
from transfer.kafka.candidates import Aside
from transfer.kafka.lane import Pending as Batch
from transfer.kafka.lane import ProduceLane, Ticket
from transfer.kafka.transactional import Transactions
from transfer.kafka.transactional_producer import TransactionSettings
from transfer.rewrite import plan

PROGRESS = TopicPartition("progress", 0)
A, B, C = TopicPartition("a", 0), TopicPartition("b", 0), TopicPartition("c", 0)


class Coordinator:
    """Answers as it is told to, else as all is well."""

    def __init__(self):
        self.calls = []
        self.epoch = -1
        self.add_answers = []
        self.end_answers = []
        self.init_answers = []

    async def init_transactional_producer(self, name, timeout_ms, producer=None, *, retry=None):
        self.calls.append(("init", name, producer))
        await self._next(self.init_answers)
        self.epoch += 1
        return ProducerId(7, self.epoch)

    async def add_to_transaction(self, name, producer, tps):
        self.calls.append(("add", name, sorted(tps)))
        answers = self.add_answers.pop(0) if self.add_answers else {}
        await asyncio.sleep(0)
        return {tp: answers.get(tp, answers.get("all", ErrorCode.NONE)) for tp in tps}

    async def end_transaction(self, name, producer, *, commit):
        self.calls.append(("end", name, "commit" if commit else "abort"))
        await self._next(self.end_answers)

    async def _next(self, answers):
        await asyncio.sleep(0)
        if answers:
            raise answers.pop(0)

    def ends(self):
        return [call[2] for call in self.calls if call[0] == "end"]


class Progress:
    """A journal that writes one record each time."""

    tp = PROGRESS
    pending = False

    def __init__(self):
        self.written = []
        self.outcomes = []
        self.registered = []

    async def register(self, name):
        self.registered.append(name)

    def batches(self, written):
        self.written.append({tp: sum(one.records for one in copied) for tp, copied in written.items()})
        return [build_batch([Record(0, 0, b"k", b"%d" % len(self.written))])]

    def ended(self, *, committed):
        self.outcomes.append(committed)


class Target:
    """Lanes whose batches are acknowledged at once; those of `silent` partitions get no answer, and those of
    `held` ones are not sent, as without a leader or a permit to write."""

    def __init__(self, **settings):
        self.coordinator, self.journal = Coordinator(), Progress()
        on = {"interval_s": 0.01, "end_s": 0.2, **settings}
        self.may_write = lambda: True
        self.transactions = Transactions(
            self.coordinator,
            TransactionSettings("link", **on),
            self.journal,
            lambda: self.may_write(),
            lambda: self.when_fenced(),
        )
        self.when_fenced = lambda: None
        self.lanes = {}
        self.log = []
        self.stored = []
        """Values of the records of progress."""
        self.silent = set()
        self.slow = {}
        """After how many seconds batches of partitions are acknowledged."""
        self.held = set()
        self.left = []
        self.transactions.attach(self.wake, self.left.append, self.open)

    def open(self, tp):
        lane = self.lanes[tp] = ProduceLane(tp, gate=self.transactions)
        lane.leader = 1
        return lane

    def wake(self, lane):
        if not self.transactions.takes(lane):
            return
        while lane.tp not in self.held and (batch := lane.take(0.0)) is not None:
            if lane.tp in self.silent:
                return
            self.log.append((lane.tp, batch.sequence, batch.out.record_count, batch.segments[0][22] & 0x10))
            if lane.tp == PROGRESS:
                self.stored.append(_value_of(batch.segments))
            if lane.tp in self.slow:
                asyncio.get_running_loop().call_later(self.slow[lane.tp], self.answer, lane, batch)
            else:
                lane.acknowledged(batch, len(self.log) * 10)

    def answer(self, lane, batch):
        if lane.error is None and batch in lane._in_flight:
            lane.acknowledged(batch, len(self.log) * 10)
            self.wake(lane)

    def write(self, tp, count=3, batches=1):
        lane = self.lanes.get(tp) or self.open(tp)
        some = [Record(0, 0, None, b"x") for _ in range(count)]
        raw = b"".join(build_batch(some, base_offset=n * count) for n in range(batches))
        outs, _ = plan(Chunk(tp, memoryview(raw), 0, count * batches))
        ticket = Ticket(asyncio.get_running_loop().create_future(), count * batches, source=tp)
        ticket.batches = [Batch(out, ticket) for out in outs]
        lane.offer(ticket)
        self.wake(lane)
        return ticket.done


def _value_of(segments):
    raw = memoryview(b"".join(map(bytes, segments)))
    return next(read_records(raw, 0, read_header(raw))).value


@pytest.fixture
async def target():
    made = Target()
    task = asyncio.create_task(made.transactions.run())
    yield made
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def within(waiting):
    async with asyncio.timeout(20):
        return await waiting


async def outcome(waiting):
    with pytest.raises(AbortedError) as caught:
        await within(waiting)
    return type(caught.value)


async def test_who_writes_is_answered_after_the_commit_with_progress(target):
    copied = await within(target.write(A))
    assert copied.records == 3
    assert target.coordinator.ends() == ["commit"]
    assert [tp for tp, *_ in target.log] == [A, PROGRESS]
    assert all(transactional for *_, transactional in target.log)
    assert (target.journal.written, target.journal.outcomes) == ([{A: 3}], [True])


async def test_sequences_go_on_after_a_commit_and_begin_anew_after_an_abort(target):
    await within(target.write(A))
    await within(target.write(A))
    target.transactions.spoil(target.lanes[A], "not in one")  # no transaction: nothing happens
    target.silent.add(B)
    lost = target.write(B)
    assert await outcome(lost) is AbortedError
    await within(target.write(A))
    assert [sequence for tp, sequence, *_ in target.log if tp == A] == [0, 3, 0]
    assert target.coordinator.calls.count(("init", "link", ProducerId(7, 0))) == 1  # the next epoch (KIP-360)


async def test_what_stands_behind_a_write_that_was_given_up_is_not_in_the_next_transaction(target):
    """Its answer may come after the transaction was spoiled and before that ends: nothing is on its way then,
    and yet what is queued must not go on. It would be committed with its progress, and the hole be hidden."""
    target.silent.add(A)
    first, second = target.write(A), target.write(A)
    async with asyncio.timeout(20):
        while target.lanes[A].quiet:
            await asyncio.sleep(0.001)
    lane = target.lanes[A]
    target.transactions.spoil(lane, "somebody else's batch was refused")
    lane.acknowledged(lane._in_flight[0], 10)
    target.silent.clear()
    assert await outcome(first) is AbortedError
    with pytest.raises(TransferError):
        await within(second)
    await within(target.transactions.settled())
    assert target.coordinator.ends() == ["abort"]
    assert target.journal.written == []
    target.open(A)
    assert (await within(target.write(A))).records == 3


@pytest.mark.parametrize("end", [None, KafkaError(ErrorCode.PRODUCER_FENCED)])
async def test_progress_of_an_aborted_transaction_that_was_not_sent_is_in_no_later_one(target, end):
    """Nothing of it is on its way, so nothing of it is in doubt; but the next transaction would commit that
    data is there which was aborted."""
    target.held.add(PROGRESS)
    if end is not None:
        target.coordinator.end_answers = [end]
    assert issubclass(await outcome(target.write(A)), AbortedError)
    assert target.coordinator.ends() == ["abort"]
    target.held.clear()
    assert (await within(target.write(B))).records == 3
    assert target.journal.written == [{A: 3}, {B: 3}]
    assert target.stored == [b"2"]


async def test_what_a_worker_had_begun_when_it_was_given_up_is_aborted_at_once(target):
    """Progress alone too, which no partition is closed for: it is of a time at which it had the partition."""
    target.held.add(PROGRESS)
    target.journal.pending = True
    target.transactions.stir()
    async with asyncio.timeout(20):
        while not target.journal.written:
            await asyncio.sleep(0.001)
    target.journal.pending = False
    target.transactions.give_up("others have its partitions")
    async with asyncio.timeout(0.1):  # not as long as it would wait for progress
        await target.transactions.settled()
    assert target.coordinator.ends() == ["abort"]
    assert target.journal.outcomes == [False]
    target.held.clear()
    await within(target.write(A))
    assert target.stored == [b"2"]


async def test_the_abort_at_the_end_finds_no_later_transaction(target):
    """It is meant for the one of that moment, whose commit may be answered first, and would end the next one,
    which has the same id and epoch."""
    answered, asked_for = asyncio.Event(), target.coordinator.end_transaction

    async def slow(name, producer, *, commit):
        await asked_for(name, producer, commit=commit)
        await answered.wait()

    target.coordinator.end_transaction = slow
    first, second = target.write(A), None
    async with asyncio.timeout(20):
        while not target.coordinator.ends():
            await asyncio.sleep(0.001)
        second = target.write(B)
        closing = asyncio.create_task(target.transactions.abort_open())
        await asyncio.sleep(0)
        answered.set()
        await closing
        await first
        await asyncio.sleep(0.05)
    assert [call[2] for call in target.coordinator.calls if call[0] == "add"] == [[A, PROGRESS]]
    assert not second.done()


async def test_a_partition_without_answers_costs_the_others_one_transaction(target):
    target.silent.add(B)
    stuck, other = target.write(B), target.write(A)
    assert await outcome(other) is AbortedError
    assert await outcome(stuck) is AbortedError
    assert target.coordinator.ends() == ["abort"]
    target.open(A), target.open(B)
    target.write(B)
    copied = await within(target.write(A))
    assert copied.records == 3
    assert target.coordinator.calls[-2] == ("add", "link", [A, PROGRESS])  # b is left out for a while


async def test_a_silent_broker_is_left_out_with_all_that_it_leads_and_soon(monkeypatch):
    monkeypatch.setattr(transactional, "_HELD_UP_S", 0.1)
    target = Target(end_s=30)
    task = asyncio.create_task(target.transactions.run())
    try:
        target.silent |= {B, C}
        lost, other = target.write(B), target.write(A)
        target.lanes[B].leader = 2
        assert await outcome(other) is AbortedError
        assert await outcome(lost) is AbortedError
        target.open(A)
        target.open(C).leader = 2
        target.write(C)  # of the same broker, never tried
        assert (await within(target.write(A))).records == 3
        assert target.coordinator.calls[-2] == ("add", "link", [A, PROGRESS])
        assert target.coordinator.ends() == ["abort", "commit"]
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("leader", [1, 2])
def test_a_partition_that_answers_slowly_is_copied_although_it_was_left_out_once(leader):
    """Its answers take 2.5 s, at a broker that has others as well or at one of its own: less than it has in a
    first transaction. One that took too long (a pause of the broker) must not leave it a second for ever."""
    assert run_jumping(_copied_slowly(leader)) < 120


async def _copied_slowly(leader):
    target, loop = Target(end_s=10, interval_s=0.2), asyncio.get_running_loop()
    works = (target.transactions.run(), _written_all_the_time(target))
    tasks = [asyncio.create_task(work) for work in works]
    target.silent.add(A)
    try:
        target.open(A).leader = leader
        assert await outcome(target.write(A)) is AbortedError
        target.silent.clear()
        target.slow[A] = 2.5
        began = loop.time()
        while loop.time() - began < 300:
            target.open(A).leader = leader
            try:
                await target.write(A, batches=2)
            except AbortedError:
                continue
            break
        return loop.time() - began
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _written_all_the_time(target):
    while True:
        target.open(B)
        with contextlib.suppress(TransferError):
            await target.write(B)
        await asyncio.sleep(0.05)


async def test_the_end_is_asked_for_until_it_is_known(target):
    target.coordinator.end_answers = [
        ClientError("connection lost"),
        KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS),
    ]
    await within(target.write(A))
    assert target.coordinator.ends() == ["commit"] * 3


async def test_an_end_whose_answer_was_lost_is_of_another_epoch_than_the_next_transaction(target):
    """It may still be read, and would end that one in the middle (KAFKA-17754)."""
    target.coordinator.end_answers = [ClientError("connection lost")]
    await within(target.write(A))
    await within(target.write(A))
    inits = [call[2] for call in target.coordinator.calls if call[0] == "init"]
    assert inits == [None, ProducerId(7, 0)]
    assert [sequence for tp, sequence, *_ in target.log if tp == A] == [0, 0]


async def test_who_is_fenced_does_not_know_the_outcome_and_takes_an_id_that_nobody_strikes_off(target):
    target.coordinator.end_answers = [KafkaError(ErrorCode.PRODUCER_FENCED)]
    assert await outcome(target.write(A)) is OutcomeUnknownError
    assert target.journal.outcomes == [False]
    target.open(A)
    await within(target.write(A))
    inits = [call for call in target.coordinator.calls if call[0] == "init"]
    assert inits == [("init", "link", None), ("init", "link.anew-1", None)]
    assert target.journal.registered == ["link", "link.anew-1"]


async def test_an_id_that_is_another_s_when_its_next_epoch_is_asked_for_is_left(target):
    await within(target.write(A))
    target.transactions._producer.ask_for_next_epoch()
    target.coordinator.init_answers = [KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)]
    await within(target.write(A))
    inits = [call for call in target.coordinator.calls if call[0] == "init"]
    assert inits[1:] == [("init", "link", ProducerId(7, 0)), ("init", "link.anew-1", None)]
    assert target.transactions.to_json()["transactional_id"] == "link.anew-1"


async def test_who_is_fenced_takes_nothing_before_it_is_allowed_anew():
    """Another worker counts it among the dead; that this one is not has to come from the group."""
    target, allowed = Target(), [True]
    target.may_write = lambda: bool(allowed)
    target.when_fenced = allowed.clear
    target.coordinator.end_answers = [KafkaError(ErrorCode.PRODUCER_FENCED)]
    task = asyncio.create_task(target.transactions.run())
    assert await outcome(target.write(A)) is OutcomeUnknownError
    target.open(A)
    done = target.write(A)
    await asyncio.sleep(0.3)
    assert target.journal.registered == ["link"]
    allowed.append(True)
    await within(done)
    assert target.journal.registered == ["link", "link.anew-1"]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_nothing_is_taken_without_permission():
    target, allowed = Target(), []
    target.may_write = lambda: bool(allowed)
    task = asyncio.create_task(target.transactions.run())
    done = target.write(A)
    await asyncio.sleep(0.2)
    assert target.coordinator.calls == []
    allowed.append(True)
    await within(done)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_what_stands_in_a_transaction_is_not_committed_without_permission(target):
    asked_for, allowed = target.journal.batches, [True]
    target.may_write = lambda: bool(allowed)

    def paused(written):
        allowed.clear()
        return asked_for(written)

    target.journal.batches = paused
    assert await outcome(target.write(A)) is AbortedError
    assert target.coordinator.ends() == ["abort"]
    assert "may not write" in target.transactions.counts.aborted_why


async def test_the_commit_is_not_asked_for_again_without_permission(target):
    allowed = [True]
    target.may_write = lambda: bool(allowed)
    asked_for = target.coordinator.end_transaction

    async def lost(name, producer, *, commit):
        await asked_for(name, producer, commit=commit)
        allowed.clear()
        raise ClientError("connection lost")

    target.coordinator.end_transaction = lost
    assert await outcome(target.write(A)) is OutcomeUnknownError
    assert target.coordinator.ends() == ["commit"]
    target.coordinator.end_transaction = asked_for
    allowed.append(True)
    target.open(A)
    assert (await within(target.write(A))).records == 3
    assert [call for call in target.coordinator.calls if call[0] == "init"] == [
        ("init", "link", None),
        ("init", "link", ProducerId(7, 0)),  # ends what may be open
    ]


async def test_what_a_worker_had_asked_for_when_it_was_given_up_is_no_transaction_afterwards(target):
    """Its first partitions are being added: progress would be made and written once it may write again, when
    others have had the partitions."""
    asked, answer = target.coordinator.add_to_transaction, asyncio.Event()

    async def slow(name, producer, tps):
        await answer.wait()
        return await asked(name, producer, tps)

    target.coordinator.add_to_transaction = slow
    target.journal.pending = True
    target.transactions.stir()
    async with asyncio.timeout(20):
        while target.transactions._current is None:
            await asyncio.sleep(0.001)
    await asyncio.sleep(0.01)
    target.transactions.give_up("others have its partitions")
    answer.set()
    await within(target.transactions.settled())
    target.journal.pending = False
    assert target.journal.written == []
    assert (await within(target.write(A))).records == 3
    inits = [call[2] for call in target.coordinator.calls if call[0] == "init"]
    assert inits == [None, ProducerId(7, 0)]  # what was added then is over before another one begins


async def test_a_partition_whose_addition_hangs_does_not_delay_the_end_of_its_transaction():
    """Whoever gives up a partition waits until it is known what became of the transaction."""
    target = Target(interval_s=10, end_s=10)
    target.silent.add(A)
    asked, hangs, adds = target.coordinator.add_to_transaction, asyncio.Event(), asyncio.Queue()

    async def hanging(name, producer, tps):
        adds.put_nowait(set(tps))
        if B in tps:
            await hangs.wait()
        return await asked(name, producer, tps)

    target.coordinator.add_to_transaction = hanging
    task = asyncio.create_task(target.transactions.run())
    first = target.write(A)
    assert await within(adds.get()) == {A, PROGRESS}
    second = target.write(B)
    assert await within(adds.get()) == {B}
    target.transactions.give_up("others have its partitions")
    assert await outcome(first) is AbortedError
    assert target.coordinator.ends() == ["abort"]
    hangs.set()
    assert await within(adds.get()) == {B, PROGRESS}  # nothing of it was sent, so the next one has it
    inits = [call[2] for call in target.coordinator.calls if call[0] == "init"]
    assert (inits, second.done()) == ([None, ProducerId(7, 0)], False)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_commit_that_can_only_be_aborted_is_not_asked_for_again(target):
    target.coordinator.end_answers = [KafkaError(ErrorCode.TRANSACTION_ABORTABLE)]
    assert await outcome(target.write(A)) is OutcomeUnknownError
    target.open(A)
    assert (await within(target.write(A))).records == 3
    assert target.coordinator.ends() == ["commit", "commit"]


async def test_a_topic_that_is_refused_stops_alone(target):
    target.coordinator.add_answers = [
        {A: ErrorCode.TOPIC_AUTHORIZATION_FAILED, "all": ErrorCode.OPERATION_NOT_ATTEMPTED}
    ]
    refused, other = target.write(A), target.write(B)
    with pytest.raises(RefusedError, match="TOPIC_AUTHORIZATION_FAILED"):
        await within(refused)
    assert (await within(other)).records == 3


async def test_a_transaction_that_the_brokers_do_not_finish_is_left_behind(target, monkeypatch):
    monkeypatch.setattr(transactional, "STUCK_S", 0.05)
    await within(target.write(A))
    target.coordinator.add_answers = [{"all": ErrorCode.CONCURRENT_TRANSACTIONS}] * 1000
    done = target.write(A)
    while not any(call[1] == "link.1" for call in target.coordinator.calls):
        await asyncio.sleep(0.01)
    target.coordinator.add_answers.clear()
    await within(done)
    assert target.journal.registered == ["link", "link.1"]


async def test_a_partition_that_is_closed_in_the_middle_spoils_its_transaction(target):
    target.silent.add(A)
    lost, other = target.write(A), target.write(B)
    while target.transactions._current is None or target.lanes[A] not in target.transactions._current.lanes:
        await asyncio.sleep(0)
    lane = target.lanes[A]
    dirty = not lane.quiet
    lane.abandon(AbortedError("closed"))
    await within(target.transactions.closed(lane, dirty=dirty))
    assert await outcome(lost) is AbortedError
    assert await outcome(other) is AbortedError
    assert target.coordinator.ends() == ["abort"]


def test_who_is_put_aside_waits_longer_each_time():
    aside, a, b = Aside(), ProduceLane(A), ProduceLane(B)
    a.leader, b.leader = 1, 2
    assert [aside.put(A, 0.0) for _ in range(7)] == [1, 2, 4, 8, 16, 30, 30]
    assert aside.waits(a, 10.0) == 20
    assert aside.waits(b, 10.0) == 0
    aside.written(a)
    assert not aside.tried(a)
    assert not aside.holds_any
    aside.put(2, 0.0)
    assert (aside.waits(a, 0.5), aside.waits(b, 0.5), aside.tried(b)) == (0, 0.5, True)
    aside.written(b)
    assert not aside.holds_any
