"""Refused batches: what the target takes of them is written in order, the rest is put aside or stops."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.client import ClientError, Isolation
from protocol.client.retry import NO_RETRIES, RetryPolicy
from protocol.errors import ErrorCode, KafkaError
from protocol.records import Record, build_batch, decode_batches
from protocol.records.header import read_header
from protocol.types import TopicPartition
from replicator.dead_letters import DeadLetters
from replicator.refused import RefusedBatches
from replicator.settings import ClusterEnd, LinkSettings
from transfer.endpoint import RefusedError
from transfer.ledger import Copied, Gap, Lineage, PartitionLedger
from transfer.offset_map import OffsetMap

TP = TopicPartition("orders", 0)
BEFORE = 7
"""Records at the target before the batch."""


class Source:
    """`before`: batches that stand before that of `records`; `aborted`: as a Fetch answer has them."""

    def __init__(self, records, before=(), aborted=()):
        batch = build_batch(records, preserve_offsets=True, last_offset=records[-1].offset + 2)
        self.batches, self.aborted = [*before, batch], aborted

    async def fetch(self, tp, offset, *, isolation, **_):
        assert isolation is Isolation.READ_COMMITTED
        found = next(each for each in self.batches if read_header(each).next_offset > offset)
        return SimpleNamespace(records=memoryview(found), aborted=self.aborted)


class Target:
    """Takes no batch longer than `limit`; loses the answer of the write number `lost`."""

    retry = NO_RETRIES

    def __init__(self, limit, lost=-1):
        self.limit, self.lost = limit, lost
        self.log, self.sequences, self.asked = [], [], 0

    async def init_producer_id(self):
        return 40, 0

    async def produce(self, tp, batch, *, retry=None):
        if len(batch) > self.limit:
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, "too large")
        self.asked += 1
        if self.asked == self.lost:
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "not now")
        base = BEFORE + len(self.log)
        self.sequences.append(read_header(batch).base_sequence)
        self.log += [record.value for record in decode_batches(batch)]
        return base


class Letters:
    topic = "dead"

    def __init__(self):
        self.records = []

    async def bury(self, record, ledger, why):
        self.records.append(record.value)


def ledger():
    source, target = Lineage("c1", "t1", *TP), Lineage("c2", "t2", "east.orders", 0)
    return PartitionLedger(source, target, OffsetMap(100, BEFORE))


def book_of(made):
    def book(done):
        assert isinstance(done, Gap | Copied)
        if isinstance(done, Copied):
            assert done.first_source_offset == made.next_source_offset
        (made.add_gap if isinstance(done, Gap) else made.add)(done)

    return book


async def settle(records, target, letters, made, code=ErrorCode.MESSAGE_TOO_LARGE, source=None):
    refused = RefusedError(TP, records[0].offset, "too large", int(code))
    return await RefusedBatches(source or Source(records), target, letters).settle(
        made, refused, book_of(made)
    )


@st.composite
def batches(draw):
    sizes = draw(st.lists(st.sampled_from([1, 50, 400]), min_size=1, max_size=12))
    holes = draw(st.lists(st.integers(1, 2), min_size=len(sizes), max_size=len(sizes)))
    offset, records = 100, []
    for number, (size, step) in enumerate(zip(sizes, holes, strict=True)):
        records.append(Record(offset, 1, None, b"%d:" % number + bytes(size)))
        offset += step
    return records


@given(batches(), st.sampled_from([150, 300, 700]))
async def test_what_fits_is_written_in_order_and_the_rest_is_put_aside(records, limit):
    target, letters, made = Target(limit), Letters(), ledger()
    assert await settle(records, target, letters, made)
    alone = len(records) == 1
    fits = [r.value for r in records if not alone and len(build_batch([r])) <= limit]
    assert target.log == fits
    assert letters.records == [r.value for r in records if r.value not in fits]
    assert made.next_source_offset == records[-1].offset + 3  # behind the batch, as its header says
    for place, value in enumerate(fits):
        offset = next(r.offset for r in records if r.value == value)
        assert made.runs.to_target(offset).offset == BEFORE + place
    missing = {r.offset for r in records if r.value not in fits}
    assert all(any(gap.start <= offset < gap.end for gap in made.gaps) for offset in missing)
    assert target.sequences == sorted(target.sequences)


async def test_without_dead_letters_it_stops_before_the_refused_record():
    records = [Record(100 + n, 1, None, bytes(400 if n == 3 else 1)) for n in range(6)]
    target, made = Target(300), ledger()
    assert not await settle(records, target, None, made)
    assert len(target.log) == 3
    assert made.next_source_offset == 103
    assert made.gaps == []


async def test_nothing_is_written_of_a_batch_behind_records_that_the_book_knows_nothing_of():
    """They are not in it any more because their transaction was aborted, say: they are copied first."""
    before = build_batch([Record(100, 1, None, b"before")], base_offset=100)
    records = [Record(101 + n, 1, None, b"%d" % n) for n in range(4)]
    target, letters, made = Target(10_000), Letters(), ledger()
    assert await settle(records, target, letters, made, source=Source(records, [before]))
    assert (target.log, letters.records, made.next_source_offset) == ([], [], 100)


async def test_markers_and_aborted_records_before_the_batch_are_passed():
    producer = {"producer_id": 9, "producer_epoch": 0, "transactional": True}
    before = [
        build_batch([Record(100, 1, None, b"aborted")], base_offset=100, **producer),
        build_batch([Record(101, 1, b"\0\0\0\0", b"")], base_offset=101, control=True, **producer),
    ]
    records = [Record(102 + n, 1, None, b"%d" % n) for n in range(4)]
    target, made = Target(10_000), ledger()
    source = Source(records, before, [(9, 100)])
    assert await settle(records, target, None, made, source=source)
    assert target.log == [r.value for r in records]
    assert (made.next_source_offset, made.records) == (108, 4)


@pytest.mark.parametrize("code", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.NONE])
async def test_other_refusals_are_left_alone(code):
    records = [Record(100, 1, None, b"x"), Record(101, 1, None, b"y")]
    target, letters = Target(10_000), Letters()
    assert not await settle(records, target, letters, ledger(), code)
    assert (target.log, letters.records) == ([], [])


async def test_records_that_the_link_marks_or_leaves_out_are_so_here_too():
    records = [Record(100 + n, 1, None, b"%d" % n) for n in range(4)]
    target, made = Target(10_000), ledger()

    def stamp(record, topic):
        assert topic == TP.topic
        return None if record.offset == 102 else replace(record, value=b"seen " + record.value)

    refused = RefusedError(TP, 100, "too large", int(ErrorCode.MESSAGE_TOO_LARGE))
    assert await RefusedBatches(Source(records), target, None, stamp).settle(made, refused, made.add)
    assert target.log == [b"seen 0", b"seen 1", b"seen 3"]
    assert await RefusedBatches(Source(records), target, None, lambda *_: None).settle(
        ledger(), refused, lambda done: None
    )
    assert (made.next_source_offset, made.left_out) == (106, 1)


@pytest.mark.parametrize("lost", range(1, 9))
async def test_trouble_half_way_loses_and_repeats_nothing(lost):
    """Nor is a record put aside that was refused only together with others."""
    records = [Record(100 + n, 1, None, b"%d" % n) for n in range(8)]
    target, letters, made = Target(75, lost=lost), Letters(), ledger()
    with pytest.raises(KafkaError):
        await settle(records, target, letters, made)
    assert await settle(records, target, letters, made)
    assert target.log == [r.value for r in records]
    assert letters.records == []


async def test_a_gap_is_stored_before_what_is_behind_it_is_written():
    """A link that is killed then finds in the target's tail no part that it cannot place."""
    records = [Record(100 + n, 1, None, bytes(400 if n == 3 else 1)) for n in range(6)]
    target, letters, made, stored = Target(300), Letters(), ledger(), []

    async def store():
        stored.append((len(target.log), made.next_source_offset))

    refused = RefusedError(TP, 100, "too large", int(ErrorCode.MESSAGE_TOO_LARGE))
    assert await RefusedBatches(Source(records), target, letters).settle(made, refused, book_of(made), store)
    assert (stored, len(target.log)) == ([(3, 104)], 5)


class LettersTarget:
    """Has the topics of `there`; makes one only where `makes`; takes letters where `takes`."""

    def __init__(self, there=(), makes=True, takes=True):
        self.there, self.makes, self.takes, self.letters = set(there), makes, takes, []
        self.asked = 0

    async def metadata(self, topics):
        self.asked += 1
        return SimpleNamespace(topics={one: SimpleNamespace(error=0) for one in topics if one in self.there})

    async def create_topics(self, topics):
        if not self.makes:
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        assert topics[0].configs["cleanup.policy"] == "delete"
        self.there.add(topics[0].name)

    async def produce(self, tp, batch):
        if not self.takes:
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE)
        if tp.topic not in self.there:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self.letters += decode_batches(batch)


LINK = LinkSettings(
    source=ClusterEnd(alias="east", bootstrap="e:1"), target=ClusterEnd(alias="west", bootstrap="w:1")
)


async def test_a_dead_letter_topic_is_made_again_and_needs_no_right_to_where_somebody_has_made_it():
    record = Record(107, 1, b"k", b"v", [("own", b"1")])
    target = LettersTarget()
    letters = DeadLetters(target, LINK)
    await letters.bury(record, ledger(), "too large")
    target.there.clear()
    await letters.bury(record, ledger(), "too large")
    target.makes = False
    await letters.bury(record, ledger(), "too large")
    assert [dict(one.headers)["isthmus.source.offset"] for one in target.letters] == [b"107"] * 3
    assert target.letters[0].headers[0] == ("own", b"1")


async def test_a_dead_letter_topic_is_asked_for_once_and_again_where_it_has_gone():
    record, target = Record(107, 1, b"k", b"v"), LettersTarget()
    letters = DeadLetters(target, LINK)
    for letter, asked in enumerate([1, 1, 1, 2, 2], 1):
        if letter == 4:
            target.there.clear()
        await letters.bury(record, ledger(), "too large")
        assert (len(target.letters), target.asked) == (letter, asked)
    target.there.clear()
    target.makes = False
    with pytest.raises(KafkaError, match="no dead letter can be written"):
        await letters.bury(record, ledger(), "too large")
    target.makes = True  # what was not found is asked for again
    await letters.bury(record, ledger(), "too large")
    assert len(target.letters) == 6


@pytest.mark.parametrize("target", [LettersTarget(makes=False), LettersTarget(takes=False)])
async def test_a_dead_letter_that_cannot_be_written_names_the_topic(target):
    with pytest.raises(KafkaError, match=rf"dead letter can be written to {LINK.dead_letter_topic}"):
        await DeadLetters(target, LINK).bury(Record(0, 1, None, b"v"), ledger(), "too large")
    assert target.letters == []


@pytest.mark.parametrize("number", [1, 2, 5])
async def test_a_worker_that_may_not_write_any_more_writes_no_part_and_does_not_try_again(number):
    """The answer of a write is lost, and with it the permit; the partition is another worker's soon."""
    records = [Record(100 + n, 1, None, bytes(120 if n == 7 else 1)) for n in range(8)]
    target, letters, allowed = Target(150), Letters(), [True]
    asked, produce = [], target.produce
    target.retry = RetryPolicy(first_wait_s=0.01)

    async def lost(tp, batch, *, retry=None):
        asked.append(bool(allowed))
        if len(asked) == number:
            allowed.clear()
            raise ClientError("connection lost")
        return await produce(tp, batch)

    target.produce = lost
    refused = RefusedError(TP, 100, "too large", int(ErrorCode.MESSAGE_TOO_LARGE))
    batches = RefusedBatches(Source(records), target, letters, None, lambda: bool(allowed))
    made = ledger()
    settling = asyncio.create_task(batches.settle(made, refused, book_of(made)))
    await asyncio.sleep(0.5)
    assert not settling.done()
    assert asked == [True] * number
    assert letters.records == []
    allowed.append(True)  # it was heard in time after all
    assert await settling
    assert target.log == [r.value for r in records[:-1]]
    assert letters.records == [records[-1].value]
    assert all(asked)
