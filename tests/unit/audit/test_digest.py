"""A digest is the record's content: nothing that copying may change, and everything it must not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.digest import DIGEST_SIZE, batch_digests
from audit.order import out_of_order
from protocol.errors import DecodeError
from protocol.records import Codec, Record, build_batch, read_header
from protocol.types import TopicPartition
from transfer.rewrite import Chunk, plan, seal

T0 = 1_700_000_000_000

RECORDS = st.builds(
    Record,
    st.just(0),
    st.integers(T0, T0 + 10**9),
    st.none() | st.binary(max_size=200),
    st.none() | st.binary(max_size=200),
    st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3),
)


def digests(
    records: list[Record], *, ignore: tuple[bytes, ...] = (), with_timestamp: bool = True, **how
) -> list[bytes]:
    batch = memoryview(build_batch(records, **how))
    made = batch_digests(batch, 0, read_header(batch), ignore_headers=ignore, with_timestamp=with_timestamp)
    assert len(made.offsets) == len(made.timestamps) == len(records)
    return [made.digests[at : at + DIGEST_SIZE] for at in range(0, len(made.digests), DIGEST_SIZE)]


def one(*fields, **how) -> bytes:
    return digests([Record(0, *fields)], **how)[0]


@given(records=st.lists(RECORDS, min_size=1, max_size=8), codec=st.sampled_from(list(Codec)))
def test_codec_offsets_and_batch_limits_do_not_matter(records: list[Record], codec: Codec) -> None:
    whole = digests(records)
    assert (
        digests(records, codec=codec, base_offset=10**12, producer_id=7, producer_epoch=0, base_sequence=9)
        == whole
    )
    assert [digests([record])[0] for record in records] == whole


@given(one_record=RECORDS, other=RECORDS)
def test_digests_are_equal_exactly_when_the_records_are(one_record: Record, other: Record) -> None:
    assert (digests([one_record]) == digests([other])) == (one_record == other)


@pytest.mark.parametrize(
    "changed",
    [
        (T0 + 1, b"k", b"v", [("a", b"1"), ("b", b"2")]),
        (T0, b"K", b"v", [("a", b"1"), ("b", b"2")]),
        (T0, None, b"v", [("a", b"1"), ("b", b"2")]),
        (T0, b"", b"v", [("a", b"1"), ("b", b"2")]),
        (T0, b"k", b"", [("a", b"1"), ("b", b"2")]),
        (T0, b"k", None, [("a", b"1"), ("b", b"2")]),
        (T0, b"k", b"v", [("b", b"2"), ("a", b"1")]),
        (T0, b"k", b"v", [("a", b""), ("b", b"2")]),
        (T0, b"k", b"v", [("a", None), ("b", b"2")]),
        (T0, b"k", b"v", [("a", b"1")]),
        (T0, b"kv", b"", [("a", b"1"), ("b", b"2")]),
    ],
)
def test_every_field_counts(changed: tuple) -> None:
    assert one(*changed) != one(T0, b"k", b"v", [("a", b"1"), ("b", b"2")])


@given(record=RECORDS)
def test_ignored_headers_are_as_if_they_were_not_there(record: Record) -> None:
    plain = [header for header in record.headers if header[0] != "origin"]
    bare = Record(0, record.timestamp, record.key, record.value, plain)
    for at in range(len(plain) + 1):
        headers = [*plain[:at], ("origin", b"east"), *plain[at:]]
        marked = Record(0, record.timestamp, record.key, record.value, headers)
        assert (
            digests([marked], ignore=(b"origin",)) == digests([bare], ignore=(b"origin",)) == digests([bare])
        )
        assert digests([marked]) != digests([bare])


def test_more_headers_than_one_byte_counts() -> None:
    headers: list[tuple[str, bytes | None]] = [(f"h{n}", b"x" * n) for n in range(200)]
    marked = [*headers[:100], ("origin", b"east"), *headers[100:]]
    assert one(T0, b"k", b"v", marked, ignore=(b"origin",)) == one(T0, b"k", b"v", headers)


def test_timestamps_are_left_out_when_a_side_has_its_own() -> None:
    record = [Record(0, T0, b"k", b"v")]
    stamped = digests(record, timestamp_type=1, with_timestamp=False)
    assert stamped == digests([Record(0, T0 + 99, b"k", b"v")], with_timestamp=False)


def test_a_batch_rewritten_by_the_raw_lane_has_the_same_digests() -> None:
    records = [Record(0, T0 + n, b"k%d" % n, b"v" * n) for n in range(50)]
    batch = build_batch(records, codec=Codec.LZ4, base_offset=500)
    chunk = Chunk(TopicPartition("t", 0), memoryview(batch), 500, 550)
    (out,), _ = plan(chunk)
    head, payload = seal(out, 9, 1, 0)
    rewritten = memoryview(head + bytes(payload))
    made = batch_digests(rewritten, 0, read_header(rewritten))
    assert made.digests == b"".join(digests(records))


def test_damage_is_an_error_and_no_digest() -> None:
    batch = bytearray(build_batch([Record(0, T0, b"k" * 10, b"v" * 10)] * 3))
    header = read_header(batch)
    for at in range(61, len(batch)):
        damaged = bytearray(batch)
        damaged[at] = 0xFF
        try:
            batch_digests(memoryview(damaged), 0, header)
        except DecodeError:
            continue  # anything else would fail the test; a changed key or value has a valid digest
    with pytest.raises(DecodeError):
        batch_digests(memoryview(batch)[:-5], 0, header)


@given(st.permutations(range(12)))
def test_the_fewest_are_moved(order: list[int]) -> None:
    moved = out_of_order(order)
    kept = [position for index, position in enumerate(order) if index not in moved]
    assert kept == sorted(kept)
    longest = [1] * len(order)
    for at in range(len(order)):
        longest[at] += max((longest[i] for i in range(at) if order[i] < order[at]), default=0)
    assert len(kept) == max(longest)
