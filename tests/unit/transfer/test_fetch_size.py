"""How much a Fetch asks for, over short, long and narrow ways."""

import pytest

from transfer.kafka.fetch_size import MOST, FetchSize

MB = 1 << 20


def settled(round_trip_s: float, bytes_per_s: float, there: int = 1 << 40) -> tuple[int, float]:
    """Where it ends, and how long the longest answer took."""
    size, longest = FetchSize(MB), 0.0
    for _ in range(50):
        got = min(MB * size.factor, there)
        took = round_trip_s + got / bytes_per_s
        longest = max(longest, took)
        size.answered(got, took)
    return size.factor, longest


@pytest.mark.parametrize(
    ("round_trip_s", "bytes_per_s", "factor"),
    [
        (0.001, 1e9, 1),  # near
        (0.3, 1e9, MOST),  # far and wide
        (0.3, 2e5, 1),  # far and narrow: a megabyte takes 5 s
        (0.001, 2e5, 1),
    ],
)
def test_it_grows_over_a_long_way_and_not_over_a_narrow_one(round_trip_s, bytes_per_s, factor):
    assert settled(round_trip_s, bytes_per_s)[0] == factor


@pytest.mark.parametrize("bytes_per_s", [1e5, 1e6, 5e6, 2e7, 1e9])
@pytest.mark.parametrize("round_trip_s", [0.0, 0.05, 0.3, 0.55])
def test_no_answer_takes_much_longer_than_one_of_the_smallest(round_trip_s, bytes_per_s):
    smallest = round_trip_s + MB / bytes_per_s
    assert settled(round_trip_s, bytes_per_s)[1] <= max(smallest, 2.5)


def test_small_answers_say_nothing():
    assert settled(0.3, 1e9, there=1000)[0] == 1


def test_it_shrinks_when_the_way_becomes_short_or_narrow():
    size = FetchSize(MB)
    for _ in range(5):
        size.answered(MB * size.factor, 0.3)
    assert size.factor == MOST
    size.answered(MB * MOST, 9.0)
    assert size.factor == MOST // 2
    for _ in range(5):
        size.answered(MB * size.factor, 0.005)
    assert size.factor == 1
