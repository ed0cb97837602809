"""The first committed record of a time, among markers and aborted records."""

import struct

import pytest

from protocol.client import Fetched, ListedOffset
from protocol.records import Codec, Record, build_batch
from protocol.records.header import read_header
from protocol.types import TopicPartition
from replicator.by_time import Place, first_record, nothing_between
from transfer.endpoint import AbortedTransaction, Chunk

TP = TopicPartition("east.orders", 0)


def data(offset, *times, producer=-1, codec=Codec.NONE):
    return build_batch(
        [Record(0, time, b"k", b"v") for time in times],
        base_offset=offset,
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        base_sequence=0 if producer >= 0 else -1,
        transactional=producer >= 0,
        codec=codec,
    )


def marker(offset, time, producer, *, commit):
    return build_batch(
        [Record(0, time, struct.pack(">hh", 0, int(commit)), struct.pack(">hi", 0, 0))],
        base_offset=offset,
        producer_id=producer,
        producer_epoch=0,
        transactional=True,
        control=True,
    )


def chunk(*batches, first=0, aborted=()):
    joined = memoryview(b"".join(bytes(one) for one in batches))
    return Chunk(TP, joined, first, 99, aborted=tuple(AbortedTransaction(*one) for one in aborted))


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_the_first_record_of_the_time_is_found_inside_its_batch(codec):
    log = chunk(data(0, 10, 20), data(2, 30, 25, 40, codec=codec))
    for time, place in [(0, (0, 10)), (11, (1, 20)), (21, (2, 30)), (31, (4, 40))]:
        assert first_record(log, time) == Place(*place)
    assert first_record(log, 41) is None


def test_records_before_the_place_that_was_asked_for_are_not_looked_at():
    assert first_record(chunk(data(0, 50, 20, 60), first=1), 50) == Place(2, 60)


def test_a_marker_has_the_time_of_its_commit_and_is_no_record():
    log = chunk(data(0, 10, producer=1), marker(1, 900, 1, commit=True), data(2, 20, 500), first=1)
    assert first_record(log, 300) == Place(3, 500)


def test_aborted_records_do_not_count():
    log = chunk(
        data(0, 50, producer=1),
        data(1, 60, producer=2),
        marker(2, 61, 1, commit=False),
        data(3, 70, producer=1),
        aborted=[(1, 0)],
    )
    assert first_record(log, 50) == Place(1, 60)
    assert first_record(log, 61) == Place(3, 70)


class Log:
    """A client of a cluster with one partition; its stable end is where the last batch ends."""

    def __init__(self, *batches, aborted=()):
        self._batches, self._aborted = [bytes(one) for one in batches], tuple(aborted)
        self._ends = [read_header(one).next_offset for one in self._batches]

    async def list_offsets(self, spots, **_):
        return {tp: ListedOffset(self._ends[-1], -1, -1) for tp in spots}

    async def fetch(self, tp, offset, **_):
        one = next(batch for batch, end in zip(self._batches, self._ends, strict=True) if offset < end)
        end = self._ends[-1]
        return Fetched(tp, memoryview(one), end, end, 0, aborted=self._aborted)


async def test_behind_the_last_record_markers_and_aborted_records_are_nothing():
    """Two transactions at the end of a link's target: who has read all stands behind the second marker."""
    log = Log(
        data(0, 50, 60, producer=1),
        marker(2, 61, 1, commit=True),
        data(3, 70, producer=1),
        marker(4, 71, 1, commit=False),
        aborted=[(1, 3)],
    )
    for begin, end, nothing in [(2, 3, True), (2, 4, True), (2, 5, True), (1, 3, False), (1, 2, False)]:
        assert await nothing_between(log, TP, begin, end) is nothing
    assert not await nothing_between(log, TP, 2, 6)  # so far the log does not go


async def test_behind_the_last_record_of_a_link_somebody_else_wrote():
    log = Log(
        data(0, 50, producer=1), marker(1, 61, 1, commit=True), data(2, 70), marker(3, 71, 1, commit=True)
    )
    assert [await nothing_between(log, TP, 1, end) for end in (2, 3, 4)] == [True, False, False]
