"""The checker finds each anomaly that it is told, and none in a right history."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import pytest

from tests.chaos.checker import ANOMALIES, check
from tests.chaos.history import (
    Commit,
    History,
    Outcome,
    Place,
    Poll,
    Records,
    Send,
    Start,
    Transaction,
)

DONE, FAILED, UNKNOWN = Outcome.DONE, Outcome.FAILED, Outcome.UNKNOWN
IN, OUT = Place("in", 0), Place("out", 0)


def right() -> History:
    """Values 1 to 6 at offsets 0 to 5; 3 and 4 in a committed transaction, 5 in an aborted one.

    Group g has read and committed up to offset 4; group x has made 11 of 1 and 12 of 2.
    """
    log = [(offset, offset + 1) for offset in range(6)]
    committed = [each for each in log if each[1] != 5]
    return History(
        sends=[
            Send("p", IN, 1, DONE, 0),
            Send("p", IN, 2, DONE, 1),
            Send("t", IN, 3, DONE, 2, transaction=1),
            Send("t", IN, 4, DONE, 3, transaction=1),
            Send("t", IN, 5, DONE, 4, transaction=2),
            Send("p", IN, 6, UNKNOWN),
            Send("p", IN, 7, UNKNOWN),
            Send("x/x0", OUT, 11, DONE, 0, transaction=3, source=1),
            Send("x/x0", OUT, 12, DONE, 1, transaction=3, source=2),
        ],
        polls=[
            Poll("c", IN, committed[:4], committed_only=True, at=20.0),
            Poll("c", IN, [(5, 6)], committed_only=True, at=21.0),
            Poll("u", IN, log, committed_only=False, at=20.0),
            Poll("g0", IN, committed[:2], committed_only=True, at=20.0, group="g"),
            Poll("g1", IN, committed[2:4], committed_only=True, at=23.0, group="g"),
            Poll("x0", IN, committed[:2], committed_only=True, at=20.0, group="x"),
        ],
        transactions={1: Transaction(DONE, 10.0), 2: Transaction(FAILED), 3: Transaction(DONE, 21.0)},
        commits=[Commit("g", IN, 2, 21.0), Commit("g", IN, 4, 24.0), Commit("x", IN, 2, 22.0)],
        starts=[
            Start("g", "g0", IN, 0, 19.0),
            Start("g", "g1", IN, 2, 22.0),
            Start("x", "x0", IN, 0, 19.0),
        ],
        log={IN: log, OUT: [(0, 11), (1, 12)]},
        committed={IN: committed, OUT: [(0, 11), (1, 12)]},
    )


def named(history: History) -> set[str]:
    return {name for name, instances in check(history).items() if instances}


def test_a_right_history_has_none() -> None:
    assert named(right()) == set()
    assert set(check(right())) == set(ANOMALIES)


def without(history: History, *values: int) -> History:
    def left(table: Mapping[Place, Records]) -> dict[Place, Records]:
        return {key: [each for each in records if each[1] not in values] for key, records in table.items()}

    return dataclasses.replace(history, log=left(history.log), committed=left(history.committed), polls=[])


def alone(history: History) -> History:
    """Without groups, whose anomalies would come with some others."""
    return dataclasses.replace(history, commits=[], starts=[])


def test_lost() -> None:
    assert named(alone(without(right(), 2))) == {"lost"}


def test_lost_where_the_offset_is_not_known() -> None:
    history = alone(without(right(), 2))
    history.sends[1].offset = -1
    assert named(history) == {"lost"}


def test_unseen_beyond_the_end_of_the_log() -> None:
    history = alone(without(right(), 5, 6))
    history.sends[5] = Send("p", IN, 6, DONE, 5)
    assert named(history) == {"unseen"}
    assert len(check(history)["unseen"]) == 2


def test_what_was_never_acknowledged_may_be_missing() -> None:
    assert named(alone(without(right(), 6))) == set()


def test_duplicate() -> None:
    history = right()
    history.log = {**history.log, IN: [*history.log[IN], (7, 1)]}
    assert named(history) == {"duplicate"}


def test_who_is_not_idempotent_may_write_twice_and_out_of_order() -> None:
    history = right()
    history.log = {**history.log, IN: [*history.log[IN], (7, 1)]}
    history.sends[0].is_exact = history.sends[1].is_exact = False
    history.sends[:2] = [history.sends[1], history.sends[0]]
    assert named(history) == set()


def test_inconsistent_offset_between_two_readers() -> None:
    history = right()
    history.polls.append(Poll("y", IN, [(5, 7)], committed_only=False))
    assert named(history) == {"inconsistent_offset"}


def test_inconsistent_offset_between_acknowledgement_and_log() -> None:
    history = right()
    history.sends[1].offset = 5
    assert "inconsistent_offset" in named(history)


def test_poll_skip() -> None:
    history = right()
    history.polls.append(Poll("y", IN, [(0, 1), (2, 3)], committed_only=False))
    assert named(history) == {"poll_skip"}


def test_poll_skip_between_two_polls() -> None:
    history = right()
    history.polls += [Poll("y", IN, [(0, 1)], True, at=20.0), Poll("y", IN, [(3, 4)], True, at=20.0)]
    assert len(check(history)["poll_skip"]) == 2
    history.polls[-1].positioned = True
    assert named(history) == set()


def test_aborted_records_are_no_skip_for_who_reads_committed_data() -> None:
    history = right()
    history.polls.append(Poll("y", IN, [(3, 4), (5, 6)], committed_only=True, at=20.0))
    assert named(history) == set()
    history.polls[-1].committed_only = False
    assert named(history) == {"poll_skip"}


def test_nonmonotonic_poll_unless_the_consumer_moved() -> None:
    history = right()
    history.polls += [Poll("y", IN, [(5, 6)], False), Poll("y", IN, [(0, 1)], False, positioned=True)]
    assert named(history) == set()
    history.polls[-1].positioned = False
    assert named(history) == {"nonmonotonic_poll"}


def test_nonmonotonic_poll_inside_one_call() -> None:
    history = right()
    history.polls.append(Poll("y", IN, [(1, 2), (1, 2)], False))
    assert named(history) == {"nonmonotonic_poll"}


def test_nonmonotonic_send() -> None:
    history = right()
    first, second = history.sends[0], history.sends[1]
    history.sends[:2] = [second, first]
    assert named(history) == {"nonmonotonic_send"}


def test_an_acknowledgement_without_an_offset_is_in_no_order() -> None:
    history = right()
    history.sends[1].offset = -1
    assert named(history) == set()


@pytest.mark.parametrize("by_poll", [True, False])
def test_aborted_read(by_poll: bool) -> None:
    history = alone(right())
    if by_poll:
        history.polls.append(Poll("y", IN, [(4, 5)], committed_only=True, at=20.0))
    else:
        history.committed = history.log
        history.polls = []
    assert named(history) == {"aborted_read"}


@pytest.mark.parametrize("reader", ["t-own", "y"])
def test_precommitted_read(reader: str) -> None:
    history = right()
    history.polls.append(Poll(reader, IN, [(2, 3)], committed_only=True, at=9.0))
    assert named(history) == {"precommitted_read"}
    history.polls[-1].at = 10.5
    assert named(history) == set()


def test_a_read_before_an_unknown_end_is_right_once_the_commit_was_asked_for() -> None:
    history = right()
    history.transactions[1].outcome = UNKNOWN
    assert named(history) == set()
    history.transactions[1].asked_at = Transaction().asked_at
    assert named(history) == {"precommitted_read"}


def test_torn_transaction() -> None:
    history = alone(right())
    history.committed = {**history.committed, IN: [each for each in history.committed[IN] if each[1] != 4]}
    history.polls = []
    assert named(history) == {"torn_transaction"}


def test_lost_commit() -> None:
    history = right()
    history.starts.append(Start("g", "g2", IN, 2, 25.0))
    assert named(history) == {"lost_commit"}
    history.starts[-1].at = 23.5  # the commit of 4 was acknowledged only afterwards
    assert named(history) == set()


def test_group_skip() -> None:
    history = right()
    history.commits.append(Commit("g", IN, 6, 26.0))
    assert named(history) == {"group_skip"}
    history.polls.append(Poll("g1", IN, [(5, 6)], committed_only=True, at=25.0, group="g"))
    assert named(history) == set()


def test_transformed_twice() -> None:
    history = right()
    history.sends.append(Send("x/x1", OUT, 13, DONE, 2, transaction=4, source=2))
    history.transactions[4] = Transaction(DONE, 22.0)
    table = {OUT: [*history.log[OUT], (2, 13)]}
    history.log, history.committed = {**history.log, **table}, {**history.committed, **table}
    assert named(history) == {"transformed_twice"}
    history.sends[1].is_exact = False  # 2 stands in the log twice, and each was transformed
    history.log = {**history.log, IN: [*history.log[IN], (6, 2)]}
    history.committed = {**history.committed, IN: [*history.committed[IN], (6, 2)]}
    assert named(history) == set()


def test_not_transformed() -> None:
    history = right()
    history.commits.append(Commit("x", IN, 3, 23.0))
    history.polls.append(Poll("x0", IN, [(2, 3)], committed_only=True, at=22.0, group="x"))
    assert named(history) == {"not_transformed"}
