"""A link's way from a source to a target, both in memory: whatever is lost on the way, booked progress never
passes over a record that is not at the target (I7), and exactly once there is none twice.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.types import TopicPartition
from replicator import refused
from tests.support.link_in_memory import (
    COMPACT,
    END,
    FENCE,
    FORGET,
    GIVE_UP,
    HAND_OVER,
    LET_GO,
    LOSE,
    LOSE_THERE,
    PAUSE,
    RESTART,
    SKIPS,
    SPOIL,
    STALL,
    TAKE,
    TIME_OUT,
    TWICE,
    USURP,
    Case,
    copy,
)
from tests.support.target_in_memory import LATE, LOST, OK, UNHEARD, TargetInMemory
from transfer.endpoint import BrokenEndpointError, Chunk
from transfer.kafka.lane import ProduceLane
from transfer.kafka.sink import KafkaSink
from transfer.kafka.transactional import Transactions
from transfer.ledger import Copied, PartitionLedger

_FATES = st.lists(st.sampled_from([OK, OK, LOST, UNHEARD, LATE]), max_size=20)
_ENDS = st.lists(st.sampled_from([OK, OK, LOST, UNHEARD, LATE]), max_size=6)
_OTHERS = st.lists(st.sampled_from([OK, OK, LOST, UNHEARD]), max_size=6)
_COMMANDS = [
    RESTART,
    GIVE_UP,
    SPOIL,
    FENCE,
    LOSE,
    END,
    PAUSE,
    HAND_OVER,
    TIME_OUT,
    FORGET,
    LET_GO,
    COMPACT,
    LOSE_THERE,
    USURP,
]
_CASES = st.builds(
    Case,
    once=st.booleans(),
    joins=st.booleans(),
    batches=st.lists(st.integers(0, 3), min_size=1, max_size=30),
    chunks=st.lists(st.integers(1, 7), min_size=1, max_size=5),
    produces=_FATES,
    adds=_OTHERS,
    ends=_ENDS,
    inits=_OTHERS,
    commands=st.lists(
        st.tuples(st.integers(0, 40).map(lambda ms: ms / 1000), st.sampled_from(_COMMANDS)),
        max_size=4,
    ),
)


@pytest.mark.parametrize("once", [True, False])
def test_without_trouble_all_arrives_and_nobody_complains(once: bool) -> None:
    outcome = copy(Case(once, chunks=(1, 5, 2)))
    outcome.check(once=True)
    assert outcome.disorders == 0
    assert outcome.reasons == []


@settings(deadline=None)
@given(_CASES)
def test_whatever_is_lost_on_the_way_nothing_is_passed_over_and_nobody_takes_it_for_disorder(
    case: Case,
) -> None:
    outcome = copy(case)
    outcome.check(once=case.once)
    assert outcome.disorders == 0


@pytest.mark.parametrize("once", [True, False])
@pytest.mark.parametrize("command", [LOSE_THERE, USURP])
def test_what_the_target_has_lost_is_copied_again_also_where_others_have_filled_its_place(
    command: str, once: bool
) -> None:
    """An unclean election: nothing of the log's length tells, and nothing has to be written to notice it."""
    for ms in (2, 6, 10, 20, 40, 200, 1000):
        outcome = copy(Case(once, commands=[(ms / 1000, command)]))
        outcome.check(once=once)
        assert outcome.disorders == 0
        assert not outcome.ledger.gaps


_MANY = Case(batches=[0] + [1] * 60 + [0, 1, 1], chunks=(60, 1))
"""A write of many parts, with transactions that end in the middle of it."""


@pytest.mark.parametrize("command", [RESTART, GIVE_UP, SPOIL])
def test_a_partition_that_begins_anew_in_the_middle_of_a_write_goes_back_behind_nothing_committed(
    command: str,
) -> None:
    for ms in range(0, 60, 2):
        outcome = copy(replace(_MANY, commands=[(ms / 1000, command)]))
        outcome.check(once=True)
        assert outcome.disorders == 0


@pytest.mark.parametrize("once", [True, False])
@pytest.mark.parametrize("command", [COMPACT, LET_GO])
def test_what_the_source_has_no_more_of_what_a_killed_link_wrote_is_not_what_comes_next(
    command: str, once: bool
) -> None:
    """It has used up sequence numbers at the target, for as many records as what comes next has."""
    for ms in range(0, 60, 2):
        outcome = copy(Case(once, batches=[1] * 20, commands=[(ms / 1000, command), (0.0, GIVE_UP)]))
        outcome.check(once=once)
        assert outcome.disorders == 0


@pytest.mark.parametrize("fate", [OK, LOST, UNHEARD, LATE])
@pytest.mark.parametrize("once", [True, False])
def test_a_partition_whose_target_is_away_gives_back_its_room_and_is_copied_once_later(
    once: bool, fate: str
) -> None:
    """Whatever of it is at the target, or comes there late: the broker was only slow."""
    for ms in range(0, 60, 4):
        case = replace(_MANY, once=once, commands=[(ms / 1000, STALL)], produces=[OK, OK, fate, fate])
        outcome = copy(case)
        outcome.check(once=True)
        assert outcome.disorders == 0
        if fate != OK and ms == 8:
            assert any("others need the room" in reason for reason in outcome.reasons)


def test_a_worker_that_ends_in_the_middle_of_a_write_stores_nothing_older_than_what_is_committed() -> None:
    """Of a write in several parts the first may be committed; who gave it up has not heard of that."""
    for ms in range(0, 60, 2):
        copy(Case(batches=[1] * 12, chunks=(12,), commands=[(ms / 1000, END)])).check(once=True)


@pytest.mark.parametrize("command", [None, FENCE])
def test_a_worker_that_is_given_up_leaves_no_progress_behind_for_a_later_transaction(
    command: str | None,
) -> None:
    """The data is written, its progress waits for the permit, and the transaction is aborted: soon, for the
    worker joins its group anew only then."""
    for number in range(80):
        commands = [(number / 2000, LOSE)] + ([(0.0, command)] if command else [])
        outcome = copy(Case(batches=[1, 1], chunks=(2,), commands=commands))
        outcome.check(once=True)
        assert outcome.disorders == 0
        assert outcome.losing_s < 1.0


def test_progress_is_not_stored_from_a_book_that_has_not_heard_of_the_commit() -> None:
    """A restarted partition has something to store; the data of before is committed a moment later."""
    case = Case(
        batches=[1], produces=[OK, LOST], commands=[(0.001, RESTART), (0.025, RESTART), (0.04, GIVE_UP)]
    )
    copy(case).check(once=True)


@pytest.mark.parametrize("end", [UNHEARD, LOST])
def test_where_the_outcome_of_a_transaction_is_not_known_stored_progress_counts(end: str) -> None:
    """Somebody takes the producer's id while it asks for the end again, and progress is to be stored."""
    for ms in range(0, 60, 2):
        commands = [(ms / 1000, FENCE)]
        copy(Case(batches=[0, 1] * 12, ends=[end] * 30, commands=commands)).check(once=True)
        copy(Case(batches=[1] * 20, chunks=(2,), ends=[end] * 30, commands=commands)).check(once=True)


def test_an_end_whose_answer_was_lost_ends_no_later_transaction() -> None:
    """It may be read when the next transaction of the same epoch is open (KAFKA-17754)."""
    for number in range(6):
        copy(Case(batches=[1] * 12, ends=[*[OK] * number, LATE])).check(once=True)


def test_what_stands_behind_a_refused_batch_is_copied_once_where_the_target_knows_no_producer() -> None:
    """It takes any sequence number then."""
    for number in range(0, 40, 3):
        case = Case(
            batches=[1] * 40,
            chunks=(1, 4),
            refuses=[b"%d" % number],
            forgets=True,
            commands=[(50.0, TAKE)],
        )
        copy(case).check(once=True)


@pytest.mark.parametrize("once", [True, False])
@pytest.mark.parametrize("refused", range(0, 20, 3))
def test_a_refused_batch_with_others_behind_it_stops_its_partition_and_aborts_nothing_for_ever(
    once: bool, refused: int
) -> None:
    """What is on its way behind it comes out of order, and that is no reason to begin anew."""
    case = Case(once, batches=[1] * 20, chunks=(4,), refuses=[b"%d" % refused], commands=[(50.0, TAKE)])
    outcome = copy(case)
    outcome.check(once=True)
    assert "MESSAGE_TOO_LARGE" in outcome.reasons[0]
    assert len(outcome.reasons) == 1


# Rules of the link switched off: what the guard is for


def _closed_takes_writes(patch: pytest.MonkeyPatch) -> None:
    """A partition that was closed is opened by the next write, whatever was given up before."""
    close = KafkaSink.close

    async def closed(self: KafkaSink, tp: TopicPartition) -> None:
        closing = asyncio.ensure_future(close(self, tp))
        await asyncio.sleep(0)
        self._closed.discard(tp)
        await closing

    patch.setattr(KafkaSink, "close", closed)


def _queue_goes_on(patch: pytest.MonkeyPatch) -> None:
    """What stands behind a write that was given up goes into the next transaction."""
    landed = Transactions.landed

    def without_giving_up(self: Transactions, lane: ProduceLane, *what: Any) -> None:
        lane.abandon = lambda error: None  # type: ignore[method-assign]
        landed(self, lane, *what)
        del lane.abandon

    patch.setattr(Transactions, "landed", without_giving_up)


def _sink_keeps_no_order(patch: pytest.MonkeyPatch) -> None:
    """Something is waited for before a write stands in its lane."""
    write, turns = KafkaSink.write, itertools.count()

    async def late(self: KafkaSink, tp: TopicPartition, chunk: Chunk) -> Copied:
        await asyncio.sleep(0.01 if next(turns) == 2 else 0.0)
        return await write(self, tp, chunk)

    patch.setattr(KafkaSink, "write", late)


def _guard(patch: pytest.MonkeyPatch) -> None:
    """Nothing looks whether a write continues what was before."""
    patch.setattr(PartitionLedger, "check", lambda *_: None)
    patch.setattr(ProduceLane, "_out_of_place", lambda *_: None)


_RULES = {
    "closed takes writes": (_closed_takes_writes, GIVE_UP),
    "queue goes on": (_queue_goes_on, SPOIL),
    "sink keeps no order": (_sink_keeps_no_order, ""),
}


def _wrong(*off: Callable[[pytest.MonkeyPatch], None], command: str) -> tuple[int, float]:
    """Of a row of runs, how many are wrong at the end, and how often the guard has said no."""
    wrong, said = 0, 0.0
    for ms in range(0, 60, 2):
        with pytest.MonkeyPatch.context() as patch:
            for rule in off:
                rule(patch)
            case = Case(batches=[1] * 40, chunks=(1, 3), commands=[(ms / 1000, command)])
            try:
                outcome = copy(case)
                said += outcome.disorders
                outcome.check(once=True)
            except (AssertionError, BrokenEndpointError):
                wrong += 1
    return wrong, said


@pytest.mark.parametrize("rule", _RULES)
def test_without_a_rule_of_the_link_the_guard_says_no_and_nothing_is_lost(rule: str) -> None:
    off, command = _RULES[rule]
    wrong, said = _wrong(off, command=command)
    assert said
    assert not wrong
    wrong, _ = _wrong(off, _guard, command=command)
    assert wrong


@pytest.mark.parametrize(("command", "at_s"), [(RESTART, 0.038), (LOSE, 0.038), (LOSE, 0.044)])
def test_whoever_goes_on_with_a_refused_batch_finds_the_parts_that_are_written(
    command: str, at_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one before was stopped while it waited for an answer."""
    produce = TargetInMemory.produce

    async def slow(*arguments: Any, **more: Any) -> int:
        base = await produce(*arguments, **more)
        await asyncio.sleep(0.004)
        return base

    monkeypatch.setattr(TargetInMemory, "produce", slow)
    copy(Case(batches=[1, 8, 1], refuses=[b"6"], commands=[(at_s, command), (50.0, TAKE)])).check(once=True)


@pytest.mark.parametrize("once", [True, False])
def test_where_a_part_of_a_refused_batch_is_forgotten_the_rest_of_it_is_not_taken_for_what_follows(
    once: bool,
) -> None:
    case = Case(once, batches=[1, 8, 1], refuses=[b"6"], commands=[(50.0, TAKE)])
    halves, turns = refused._halves, itertools.count()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(refused, "_halves", lambda part: halves(part)[next(turns) == 0 :])
        outcome = copy(case)
        outcome.check(once=True)
        assert outcome.disorders == 1
    turns = itertools.count()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(refused, "_halves", lambda part: halves(part)[: 1 if next(turns) == 0 else 2])
        copy(case).check(once=True)


@pytest.mark.parametrize("once", [True, False])
@pytest.mark.parametrize("fate", [SKIPS, TWICE])
def test_a_source_that_skips_or_repeats_is_read_again_before_anything_of_it_is_sent(
    once: bool, fate: str
) -> None:
    outcome = copy(Case(once, reads=[OK, fate]))
    outcome.check(once=True)
    assert outcome.disorders == 1
    assert "a write begins at source offset" in outcome.reasons[0]
