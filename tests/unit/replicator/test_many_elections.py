"""Elections one after the other at a link's target, brokers that have not heard of them, and answers that
come late: what was acknowledged and is gone is copied again, or on record as a gap (I7).
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.client import ClientError, ClusterClient
from protocol.types import TopicPartition
from tests.support.link_in_memory import (
    BEHIND,
    BUMP,
    FLAP,
    FLAP_FILLED,
    GIVE_UP,
    HAND_OVER,
    LATE_ANSWERS,
    LOSE,
    LOSE_PROGRESS,
    LOSE_THERE,
    MORE,
    MOVE,
    OTHERS_BEGIN,
    OTHERS_COMMIT,
    OTHERS_WRITE,
    PAUSE,
    RESTART,
    SLOW,
    SPOIL,
    STALE,
    USURP,
    ZOMBIE,
    Case,
    copy,
)
from tests.support.target_in_memory import LATE, LOST, OK, UNHEARD
from transfer.kafka import leaders
from transfer.kafka.readable import Seen, seen_until

_WAITS_S = [0.0, 0.002, 0.005, 0.01, 0.02, 0.04, 0.2, 2.0]
_ELECTIONS = [LOSE_THERE, USURP, MOVE, BUMP, BEHIND, FLAP, FLAP_FILLED, OTHERS_WRITE]
_BROKERS = [STALE, ZOMBIE, SLOW, LATE_ANSWERS]
_OTHERS = [*_BROKERS, MORE, RESTART, GIVE_UP, PAUSE, HAND_OVER, LOSE]
_APART_S = 3.0
"""Of elections: those that nobody notices between two looks are open (docs/status.md)."""
_CASES = st.builds(
    Case,
    once=st.booleans(),
    joins=st.booleans(),
    batches=st.lists(st.integers(0, 3), min_size=1, max_size=20),
    chunks=st.lists(st.integers(1, 7), min_size=1, max_size=5),
    parts=st.sampled_from([2, 2, 40]),
    produces=st.lists(st.sampled_from([OK, OK, LOST, UNHEARD, LATE]), max_size=8),
    commands=st.lists(
        st.one_of(
            st.tuples(st.just(_APART_S), st.sampled_from(_ELECTIONS)),
            st.tuples(st.sampled_from(_WAITS_S), st.sampled_from(_OTHERS)),
        ),
        max_size=8,
    ),
)


@settings(deadline=None)
@given(_CASES)
def test_whoever_leads_the_target_nothing_is_passed_over_where_each_election_is_noticed(case: Case) -> None:
    copy(case).check(once=case.once)


@pytest.mark.parametrize("once", [True, False])
@pytest.mark.parametrize("election", [LOSE_THERE, USURP])
def test_what_a_link_took_for_lost_and_stands_there_again_is_not_copied_behind_it(
    election: str, once: bool
) -> None:
    """The broker that has it leads again before it has cut it off: while the link has nothing behind where
    the logs part, and long after that. They may part at their start."""
    for wait_s in (*(number / 2000 for number in range(104, 120)), 3.0):
        commands = [(0.1, election), (wait_s, FLAP), (0.01, MORE)]
        for batches in ([1] * 10, [3, 3]):
            copy(Case(once, batches=batches, chunks=(1, 2), commands=commands)).check(once=True)


@pytest.mark.parametrize("once", [True, False])
@pytest.mark.parametrize("election", [LOSE_THERE, USURP])
def test_what_stands_there_again_may_go_on_in_the_middle_of_what_was_joined_there(
    election: str, once: bool
) -> None:
    """The logs of both brokers hold the same records up to there, in other batches."""
    for chunks in ((1, 4), (3, 1), (2, 5)):
        commands = [(0.1, election), (3.0, FLAP), (0.01, MORE)]
        case = Case(once, joins=True, batches=[1, 2, 1, 1, 3, 1, 1, 2], chunks=chunks, commands=commands)
        copy(case).check(once=True)


@pytest.mark.parametrize("once", [True, False])
def test_what_stands_behind_progress_that_was_lost_is_not_copied_again(once: bool) -> None:
    """The progress topic itself loses its last records, and another worker takes the partition over."""
    for ms in range(40, 160, 5):
        commands = [(ms / 1000, LOSE_PROGRESS), (0.0, GIVE_UP), (0.01, MORE)]
        copy(Case(once, batches=[1] * 30, commands=commands)).check(once=True)


@pytest.mark.parametrize("more", [[], [MORE]])
def test_a_transaction_whose_end_was_lost_and_that_was_aborted_since_is_copied_again_all_of_it(
    more: list[str],
) -> None:
    """The next leader has its records and not its marker; the next end of the same producer's there aborts
    them. Markers at the source part what is one write."""
    for ms in (36, 37, 38, 39):
        for wait_s in (0.01, 0.05):
            commands = [(ms / 2000, BEHIND), *((0.0, one) for one in more), (wait_s, FLAP), (0.0, MORE)]
            copy(Case(batches=[1, 0] * 20, chunks=(40,), parts=40, commands=commands)).check(once=True)


def test_what_was_aborted_is_not_committed_with_what_comes_next_where_its_marker_is_lost() -> None:
    """The next leader takes it for open, and the next end of the same producer ends both."""
    for ms in (24, 31, 32, 33, 34, 35):
        for wait_s in (0.003, 0.01):
            commands = [(ms / 2000, BEHIND), (0.0, SPOIL), (wait_s, FLAP), (0.0, MORE)]
            copy(Case(batches=[1] * 40, chunks=(5,), parts=40, commands=commands)).check(once=True)


def test_a_leader_that_does_not_tell_what_it_hides_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = itertools.count()

    async def at_last(client: ClusterClient, tp: TopicPartition, end: int, **how: Any) -> Seen:
        if next(calls) < 3:
            raise ClientError("no answer")
        return await seen_until(client, tp, end, **how)

    monkeypatch.setattr(leaders, "seen_until", at_last)
    commands = [(0.048, BEHIND), (0.05, FLAP), (0.0, MORE)]
    copy(Case(batches=[1, 0] * 20, chunks=(40,), parts=40, commands=commands)).check(once=True)
    assert next(calls) == 4


def test_a_new_leader_is_not_believed_while_others_have_a_transaction_open_before_what_was_copied() -> None:
    commands = [(0.02, OTHERS_BEGIN), (1.0, MOVE), (5.0, OTHERS_COMMIT), (0.01, MORE)]
    outcome = copy(Case(batches=[1] * 10, commands=commands))
    outcome.check(once=True)
    assert any("a transaction is open there from offset" in reason for reason in outcome.reasons)


def test_what_others_have_open_behind_what_was_copied_holds_up_no_beginning() -> None:
    outcome = copy(Case(batches=[1] * 10, commands=[(0.3, OTHERS_BEGIN), (0.0, PAUSE), (0.0, MORE)]))
    outcome.check(once=True)
    assert outcome.reasons == ["said so"]


def test_what_is_read_of_two_leaders_says_nothing_of_either() -> None:
    """The partition is opened while the leader changes: one is looked up, and the other one tells its end."""
    commands = [(3.0, USURP), (3.0, FLAP), (0.0, RESTART), (3.0, FLAP)]
    copy(Case(once=False, batches=[1], commands=commands)).check(once=False)
    commands = [(3.0, USURP), (0.0, SLOW), (3.0, LOSE_THERE), (0.0, ZOMBIE), (0.0, RESTART)]
    copy(Case(once=False, batches=[1], commands=commands)).check(once=False)


def test_an_epoch_between_two_that_are_known_says_nothing_of_the_earlier_one() -> None:
    """The broker that leads last has others' records where the earlier epoch went on elsewhere (KIP-279)."""
    copy(Case(once=False, batches=[1], commands=[(0.002, USURP), (0.0, FLAP), (0.2, FLAP)])).check(once=False)


@pytest.mark.parametrize("wait_s", [0.0, 0.05])
def test_a_leader_that_was_replaced_is_not_gone_back_to(wait_s: float) -> None:
    """It does not know, and neither does every broker that is asked who leads."""
    more = [(wait_s, MORE), (0.05, MORE), (0.05, MORE), (0.05, MORE)]
    commands = [(0.1, BEHIND), (0.0, STALE), (0.0, ZOMBIE), (0.0, FLAP_FILLED), *more]
    copy(Case(once=False, batches=[1] * 4, commands=commands)).check(once=False)


@pytest.mark.parametrize("ms", [10, 20, 30, 40])
def test_an_answer_of_the_leader_before_is_waited_for_before_the_next_one_is_asked(ms: int) -> None:
    commands = [(0.1, LATE_ANSWERS), (0.0, BEHIND), (0.0, ZOMBIE), (0.01, MORE), (ms / 1000, FLAP_FILLED)]
    copy(Case(once=False, batches=[1] * 4, commands=commands)).check(once=False)


@pytest.mark.parametrize("ms", [7, 8])
def test_a_write_over_an_election_is_of_the_later_leader(ms: int) -> None:
    """The earlier one comes back with what others wrote to it alone."""
    commands = [(ms / 1000, BEHIND), (0.0, OTHERS_WRITE), (0.0, FLAP), (0.3, FLAP)]
    copy(Case(once=False, batches=[1] * 3, chunks=(3,), commands=commands)).check(once=False)


@pytest.mark.parametrize("once", [True, False])
def test_an_epoch_that_rises_while_nobody_else_leads_is_no_alarm(once: bool) -> None:
    """As Kafka before 3.6 did where an ISR shrinks: each stop of a follower."""
    for ms in range(10, 60, 10):
        outcome = copy(Case(once=once, batches=[1] * 30, commands=[(ms / 1000, BUMP)]))
        outcome.check(once=True)
        assert outcome.reasons == []
