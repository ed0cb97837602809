"""The limit on replicas that move: a rate over time, the replicas that a topic names, and nothing else."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from broker.replication.throttle import UNLIMITED, Throttle

NAMED: dict[str, Sequence[str]] = {"moving": ("0:1", "1:2", "2:1"), "all": ("*",)}


def throttle(rate: int = 1000) -> Throttle:
    made = Throttle(1, lambda topic: NAMED.get(topic, ()))
    made.set_rate(rate, 0.0)
    return made


def test_only_named_replicas_of_this_broker_are_concerned() -> None:
    limit = throttle()
    assert [limit.concerns("moving", index) for index in range(4)] == [True, False, True, False]
    assert limit.concerns("all", 7)
    assert not limit.concerns("other", 0)
    limit.set_rate(UNLIMITED, 0.0)
    assert not limit.concerns("all", 0)


@given(st.lists(st.integers(1, 5000), min_size=20, max_size=100), st.integers(100, 10_000))
def test_no_more_than_the_rate_goes_through(sizes: list[int], rate: int) -> None:
    limit = throttle(rate)
    now = 50.0
    for size in sizes:
        now = max(now, limit.free_at(now))
        limit.spend(size, now)
    # Beyond the rate: what was saved up in one second, and the last batch.
    assert sum(sizes) <= rate * (now - 50.0 + 1.0) + sizes[-1] + 1


def test_a_pause_is_not_saved_up() -> None:
    limit = throttle(1000)
    limit.spend(1000, 100.0)
    assert limit.free_at(100.0) <= 100.0
    limit.spend(500, 100.0)
    assert limit.free_at(100.0) == 100.5


def test_another_rate_is_taken_up_at_once() -> None:
    limit = throttle(1000)
    limit.spend(101_000, 100.0)
    assert limit.free_at(100.0) == 200.0
    limit.set_rate(10_000, 100.0)
    assert limit.free_at(100.0) == 110.0
    limit.set_rate(0, 100.0)
    assert limit.free_at(105.0) > 105.0
    limit.spend(10, 105.0)
    limit.set_rate(UNLIMITED, 105.0)
    assert not limit.limited
