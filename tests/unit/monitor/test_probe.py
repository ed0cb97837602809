"""The probe's two pure parts: which brokers get a partition and when, and what counts as late or lost."""

import pytest

from monitor.probe_ledger import ProbeLedger
from monitor.probe_plan import coverage


def test_every_living_broker_gets_a_partition_and_none_is_added_twice() -> None:
    first = coverage({1, 2, 3}, [])
    assert (first.partitions, first.additions) == (0, ((1,), (2,), (3,)))
    grown = coverage({1, 2, 3, 4}, [[1], [2], [3]])
    assert (grown.uncovered, grown.additions) == ((4,), ((4,),))
    whole = coverage({1, 2, 3, 4}, [[1], [2], [3], [4], [2]])
    assert (whole.uncovered, whole.additions, whole.partitions) == ((), (), 5)
    assert whole.partition_of == {1: 0, 2: 1, 3: 2, 4: 3}


def test_nothing_is_changed_while_a_broker_is_away() -> None:
    found = coverage({1, 3, 4}, [[1], [2], [3]])
    assert (found.away, found.uncovered, found.additions) == ((2,), (4,), ())
    assert found.partition_of[2] == 1, "it goes on being probed, and fails"


@pytest.fixture
def ledger() -> ProbeLedger:
    made = ProbeLedger(deadline_s=2, give_up_s=60)
    made.sent(1, 0, 100.0)
    return made


def test_in_time(ledger: ProbeLedger) -> None:
    assert not ledger.fails(1, 102.0)
    ledger.arrived(1, 0, 102.0)
    assert (ledger.brokers[1].in_time, ledger.brokers[1].latency_s) == (1, 2.0)
    assert not ledger.fails(1, 900.0), "nothing is on its way"


def test_late_is_not_lost_and_the_next_in_time_ends_it(ledger: ProbeLedger) -> None:
    ledger.failed(1, "LEADER_NOT_AVAILABLE")
    assert ledger.fails(1, 102.1)
    ledger.arrived(1, 0, 150.0)
    found = ledger.brokers[1]
    assert (found.in_time, found.late, found.lost, found.reason) == (0, 1, 0, "")
    assert ledger.fails(1, 150.0)
    ledger.sent(1, 1, 151.0)
    ledger.arrived(1, 1, 151.5)
    assert not ledger.fails(1, 152.0)


def test_lost_and_other_brokers_are_well(ledger: ProbeLedger) -> None:
    ledger.sent(2, 0, 100.0)
    ledger.arrived(2, 0, 100.1)
    ledger.given_up(1, 0)
    assert (ledger.brokers[1].lost, ledger.waiting(1)) == (1, 0)
    assert ledger.fails(1, 160.0)
    assert not ledger.fails(2, 160.0)
