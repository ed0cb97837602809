"""Placement of replicas: even, distinct, spread over places, and refused where it cannot be."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.control.assignment import Candidate, NotEnoughBrokers, RacksMissing, place


@st.composite
def placements(draw):
    racks = draw(st.integers(0, 4))
    count = draw(st.integers(1, 9))
    ids = draw(st.lists(st.integers(0, 100), min_size=count, max_size=count, unique=True))
    candidates = [
        Candidate(number, None if racks == 0 else f"r{draw(st.integers(1, racks))}") for number in ids
    ]
    factor = draw(st.integers(1, count))
    return candidates, draw(st.integers(1, 40)), factor, draw(st.integers(0, 30))


@given(placements())
def test_any_placement_is_sound(arguments):
    candidates, partitions, factor, first = arguments
    placed = place(candidates, partitions, factor, first_partition=first)
    racks = {item.broker_id: item.rack for item in candidates}
    assert list(placed) == list(range(first, first + partitions))
    sizes = Counter(item.rack for item in candidates)
    for replicas in placed.values():
        assert len(set(replicas)) == factor
        assert set(replicas) <= set(racks)
        used = Counter(racks[number] for number in replicas)
        for rack, size in sizes.items():
            if used[rack] < size:  # a place that could hold more has at least as many as any other, less one
                assert used[rack] >= max(used.values()) - 1


@given(placements())
def test_leaders_are_even(arguments):
    candidates, partitions, factor, first = arguments
    leaders = Counter(
        replicas[0] for replicas in place(candidates, partitions, factor, first_partition=first).values()
    )
    assert max(leaders.values()) - min(leaders[item.broker_id] for item in candidates) <= 1


def test_two_places_hold_two_replicas_each():
    candidates = [Candidate(1, "a"), Candidate(2, "a"), Candidate(3, "b"), Candidate(4, "b")]
    for replicas in place(candidates, 8, 4).values():
        assert set(replicas) == {1, 2, 3, 4}
    for replicas in place(candidates, 8, 2).values():
        assert len({number in (1, 2) for number in replicas}) == 2


def test_growth_goes_on_where_the_topic_began():
    candidates = [Candidate(number) for number in (1, 2, 3)]
    whole = place(candidates, 6, 2, start=1)
    assert {
        **place(candidates, 4, 2, start=1),
        **place(candidates, 2, 2, first_partition=4, start=1),
    } == whole


def test_too_few_brokers():
    with pytest.raises(NotEnoughBrokers, match="replication factor 2 needs as many brokers, 1 are alive"):
        place([Candidate(1)], 1, 2)
    with pytest.raises(NotEnoughBrokers):
        place([], 1, 1)


def test_a_broker_without_a_place_is_named():
    candidates = [Candidate(1, "a"), Candidate(2, "b"), Candidate(3)]
    with pytest.raises(RacksMissing, match=r"brokers 3 have no broker\.rack"):
        place(candidates, 1, 2)
    assert len(place(candidates, 3, 1)) == 3  # one replica needs no places
