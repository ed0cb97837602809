"""The offset map against a plain dictionary of every record."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transfer.offset_map import OffsetMap, Run

_steps = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(1, 5)), min_size=0, max_size=30)


def build(steps, source_start=0, target_start=0, tail=0):
    made = OffsetMap(source_start, target_start)
    pairs = []
    source, target = source_start, target_start
    for skip_source, skip_target, length in steps:
        source, target = source + skip_source, target + skip_target
        made.append(Run(source, target, length))
        pairs += [(source + i, target + i) for i in range(length)]
        source, target = source + length, target + length
    made.cover_to(source + tail)
    return made, pairs


@given(_steps, st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 5))
def test_translation_is_exact_both_ways_and_never_skips(steps, source_start, target_start, tail):
    made, pairs = build(steps, source_start, target_start, tail)
    for position in range(max(source_start - 3, 0), made.source_end + 1):
        later = [target for source, target in pairs if source >= position]
        expected = min(later) if later else made.target_end
        assert made.to_target(position) == (expected, True)
    for position in range(max(target_start - 3, 0), made.target_end + 1):
        later = [source for source, target in pairs if target >= position]
        assert made.to_source(position) == (min(later) if later else made.source_end, True)
    assert made.records == len(pairs)


@given(_steps, st.integers(1, 100))
def test_a_position_beyond_the_copied_end_is_held_back_and_said_to_be_inexact(steps, beyond):
    made, _ = build(steps)
    assert made.to_target(made.source_end + beyond) == (made.target_end, False)
    assert made.to_source(made.target_end + beyond) == (made.source_end, False)


@given(_steps)
def test_translation_is_monotonic(steps):
    made, _ = build(steps)
    targets = [made.to_target(position).offset for position in range(made.source_end + 5)]
    assert targets == sorted(targets)


@given(_steps, st.integers(0, 2**40), st.integers(0, 2**40), st.integers(0, 300))
def test_codec_round_trip(steps, source_start, target_start, tail):
    made, _ = build(steps, source_start, target_start, tail)
    assert OffsetMap.decode(made.encode()) == made


@given(_steps)
def test_every_truncated_encoding_is_refused(steps):
    data = build(steps)[0].encode()
    for end in range(len(data)):
        with pytest.raises(ValueError):
            OffsetMap.decode(data[:end])
    with pytest.raises(ValueError):
        OffsetMap.decode(data + b"\0")


@given(st.binary(max_size=60))
def test_random_bytes_decode_or_raise_value_error(data):
    with contextlib.suppress(ValueError):
        OffsetMap.decode(data)


@given(_steps, st.integers(0, 60), st.integers(0, 60))
def test_a_part_holds_exactly_the_records_of_its_range(steps, low, high):
    made, pairs = build(steps)
    part = made.between(low, high)
    kept = [(run.source + i, run.target + i) for run in part for i in range(run.length)]
    assert kept == [(s, t) for s, t in pairs if low <= s < high]
    for source, target in kept:
        assert part.to_target(source) == (target, True)


@given(_steps, st.integers(0, 60))
def test_truncation_forgets_what_the_source_lost_and_keeps_the_rest(steps, cut):
    made, pairs = build(steps)
    made.truncate_source(cut)
    kept = [(run.source + i, run.target + i) for run in made for i in range(run.length)]
    assert kept == [(s, t) for s, t in pairs if s < cut]
    assert made.source_end <= max(cut, 0)


@given(_steps, st.integers(0, 60))
def test_two_parts_put_together_are_the_whole(steps, cut):
    made, _ = build(steps)
    front = made.between(0, cut)
    front.extend(made.between(cut, made.source_end))
    assert [front.to_target(p) for p in range(made.source_end + 2)] == [
        made.to_target(p) for p in range(made.source_end + 2)
    ]


def test_adjacent_runs_become_one():
    made = OffsetMap()
    made.append(Run(0, 10, 5))
    made.append(Run(5, 15, 5))
    made.append(Run(11, 20, 1))
    assert list(made) == [Run(0, 10, 10), Run(11, 20, 1)]


@pytest.mark.parametrize("bad", [Run(4, 20, 1), Run(9, 14, 1), Run(9, 20, 0)])
def test_going_back_is_refused(bad):
    made = OffsetMap(0, 10)
    made.append(Run(0, 10, 5))
    with pytest.raises(ValueError):
        made.append(bad)


@given(_steps, st.integers(1, 7))
def test_numbered_parts_put_together_are_the_whole(steps, size):
    made, _ = build(steps, 3, 9, tail=2)
    parts = [made.part(at, min(at + size, len(made))) for at in range(0, len(made), size)] or [made.part(0)]
    whole = parts[0]
    for part in parts[1:]:
        whole.extend(OffsetMap.decode(part.encode()))
    whole.cover_to(made.source_end)
    assert whole == made


def test_the_run_at_a_target_offset_or_the_last_one_before_it():
    made = OffsetMap(0, 10)
    for run in (Run(0, 10, 3), Run(3, 20, 2), Run(7, 22, 1)):
        made.append(run)
    assert [made.number_at(offset) for offset in (0, 10, 12, 13, 19, 20, 21, 22, 99)] == [
        0,
        0,
        0,
        0,
        0,
        1,
        1,
        2,
        2,
    ]
    assert OffsetMap(0, 10).number_at(5) == 0
