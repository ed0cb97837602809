"""The same seed gives the same faults, and every kind comes."""

from itertools import islice

from tests.chaos.nemesis import FAULTS
from tests.chaos.schedule import LANES, WEIGHTS, steps


def test_a_seed_replays() -> None:
    first, again, another = (list(islice(steps(seed, 0), 200)) for seed in (7, 7, 8))
    assert first == again
    assert first != another


def test_lanes_differ() -> None:
    lanes = [tuple(islice(steps(7, lane), 20)) for lane in range(LANES)]
    assert len(set(lanes)) == LANES


def test_each_kind_is_known_and_comes() -> None:
    assert set(FAULTS) == set(WEIGHTS)
    assert {step.kind for step in islice(steps(7, 0), 500)} == set(WEIGHTS)


def test_two_brokers_of_a_step_differ() -> None:
    assert all(step.victim != step.other for step in islice(steps(7, 0), 200))


def test_only_some_kinds() -> None:
    assert {step.kind for step in islice(steps(7, 0, ["kill", "pause"]), 50)} == {"kill", "pause"}
