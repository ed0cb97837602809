"""What a link knew of its source last, and its gaps, kept at the target: the only witness once it is lost.

Owns the record: committed offsets of a group that nobody reads with, the mirror's end as offset and the
source's end, with times, as metadata. So it needs no topic of its own, and a failover finds it where it is
needed.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from protocol.client import ClusterClient, Committed
from protocol.types import TopicPartition
from replicator.mirrors.partition import MirrorPartition

RECORD_GROUPS: Final = "isthmus-mirrors."
_GAPS: Final = 20
"""Brokers take 4,096 bytes of metadata."""


class LastSeen(NamedTuple):
    """`seen_ms`: when the source said so; `level_ms`: when the mirror last had everything (0: not known)."""

    mirror_end: int
    source_end: int
    seen_ms: int
    level_ms: int


def record_group(link: str) -> str:
    return f"{RECORD_GROUPS}{link.replace('->', '-to-')}"


class Witness:
    """Writes what has changed, and always something, so that it shows how fresh the rest is."""

    def __init__(self, target: ClusterClient, link: str) -> None:
        self._target = target
        self._group = record_group(link)
        self._written: dict[TopicPartition, tuple[int, int]] = {}

    async def write(self, parts: Iterable[MirrorPartition], now_ms: int) -> None:
        """Raises ProtocolError."""
        commits: dict[TopicPartition, Committed] = {}
        told: dict[TopicPartition, tuple[int, int]] = {}
        for part in parts:
            standing = (part.end, part.source_end)
            if part.source_end < 0 or (commits and self._written.get(part.tp) == standing):
                continue
            about = {"source_end": part.source_end, "seen_ms": now_ms, "level_ms": part.level_ms}
            text = json.dumps(about | ({"gaps": part.gaps[-_GAPS:]} if part.gaps else {}))
            commits[part.tp] = Committed(part.end, -1, text)
            told[part.tp] = standing
        await self._target.commit(self._group, commits)
        self._written.update(told)

    async def gaps(
        self, tps: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, list[tuple[int, int, str]]]:
        """What could not be copied before this run, by partition (None: all). Raises ProtocolError."""
        found = {}
        of = None if tps is None else list(tps)
        for tp, at in (await self._target.committed(self._group, of)).items():
            with contextlib.suppress(ValueError, TypeError, AttributeError):
                known = json.loads(at.metadata or "{}").get("gaps", [])
                found[tp] = [(int(start), int(end), str(reason)) for start, end, reason in known]
        return found


async def last_seen(
    target: ClusterClient, link: str, tps: Iterable[TopicPartition]
) -> Mapping[TopicPartition, LastSeen]:
    """What the link has written last; partitions of which it knew nothing are left out."""
    found: dict[TopicPartition, LastSeen] = {}
    for tp, at in (await target.committed(record_group(link), list(tps))).items():
        try:
            known = json.loads(at.metadata or "")
            found[tp] = LastSeen(
                at.offset, int(known["source_end"]), int(known["seen_ms"]), int(known["level_ms"])
            )
        except (ValueError, KeyError, TypeError):
            continue
    alive_ms = max((each.seen_ms for each in found.values()), default=0)
    return {
        # Nothing is written of what stands still: it was level as long as the link was heard of.
        tp: each._replace(seen_ms=alive_ms, level_ms=alive_ms) if each.source_end <= each.mirror_end else each
        for tp, each in found.items()
    }
