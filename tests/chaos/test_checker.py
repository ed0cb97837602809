"""The checker finds each anomaly that it is told, and none in a right history."""

import dataclasses

import pytest

from tests.chaos.checker import ANOMALIES, check
from tests.chaos.history import History, Outcome, Poll, Send

DONE, FAILED, UNKNOWN = Outcome.DONE, Outcome.FAILED, Outcome.UNKNOWN


def right() -> History:
    """Values 1 to 6 at offsets 0 to 5; 3 and 4 in a committed transaction, 5 in an aborted one."""
    log = [(offset, offset + 1) for offset in range(6)]
    return History(
        sends=[
            Send("p", 0, 1, DONE, 0),
            Send("p", 0, 2, DONE, 1),
            Send("t", 0, 3, DONE, 2, transaction=1),
            Send("t", 0, 4, DONE, 3, transaction=1),
            Send("t", 0, 5, DONE, 4, transaction=2),
            Send("p", 0, 6, UNKNOWN),
            Send("p", 0, 7, UNKNOWN),
        ],
        polls=[
            Poll("c", 0, [(0, 1), (1, 2), (2, 3), (3, 4)], committed_only=True),
            Poll("c", 0, [(5, 6)], committed_only=True),
            Poll("u", 0, log, committed_only=False),
        ],
        transactions={1: DONE, 2: FAILED},
        log={0: log},
        committed={0: [each for each in log if each[1] != 5]},
    )


def named(history: History) -> set[str]:
    return {name for name, instances in check(history).items() if instances}


def test_a_right_history_has_none() -> None:
    assert named(right()) == set()
    assert set(check(right())) == set(ANOMALIES)


def without(history: History, *values: int) -> History:
    def left(table: dict[int, list[tuple[int, int]]]) -> dict[int, list[tuple[int, int]]]:
        return {key: [each for each in records if each[1] not in values] for key, records in table.items()}

    return dataclasses.replace(history, log=left(dict(history.log)), committed=left(dict(history.committed)))  # type: ignore[arg-type]


def test_lost() -> None:
    history = without(right(), 2)
    history.polls = []
    assert named(history) == {"lost"}


def test_what_was_never_acknowledged_may_be_missing() -> None:
    history = without(right(), 6)
    history.polls = []
    assert named(history) == set()


def test_duplicate() -> None:
    history = right()
    history.log = {0: [*history.log[0], (7, 1)]}
    assert named(history) == {"duplicate"}


def test_inconsistent_offset_between_two_readers() -> None:
    history = right()
    history.polls.append(Poll("x", 0, [(5, 7)], committed_only=False))
    assert named(history) == {"inconsistent_offset"}


def test_inconsistent_offset_between_acknowledgement_and_log() -> None:
    history = right()
    history.sends[1].offset = 5
    assert "inconsistent_offset" in named(history)


def test_unseen() -> None:
    history = right()
    history.polls.append(Poll("x", 0, [(0, 1), (2, 3)], committed_only=False))
    assert named(history) == {"unseen"}


def test_nonmonotonic_poll_unless_the_consumer_moved() -> None:
    history = right()
    history.polls += [Poll("x", 0, [(5, 6)], False), Poll("x", 0, [(0, 1)], False, positioned=True)]
    assert named(history) == set()
    history.polls[-1].positioned = False
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
    history = right()
    if by_poll:
        history.polls.append(Poll("x", 0, [(4, 5)], committed_only=True))
    else:
        history.committed = history.log
        history.polls = []
    assert named(history) == {"aborted_read"}


def test_torn_transaction() -> None:
    history = right()
    history.committed = {0: [each for each in history.committed[0] if each[1] != 4]}
    history.polls = []
    assert named(history) == {"torn_transaction"}
