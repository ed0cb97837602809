"""The offset index beside a model: look-ups, its file, cuts, files that are not its own."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.log.offset_index import OffsetIndex

BASE = 1000
steps = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 5000)), max_size=30)


def build(entries: list[tuple[int, int]]) -> OffsetIndex:
    index = OffsetIndex(BASE)
    for offset, position in entries:
        index.append(offset, position)
    return index


def rising(steps_taken: list[tuple[int, int]]) -> list[tuple[int, int]]:
    offset, position, entries = BASE, 0, []
    for by_offset, by_position in steps_taken:
        offset, position = offset + by_offset, position + by_position
        entries.append((offset, position))
    return entries


@given(steps, st.integers(BASE - 5, BASE + 2000))
def test_lookup_is_the_last_entry_at_or_below(taken: list[tuple[int, int]], asked: int) -> None:
    entries = rising(taken)
    assert build(entries).lookup(asked) == max([p for o, p in entries if o <= asked], default=0)


@given(steps, st.integers(0, 200_000))
def test_floor_position_is_the_last_start_not_behind(taken: list[tuple[int, int]], asked: int) -> None:
    entries = rising(taken)
    assert build(entries).floor_position(asked) == max([p for _, p in entries if p <= asked], default=0)


@settings(deadline=None)
@given(taken=steps, cut=st.integers(0, 100_000))
def test_survives_the_file_and_truncation(scratch: Path, taken: list[tuple[int, int]], cut: int) -> None:
    path = str(scratch / "x.index")
    entries = rising(taken)
    index = build(entries[: len(entries) // 2])
    index.save(path)
    for entry in entries[len(entries) // 2 :]:
        index.append(*entry)
    index.save(path)
    index.truncate(cut)
    index.append(BASE + 5000, cut + 1)
    index.save(path)
    loaded = OffsetIndex.load(path, BASE, 1 << 31)
    assert loaded is not None
    kept = [*[e for e in entries if e[1] < cut], (BASE + 5000, cut + 1)]
    assert list(zip(loaded.offsets, loaded.positions, strict=True)) == [(o - BASE, p) for o, p in kept]


@pytest.mark.parametrize("entries", [[], [(BASE + 9, 5000)], [(BASE, 4200), (BASE + 9, 5000)]])
def test_zeros_that_kafka_leaves_behind_the_last_entry_are_no_entries(
    tmp_path: Path, entries: list[tuple[int, int]]
) -> None:
    path = tmp_path / "x.index"
    build(entries).save(str(path))
    data = path.read_bytes() if entries else b""
    path.write_bytes(data + bytes(10_485_760 - len(data)))
    loaded = OffsetIndex.load(str(path), BASE, 10_000)
    assert loaded is not None
    assert list(loaded.positions) == [p for _, p in entries]


@pytest.mark.parametrize(
    "data",
    [
        bytes.fromhex("0000000500000010 0000000400000020"),  # offsets fall
        bytes.fromhex("0000000500000020 0000000600000010"),  # positions fall
        bytes.fromhex("0000000500000020 0000000600000020"),  # positions stand
        bytes.fromhex("00000005000fffff"),  # behind the end of the log
        b"\xff" * 64,
    ],
)
def test_what_cannot_be_the_index_is_not_loaded(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.index"
    path.write_bytes(data)
    assert OffsetIndex.load(str(path), BASE, 10_000) is None


def test_a_missing_file_is_not_an_empty_index(tmp_path: Path) -> None:
    assert OffsetIndex.load(str(tmp_path / "none.index"), BASE, 0) is None
