"""Up to where readers of committed records see what was written there.

Owns the question to a leader. It may have the records of a transaction and not the marker of its end: they
are hidden then, until the next marker of that producer, which may say that they are aborted.
"""

from __future__ import annotations

from typing import NamedTuple

from protocol.client import ClusterClient, Isolation
from protocol.types import TopicPartition


class Seen(NamedTuple):
    """Of what is before an offset, and behind it."""

    until: int
    """The first offset before it from which on a transaction is open, or was aborted by a marker right before
    it or behind it; that offset: there is none. What was aborted by earlier markers is not told."""
    is_open: bool
    """Whether a transaction is open there, before or behind it, below the high watermark."""


async def seen_until(client: ClusterClient, tp: TopicPartition, end: int) -> Seen:
    """Asks the leader for what is before `end`. Raises ProtocolError, also when there is nothing at that
    offset any more."""
    fetched = await client.fetch(tp, end - 1, max_bytes=1, max_wait_ms=0, isolation=Isolation.READ_COMMITTED)
    stable = fetched.last_stable_offset
    until = min(end, stable, *(first for _, first in fetched.aborted))
    return Seen(until, stable < fetched.high_watermark)
