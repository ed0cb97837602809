"""A partition's way into a cluster, against a model broker that loses, repeats and refuses."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.records import read_header
from protocol.records.building import build_batch
from protocol.records.record import Record
from protocol.types import TopicPartition
from transfer.endpoint import AbortedError, Chunk, ClosedError, DisorderError, RefusedError
from transfer.kafka.lane import MAX_IN_FLIGHT, Pending, ProduceLane, Ticket
from transfer.ledger import ProducerState
from transfer.offset_map import Run
from transfer.rewrite import plan

TP = TopicPartition("east.orders", 0)


@pytest.fixture
def loop():
    made = asyncio.new_event_loop()
    yield made
    made.close()


def ticket(loop, first, batches, per_batch=2):
    """A write of `batches` batches whose source offsets start at `first`."""
    data = b"".join(
        build_batch(
            [Record(0, 1, b"k", b"%d" % (first + at * per_batch + i)) for i in range(per_batch)],
            base_offset=first + at * per_batch,
        )
        for at in range(batches)
    )
    end = first + batches * per_batch
    made = Ticket(loop.create_future(), end, first_source_offset=first)
    outs, _ = plan(Chunk(TP, memoryview(data), first, end))
    made.batches = [Pending(out, made) for out in outs]
    return made


class Broker:
    """Sequence rules of a Kafka log (ProducerStateManager): five batches remembered, order enforced."""

    def __init__(self):
        self.log = []  # (sequence, count, payload)
        self.end = 0
        self.recent = []

    def append(self, pending):
        header = read_header(pending.segments[0] + b"")
        for sequence, base in self.recent[-5:]:
            if sequence == header.base_sequence:
                return base
        expected = (self.log[-1][0] + self.log[-1][1]) & 0x7FFFFFFF if self.log else None
        if expected is not None and header.base_sequence != expected:
            return None
        base = self.end
        self.log.append((header.base_sequence, header.record_count, bytes(pending.segments[1])))
        self.recent.append((header.base_sequence, base))
        self.end += header.record_count
        return base


@given(
    st.lists(st.sampled_from(["ok", "lost request", "lost answer"]), max_size=60),
    st.integers(1, 6),
    st.sampled_from([0, 2**31 - 4]),
)
def test_losses_at_any_point_leave_every_batch_once_and_in_order(fates, writes, sequence):
    loop = asyncio.new_event_loop()
    try:
        lane = ProduceLane(TP, ProducerState(4, 0, sequence))
        tickets = [ticket(loop, at * 6, 3) for at in range(writes)]
        offered = [bytes(p.out.payload) for one in tickets for p in one.batches]
        for one in tickets:
            lane.offer(one)
        broker, now, pending_fates = Broker(), 0.0, iter(fates)
        while not lane.idle:
            now += 10
            sent = []
            while (pending := lane.take(now)) is not None:
                sent.append(pending)
            assert 0 < len(sent) <= MAX_IN_FLIGHT
            answers = []
            lost = False
            for pending in sent:  # one connection: once it breaks, nothing later gets through
                fate = "lost request" if lost else next(pending_fates, "ok")
                base = None if fate == "lost request" else broker.append(pending)
                lost = lost or fate != "ok"
                answers.append((pending, base if fate == "ok" else None))
            for pending, base in answers:
                if base is None:
                    lane.retry(pending, now)
                else:
                    lane.acknowledged(pending, base)
        assert [payload for _, _, payload in broker.log] == offered
        runs = [run for one in tickets for run in one.done.result().runs]
        assert [run.source for run in runs] == [run.target for run in runs]
        last = tickets[-1].done.result()
        assert last.next_source_offset == writes * 6
        assert last.producer == ProducerState(4, 0, (sequence + writes * 6) & 0x7FFFFFFF)
    finally:
        loop.close()


def test_nothing_overtakes_the_first_batch_of_a_producer(loop):
    lane = ProduceLane(TP, ProducerState(1, 0, 0))
    lane.offer(ticket(loop, 0, 7))
    first = lane.take(0.0)
    assert lane.take(0.0) is None
    lane.acknowledged(first, 0)
    assert len([1 for _ in range(9) if lane.take(0.0)]) == MAX_IN_FLIGHT


def test_nothing_overtakes_the_first_batch_after_a_rest(loop):
    """A broker that has forgotten the producer refuses the first for some reason, and takes the second."""
    lane = ProduceLane(TP, ProducerState(7, 0, 0))
    for at in range(3):
        lane.offer(ticket(loop, at, 1, per_batch=1))
    first = lane.take(1000.0)
    lane.acknowledged(first, 0)
    second, third = lane.take(1000.0), lane.take(1000.0)
    lane.acknowledged(second, 1)
    lane.acknowledged(third, 2)
    for at in range(3, 6):
        lane.offer(ticket(loop, at, 1, per_batch=1))
    fourth = lane.take(1070.0)
    assert lane.take(1070.0) is None
    lane.acknowledged(fourth, 3)
    assert lane.take(1070.0) is not None
    assert lane.take(1070.0) is not None


def test_back_off_grows_and_holds_the_partition_back(loop):
    lane = ProduceLane(TP, ProducerState(1, 0, 0))
    lane.offer(ticket(loop, 0, 1))
    waits = []
    now = 0.0
    for _ in range(8):
        lane.retry(lane.take(now), now)
        assert lane.take(now) is None
        waits.append(lane.not_before - now)
        now = lane.not_before
    assert waits == sorted(waits)
    assert 0.01 < waits[0] < waits[-1] <= 2.0


def test_a_refused_batch_tells_what_was_written_before_it_and_fails_the_rest(loop):
    lane = ProduceLane(TP, ProducerState(1, 0, 10))
    one, two = ticket(loop, 0, 3), ticket(loop, 6, 1)
    lane.offer(one)
    lane.offer(two)
    lane.acknowledged(lane.take(0.0), 100)
    second, third = lane.take(0.0), lane.take(0.0)
    lane.close(RefusedError(TP, 2, "too large"), second)
    assert not one.done.done()  # the third is still on its way
    lane.retry(third, 0.0)
    error = one.done.exception()
    assert isinstance(error, RefusedError)
    assert error.copied.runs == (Run(0, 100, 2),)
    assert error.copied.next_source_offset == 2
    assert error.copied.producer == ProducerState(1, 0, 12)
    assert isinstance(two.done.exception(), ClosedError)
    late = ticket(loop, 8, 1)
    lane.offer(late)
    assert isinstance(late.done.exception(), RefusedError)


def test_a_write_without_data_is_done_in_its_turn(loop):
    lane = ProduceLane(TP, ProducerState(1, 0, 0))
    data, empty = ticket(loop, 0, 1), ticket(loop, 2, 0)
    lane.offer(data)
    lane.offer(empty)
    assert not empty.done.done()
    lane.acknowledged(lane.take(0.0), 5)
    assert empty.done.result().runs == ()
    assert empty.done.result().next_source_offset == 2


@pytest.mark.parametrize(("position", "sent"), [(0, 1), (-1, 1), (2, 0)])
def test_a_write_that_does_not_continue_the_last_is_not_sent_and_nothing_behind_it_is(loop, position, sent):
    lane = ProduceLane(TP, ProducerState(1, 0, 0), position=position)
    tickets = [ticket(loop, 0, 1), ticket(loop, 4, 1), ticket(loop, 2, 1)]
    for one in tickets:
        lane.offer(one)
    assert len([1 for _ in range(9) if lane.take(0.0)]) == sent
    refused = tickets[sent:]
    assert all(isinstance(one.done.exception(), DisorderError) for one in refused)
    assert f"ends at {2 if sent else position}; it is not sent" in str(refused[0].done.exception())


def test_a_write_with_data_accounts_for_what_was_passed_without_since_the_last_one(loop):
    lane = ProduceLane(TP, ProducerState(1, 0, 0), position=0)
    tickets = [ticket(loop, 0, 1), *(Ticket(loop.create_future(), n + 1, -1, None, n) for n in (2, 3))]
    tickets += [ticket(loop, 4, 1), ticket(loop, 6, 1)]
    for one in tickets:
        lane.offer(one)
    lane.acknowledged(lane.take(0.0), 0)
    for base in (2, 4):
        lane.acknowledged(lane.take(0.0), base)
    found = [one.done.result() for one in tickets]
    assert [(one.first_source_offset, one.next_source_offset) for one in found] == [
        (0, 2),
        (2, 3),
        (3, 4),
        (2, 6),
        (6, 8),
    ]


def test_batches_wait_in_order_for_a_producer(loop):
    lane = ProduceLane(TP)
    one, two = ticket(loop, 0, 1), ticket(loop, 2, 1)
    lane.offer(one)
    lane.offer(two)
    assert lane.take(0.0) is None
    lane.identify(ProducerState(9, 0, 4))
    first = lane.take(0.0)
    assert first is one.batches[0]
    assert read_header(first.segments[0]).base_sequence == 4


def test_a_partial_write_tells_of_the_producer_what_it_tells_of_the_position(loop):
    """One without an answer, those behind it acknowledged: who goes on at the first repeats its sequence."""
    lane = ProduceLane(TP, ProducerState(1, 0, 10))
    first, second = ticket(loop, 0, 1), ticket(loop, 2, 3)
    lane.offer(first)
    lane.acknowledged(lane.take(0), 100)
    lane.offer(second)
    sent = [lane.take(0) for _ in range(3)]
    lane.acknowledged(sent[0], 102)
    lane.acknowledged(sent[2], 106)
    lane.retry(sent[1], 0)
    lane.abandon(ClosedError("closed"))
    copied = second.done.exception().copied
    assert copied.next_source_offset == 4
    assert copied.producer == ProducerState(1, 0, 14)
    assert lane.producer == copied.producer


def test_a_new_producer_begins_with_one_batch_in_flight(loop):
    """A broker that knows nothing of it takes any sequence number, also that of a second batch whose first
    one it refuses."""
    lane = ProduceLane(TP, ProducerState(9, 0, 0))
    lane.offer(ticket(loop, 0, 1))
    lane.acknowledged(lane.take(0.0), 0)
    lane.identify(ProducerState(10, 0, 0))
    lane.offer(ticket(loop, 2, 3))
    first = lane.take(0.0)
    assert lane.take(0.0) is None
    lane.acknowledged(first, 2)
    assert lane.take(0.0) is not None


def test_a_gate_that_gives_the_lane_up_is_asked_about_what_was_written_only(loop):
    """Seen in fault runs: each write behind it was told of anew, one call deep in the other: the link ended
    with RecursionError where more than some hundred were queued."""
    told = []

    class Gate:
        def lets(self, lane, pending):
            return True

        def landed(self, lane, ticket, copied, error):
            told.append((copied.next_source_offset, type(error)))
            ticket.done.set_exception(error)
            lane.abandon(AbortedError("its transaction is given up"))

    lane = ProduceLane(TP, ProducerState(1, 0, 0), gate=Gate())
    tickets = [ticket(loop, 4 * at, 2) for at in range(500)]
    for each in tickets:
        lane.offer(each)
    lane.acknowledged(lane.take(0.0), 0)
    lane.abandon(ClosedError("closed"))
    assert told == [(2, ClosedError)]
    assert all(isinstance(each.done.exception(), ClosedError) for each in tickets)
    assert lane.idle
