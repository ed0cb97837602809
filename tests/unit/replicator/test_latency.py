"""Percentiles within their bound, and since when a partition is behind."""

from hypothesis import given
from hypothesis import strategies as st

from replicator.latency import Behind, Latencies, added, quantiles


def quantile(latencies, share):
    found = quantiles(latencies.counts(), (share,))
    return found[0] if found is not None else None


@given(
    st.lists(st.integers(0, 4 * 10**9), min_size=1, max_size=200), st.sampled_from([0.01, 0.5, 0.9, 0.99, 1])
)
def test_a_percentile_is_never_too_low_and_at_most_one_sixteenth_too_high(micros, share):
    latencies = Latencies(0.0)
    for value in micros:
        latencies.add(value / 1e6)
    exact = next(value for n, value in enumerate(sorted(micros), 1) if n >= share * len(micros))
    found = quantile(latencies, share)
    assert found is not None
    assert exact - 1 <= found * 1e6 <= exact * (1 + 1 / 16) + 1


def test_records_count_and_not_writes():
    latencies = Latencies(0.0)
    latencies.add(0.001, 99)
    latencies.add(10.0, 1)
    assert quantile(latencies, 0.5) < 0.0011
    assert quantile(latencies, 0.99) < 0.0011
    assert quantile(latencies, 0.999) >= 10


def test_what_is_older_than_two_minutes_is_gone():
    latencies = Latencies(0.0)
    latencies.add(5.0)
    latencies.turn(60.0)
    latencies.add(0.001)
    assert quantile(latencies, 1.0) >= 5
    latencies.turn(120.0)
    assert quantile(latencies, 1.0) < 0.01
    latencies.turn(500.0)
    assert quantile(latencies, 1.0) is None


def test_behind_counts_from_when_the_first_missing_record_was_heard_of():
    behind = Behind()
    assert behind.seconds(0, 10, 10) == 0
    assert behind.seconds(5, 20, 10) == 0  # just heard of
    assert behind.seconds(8, 30, 10) == 3
    assert behind.seconds(9, 30, 20) == 1  # 20 to 30 were heard of at 8
    assert behind.seconds(10, 30, 30) == 0


def test_a_partition_that_stands_still_for_days_keeps_its_first_moment_and_little_memory():
    behind = Behind()
    for second in range(200_000):
        late = behind.seconds(second, second + 1, 0)
    assert late == 199_999
    assert len(behind._marks) <= 257


def test_percentiles_of_a_sum_are_those_of_all_records():
    here, there, both = Latencies(0.0), Latencies(0.0), Latencies(0.0)
    for seconds, count, of in ((0.002, 90, here), (0.5, 5, here), (0.04, 300, there), (3.0, 1, there)):
        of.add(seconds, count)
        both.add(seconds, count)
    shares = (0.5, 0.9, 0.99, 1.0)
    assert quantiles(added([here.counts(), there.counts()]), shares) == quantiles(both.counts(), shares)
    assert quantiles(both.counts(), (1.0,)) >= (3.0,)
    assert quantiles({}, shares) is None


def test_a_source_that_ends_earlier_than_before_is_not_behind_for_ever():
    """Truncated by an unclean election, or made again: what it ended at then never comes."""
    behind = Behind()
    for now, end in ((0, 100), (10, 1000), (20, 2000)):
        behind.seconds(now, end, 50)
    assert behind.seconds(30, 900, 50) == 30
    assert behind.seconds(40, 900, 100) == 30  # offsets 100 to 900 were heard of at 10 first
    assert behind.seconds(50, 900, 900) == 0
    assert behind.seconds(60, 950, 900) == 0
    assert behind.seconds(65, 950, 900) == 5
