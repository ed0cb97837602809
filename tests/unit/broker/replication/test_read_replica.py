"""Which replica a consumer is sent to (KIP-392)."""

import pytest

from broker.replication.in_sync import Follower
from broker.replication.read_replica import nearest

RACKS = {1: "a", 2: "b", 3: "b"}


def follower(number: int, start: int, end: int) -> Follower:
    made = Follower(number, 0.0)
    made.fetched(end, start, end, 1.0)
    return made


@pytest.mark.parametrize(
    ("rack", "offset", "chosen"),
    [
        ("a", 5, 1),  # the leader's own
        ("b", 5, 3),  # the one that has most
        ("b", 9, 3),
        ("b", 11, 1),  # nobody there has it yet
        ("b", 1, 2),  # broker 3 has it no more
        ("c", 5, 1),  # nobody is there
    ],
)
def test_the_nearest_that_has_it(rack: str, offset: int, chosen: int) -> None:
    followers = [follower(2, 0, 8), follower(3, 4, 10)]
    assert nearest(rack, offset, 1, followers, RACKS.get) == chosen


def test_a_broker_that_is_away_is_not_chosen() -> None:
    assert nearest("b", 5, 1, [follower(2, 0, 8)], {1: "a"}.get) == 1
