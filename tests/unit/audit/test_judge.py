"""Every class of difference, injected alone and together, must come out with its exact count."""

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.classify import split_sides
from audit.judge import Verdict, judge
from audit.result import DifferenceClass as Kind
from tests.unit.audit.compacted import Keyed, Log, keyed_lane, keyed_rows
from tests.unit.audit.copies import Copy, base, copies, lane, rows, swapped


def judged(copy: Copy) -> list[Verdict]:
    """Judges without Spark: what does not match at its place, and which contents the source has."""
    made = lane(copy)
    table = rows(made, copy.source, copy.target)
    matched = {(row["position"], row["digest_high"]) for row in table.to_pylist() if row["side"] == 1} & {
        (row["position"], row["digest_high"]) for row in table.to_pylist() if row["side"] == 0
    }
    left = [row for row in table.to_pylist() if (row["position"], row["digest_high"]) not in matched]
    context = [row | {"side": 4} for row in table.to_pylist() if row["side"] == 0]
    later = pa.Table.from_pylist(left + context, schema=table.schema)
    for name in ("source", "target", "source_ever", "target_ever"):
        later = later.append_column(name, pa.array([-1] * len(later), pa.int64()))
    source, target = split_sides(later, None if made.runs is None else list(made.runs))
    return judge(source, target, [] if made.runs is None else list(made.runs))


def counts(verdicts: list[Verdict]) -> dict[Kind, int]:
    found: Counter[Kind] = Counter()
    for verdict in verdicts:
        found[verdict.kind] += len(verdict.timestamps)
    return {kind: count for kind, count in found.items() if count}


@pytest.mark.parametrize("copy", copies(), ids=lambda copy: copy.name)
def test_each_difference_is_counted_exactly(copy: Copy) -> None:
    found = counts(judged(copy))
    if copy.runs is None:
        found.pop(Kind.MISALIGNED, None)  # without a ledger: found, and in order
    assert found == copy.expected


def test_differences_have_coordinates() -> None:
    for verdict in judged(next(copy for copy in copies() if copy.name == "corrupt")):
        if verdict.kind is Kind.CORRUPT:
            assert (verdict.source_offsets[0], verdict.target_offsets[0]) == (7, 7)
            assert verdict.timestamps[0] == 1007
    for verdict in judged(next(copy for copy in copies() if copy.name == "replayed")):
        if verdict.kind is Kind.DUPLICATE:
            assert list(verdict.target_offsets) == [10, 11, 12]
            assert list(verdict.source_offsets) == [-1, -1, -1]


def test_several_at_once_do_not_hide_each_other() -> None:
    source = base()
    target = [*base()[:5], *base()[6:]]  # 5 is lost
    target[20] = "x"  # source 21 is corrupt
    target[40], target[50] = target[50], target[40]
    target.insert(30, target[25])  # a second time
    assert counts(judged(Copy("", source, target, None, {}))) == {
        Kind.LOST: 1,
        Kind.CORRUPT: 1,
        Kind.REORDERED: 2,
        Kind.DUPLICATE: 1,
        Kind.MISALIGNED: 56,
    }


def test_head_and_tail_are_told_apart() -> None:
    (lost,) = [v for v in judged(Copy("", base(), base()[10:-10], None, {})) if v.kind is Kind.LOST]
    assert list(lost.source_offsets) == [*range(10), *range(50, 60)]
    assert list(lost.at_head) == [True] * 10 + [False] * 10
    assert list(lost.at_tail) == [False] * 10 + [True] * 10


def test_a_swap_around_matching_records_is_seen_against_them() -> None:
    verdicts = judged(Copy("", base(), swapped(3, 50), ((0, 0, 60),), {}))
    (reordered,) = [v for v in verdicts if v.kind is Kind.REORDERED]
    assert sorted(zip(reordered.source_offsets, reordered.target_offsets, strict=True)) == [(3, 50), (50, 3)]


@given(
    source=st.lists(st.sampled_from("abcdefgh"), max_size=30),
    target=st.lists(st.sampled_from("abcdefghxyz"), max_size=30),
    by_ledger=st.booleans(),
)
def test_every_record_is_judged_once(source: list[str], target: list[str], by_ledger: bool) -> None:
    shared = min(len(source), len(target))
    runs = ((0, 0, shared),) if by_ledger and shared else None
    copy = Copy("", source, target, runs, {})
    matched = sum(a == b for a, b in zip(source, target, strict=False)) if runs else 0
    found = counts(judged(copy))
    at_both = sum(found.get(kind, 0) for kind in (Kind.REORDERED, Kind.MISALIGNED, Kind.CORRUPT))
    assert matched + at_both + found.get(Kind.LOST, 0) == len(source)
    extra = found.get(Kind.DUPLICATE, 0) + found.get(Kind.FOREIGN, 0)
    assert matched + at_both + extra == len(target)


def without_spark(case: Keyed) -> list[Verdict]:
    """As the second pass does it: what does not match at its place, and the last record of each key."""
    made = keyed_lane(0, case)
    table = keyed_rows(0, case).to_pylist()

    def last(key: int, *sides: int) -> int:
        return max(
            (r["offset"] for r in table if r["side"] in sides and r["key"] & -2 == key & -2), default=-1
        )

    places = Counter((row["position"], row["digest_high"]) for row in table if row["side"] < 2)
    left = [row for row in table if row["side"] < 2 and places[row["position"], row["digest_high"]] != 2]
    context = [row | {"side": 4, "key": 0} for row in table if row["side"] == 0]
    names = {"source": (0,), "target": (1,), "source_ever": (0, 2), "target_ever": (1, 3)}
    rows = [
        row | {name: last(row["key"], *sides) for name, sides in names.items()} for row in (*left, *context)
    ]
    schema = keyed_rows(0, case).schema
    for name in names:
        schema = schema.append(pa.field(name, pa.int64()))
    assert made.runs is not None
    runs = list(made.runs)
    return judge(*split_sides(pa.Table.from_pylist(rows, schema=schema), runs), runs)


def cleaned(log: Log, horizon: int, *, tombstones: int) -> Log:
    """What Kafka's cleaner leaves: below the horizon only the last record of each key that it has seen, and
    of those below `tombstones` only what has a value."""
    last = {key: offset for offset, (key, _) in log.items() if offset < horizon}
    return {
        offset: (key, value)
        for offset, (key, value) in log.items()
        if offset >= horizon or (last[key] == offset and not (offset < tombstones and value is None))
    }


LOGS = st.lists(
    st.tuples(st.sampled_from("abcd"), st.sampled_from(["1", "2", None])), min_size=1, max_size=12
)


@given(LOGS, st.data())
def test_two_sides_that_were_cleaned_at_other_times_do_not_differ_but_for_what_is_lost(
    records: list[tuple[str, str | None]], data: st.DataObject
) -> None:
    whole = {offset: (key, value and f"{value}-{offset}") for offset, (key, value) in enumerate(records)}
    end = data.draw(st.integers(1, len(records)), label="end of the copy")
    copied = {offset: record for offset, record in whole.items() if offset < end}
    sides = [
        cleaned(
            log,
            data.draw(st.integers(0, len(log)), label="horizon"),
            tombstones=data.draw(st.integers(0, end)),
        )
        for log in (whole, copied)
    ]
    verdicts = without_spark(Keyed("", sides[0], sides[1], {}, 0, end=end))
    assert sum(int((~verdict.removable).sum()) for verdict in verdicts) == 0

    last = {key: offset for offset, (key, _) in whole.items() if offset < end}
    needed = [offset for offset in last.values() if offset in sides[0] and whole[offset][1] is not None]
    if needed:
        lost = data.draw(st.sampled_from(needed), label="lost")
        there = {offset: record for offset, record in sides[1].items() if offset != lost}
        (found,) = [
            verdict
            for verdict in without_spark(Keyed("", sides[0], there, {}, 0, end=end))
            if verdict.kind is Kind.LOST
        ]
        assert found.source_offsets[~found.removable].tolist() == [lost]


def test_a_key_that_the_source_has_deleted_for_good_before_the_copy_came_so_far_is_a_difference() -> None:
    """A copy that lags by more than `delete.retention.ms` never sees the tombstone, and keeps the key."""
    verdicts = without_spark(Keyed("", {}, {0: ("a", "1")}, {}, 0, end=1))
    found = [(v.kind, v.target_offsets.tolist(), v.removable.tolist()) for v in verdicts if len(v.timestamps)]
    assert found == [(Kind.FOREIGN, [0], [False])]
