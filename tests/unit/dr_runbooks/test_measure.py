"""RPO and the group's account, from histories with known answers."""

from hypothesis import given
from hypothesis import strategies as st

from dr_runbooks.demo.measure import Consumed, RecoveryPoint, compare_consumed, recovery_point


def test_recovery_point_counts_what_the_other_side_does_not_hold() -> None:
    partitions = [0, 0, 0, 1, 1, 0]
    offsets = [0, 1, 2, 0, 1, 3]
    times = [10.0, 11.0, 12.0, 10.5, 12.5, 99.0]
    point = recovery_point(partitions, offsets, times, {0: 2, 1: 1}, lost_at=13.0)
    assert point == RecoveryPoint(records=2, seconds=1.0)


def test_nothing_at_risk_is_zero_seconds() -> None:
    assert recovery_point([0], [0], [5.0], {0: 1}, lost_at=6.0) == RecoveryPoint(0, 0.0)


def test_a_partition_that_was_never_copied_is_wholly_at_risk() -> None:
    assert recovery_point([3, 3], [0, 1], [5.0, 5.5], {}, lost_at=6.0) == RecoveryPoint(2, 1.0)


def test_consumed_is_compared_as_multisets() -> None:
    assert compare_consumed([1, 2, 3, 3], [1, 1, 1, 3, 9]) == Consumed(missing=2, duplicates=2, foreign=1)


@given(st.lists(st.integers(0, 20)), st.lists(st.integers(0, 20)))
def test_the_account_balances(produced: list[int], consumed: list[int]) -> None:
    account = compare_consumed(produced, consumed)
    assert len(produced) - account.missing == len(consumed) - account.duplicates - account.foreign
