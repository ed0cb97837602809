"""Up to where readers of committed records see what was written there.

Owns the question to a leader. It may have the records of a transaction and not the marker of its end: they
are hidden then, until the next marker of that producer, which may say that they are aborted.
"""

from __future__ import annotations

from protocol.client import ClusterClient, Isolation
from protocol.types import TopicPartition


async def seen_until(client: ClusterClient, tp: TopicPartition, end: int) -> int:
    """The first offset below `end` from which on a transaction is open, or was aborted by a marker at
    `end - 1` or behind it; `end`: there is none. What was aborted by earlier markers is not told. Raises
    ProtocolError, also when there is nothing at that offset any more."""
    fetched = await client.fetch(tp, end - 1, max_bytes=1, max_wait_ms=0, isolation=Isolation.READ_COMMITTED)
    return min(end, fetched.last_stable_offset, *(first for _, first in fetched.aborted))
