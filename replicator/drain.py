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
from protocol.client.metadata import TopicMetadata
from protocol.errors import KafkaError
from protocol.types import ZERO_UUID, TopicPartition, uuid_to_text
from replicator.acknowledgements import Difference, open_differences
from replicator.entry_rows import Entry
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
    unacknowledged: tuple[Difference, ...] = ()
    """What the ledgers lack, or hold too much, that nobody has taken note of."""

    @property
    def done(self) -> bool:
        return not self.left


async def wait_drained(
    source: ClusterClient, target: ClusterClient, link: str, topics: Collection[str], timeout_s: float
) -> Drained:
    """Waits until the link `source->target` has copied `topics` (source names) up to their present ends.

    Returns what is left when `timeout_s` is over. Raises ProtocolError when a cluster cannot be asked.
    """
    known = (await source.metadata(topics)).topics if topics else {}
    for name, topic in known.items():
        if topic.error:
            raise KafkaError(topic.error, f"topic {name} of the source")
    spots = {
        TopicPartition(name, index): LATEST for name, topic in known.items() for index in topic.partitions
    }
    listed = await source.list_offsets(spots, isolation=Isolation.READ_COMMITTED)
    ends = {tp: found.offset for tp, found in listed.items()}
    alias, _, other = link.partition("->")
    store = ProgressStore(target, progress_topic(alias, other))
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while True:
        progress = await store.refresh()
        entries = {tp: entry for tp, entry in progress.entries().items() if tp in ends}
        left = {
            tp: end - done
            for tp, end in ends.items()
            if (done := _done(entries.get(tp), known[tp.topic])) < end
        }
        if not left or loop.time() >= deadline:
            ledgers = {tp: entry.ledger for tp, entry in entries.items()}
            gaps = sum(len(ledger.gaps) for ledger in ledgers.values())
            return Drained(ends, left, gaps, tuple(open_differences(ledgers, progress.acknowledged)))
        await asyncio.sleep(_LOOK_AGAIN_S)


def _done(entry: Entry | None, topic: TopicMetadata) -> int:
    """Up to where it is copied; what was copied of another topic that had the name is nothing of this one."""
    if entry is None:
        return 0
    of = entry.ledger.source.topic_id
    same = not of or topic.topic_id == ZERO_UUID or of == uuid_to_text(topic.topic_id)
    return entry.ledger.next_source_offset if same else 0
