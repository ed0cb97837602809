"""MM2's record layouts: known bytes, round trips, damage."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicator.layouts import Checkpoint, Heartbeat, LayoutError, OffsetSync

_text = st.text(max_size=30)
_int32 = st.integers(-(2**31), 2**31 - 1)
_int64 = st.integers(-(2**63), 2**63 - 1)

_any = st.one_of(
    st.builds(OffsetSync, topic=_text, partition=_int32, upstream=_int64, downstream=_int64),
    st.builds(
        Checkpoint,
        group=_text,
        topic=_text,
        partition=_int32,
        upstream=_int64,
        downstream=_int64,
        metadata=_text,
    ),
    st.builds(Heartbeat, source=_text, target=_text, timestamp_ms=_int64),
)


def test_known_bytes():
    sync = OffsetSync("ab", 3, 5, 7)
    assert sync.key() == b"\x00\x02ab\x00\x00\x00\x03"
    assert sync.value() == bytes(7) + b"\x05" + bytes(7) + b"\x07"
    point = Checkpoint("g", "ab", 3, 5, 7, "m")
    assert point.key() == b"\x00\x01g\x00\x02ab\x00\x00\x00\x03"
    assert point.value() == b"\x00\x00" + bytes(7) + b"\x05" + bytes(7) + b"\x07" + b"\x00\x01m"
    beat = Heartbeat("a", "b", 9)
    assert beat.key() == b"\x00\x01a\x00\x01b"
    assert beat.value() == b"\x00\x00" + bytes(7) + b"\x09"


@given(_any)
def test_round_trip(record):
    assert type(record).read(record.key(), record.value()) == record


@given(_any)
def test_truncated_or_longer_records_are_one_kind_of_error(record):
    key, value = record.key(), record.value()
    for end in range(len(value)):
        with pytest.raises(LayoutError):
            type(record).read(key, value[:end])
    for end in range(len(key)):
        with pytest.raises(LayoutError):
            type(record).read(key[:end], value)
    with pytest.raises(LayoutError):
        type(record).read(key + b"x", value)


def test_newer_versions_are_refused():
    beat = Heartbeat("a", "b", 9)
    with pytest.raises(LayoutError, match="version 1"):
        Heartbeat.read(beat.key(), b"\x00\x01" + beat.value()[2:])
