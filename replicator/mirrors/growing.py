"""Partitions that a source has and its mirror lacks: made before anything is called whole.

Owns the making for changes of roles; a link that runs makes them as it looks at topics (`topics.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from protocol.client import ClusterClient, RetryPolicy
from protocol.client.retry import retrying
from protocol.counted import counted
from protocol.errors import ErrorCode, KafkaError
from replicator.mirrors.lineage import MirrorSource

_MADE: Final = RetryPolicy(total_s=15)


async def grow(
    source: ClusterClient,
    target: ClusterClient,
    mirrors: Mapping[str, MirrorSource],
    say: Callable[[str], None],
) -> None:
    """Returns when the target knows them. Raises ProtocolError."""
    here = (await source.metadata(list(mirrors))).topics
    counts = {name: len(here[name].partitions) for name in mirrors}
    there = (await target.metadata(list(mirrors))).topics
    short = {name: count for name, count in counts.items() if len(there[name].partitions) < count}
    for name, count in short.items():
        lacks = count - len(there[name].partitions)
        say(f"{name}: the source has {counted(lacks, 'partition')} that its mirror lacks: made now")
        await target.create_partitions({name: count})

    async def known() -> None:
        topics = (await target.metadata(list(short))).topics
        for name, count in short.items():
            if len(topics[name].partitions) < count:
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{name}: not all partitions are there yet")

    if short:
        await retrying(known, _MADE)
