"""Up to where readers of committed records see what was written there.

Owns the question to a leader. It may have the records of a transaction and not the marker of its end: they
are hidden then, until the next marker of that producer, which may say that they are aborted.
"""

from __future__ import annotations

from typing import NamedTuple

from protocol.client import EARLIEST, LATEST, ClusterClient, Isolation, RetryPolicy
from protocol.types import TopicPartition


class Seen(NamedTuple):
    """Of what is before an offset, and behind it."""

    until: int
    """The first offset before it from which on a transaction is open, or was aborted by a marker right before
    it or behind it; that offset: there is none. What was aborted by earlier markers is not told."""
    is_open: bool
    """Whether a transaction is open there, before or behind it, below the high watermark."""


async def seen_until(
    client: ClusterClient, tp: TopicPartition, end: int, *, retry: RetryPolicy | None = None
) -> Seen:
    """Asks the leader for what is before `end`, as far as retention has left it. Raises ProtocolError, also
    where the log does not reach so far.

    A new leader may know of a high watermark far before the end of its log: what is committed seems to be
    hidden then, and a transaction that is open behind it is not told. Asked for its end it says so (KIP-207).
    """
    await client.offset(tp, LATEST, retry=retry)
    first = (await client.offset(tp, EARLIEST, retry=retry)).offset
    at = max(end - 1, first)
    fetched = await client.fetch(
        tp, at, max_bytes=1, max_wait_ms=0, isolation=Isolation.READ_COMMITTED, retry=retry
    )
    stable = fetched.last_stable_offset
    until = end if end <= first else min(end, stable, *(begun for _, begun in fetched.aborted))
    return Seen(until, stable < fetched.high_watermark)
