"""Anomalies in a history, by the names of Jepsen's Kafka work. Pure; `test_checker.py` shows it each one.

- lost: an acknowledged record is not in the log.
- duplicate: one value stands at several offsets of a partition (producers are idempotent).
- inconsistent offset: an offset was seen with two values, or acknowledged for another one than it holds (I2).
- unseen: a consumer that was polled past a readable record never got it: the skip of a poll.
- non-monotonic poll: a consumer that had not moved got an offset at or below one that it had.
- non-monotonic send: a producer's acknowledged offsets do not rise in the order of its sends.
- aborted read: a consumer of committed data got a record of an aborted transaction.
- torn transaction: of one transaction's records some are readable as committed, others not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from tests.chaos.history import History, Outcome, Poll

ANOMALIES = (
    "lost",
    "duplicate",
    "inconsistent_offset",
    "unseen",
    "nonmonotonic_poll",
    "nonmonotonic_send",
    "aborted_read",
    "torn_transaction",
)

Findings = dict[str, list[str]]


def check(history: History) -> Findings:
    """Each anomaly's instances, in words; all lists are empty for a right history."""
    found: Findings = {name: [] for name in ANOMALIES}
    _sends(history, found)
    _log(history, found)
    _polls(history, found)
    _transactions(history, found)
    return found


def _sends(history: History, found: Findings) -> None:
    held = {partition: {value for _, value in records} for partition, records in history.log.items()}
    last: dict[tuple[str, int], tuple[int, int]] = {}
    for send in history.sends:
        if send.outcome is not Outcome.DONE:
            continue
        where = f"{send.value} (partition {send.partition}, acknowledged at {send.offset})"
        if send.value not in held.get(send.partition, ()):
            found["lost"].append(where)
        if send.offset < 0:
            continue  # stored by an earlier try, where is not said
        key = (send.producer, send.partition)
        before = last.get(key, (-1, -1))
        if send.offset <= before[0]:
            found["nonmonotonic_send"].append(f"{where} by {send.producer} after {before}")
        last[key] = (send.offset, send.value)


def _log(history: History, found: Findings) -> None:
    for partition, records in history.log.items():
        at: dict[int, list[int]] = defaultdict(list)
        for offset, value in records:
            at[value].append(offset)
        for value, offsets in at.items():
            if len(offsets) > 1:
                found["duplicate"].append(f"{value} in partition {partition} at {offsets}")


def _seen(history: History) -> Iterable[tuple[int, int, int]]:
    """(partition, offset, value) from every source."""
    for table in (history.log, history.committed):
        for partition, records in table.items():
            for offset, value in records:
                yield partition, offset, value
    for send in history.sends:
        if send.outcome is Outcome.DONE and send.offset >= 0:
            yield send.partition, send.offset, send.value
    for poll in history.polls:
        for offset, value in poll.records:
            yield poll.partition, offset, value


def _polls(history: History, found: Findings) -> None:
    values: dict[tuple[int, int], set[int]] = defaultdict(set)
    for partition, offset, value in _seen(history):
        values[partition, offset].add(value)
    for (partition, offset), different in values.items():
        if len(different) > 1:
            found["inconsistent_offset"].append(f"partition {partition} offset {offset}: {sorted(different)}")
    position: dict[tuple[str, int], int] = {}
    for poll in history.polls:
        key = (poll.consumer, poll.partition)
        before = -1 if poll.positioned else position.get(key, -1)
        for offset, value in poll.records:
            if offset <= before:
                found["nonmonotonic_poll"].append(f"{poll.consumer} got {offset} ({value}) after {before}")
            elif before >= 0:
                _skipped(history, poll, before, offset, found)
            before = offset
        position[key] = before


def _skipped(history: History, poll: Poll, before: int, offset: int, found: Findings) -> None:
    if offset == before + 1:
        return
    readable = history.committed if poll.committed_only else history.log
    for at, value in readable.get(poll.partition, ()):
        if before < at < offset:
            where = f"over {at} ({value}) of partition {poll.partition}"
            found["unseen"].append(f"{poll.consumer} went from {before} to {offset} {where}")


def _transactions(history: History, found: Findings) -> None:
    of = {send.value: send.transaction for send in history.sends if send.transaction is not None}
    for poll in history.polls:
        for offset, value in poll.records if poll.committed_only else ():
            if history.transactions.get(of.get(value, -1)) is Outcome.FAILED:  # type: ignore[arg-type]
                found["aborted_read"].append(f"{poll.consumer} got {value} at {offset}")
    readable = {value for records in history.committed.values() for _, value in records}
    values: dict[int, set[int]] = defaultdict(set)
    for value, transaction in of.items():
        values[transaction].add(value)
    for transaction, written in values.items():
        outcome = history.transactions.get(transaction, Outcome.UNKNOWN)
        seen = written & readable
        if outcome is Outcome.FAILED and seen:
            found["aborted_read"].append(f"transaction {transaction} was aborted, {sorted(seen)} is readable")
        elif seen and seen != written:
            found["torn_transaction"].append(
                f"transaction {transaction}: {sorted(written - seen)} is missing"
            )
