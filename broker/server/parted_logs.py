"""Whether a reader's log is of another history than ours (KIP-320, KIP-595).

A reader says of which leader epoch the last batch is that it has. Where that epoch ended earlier here, or was
never here, what stands behind its offset does not continue what it has. (Kafka: `Partition.readRecords`.)
"""

from __future__ import annotations

from broker.log import Log
from protocol.messages.fetch_request import FetchPartition


def parted_at(log: Log, asked: FetchPartition) -> tuple[int, int] | None:
    """(epoch, end offset) up to which both may be the same, (-1, -1) when that is not known. None: the
    reader's log is the beginning of ours, or it does not say."""
    wanted = asked.last_fetched_epoch
    if wanted < 0:
        return None
    epoch, end = log.epoch_end_offset(wanted)
    return (epoch, end) if epoch < wanted or end < asked.fetch_offset else None
