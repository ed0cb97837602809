"""What is wrong where sources let go of records, some before a link has read them: pure, from the history.

lost               acknowledged, not at the target, and no gap on record says so (I7); in a compacted topic
                   a later one of its key may be there instead
untrue             a gap on record covers it, and it is at the target (but for "perhaps copied before")
duplicate          at the target more than once
reordered          at the target in another order than at the source
corrupt            at both sides, with another time, key, header or content
foreign            at the target, aborted by its producer
changed            two values at one offset, or a reader that went back (I2)
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from tests.chaos.links.history import History, Place
from tests.chaos.links.judge import Content, Findings
from transfer.ledger import Gap

ANOMALIES = ("lost", "untrue", "duplicate", "reordered", "corrupt", "foreign", "changed")
Gaps = Mapping[Place, Sequence[Gap]]
"""By source."""
_PERHAPS = "perhaps copied before"


class Judged(NamedTuple):
    findings: Findings
    missed: int
    """Acknowledged records that are in gaps."""


def judge(content: Content, history: History, mirror_of: Callable[[Place], Place], gaps: Gaps) -> Judged:
    """`content` holds what is left of the sources, and all of the mirrors."""
    findings: Findings = {name: [] for name in ANOMALIES}
    acknowledged: dict[Place, list[bytes]] = defaultdict(list)
    for name, place in history.acknowledged.items():
        acknowledged[place].append(name)
    missed = 0
    for place in content:
        if mirror_of(place) not in content:
            continue
        there = content[mirror_of(place)]
        times = Counter(row[0] for _, row in there)
        newest: dict[bytes, int] = {}
        for name in acknowledged[place]:
            if name in history.keys:
                key = history.keys[name]
                newest[key] = max(newest.get(key, -1), history.offsets[name])
        for name in acknowledged[place]:
            offset = history.offsets[name]
            gap = next((gap for gap in gaps.get(place, ()) if gap.start <= offset < gap.end), None)
            missed += gap is not None and name not in times
            if gap is None and name not in times and newest.get(history.keys.get(name, b""), -1) <= offset:
                findings["lost"].append(f"{name.decode()} at {place} offset {offset}")
            if gap is not None and name in times and not gap.reason.endswith(_PERHAPS):
                findings["untrue"].append(f"{name.decode()} at {place} offset {offset}, {gap}")
        for name, count in times.items():
            if count > 1:
                findings["duplicate"].append(f"{name.decode()} of {place}: {count} times")
            if name in history.aborted:
                findings["foreign"].append(f"{name.decode()} of {place}")
        here = dict(row for _, row in content[place])
        findings["corrupt"] += [
            f"{name.decode()} of {place} at target offset {offset}"
            for offset, (name, whole) in there
            if here.get(name, whole) != whole
        ]
        known = [name for name in dict.fromkeys(row[0] for _, row in there) if name in history.offsets]
        findings["reordered"] += [
            f"{b.decode()} behind {a.decode()} of {place}"
            for a, b in pairwise(known)
            if history.offsets[a] > history.offsets[b]
        ][:1]
    findings["changed"] += history.changed
    return Judged(findings, missed)
