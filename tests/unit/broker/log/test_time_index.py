"""The time index beside a model: look-ups, its file, cuts."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.log.time_index import TimeIndex, read_last

BASE = 500
batches = st.lists(st.tuples(st.integers(-1, 100), st.integers(1, 9)), max_size=40)


def fed(found: list[tuple[int, int]]) -> tuple[TimeIndex, list[tuple[int, int]]]:
    """An index fed as a segment feeds it, and the (timestamp, last offset) of all batches."""
    index, offset, largest, seen = TimeIndex(BASE), BASE - 1, (-1, BASE), []
    for timestamp, records in found:
        offset += records
        seen.append((timestamp, offset))
        if timestamp > largest[0]:
            largest = (timestamp, offset)
        index.append(*largest)
    return index, seen


@given(batches, st.integers(0, 101))
def test_lookup_never_leads_past_the_first_batch_that_reaches_the_time(
    found: list[tuple[int, int]], asked: int
) -> None:
    index, seen = fed(found)
    first = next((offset for timestamp, offset in seen if timestamp >= asked), None)
    if first is not None:
        assert index.lookup(asked) <= first


@given(batches)
def test_last_is_the_largest_timestamp_and_its_first_batch(found: list[tuple[int, int]]) -> None:
    index, seen = fed(found)
    timed = [(timestamp, -offset) for timestamp, offset in seen if timestamp >= 0]
    expected = max(timed, default=(-1, -BASE))
    assert index.last() == (expected[0], -expected[1])


@settings(deadline=None)
@given(found=batches, cut=st.integers(BASE, BASE + 300))
def test_survives_the_file_and_truncation(scratch: Path, found: list[tuple[int, int]], cut: int) -> None:
    path = str(scratch / "x.timeindex")
    index, _ = fed(found)
    index.save(path)
    index.truncate(cut)
    index.append(1000, cut)
    index.save(path)
    loaded = TimeIndex.load(path, BASE)
    assert loaded is not None
    assert loaded.entries == index.entries
    assert read_last(path, BASE) == (1000, cut) == loaded.last()


def test_zeros_that_kafka_leaves_are_no_entries(tmp_path: Path) -> None:
    path = tmp_path / "x.timeindex"
    index, _ = fed([(256, 1), (512, 256)])  # last bytes of both entries' fields are zero or end in zeros
    index.save(str(path))
    path.write_bytes(path.read_bytes() + bytes(12 * 1000))
    loaded = TimeIndex.load(str(path), BASE)
    assert loaded is not None
    assert loaded.last() == (512, BASE + 256)
    assert read_last(str(path), BASE) is None, "only loading can tell"


@pytest.mark.parametrize(
    "data",
    [
        bytes.fromhex("0000000000000009 00000001 0000000000000008 00000002"),
        bytes.fromhex("0000000000000009 00000001 0000000000000009 00000002"),
        bytes.fromhex("0000000000000008 00000003 0000000000000009 00000002"),
        b"\xff" * 24,
    ],
)
def test_what_is_out_of_order_is_not_loaded(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.timeindex"
    path.write_bytes(data)
    assert TimeIndex.load(str(path), BASE) is None
