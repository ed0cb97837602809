"""The first committed record of a time, among markers and aborted records."""

import struct

import pytest

from protocol.records import Codec, Record, build_batch
from protocol.types import TopicPartition
from replicator.by_time import Place, first_record
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
