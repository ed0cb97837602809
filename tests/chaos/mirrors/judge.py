"""What is wrong with what a run of mirrors left behind: pure, from both sides' records and the history.

lost          acknowledged, and neither in the log nor in what a reversal saved, nor let go of by its rules
duplicate     twice in the log
reordered     what one client wrote to a partition is in another order than it was written
foreign       readable though its client had aborted it
changed       a reader saw at an offset what is not there now, and was not cut off (I2)
unread        in the log, and a group that followed the roles has not read it (I4)
differing     a mirror does not hold what its source holds
cut           a promotion called complete, after which the old side had records of its own

A failover aborts transactions of which the mirror had not the end: their records are there, and not readable.
They are no anomaly, though the old side may have acknowledged their commit; `Findings.given_up` counts them.
`letting_go` says what topics with compaction or retention may lack.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.chaos.mirrors.history import History, Place, checksum
from tests.chaos.mirrors.letting_go import may_be_gone, number_of
from tests.chaos.mirrors.topics import End, keeps

ANOMALIES = ("lost", "duplicate", "reordered", "foreign", "changed", "unread", "differing", "cut")
Content = Mapping[Place, Sequence[tuple[int, bytes]]]
"""(offset, name) by place."""


@dataclass(frozen=True, slots=True)
class Cut:
    """What a side had of its own when it was turned into a mirror, up to but not with `end`."""

    side: str
    place: Place
    start: int
    end: int
    names: frozenset[bytes]


@dataclass(slots=True)
class Findings:
    anomalies: dict[str, list[str]] = field(default_factory=lambda: {name: [] for name in ANOMALIES})
    saved: int = 0
    """Acknowledged, cut off, and in a file."""
    given_up: int = 0
    """Acknowledged in transactions that a failover aborted at the other side."""
    let_go: int = 0
    """Acknowledged, and gone as their topic's rules have it."""


def judge(
    committed: Content,
    stored: Content,
    cuts: Sequence[Cut],
    history: History,
    groups: Iterable[str],
    end: End | None = None,
    lives: Collection[str] = (),
) -> Findings:
    """`committed` is what readers may read in the end, `stored` all that is in the logs. `lives`: those of
    sides that are over (`History`)."""
    end = end or End()
    found = Findings()
    there = Counter(name for rows in committed.values() for _, name in rows)
    found.anomalies["duplicate"] = [f"{name.decode()} ({n} times)" for name, n in there.items() if n > 1]
    found.anomalies["foreign"] = [name.decode() for name in there if name in history.aborted]
    _lost(committed, stored, cuts, history, found, end)
    _reordered(committed, found)
    _changed(stored, cuts, history, found, {*lives}, end)
    for group in groups:
        found.anomalies["unread"] += [
            f"{group} {topic}-{partition} {offset} {name.decode()}"
            for (topic, partition), rows in committed.items()
            for offset, name in rows
            if name not in history.read[group]
        ]
    return found


def _lost(
    committed: Content,
    stored: Content,
    cuts: Sequence[Cut],
    history: History,
    found: Findings,
    end: End,
) -> None:
    readable = {name: place for place, rows in committed.items() for _, name in rows}
    kept = {name: place for place, rows in stored.items() for _, name in rows}
    saved = {name: cut.place for cut in cuts for name in cut.names}
    cut_off: dict[Place, list[frozenset[bytes]]] = defaultdict(list)
    for cut in cuts:
        cut_off[cut.place].append(cut.names)
    gone = {
        place: may_be_gone(place, rows, history, end, cut_off[place]) for place, rows in committed.items()
    }
    for name, place in history.acknowledged.items():
        if readable.get(name) == place or place[0] in end.deleted:
            continue
        # The cleaner drops what is aborted, so nothing of it need be in the log of a compacted topic.
        is_there = kept.get(name) == place or bool(keeps(place[0]).keys)
        is_kept = name in history.set_aside or (bool(cuts) and is_there)
        if saved.get(name) == place:
            found.saved += 1
        elif place in gone and gone[place](name):
            found.let_go += 1
        elif name in history.transactional and is_kept:
            found.given_up += 1
        else:
            found.anomalies["lost"].append(f"{place} {name.decode()}")


def _reordered(committed: Content, found: Findings) -> None:
    """Names are `client/number`, and a client's numbers ascend."""
    for place, rows in committed.items():
        last: dict[bytes, int] = defaultdict(int)
        for offset, name in rows:
            client, number = name.rpartition(b"/")[0], number_of(name)
            if number < last[client]:
                found.anomalies["reordered"].append(f"{place} offset {offset}: {name.decode()}")
            last[client] = max(last[client], number)


def _changed(
    stored: Content,
    cuts: Sequence[Cut],
    history: History,
    found: Findings,
    lives: set[str],
    end: End,
) -> None:
    now = {(place, offset): checksum(name) for place, rows in stored.items() for offset, name in rows}
    was_cut: dict[tuple[str, Place], list[tuple[int, int]]] = defaultdict(list)
    for cut in cuts:
        was_cut[cut.side, cut.place].append((cut.start, cut.end))
    for (side, place, offset), sums in history.seen.items():
        here = now.get((place, offset))
        if sums == [here]:
            continue
        is_over = side in lives or place[0] in end.deleted or (here is None and not keeps(place[0]).is_all)
        times = 1 + end.remade.get((side, place[0]), 0)
        if len(sums) <= times and (is_over or (times > 1 and here in sums)):
            continue
        if not any(start <= offset < last for start, last in was_cut[side.partition("#")[0], place]):
            found.anomalies["changed"].append(f"{side} {place} offset {offset}: seen as {sums}")
