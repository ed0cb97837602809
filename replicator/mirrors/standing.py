"""What a link knew of its source last, kept at the target: the only witness once it is lost.

Owns the record: committed offsets of a group that nobody reads with, the mirror's end as offset and the
source's end, with times, as metadata. So a failover has it at once, where it is needed. Committed offsets
expire: each is written again now and then, and nothing is here that has to stay while a link rests.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from protocol.client import ClusterClient, Committed
from protocol.types import TopicPartition
from replicator.acknowledgements import Difference, Kind
from replicator.mirrors.partition import MirrorPartition

RECORD_GROUPS: Final = "isthmus-mirrors."
_AGAIN_MS: Final = 3_600_000
"""So old may a commit get: `offsets.retention.minutes` (a week by default) counts for each partition."""


_SILENT_MS: Final = 5_000
"""A partition whose source has said nothing for so long is not what others are: its broker may be gone."""


class LastSeen(NamedTuple):
    """`seen_ms`: when the source said so; `level_ms`: when the mirror last had everything (0: not known).
    `silent`: the source's leader said nothing after that, though others did perhaps."""

    mirror_end: int
    source_end: int
    seen_ms: int
    level_ms: int
    silent: bool = False


class _Written(NamedTuple):
    end: int
    source_end: int
    silent: bool
    heard_ms: int
    at_ms: int


_NEVER: Final = _Written(-1, -1, False, -1, 0)


def record_group(link: str) -> str:
    return f"{RECORD_GROUPS}{link.replace('->', '-to-')}"


class Witness:
    """Writes what has changed, and the partition that was heard last, which shows how fresh the rest is: but
    not of those that are silent, which is written too."""

    def __init__(self, target: ClusterClient, link: str) -> None:
        self._target = target
        self._group = record_group(link)
        self._written: dict[TopicPartition, _Written] = {}

    async def write(self, parts: Iterable[MirrorPartition], now_ms: int) -> None:
        """Raises ProtocolError."""
        heard = [part for part in parts if part.source_end >= 0]
        freshest = max(heard, key=lambda part: part.heard_ms, default=None)
        commits: dict[TopicPartition, Committed] = {}
        told: dict[TopicPartition, _Written] = {}
        for part in heard:
            silent = now_ms - part.heard_ms > _SILENT_MS
            now = _Written(part.end, part.source_end, silent, part.heard_ms, now_ms)
            before = self._written.get(part.tp, _NEVER)
            is_new = before[:3] != now[:3] or now_ms - before.at_ms > _AGAIN_MS
            if is_new or (part is freshest and before.heard_ms != part.heard_ms):
                about = {
                    "source_end": part.source_end,
                    "seen_ms": part.heard_ms,
                    "level_ms": part.level_ms,
                    "silent": silent,
                }
                commits[part.tp] = Committed(part.end, -1, json.dumps(about))
                told[part.tp] = now
        if commits:
            await self._target.commit(self._group, commits)
            self._written.update(told)


async def gaps_of_before(
    target: ClusterClient, link: str, tps: Iterable[TopicPartition] | None = None
) -> dict[TopicPartition, list[Difference]]:
    """Gaps that an earlier version kept here, by partition (None: all). Raises ProtocolError."""
    found = {}
    of = None if tps is None else list(tps)
    for tp, at in (await target.committed(record_group(link), of)).items():
        with contextlib.suppress(ValueError, TypeError, AttributeError):
            gaps = json.loads(at.metadata or "{}").get("gaps", [])
            found[tp] = [Difference(tp, Kind.GAP, int(a), int(b), str(why), 0) for a, b, why in gaps]
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
                at.offset,
                int(known["source_end"]),
                int(known["seen_ms"]),
                int(known["level_ms"]),
                bool(known.get("silent")),
            )
        except (ValueError, KeyError, TypeError):
            continue
    alive_ms = max((each.seen_ms for each in found.values()), default=0)
    return {
        # Nothing is written of what stands still: it was level as long as the link was heard of.
        tp: each._replace(seen_ms=alive_ms, level_ms=alive_ms)
        if each.source_end <= each.mirror_end and not each.silent
        else each
        for tp, each in found.items()
    }
