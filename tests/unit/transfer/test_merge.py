"""Small batches that become one: every record, its time, its place and its checksum survive."""

import crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.records import HEADER_SIZE, check_crc, read_header
from protocol.records.building import build_batch
from protocol.records.compression import Codec
from protocol.records.reading import decode_batches
from protocol.records.record import Record
from protocol.types import TopicPartition
from transfer.endpoint import Chunk
from transfer.merge import FEW, MOST_BYTES, MOST_UNPACKED, SMALL
from transfer.rewrite import plan, seal
from transfer.tail import TailMatcher, outside_transactions

TP = TopicPartition("orders", 0)

_bytes = st.one_of(st.none(), st.just(b""), st.binary(max_size=90))
_records = st.builds(
    Record,
    offset=st.just(0),
    timestamp=st.one_of(st.integers(-1, 2**42), st.integers(10**12, 10**12 + 50)),
    key=_bytes,
    value=_bytes,
    headers=st.lists(st.tuples(st.text(max_size=4), _bytes), max_size=2),
)


JOINED = [Codec.NONE, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]


def stored(batches, base=0, codec=Codec.NONE, epoch=7, plain=()):
    """Batches as a log holds them, one behind the other; those numbered in `plain` are not compressed."""
    data = b""
    for number, made in enumerate(batches):
        used = Codec.NONE if number in plain else codec
        data += build_batch(made, base_offset=base, codec=used, leader_epoch=epoch, producer_id=5)
        base += len(made)
    return data


def planned(data, first=0, merge=True):
    outs, refusal = plan(Chunk(TP, memoryview(data), first, 10**9), merge=merge)
    assert refusal is None
    return outs


def sealed(out, sequence=0):
    return b"".join(map(bytes, seal(out, 77, 3, sequence)))


def content(made):
    return [(r.timestamp, r.key, r.value, r.headers) for r in made]


def one(number, size=20, time=10**12):
    return [Record(0, time + number, b"k%d" % number, b"x" * size)]


@given(
    st.lists(st.lists(_records, min_size=1, max_size=3), min_size=2, max_size=12),
    st.integers(0, 2**40),
    st.sampled_from(JOINED),
    st.sets(st.integers(0, 11)),
)
def test_records_times_offsets_and_checksums_survive(batches, base, codec, plain):
    data = stored(batches, base, codec, plain=plain)
    outs = planned(data, base)
    apart = planned(data, base, merge=False)
    assert len(outs) == 1
    (out,) = outs
    made = sealed(out)
    header = read_header(made)
    assert check_crc(made, 0, header)
    assert header.size == len(made)
    read = list(decode_batches(made))
    assert content(read) == content([record for batch in batches for record in batch])
    assert [record.offset for record in read] == list(range(len(read)))
    assert header.max_timestamp == max(record.timestamp for record in read)
    assert out.sources == ((base, len(read)),)
    assert out.next_source_offset == base + len(read)
    assert out.source_crcs == tuple(crc for each in apart for crc in each.source_crcs)
    assert out.source_size == len(data)
    assert header.codec == (codec if len(plain.intersection(range(len(batches)))) < len(batches) else 0)


@pytest.mark.parametrize(
    ("odd", "counts"),
    [
        ({"codec": Codec.GZIP}, [2, 1, 2]),  # packing anew costs more than it saves
        ({"transactional": True}, [2, 1, 1, 1]),  # what stands behind it is looked at one by one
    ],
)
def test_what_is_no_plain_small_batch_stays_as_it_is(odd, counts):
    parts = [build_batch(one(n), base_offset=n, producer_id=5, **(odd if n == 2 else {})) for n in range(5)]
    assert [out.record_count for out in planned(b"".join(parts))] == counts


def test_large_batches_and_batches_of_many_records_are_left_alone():
    large = stored([one(0, SMALL), one(1, SMALL), one(2, SMALL)])
    assert [out.record_count for out in planned(large)] == [1, 1, 1]
    many = stored([[record for n in range(FEW + 1) for record in one(n)]] * 3)
    assert [out.record_count for out in planned(many)] == [FEW + 1] * 3


def test_batches_of_two_codecs_are_not_mixed():
    data = stored([one(0), one(1)], codec=Codec.LZ4) + stored([one(2), one(3)], base=2, codec=Codec.ZSTD)
    assert [(out.record_count, out.attributes) for out in planned(data)] == [(2, Codec.LZ4), (2, Codec.ZSTD)]


def test_compressed_batches_that_unpack_to_much_are_left_alone():
    """A few hundred bytes each, and more than a megabyte together."""
    data = stored([one(n, 300_000) for n in range(6)], codec=Codec.ZSTD)
    assert len(data) < SMALL
    assert [out.record_count for out in planned(data)] == [3, 3]
    data = stored([one(n, MOST_UNPACKED) for n in range(3)], codec=Codec.ZSTD)
    assert [out.record_count for out in planned(data)] == [1, 1, 1]


@pytest.mark.parametrize("codec", JOINED[1:])
def test_compressed_records_that_are_damaged_are_copied_as_they_are(codec):
    """Their checksum holds, so they came like this: no link refuses what its source took."""
    parts = [bytearray(stored([one(n)], base=n, codec=codec)) for n in range(5)]
    parts[2][HEADER_SIZE + 6 :] = b"\xff" * (len(parts[2]) - HEADER_SIZE - 6)
    parts[2][17:21] = crc32c.crc32c(bytes(parts[2][21:])).to_bytes(4, "big")
    outs = planned(b"".join(map(bytes, parts)))
    assert [out.record_count for out in outs] == [2, 1, 2]
    assert bytes(outs[1].payload) == bytes(parts[2][HEADER_SIZE:])


def test_a_hole_ends_a_batch():
    data = stored([one(0), one(1)]) + stored([one(2), one(3)], base=7)
    assert [out.sources for out in planned(data)] == [((0, 2),), ((7, 2),)]


def test_a_batch_that_begins_before_the_position_is_not_joined():
    data = stored([one(0) + one(1), one(2), one(3)])
    outs = planned(data, first=1)
    assert [out.sources for out in outs] == [((1, 1),), ((2, 1),), ((3, 1),)]


def test_damage_ends_what_is_joined_and_is_named():
    data = bytearray(stored([one(n) for n in range(6)]))
    size = len(data) // 6
    data[4 * size + 70] ^= 1
    outs, refusal = plan(Chunk(TP, memoryview(data), 0, 6), merge=True)
    assert [out.record_count for out in outs] == [4]
    assert refusal is not None
    assert refusal.offset == 4


def test_one_batch_does_not_grow_without_end():
    data = stored([one(n, 100) for n in range(2000)])
    outs = planned(data)
    assert sum(out.record_count for out in outs) == 2000
    assert all(out.source_size <= MOST_BYTES for out in outs)
    assert len(outs) <= len(data) // MOST_BYTES + 2


@given(st.integers(1, 12), st.sampled_from(JOINED), st.data())
def test_what_was_joined_is_recognised_at_the_target(count, codec, data):
    batches = [one(n) for n in range(count)]
    source = stored(batches, codec=codec)
    tail, offset, left = b"", 100, batches
    while left:  # written by a link that saw them in chunks of its own
        size = data.draw(st.integers(1, len(left)))
        (out,) = planned(stored(left[:size], codec=codec))
        batch = bytearray(sealed(out))
        batch[:8] = offset.to_bytes(8, "big")
        tail, offset, left = tail + bytes(batch), offset + size, left[size:]
    matcher = TailMatcher(outside_transactions(Chunk(TP, memoryview(tail), 0, -1)))
    outs = planned(source, merge=False)
    assert all(matcher.offer(out) for out in outs)
    assert matcher.done
    assert matcher.left_over == 0
    copied = matcher.copied()
    assert copied is not None
    assert copied.records == count
    assert [(run.source, run.target) for run in copied.runs] == [(n, 100 + n) for n in range(count)]


def test_a_joined_batch_with_another_record_in_it_is_not_taken_for_ours():
    (out,) = planned(stored([one(0), one(1), one(9)]))
    batch = bytearray(sealed(out))
    batch[:8] = (100).to_bytes(8, "big")
    matcher = TailMatcher(outside_transactions(Chunk(TP, memoryview(batch), 0, -1)))
    outs = planned(stored([one(0), one(1), one(2)]), merge=False)
    assert [matcher.offer(each) for each in outs] == [True, True, False]
    assert matcher.left_over == 1
