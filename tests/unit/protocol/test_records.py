"""Batches built and read back, and everything a damaged or hostile one may try."""

import contextlib
import struct
import tracemalloc

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.errors import DecodeError, EncodeError
from protocol.records import (
    HEADER_SIZE,
    Codec,
    Record,
    UnsupportedMagicError,
    assign_offsets,
    build_batch,
    check_crc,
    complete_end,
    decode_batches,
    iter_headers,
    read_header,
    read_records,
    set_log_append_time,
    set_producer,
)

I64 = st.integers(-(1 << 62), (1 << 62) - 1)
BYTES = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.tuples(st.text(max_size=20), BYTES), max_size=4)
ROWS = st.lists(st.tuples(I64, BYTES, BYTES, HEADERS), min_size=1, max_size=20)
SMALL = st.none() | st.binary(max_size=12)
FEW_ROWS = st.lists(
    st.tuples(I64, SMALL, SMALL, st.lists(st.tuples(st.text(max_size=3), SMALL), max_size=2)),
    min_size=1,
    max_size=3,
)
CODECS = st.sampled_from(Codec)


def numbered(rows: list[tuple[int, bytes | None, bytes | None, list]], base: int = 0) -> list[Record]:
    return [Record(base + i, *row) for i, row in enumerate(rows)]


def resealed(batch: bytes | bytearray) -> bytes:
    """The batch with a checksum that holds, so that a test reaches what lies behind it."""
    out = bytearray(batch)
    struct.pack_into(">i", out, 8, len(out) - 12)
    struct.pack_into(">I", out, 17, crc32c(out[21:]))
    return bytes(out)


def plain_batch(payload: bytes, count: int, last_delta: int | None = None, attributes: int = 0) -> bytes:
    head = struct.pack(
        ">qiibIhiqqqhii", 0, 0, -1, 2, 0, attributes, count - 1 if last_delta is None else last_delta,
        0, 0, -1, -1, -1, count,
    )  # fmt: skip
    return resealed(head + payload)


@given(ROWS, CODECS, st.integers(0, 1 << 60), st.integers(0, 1000))
def test_what_was_built_is_read_back(rows, codec, base, epoch):
    records = numbered(rows, base)
    batch = build_batch(records, codec=codec, base_offset=base, leader_epoch=epoch)
    header = read_header(batch)
    assert list(read_records(batch, 0, header)) == records
    assert check_crc(batch, 0, header)
    assert header.size == len(batch)
    assert (header.base_offset, header.last_offset, header.leader_epoch) == (
        base,
        base + len(rows) - 1,
        epoch,
    )
    assert header.record_count == len(rows)
    assert header.max_timestamp == max(row[0] for row in rows)
    assert header.codec == codec


@given(ROWS, CODECS, st.data())
def test_holes_of_compaction_survive(rows, codec, data):
    steps = data.draw(st.lists(st.integers(1, 1000), min_size=len(rows), max_size=len(rows)))
    offset, records = 10, []
    for row, step in zip(rows, steps, strict=True):
        offset += step
        records.append(Record(offset, *row))
    batch = build_batch(records, codec=codec, base_offset=10, last_offset=offset + 7, preserve_offsets=True)
    header = read_header(batch)
    assert list(decode_batches(batch)) == records
    assert header.next_offset == offset + 8
    assert header.record_count == len(records) < header.last_offset_delta + 1


def test_a_batch_emptied_by_compaction_still_covers_its_offsets():
    batch = build_batch([], base_offset=5, last_offset=9, producer_id=3, producer_epoch=0, base_sequence=0)
    header = read_header(batch)
    assert (header.base_offset, header.next_offset, header.record_count) == (5, 10, 0)
    assert list(decode_batches(batch)) == []
    assert check_crc(batch, 0, header)


def test_header_bits_and_producer():
    batch = build_batch(
        [Record(0, 1, b"k", b"v")],
        codec=Codec.ZSTD,
        producer_id=77,
        producer_epoch=3,
        base_sequence=0x7FFF_FFFF,
        transactional=True,
        control=True,
        timestamp_type=1,
    )
    header = read_header(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 3, 0x7FFF_FFFF)
    assert header.is_transactional
    assert header.is_control
    assert header.timestamp_type == 1
    assert header.codec == Codec.ZSTD
    assert header.last_sequence == 0x7FFF_FFFF
    assert header._replace(last_offset_delta=1).last_sequence == 0
    assert list(decode_batches(batch)) == []
    assert [record.key for record in read_records(batch, 0, header)] == [b"k"]


def test_timestamps_may_lie_more_than_32_bits_apart():
    records = [Record(0, 0, None, b""), Record(1, 90 * 86_400_000, None, b""), Record(2, -1, b"", None)]
    assert list(decode_batches(build_batch(records))) == records


def test_log_append_time_replaces_all_timestamps():
    batch = bytearray(build_batch([Record(0, 5, None, b"a"), Record(1, 9, None, b"b")]))
    set_log_append_time(batch, 0, read_header(batch), 1234)
    header = read_header(batch)
    assert check_crc(batch, 0, header)
    assert header.timestamp_type == 1
    assert [record.timestamp for record in decode_batches(batch)] == [1234, 1234]


def test_offsets_are_assigned_in_place_and_the_checksum_holds():
    first = build_batch([Record(0, 5, None, b"a"), Record(1, 6, None, b"b")], codec=Codec.LZ4)
    second = build_batch([Record(0, 7, None, b"c")])
    buf = bytearray(first + second)
    assign_offsets(buf, 0, 100, 4)
    assign_offsets(memoryview(buf), len(first), 102, 4)
    for pos, header in iter_headers(buf):
        assert check_crc(buf, pos, header)
        assert header.leader_epoch == 4
    assert [record.offset for record in decode_batches(buf)] == [100, 101, 102]


def test_another_producer_in_place():
    buf = bytearray(
        build_batch(
            [Record(0, 5, None, b"a")], base_offset=9, leader_epoch=2, codec=Codec.GZIP, transactional=True
        )
    )
    set_producer(buf, 0, read_header(buf), producer_id=8, producer_epoch=1, base_sequence=40)
    header = read_header(buf)
    assert check_crc(buf, 0, header)
    assert (header.base_offset, header.leader_epoch) == (0, -1)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (8, 1, 40)
    assert not header.is_transactional
    assert header.codec == Codec.GZIP
    set_producer(buf, 0, header, producer_id=8, producer_epoch=1, base_sequence=40, transactional=True)
    assert read_header(buf).is_transactional
    assert check_crc(buf, 0, read_header(buf))


@given(st.lists(ROWS, min_size=1, max_size=4), CODECS, st.data())
def test_a_torn_tail_ends_the_walk_quietly(batches, codec, data):
    built = [build_batch(numbered(rows), codec=codec) for rows in batches]
    whole = b"".join(built)
    cut = data.draw(st.integers(0, len(whole)))
    ends = [0]
    for batch in built:
        ends.append(ends[-1] + len(batch))
    assert complete_end(whole[:cut]) == max(end for end in ends if end <= cut)
    assert len(list(iter_headers(memoryview(whole)[:cut]))) == sum(1 for end in ends[1:] if end <= cut)


@given(FEW_ROWS, CODECS)
@settings(max_examples=50)
def test_every_prefix_of_a_payload_is_refused(rows, codec):
    batch = build_batch(numbered(rows), codec=codec)
    for cut in range(HEADER_SIZE, len(batch)):
        with pytest.raises(DecodeError):
            list(decode_batches(resealed(batch[:cut])))
    for cut in range(HEADER_SIZE):
        with pytest.raises(DecodeError):
            read_header(batch[:cut])


@given(ROWS, st.sampled_from([Codec.NONE, Codec.LZ4, Codec.SNAPPY]), st.data())
@settings(max_examples=200)
def test_random_damage_raises_nothing_but_decode_errors(rows, codec, data):
    batch = bytearray(build_batch(numbered(rows), codec=codec))
    for _ in range(data.draw(st.integers(1, 4))):
        batch[data.draw(st.integers(HEADER_SIZE, len(batch) - 1))] = data.draw(st.integers(0, 255))
    try:
        records = list(decode_batches(bytes(batch)))
    except DecodeError:
        return
    assert len(records) == len(rows)


@given(st.binary(max_size=300), st.integers(-1, 1 << 31))
@settings(max_examples=300)
def test_random_payloads_raise_nothing_but_decode_errors(payload, count):
    batch = plain_batch(payload, min(count, 0x7FFF_FFFF), 5)
    with contextlib.suppress(DecodeError):
        list(decode_batches(batch))


HUGE = b"\xfe\xff\xff\xff\x0f"  # zigzag 2^31-1
HOSTILE = {
    "record size": HUGE + b"\0" * 20,
    "negative record size": b"\x03" + b"\0" * 20,
    "key size": b"\x28\0\0\0" + HUGE + b"\0" * 11,
    "key size -2": b"\x28\0\0\0\x03" + b"\0" * 20,
    "value size": b"\x28\0\0\0\x01" + HUGE + b"\0" * 11,
    "value size -2": b"\x28\0\0\0\x01\x03" + b"\0" * 20,
    "header count": b"\x28\0\0\0\x01\x01" + HUGE + b"\0" * 9,
    "negative header count": b"\x28\0\0\0\x01\x01\x01" + b"\0" * 13,
    "null header key": b"\x0e\0\0\0\x01\x01\x02\x01",
    "endless number": b"\x28\0" + b"\xff" * 18,
    "offset delta past the last": b"\x0c\0\0\x0c\x01\x01\0",
    "offset delta below zero": b"\x0c\0\0\x01\x01\x01\0",
    "shorter than it says": b"\x0e\0\0\0\x01\x01\0\0",
    "longer than it says": b"\x0a\0\0\0\x01\x01\0",
    "bytes behind the last": b"\x0c\0\0\0\x01\x01\0\0",
    "timestamp beyond 64 bits": b"\x1e\0" + b"\xfe" + b"\xff" * 8 + b"\x7f" + b"\0\x01\x01\0",
}


@pytest.mark.parametrize("payload", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_records(payload):
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError):
            list(decode_batches(plain_batch(payload, 1)))
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_names_of_headers_keep_bytes_that_are_no_text():
    """Brokers and Java's clients take them, librdkafka sends them."""
    payload = b"\x18\0\0\0\x01\x01\x04\x02\xff\x01\x02\xe9\x00"
    read = list(decode_batches(plain_batch(payload, 1)))
    assert [value for _, value in read[0].headers] == [None, b""]
    again = build_batch(read)
    assert bytes(again)[HEADER_SIZE:] == payload


def test_record_count_that_the_payload_cannot_hold():
    batch = plain_batch(b"\x0c\0\0\0\x01\x01\0", 0x7FFF_FFFF)
    with pytest.raises(DecodeError, match="ends after the batch"):
        list(decode_batches(batch))


def test_two_records_at_one_offset_are_refused():
    with pytest.raises(DecodeError, match="ascend"):
        list(decode_batches(plain_batch(b"\x0c\0\0\0\x01\x01\0" * 2, 2)))


@pytest.mark.parametrize(
    ("at", "form", "value"),
    [(8, ">i", 48), (8, ">i", -1), (23, ">i", -1), (57, ">i", -1)],
    ids=["length below a header", "negative length", "negative last delta", "negative count"],
)
def test_impossible_header_fields(at, form, value):
    batch = bytearray(build_batch([Record(0, 0, None, b"x" * 100)]))
    struct.pack_into(form, batch, at, value)
    with pytest.raises(DecodeError):
        read_header(batch)


def test_old_formats_are_named():
    batch = bytearray(build_batch([Record(0, 0, None, b"x")]))
    batch[16] = 1
    with pytest.raises(UnsupportedMagicError, match="magic 1") as caught:
        read_header(batch)
    assert caught.value.magic == 1
    message_v1 = struct.pack(">qiIbbqii", 0, 22, 0, 1, 0, 5, -1, -1)
    with pytest.raises(UnsupportedMagicError):
        list(iter_headers(message_v1))


def test_damage_is_found_by_the_checksum():
    batch = bytearray(build_batch([Record(0, 0, None, b"x")]))
    header = read_header(batch)
    for at in range(21, len(batch)):
        batch[at] ^= 1
        assert not check_crc(batch, 0, header)
        batch[at] ^= 1
    assert check_crc(batch, 0, header)
    assert not check_crc(batch[:-1], 0, header)


@pytest.mark.parametrize(
    ("records", "options"),
    [
        ([], {}),
        ([Record(5, 0, None, b""), Record(5, 0, None, b"")], {"preserve_offsets": True}),
        ([Record(5, 0, None, b"")], {"preserve_offsets": True, "base_offset": 6}),
        ([Record(5, 0, None, b"")], {"preserve_offsets": True, "last_offset": 4}),
        ([Record(0, 0, None, b""), Record(1 << 32, 0, None, b"")], {"preserve_offsets": True}),
        ([Record(0, 1 << 64, None, b"")], {}),
        ([Record(0, -(1 << 63), None, b""), Record(1, (1 << 63) - 1, None, b"")], {}),
        ([Record(0, 0, None, b"")], {"producer_epoch": 1 << 16}),
    ],
)
def test_what_cannot_be_a_batch_is_not_built(records, options):
    with pytest.raises(EncodeError):
        build_batch(records, **options)
