"""Waiting until a link has copied everything that its source held at one moment.

Owns the question "is it drained" for planned failovers, demonstrations and tests: the ends of the source
are taken once, then the stored ledgers are followed. Reads the progress topic only, so the link may run
anywhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field

from protocol.client import LATEST, ClusterClient, Isolation
from protocol.types import TopicPartition
from replicator.progress import ProgressStore
from replicator.settings import progress_topic

_LOOK_AGAIN_S = 0.2


@dataclass(frozen=True, slots=True)
class Drained:
    """`left` holds how many source offsets are still to be copied; it is empty when all were in time."""

    ends: dict[TopicPartition, int]
    left: dict[TopicPartition, int] = field(default_factory=dict)
    gaps: int = 0
    """Gaps in the ledgers of these partitions: copied does not mean complete while there are any."""

    @property
    def done(self) -> bool:
        return not self.left


async def wait_drained(
    source: ClusterClient, target: ClusterClient, link: str, topics: Collection[str], timeout_s: float
) -> Drained:
    """Waits until the link `source->target` has copied `topics` (source names) up to their present ends.

    Returns what is left when `timeout_s` is over. Raises ProtocolError when a cluster cannot be asked.
    """
    metadata = await source.metadata(topics)
    spots = {
        TopicPartition(name, index): LATEST
        for name, topic in metadata.topics.items()
        for index in topic.partitions
    }
    listed = await source.list_offsets(spots, isolation=Isolation.READ_COMMITTED)
    ends = {tp: found.offset for tp, found in listed.items()}
    alias, _, other = link.partition("->")
    store = ProgressStore(target, progress_topic(alias, other))
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while True:
        entries = (await store.refresh()).entries()
        left = {
            tp: end - done
            for tp, end in ends.items()
            if (done := entries[tp].ledger.next_source_offset if tp in entries else 0) < end
        }
        if not left or loop.time() >= deadline:
            gaps = sum(len(entries[tp].ledger.gaps) for tp in ends if tp in entries)
            return Drained(ends, left, gaps)
        await asyncio.sleep(_LOOK_AGAIN_S)
