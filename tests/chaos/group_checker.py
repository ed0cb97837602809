"""Anomalies of groups and of what is consumed, transformed and produced. Pure, like `checker`.

- lost commit: a member began below a position whose commit had been acknowledged before it asked.
- group skip: a group's committed position lies past a readable record that none of its members got (I4).
- transformed twice: two committed results of one record (a value that stands twice in the log is two).
- not transformed: none, though the group's position has passed it.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from tests.chaos.history import History, Place, Start

ANOMALIES = ("lost_commit", "group_skip", "transformed_twice", "not_transformed")

Findings = dict[str, list[str]]
Position = tuple[str, Place]


def check(history: History, found: Findings) -> None:
    reached = _positions(history, found)
    _coverage(history, reached, found)
    _transformed(history, reached, found)


def _positions(history: History, found: Findings) -> dict[Position, int]:
    """The largest committed position of each group and partition."""
    events: list[tuple[float, int, Start | None, Position, int]] = [
        (commit.at, 0, None, (commit.group, commit.place), commit.offset) for commit in history.commits
    ]
    events += [(start.at, 1, start, (start.group, start.place), start.offset) for start in history.starts]
    reached: dict[Position, int] = {}
    for _, _, start, position, offset in sorted(events, key=lambda event: event[:2]):
        before = reached.get(position, 0)
        if start is None:
            reached[position] = max(before, offset)
        elif offset < before:
            found["lost_commit"].append(
                f"{start.member} of {start.group} began {start.place} at {offset}, committed was {before}"
            )
    return reached


def _coverage(history: History, reached: dict[Position, int], found: Findings) -> None:
    got: dict[Position, set[int]] = defaultdict(set)
    for poll in history.polls:
        if poll.group is not None:
            got[poll.group, poll.place].update(offset for offset, _ in poll.records)
    for (group, place), end in reached.items():
        for offset, value in history.committed.get(place, ()):
            if offset < end and offset not in got[group, place]:
                found["group_skip"].append(f"{group} is at {end} of {place}, nobody got {offset} ({value})")


def _transformed(history: History, reached: dict[Position, int], found: Findings) -> None:
    """Only groups that transform anything are looked at; `source` says what a record was made from."""
    readable = Counter(value for records in history.committed.values() for _, value in records)
    results: dict[int, list[int]] = defaultdict(list)
    groups: set[str] = set()
    for send in history.sends:
        if send.source is not None:
            groups.add(send.producer.partition("/")[0])
            if send.value in readable:
                results[send.source].append(send.value)
    for source, values in results.items():
        if len(values) > max(1, readable[source]):
            found["transformed_twice"].append(f"{source} became {values}")
    for (group, place), end in reached.items():
        for offset, value in history.committed.get(place, ()) if group in groups else ():
            if offset < end and value not in results:
                found["not_transformed"].append(
                    f"{group} is at {end} of {place}, {offset} ({value}) became nothing"
                )
