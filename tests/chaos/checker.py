"""Anomalies in a history, by the names of Jepsen's Kafka work. Pure; `test_checker.py` shows it each one.

- lost: an acknowledged record is not in the log, though a later one of its partition is.
- unseen: an acknowledged record lies beyond all that a last reader could read.
- duplicate: one value of an exact producer stands at several offsets of a partition.
- inconsistent offset: an offset was seen with two values, or acknowledged for another one than it holds (I2).
- poll skip: a consumer that was polled past a readable record never got it.
- non-monotonic poll: a consumer that had not moved got an offset at or below one that it had.
- non-monotonic send: an exact producer's acknowledged offsets do not rise in the order of its sends.
- aborted read: a consumer of committed data got a record of an aborted transaction.
- precommitted read: it got one before that transaction's producer had asked to commit (its own, in Jepsen).
- torn transaction: of one transaction's records some are readable as committed, others not.

What groups do is in `group_checker`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping

from tests.chaos import group_checker
from tests.chaos.history import History, Outcome, Place, Poll, Records, Transaction

ANOMALIES = (
    "lost",
    "unseen",
    "duplicate",
    "inconsistent_offset",
    "poll_skip",
    "nonmonotonic_poll",
    "nonmonotonic_send",
    "aborted_read",
    "precommitted_read",
    "torn_transaction",
    *group_checker.ANOMALIES,
)

Findings = dict[str, list[str]]


def check(history: History) -> Findings:
    """Each anomaly's instances, in words; all lists are empty for a right history."""
    found: Findings = {name: [] for name in ANOMALIES}
    _sends(history, found)
    _log(history, found)
    _offsets(history, found)
    _polls(history, found)
    _transactions(history, found)
    group_checker.check(history, found)
    return found


def _sends(history: History, found: Findings) -> None:
    held = {place: {value for _, value in records} for place, records in history.log.items()}
    ends = {
        place: max((offset for offset, _ in records), default=-1) for place, records in history.log.items()
    }
    last: dict[tuple[str, Place], tuple[int, int]] = {}
    for send in history.sends:
        if send.outcome is not Outcome.DONE:
            continue
        where = f"{send.value} ({send.place}, acknowledged at {send.offset})"
        if send.place in held and send.value not in held[send.place]:
            is_beyond = send.offset > ends.get(send.place, -1)
            found["unseen" if is_beyond else "lost"].append(where)
        if send.offset < 0 or not send.is_exact:
            continue  # stored by an earlier try, where is not said; or a retry may have passed it
        key = (send.producer, send.place)
        before = last.get(key, (-1, -1))
        if send.offset <= before[0]:
            found["nonmonotonic_send"].append(f"{where} by {send.producer} after {before}")
        last[key] = (send.offset, send.value)


def _log(history: History, found: Findings) -> None:
    may_repeat = {send.value for send in history.sends if not send.is_exact}
    for place, records in history.log.items():
        at: dict[int, list[int]] = defaultdict(list)
        for offset, value in records:
            at[value].append(offset)
        for value, offsets in at.items():
            if len(offsets) > 1 and value not in may_repeat:
                found["duplicate"].append(f"{value} in {place} at {offsets}")


def _seen(history: History) -> Iterable[tuple[Place, int, int]]:
    """(partition, offset, value) from every source."""
    for table in (history.log, history.committed):
        for place, records in table.items():
            for offset, value in records:
                yield place, offset, value
    for send in history.sends:
        if send.outcome is Outcome.DONE and send.offset >= 0:
            yield send.place, send.offset, send.value
    for poll in history.polls:
        for offset, value in poll.records:
            yield poll.place, offset, value


def _offsets(history: History, found: Findings) -> None:
    first: dict[tuple[Place, int], int] = {}
    different: dict[tuple[Place, int], set[int]] = {}
    for place, offset, value in _seen(history):
        known = first.setdefault((place, offset), value)
        if known != value:
            different.setdefault((place, offset), {known}).add(value)
    for (place, offset), values in different.items():
        found["inconsistent_offset"].append(f"{place} offset {offset}: {sorted(values)}")


def _polls(history: History, found: Findings) -> None:
    position: dict[tuple[str, Place], int] = {}
    readable = {True: _sorted(history.committed), False: _sorted(history.log)}
    for poll in history.polls:
        key = (poll.consumer, poll.place)
        before = -1 if poll.positioned else position.get(key, -1)
        for offset, value in poll.records:
            if offset <= before:
                found["nonmonotonic_poll"].append(f"{poll.consumer} got {offset} ({value}) after {before}")
            elif before >= 0 and offset != before + 1:
                _skipped(readable[poll.committed_only].get(poll.place, ()), poll, before, offset, found)
            before = offset
        position[key] = before


def _sorted(table: Mapping[Place, Records]) -> dict[Place, list[tuple[int, int]]]:
    return {place: sorted(records) for place, records in table.items()}


def _skipped(readable: Records, poll: Poll, before: int, offset: int, found: Findings) -> None:
    start = bisect_right(readable, before, key=lambda record: record[0])
    end = bisect_left(readable, offset, key=lambda record: record[0])
    for at, value in readable[start:end]:
        where = f"over {at} ({value}) of {poll.place}"
        found["poll_skip"].append(f"{poll.consumer} went from {before} to {offset} {where}")


def _transactions(history: History, found: Findings) -> None:
    of = {send.value: send.transaction for send in history.sends if send.transaction is not None}
    known = history.transactions
    nothing = Transaction()
    for poll in history.polls:
        for offset, value in poll.records if poll.committed_only else ():
            transaction = of.get(value)
            if transaction is None:
                continue
            ended = known.get(transaction, nothing)
            if ended.outcome is Outcome.FAILED:
                found["aborted_read"].append(f"{poll.consumer} got {value} at {offset}")
            elif poll.at < ended.asked_at:
                found["precommitted_read"].append(f"{poll.consumer} got {value} at {offset}")
    readable = {value for records in history.committed.values() for _, value in records}
    values: dict[int, set[int]] = defaultdict(set)
    for value, transaction in of.items():
        values[transaction].add(value)
    for transaction, written in values.items():
        seen = written & readable
        if known.get(transaction, nothing).outcome is Outcome.FAILED and seen:
            found["aborted_read"].append(f"transaction {transaction} was aborted, {sorted(seen)} is readable")
        elif seen and seen != written:
            missing = sorted(written - seen)
            found["torn_transaction"].append(f"transaction {transaction}: {missing} is missing")
