"""Recognising at the target what a killed transfer had already written."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.records import decode_batches
from protocol.records.building import build_batch
from protocol.records.compression import Codec
from protocol.records.reading import read_records
from protocol.records.record import Record
from protocol.types import TopicPartition
from transfer import tail as tail_module
from transfer.endpoint import AbortedTransaction, Chunk
from transfer.offset_map import Run
from transfer.rewrite import plan, seal
from transfer.tail import TailMatcher, committed, outside_transactions

TP = TopicPartition("orders", 0)


def source(count, codec=Codec.NONE, repeat=False):
    """`count` batches of 3 records; with `repeat` all have the same content."""
    data = b"".join(
        build_batch(
            [Record(0, 5, b"k", b"same" if repeat else b"%d" % (at * 3 + i)) for i in range(3)],
            base_offset=at * 3,
            codec=codec,
        )
        for at in range(count)
    )
    return plan(Chunk(TP, memoryview(data), 0, count * 3))[0]


def at_target(outs, base, foreign=()):
    """What the target stores: the batches in order, other producers' batches before those in `foreign`."""
    data, offset = bytearray(), base
    for index, out in enumerate(outs):
        if index in foreign:
            data += build_batch([Record(0, 9, b"f", b"foreign%d" % index)], base_offset=offset)
            offset += 1
        batch = bytearray(b"".join(seal(out, 8, 0, index)))
        batch[:8] = offset.to_bytes(8, "big")
        data += batch
        offset += out.record_count
    return memoryview(bytes(data)), offset


def match(outs, tail):
    matcher = TailMatcher(outside_transactions(Chunk(TP, tail, 0, -1)))
    taken = 0
    for out in outs:
        if matcher.done or not matcher.offer(out):
            break
        taken += 1
    return matcher, taken


@given(st.integers(0, 6), st.integers(0, 6), st.sets(st.integers(0, 5)), st.booleans())
def test_exactly_what_was_written_is_recognised(total, written, foreign, repeat):
    written = min(written, total)
    outs = source(total, repeat=repeat)
    tail, _ = at_target(outs[:written], 100, foreign)
    matcher, taken = match(outs, tail)
    assert taken == written
    copied = matcher.copied()
    if not written:
        assert copied is None
        return
    assert copied is not None
    assert copied.records == 3 * written
    assert copied.next_source_offset == 3 * written
    assert matcher.left_over == len([at for at in foreign if at < written])


@given(
    st.integers(1, 12),
    st.lists(st.integers(1, 5), min_size=1, max_size=8),
    st.sets(st.integers(0, 7)),
    st.booleans(),
)
def test_parts_of_a_batch_that_was_taken_apart_are_recognised(records, parts, foreign, compressed):
    """Up to where they end; holes of compaction are in the batch."""
    codec = Codec.LZ4 if compressed else Codec.NONE
    made = [Record(10 + 2 * i + i // 3, 5, b"k", b"%d" % i) for i in range(records)]
    before = build_batch([Record(9, 5, b"k", b"before")], base_offset=9)
    batch = build_batch(made, preserve_offsets=True, codec=codec, last_offset=made[-1].offset + 4)
    outs = plan(Chunk(TP, memoryview(before + batch), 9, made[-1].offset + 5))[0]
    data, offset, written = bytearray(), 100, 0
    pieces = [[Record(9, 5, b"k", b"before")]]
    for size in parts:
        pieces += [made[written : written + size]]
        written = min(written + size, records)
    for index, piece in enumerate(piece for piece in pieces if piece):
        if index in foreign:
            data += build_batch([Record(0, 9, b"f", b"foreign%d" % index)], base_offset=offset)
            offset += 1
        data += build_batch(piece, base_offset=offset, codec=codec)
        offset += len(piece)
    matcher, taken = match(outs, memoryview(bytes(data)))
    copied = matcher.copied()
    assert copied.records == 1 + written
    end = made[-1].offset + 5 if written == records else made[written - 1].offset + 1
    assert (copied.next_source_offset, taken) == (end, 1 + (written == records))
    assert [run.source + i for run in copied.runs for i in range(run.length)] == [
        9,
        *(record.offset for record in made[:written]),
    ]
    found = {record.offset: record.value for record in decode_batches(bytes(data))}
    assert [found[run.target + i] for run in copied.runs for i in range(run.length)] == [
        b"before",
        *(record.value for record in made[:written]),
    ]


def test_runs_name_the_places_at_the_target():
    outs = source(2)
    tail, _ = at_target(outs, 50, foreign={1})
    matcher, _ = match(outs, tail)
    assert matcher.copied().runs == (Run(0, 50, 3), Run(3, 54, 3))


def test_a_target_that_compressed_anew_is_compared_record_by_record():
    outs = source(2)
    packed = source(2, codec=Codec.ZSTD)
    tail, _ = at_target(packed, 0)
    assert match(outs, tail)[1] == 2


def test_other_data_is_not_taken_for_ours():
    tail, _ = at_target(source(3, repeat=True), 0)
    matcher, taken = match(source(3), tail)
    assert (taken, matcher.copied(), matcher.left_over) == (0, None, 3)


def test_what_is_committed_is_known_by_what_readers_are_told():
    """A copy at least once takes no batch of a transaction for its own, one exactly once those of any."""
    tail, offset, placed = b"", 100, {}
    for name, producer, transactional, key in (
        ("before", 5, True, None),
        ("plain", -1, False, None),
        ("aborted", 7, True, None),
        ("committed", 8, True, None),
        ("abort", 7, True, b"\0\0\0\0"),
        ("commit", 8, True, b"\0\0\0\1"),
        ("next of the same", 7, True, None),
    ):
        placed[offset] = name
        tail += build_batch(
            [Record(0, 5, key or b"k", name.encode())],
            base_offset=offset,
            producer_id=producer,
            producer_epoch=0 if transactional else -1,
            transactional=transactional,
            control=key is not None,
        )
        offset += 1
    chunk = Chunk(TP, memoryview(tail), 101, offset, aborted=(AbortedTransaction(7, 102),))
    assert [placed[at.header.base_offset] for at in committed(chunk)] == [
        "plain",
        "committed",
        "next of the same",
    ]
    assert [placed[at.header.base_offset] for at in outside_transactions(chunk)] == ["plain"]


@pytest.mark.parametrize("placed", [committed, outside_transactions])
def test_a_batch_of_which_the_cleaner_left_no_record_is_nothing_to_compare_with(placed):
    """Kafka keeps it for its producer's state; it may be the last one that stands there."""
    empty = build_batch([], base_offset=100, last_offset=102, preserve_offsets=True)
    (out,) = source(1)
    matcher = TailMatcher(placed(Chunk(TP, memoryview(empty), 100, 103)))
    assert not matcher.offer(out)
    assert (matcher.copied(), matcher.left_over) == (None, 0)
    batch = bytearray(b"".join(seal(out, 8, 0, 0)))
    batch[:8] = (103).to_bytes(8, "big")
    matcher = TailMatcher(placed(Chunk(TP, memoryview(empty + batch + empty), 100, 106)))
    assert matcher.offer(out)
    assert matcher.done


def test_records_in_front_of_the_tail_are_not_taken_for_what_comes_next():
    """The ledger ends within a batch of the target, and what comes next says the same as what it has."""
    batch = build_batch([Record(0, 5, b"k", b"same")] * 2, base_offset=100)
    tail = Chunk(TP, memoryview(batch), 101, 102)

    def found(records):
        data = build_batch([Record(0, 5, b"k", b"same")] * records)
        ((out,), _) = plan(Chunk(TP, memoryview(data), 0, records))
        matcher = TailMatcher(outside_transactions(tail))
        return matcher.offer(out), matcher.copied()

    assert found(2) == (False, None)
    assert found(3) == (False, None)
    recognised, copied = found(1)
    assert recognised
    assert copied.runs == (Run(0, 101, 1),)


def test_how_much_of_what_the_cleaner_left_of_a_batch_is_in_front_of_the_tail_nobody_tells():
    left = [Record(100, 5, b"k", b"0"), Record(104, 5, b"k", b"1")]
    batch = build_batch(left, base_offset=100, last_offset=104, preserve_offsets=True)
    assert list(outside_transactions(Chunk(TP, memoryview(batch), 101, 105))) == []
    (placed,) = outside_transactions(Chunk(TP, memoryview(batch), 100, 105))
    assert placed.before == 0


@pytest.mark.parametrize("others", [1, 40])
def test_what_others_wrote_is_looked_at_no_further_than_it_takes(
    others: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their batches, many and small or large, stand where the link had nothing: each opening reads them."""
    decoded = 0

    def counted(*what: Any, **how: Any) -> Iterator[Record]:
        nonlocal decoded
        for record in read_records(*what, **how):
            decoded += 1
            yield record

    monkeypatch.setattr(tail_module, "read_records", counted)
    data = build_batch([Record(0, 5, b"k", b"%d" % at) for at in range(30)])
    ((out,), _) = plan(Chunk(TP, memoryview(data), 0, 30))
    tail = b"".join(
        build_batch([Record(0, 9, b"f", b"foreign")] * others, base_offset=at * others) for at in range(100)
    )
    matcher, _ = match([out], memoryview(tail))
    assert (matcher.copied(), matcher.left_over) == (None, 100)
    assert decoded <= 30 + 100
