"""Every class of difference, injected alone and together, must come out with its exact count."""

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.classify import split_sides
from audit.judge import Verdict, judge
from audit.result import DifferenceClass as Kind
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
