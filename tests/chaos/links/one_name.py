"""Topics of one name on both sides, written to on both (`origin_headers`): whose records are whose. Pure.

A value says at which side it was produced. What came over the link is looked at as a topic of its own, called
as a link with prefixes would call it, so that one judge does for both. Groups are not: where two histories
meet, what a group has read on one side says nothing of the other (replicator/README.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from tests.chaos.links.history import Place
from tests.chaos.links.load import Row

SETTINGS: Mapping[str, object] = {"naming": "identity", "origin_headers": True, "sync_group_offsets": False}


def of_origin(rows: Sequence[tuple[int, Row]], side: str) -> list[tuple[int, Row]]:
    """Those that were produced there."""
    start = f"{side}/".encode()
    return [row for row in rows if row[1][0].startswith(start)]


def circled(
    content: Mapping[Place, Sequence[tuple[int, Row]]], topics: Mapping[str, Mapping[str, int]]
) -> Iterator[str]:
    """Records that stand twice where they were produced: a link has brought them back. `topics` are those
    that are written to, by side."""
    for (side, topic, partition), rows in content.items():
        if topic in topics[side]:
            times = Counter(row[0] for _, row in rows)
            yield from (
                f"{name.decode()} at {side} in {topic}-{partition}" for name, n in times.items() if n > 1
            )
