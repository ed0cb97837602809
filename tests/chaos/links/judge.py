"""What is wrong with what a link run left behind: pure, from the records of both sides and the history.

lost               at the source, not at the target
duplicate          at the target once more than at the source
reordered          at both, in another order
corrupt            the same value with another time, key, header or content
foreign            at the target only, aborted records among them
unacknowledged     acknowledged to a producer and not at the source (of the broker, not of the link)
skipped            a group's position at the target is past what it had read (I4, I5)
inexact            in the end a group's position at the target is not the one of its last commit
changed            two values at one offset, or a reader that went back (I2)
circled            a topic of one side came back to it (I6)
"""

from __future__ import annotations

import bisect
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence

from tests.chaos.links.history import History, Place
from tests.chaos.links.load import Row

ANOMALIES = (
    "lost",
    "duplicate",
    "reordered",
    "corrupt",
    "foreign",
    "unacknowledged",
    "skipped",
    "inexact",
    "changed",
    "circled",
)
Content = Mapping[Place, Sequence[tuple[int, Row]]]
Findings = dict[str, list[str]]


Positions = Mapping[tuple[str, Place], int]
"""Of groups, by group and place."""


def judge(
    content: Content,
    history: History,
    mirror_of: Callable[[Place], Place],
    committed: Positions,
    translated: Positions,
) -> Findings:
    """`content` holds all committed records of sources and mirrors; `mirror_of` says where a source's are.

    Groups stand at `committed` in the end, and their doubles at the target at `translated`.
    """
    findings: Findings = {name: [] for name in ANOMALIES}
    sources = [place for place in content if mirror_of(place) in content]
    for place in sources:
        _compare(place, content[place], content[mirror_of(place)], history.aborted, findings)
    at = {row[0]: place for place in sources for _, row in content[place]}
    for name, place in history.acknowledged.items():
        if at.get(name) != place:
            findings["unacknowledged"].append(f"{name.decode()} at {place}")
    origins = {mirror_of(place): place for place in sources}
    _skipped(content, history, origins, findings)
    findings["inexact"] = inexact(content, mirror_of, committed, translated)
    findings["changed"] += history.changed
    return findings


def _compare(
    place: Place,
    source: Sequence[tuple[int, Row]],
    target: Sequence[tuple[int, Row]],
    aborted: set[bytes],
    findings: Findings,
) -> None:
    here, there = Counter(row[0] for _, row in source), Counter(row[0] for _, row in target)
    hashes = dict(row for _, row in source)
    for name in here.keys() | there.keys():
        surplus = there[name] - here[name]
        kind = "lost" if surplus < 0 else "duplicate" if name in here else "foreign"
        if surplus:
            state = ", aborted" if name in aborted else ""
            findings[kind].append(f"{place} {name.decode()}{state} ({here[name]} here, {there[name]} there)")
    for offset, (name, whole) in target:
        if name in hashes and hashes[name] != whole:
            findings["corrupt"].append(f"{place} {name.decode()} at target offset {offset}")
    wanted = [name for name in dict.fromkeys(row[0] for _, row in source) if name in there]
    found = [name for name in dict.fromkeys(row[0] for _, row in target) if name in here]
    findings["reordered"] += [
        f"{place} {b.decode()} where {a.decode()} belongs"
        for a, b in zip(wanted, found, strict=False)
        if a != b
    ][:1]  # one displaced record displaces all behind it


def _skipped(content: Content, history: History, origins: Mapping[Place, Place], findings: Findings) -> None:
    """The last record before a position at the target must have been read at the source by then."""
    tries: dict[tuple[str, Place], tuple[list[float], list[int]]] = {}
    for moment in history.tried:  # in order of time
        times, most = tries.setdefault((moment.group, moment.place), ([], []))
        times.append(moment.at)
        most.append(max(moment.offset, most[-1] if most else 0))
    offsets = {place: [offset for offset, _ in content[place]] for place in origins}
    first_at: dict[Place, dict[bytes, int]] = defaultdict(dict)
    for place in origins.values():
        for offset, row in content[place]:
            first_at[place].setdefault(row[0], offset)
    for moment in history.shown:
        origin = origins.get(moment.place)
        if origin is None:
            continue
        before = bisect.bisect_left(offsets[moment.place], moment.offset)
        if not before:
            continue
        name = content[moment.place][before - 1][1][0]
        needed = first_at[origin].get(name, -1) + 1
        times, most = tries.get((moment.group, origin), ([], []))
        index = bisect.bisect_right(times, moment.at)
        allowed = most[index - 1] if index else 0
        if needed > allowed:
            findings["skipped"].append(
                f"{moment.group} {moment.place} at {moment.offset}: past source offset {needed - 1}, had"
                f" read up to {allowed}"
            )


def inexact(
    content: Content, mirror_of: Callable[[Place], Place], committed: Positions, translated: Positions
) -> list[str]:
    """The next record that a group would read must be the same on both sides."""
    found = []
    for (group, place), offset in committed.items():
        mirror = mirror_of(place)
        if mirror not in content or place not in content:
            continue
        there = translated.get((group, mirror), 0)
        unread, after = _next(content[place], offset), _next(content[mirror], there)
        if unread != after:
            found.append(
                f"{group} {place} at {offset}, {mirror} at {there}: next is {after!r}, not {unread!r}"
            )
    return found


def _next(records: Sequence[tuple[int, Row]], offset: int) -> bytes | None:
    return next((row[0] for at, row in records if at >= offset), None)
