"""The map of keys beside a dictionary, and what it takes of memory while it fills."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.log.cleaner import offset_map
from broker.log.cleaner.job import BYTES_PER_KEY
from broker.log.cleaner.offset_map import OffsetMap

FEW = st.integers(-8, 8)
HASHES = st.one_of(FEW, st.integers(-(1 << 63), (1 << 63) - 1))
BATCHES = st.lists(st.lists(st.tuples(HASHES, st.integers(1, 2)), min_size=1, max_size=12), max_size=25)


@pytest.fixture(scope="module", autouse=True)
def small_chunks():
    """So that what waits is sorted in often."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(offset_map, "_CHUNK", 10)
        yield


@given(BATCHES, st.lists(st.tuples(HASHES, st.integers(1, 2), st.integers(-1, 100)), max_size=20))
def test_it_knows_what_a_dictionary_knows(batches, asked):
    """But for keys that share the first hash: those count as unknown."""
    found = OffsetMap(1_000_000)
    newest, checks = {}, {}
    offset = 0
    for batch in batches:
        offsets = list(range(offset, offset + len(batch)))
        offset += len(batch)
        found.put([key[0] for key in batch], [key[1] for key in batch], offsets)
        for key, at in zip(batch, offsets, strict=True):
            newest[key] = at
            checks.setdefault(key[0], set()).add(key[1])
    asked += [(*key, at - back) for key, at in newest.items() for back in (0, 1)]
    expected = [
        len(checks.get(first, ())) == 1 and newest.get((first, second), -1) > at
        for first, second, at in asked
    ]
    columns = [list(column) for column in zip(*asked, strict=True)] or [[], [], []]
    assert found.newer(*columns).tolist() == expected


def test_a_key_takes_no_more_memory_than_is_counted_for_it(monkeypatch):
    monkeypatch.setattr(offset_map, "_CHUNK", 1 << 14)
    count, step = 200_000, 1000
    hashes = np.random.default_rng(1).integers(-(2**62), 2**62, count, dtype=np.int64)
    found = OffsetMap(count)
    tracemalloc.start()
    try:
        for at in range(0, count, step):
            found.put(hashes[at : at + step].tolist(), [1] * step, range(at, at + step))
        found.newer([1], [1], [1])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(found) == count
    assert peak <= BYTES_PER_KEY * count
