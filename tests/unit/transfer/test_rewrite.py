"""The raw lane's rules: what becomes of each kind of source batch."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.records import check_crc, read_header
from protocol.records.building import build_batch
from protocol.records.compression import Codec
from protocol.records.reading import decode_batches
from protocol.records.record import Record
from protocol.types import TopicPartition
from transfer.endpoint import AbortedTransaction, Chunk
from transfer.rewrite import DAMAGED, is_intact, next_sequence, plan, seal

TP = TopicPartition("orders", 0)

_bytes = st.one_of(st.none(), st.just(b""), st.binary(max_size=20))
_records = st.builds(
    Record,
    offset=st.just(0),
    timestamp=st.integers(-1, 2**42),
    key=_bytes,
    value=_bytes,
    headers=st.lists(st.tuples(st.text(max_size=4), _bytes), max_size=2),
)


def chunk(*batches, first=0, aborted=()):
    data = b"".join(batches)
    return Chunk(TP, memoryview(data), first, 10**9, aborted=tuple(aborted))


def records(*offsets, time=1000):
    return [Record(o, time + o, b"k%d" % o, b"v%d" % o, [("h", b"x")]) for o in offsets]


def batch(*offsets, **options):
    return build_batch(records(*offsets), preserve_offsets=True, **options)


def marker(offset, producer, *, commit):
    key = b"\0\0" + int(commit).to_bytes(2, "big")
    made = Record(offset, 1000, key, b"\0\0\0\0\0\0")
    options = {"transactional": True, "control": True, "preserve_offsets": True}
    return build_batch([made], producer_id=producer, producer_epoch=0, **options)


def sealed(out, producer=77, epoch=3, sequence=9):
    head, payload = seal(out, producer, epoch, sequence)
    return head + bytes(payload)


def content(made):
    return [(r.timestamp, r.key, r.value, r.headers) for r in made]


@given(st.lists(_records, min_size=1, max_size=6), st.sampled_from(list(Codec)), st.integers(0, 2**40))
def test_a_whole_batch_keeps_every_record_and_gets_a_producers_header(made, codec, base):
    source = build_batch(made, codec=codec, base_offset=base, leader_epoch=7, producer_id=5, base_sequence=1)
    planned, refusal = plan(chunk(source, first=base))
    assert refusal is None
    (out,) = planned
    assert out.sources == ((base, len(made)),)
    assert out.next_source_offset == base + len(made)
    target = sealed(out)
    header = read_header(target)
    assert check_crc(target, 0, header)
    assert (header.base_offset, header.leader_epoch) == (0, -1)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 3, 9)
    assert content(decode_batches(target)) == content(made)
    assert bytes(out.payload) == source[61:]


def test_a_batch_with_holes_is_built_again_alone_and_its_runs_tell_the_holes():
    planned, refusal = plan(chunk(batch(0, 1), batch(2, 5, 6, 9, codec=Codec.LZ4), batch(10)))
    assert refusal is None
    assert [out.sources for out in planned] == [((0, 2),), ((2, 1), (5, 2), (9, 1)), ((10, 1),)]
    header = read_header(sealed(planned[1]))
    assert (header.record_count, header.last_offset_delta, header.codec) == (4, 3, Codec.LZ4)
    assert content(decode_batches(sealed(planned[1]))) == content(records(2, 5, 6, 9))


def test_a_batch_with_holes_keeps_names_of_headers_that_are_no_text():
    odd = [Record(n, 1000, b"k", b"v", [(b"caf\xe9".decode(errors="surrogateescape"), b"x")]) for n in (0, 2)]
    planned, refusal = plan(chunk(build_batch(odd, preserve_offsets=True)))
    assert refusal is None
    assert b"\x08caf\xe9" in bytes(planned[0].payload)


def test_a_batch_that_lost_its_last_records_ends_where_its_header_says():
    planned, _ = plan(chunk(batch(0, 1, last_offset=8)))
    assert planned[0].next_source_offset == 9
    assert planned[0].sources == ((0, 2),)


def test_batches_without_records_are_stepped_over():
    empty = build_batch([], base_offset=3, last_offset=5)
    planned, refusal = plan(chunk(empty, batch(6)))
    assert (len(planned), refusal) == (1, None)


def test_only_wanted_records_of_the_first_batch_are_taken():
    planned, _ = plan(chunk(batch(0, 1), batch(2, 3, 4), first=3))
    assert [out.sources for out in planned] == [((3, 2),)]
    assert content(decode_batches(sealed(planned[0]))) == content(records(3, 4))


def test_append_time_becomes_the_time_of_each_record():
    planned, _ = plan(chunk(batch(0, 1, 2, timestamp_type=1)))
    target = sealed(planned[0])
    assert read_header(target).timestamp_type == 0
    assert [r.timestamp for r in decode_batches(target)] == [1002, 1002, 1002]


def test_committed_transactions_lose_their_bit_aborted_ones_and_markers_are_dropped():
    def transactional(*offsets, producer):
        return batch(*offsets, transactional=True, producer_id=producer, producer_epoch=0, base_sequence=0)

    data = [
        transactional(0, 1, producer=1),
        transactional(2, 3, producer=2),
        batch(4),
        marker(5, 2, commit=False),
        marker(6, 1, commit=True),
        transactional(7, producer=2),
        marker(8, 2, commit=True),
    ]
    planned, refusal = plan(chunk(*data, aborted=[AbortedTransaction(2, 2)]))
    assert refusal is None
    assert [out.sources for out in planned] == [((0, 2),), ((4, 1),), ((7, 1),)]
    assert not any(read_header(sealed(out)).is_transactional for out in planned)


def test_damage_stops_before_the_bad_batch_and_says_where():
    bad = bytearray(batch(2, 3))
    bad[70] ^= 1
    planned, refusal = plan(chunk(batch(0, 1), bytes(bad), batch(4)))
    assert [out.sources for out in planned] == [((0, 2),)]
    assert refusal is not None
    assert refusal.offset == 2


_LONG = b"0123456789abcdef" * 1000


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize("hurt", [None, 21, 23, 27, 43, 60, 61, -1])
def test_a_large_batch_is_not_read_and_what_does_not_fit_its_checksum_does_not_fit_the_new_one(codec, hurt):
    """Of the header: attributes, last offset delta, base timestamp, producer id and number of records."""
    made = [Record(offset, 1000, b"%d" % offset, os.urandom(4000) + _LONG) for offset in range(5)]
    source = bytearray(build_batch(made, codec=codec, producer_id=9, producer_epoch=1, base_sequence=3))
    if hurt is not None:
        source[hurt] ^= 0x40 if hurt == 23 else 4
    planned, refusal = plan(chunk(bytes(source)))
    if refusal is not None:  # the careful way was taken
        assert (hurt, refusal.offset, refusal.reason) == (hurt, 0, DAMAGED)
        return
    (out,) = planned
    assert out.source_head >= 0
    whole = memoryview(sealed(out))
    assert is_intact((whole[:61], whole[61:])) is (hurt is None)
    assert check_crc(whole, 0, read_header(whole)) is (hurt is None)


def test_old_formats_are_refused_with_advice():
    old = bytearray(batch(2, 3))
    old[16] = 1
    planned, refusal = plan(chunk(batch(0, 1), bytes(old)))
    assert len(planned) == 1
    assert refusal is not None
    assert "magic 1" in refusal.reason


def test_a_torn_last_batch_waits_for_the_next_chunk():
    planned, refusal = plan(chunk(batch(0, 1), batch(2, 3)[:-1]))
    assert (len(planned), refusal) == (1, None)


@pytest.mark.parametrize(("sequence", "count", "after"), [(0, 5, 5), (2**31 - 1, 1, 0), (2**31 - 2, 5, 3)])
def test_sequences_wrap(sequence, count, after):
    assert next_sequence(sequence, count) == after


_kinds = st.lists(
    st.sampled_from(
        ["plain", "lz4", "holes", "append time", "transaction", "commit", "abort", "damaged", "torn"]
    ),
    max_size=8,
)


@given(_kinds, st.integers(0, 6))
def test_batches_that_need_no_second_look_are_planned_as_by_looking_twice(kinds, first):
    made, offset = [], 0
    for kind in kinds:
        if kind in ("commit", "abort"):
            made.append(marker(offset, 2, commit=kind == "commit"))
            offset += 1
            continue
        options = {
            "lz4": {"codec": Codec.LZ4},
            "append time": {"timestamp_type": 1},
            "transaction": {"transactional": True, "producer_id": 2, "producer_epoch": 0},
        }.get(kind, {})
        data = bytearray(batch(offset, offset + (2 if kind == "holes" else 1), **options))
        if kind == "damaged":
            data[-1] ^= 1
        made.append(bytes(data[:-1] if kind == "torn" else data))
        offset += 3 if kind == "holes" else 2
    given_chunk = chunk(*made, first=first, aborted=[AbortedTransaction(2, 0)])
    quick = plan(given_chunk)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("transfer.rewrite._plain", lambda chunk, planned, merge: 0)
        assert plan(given_chunk) == quick
