"""What a promotion or failover that was broken off has written behind the end of a mirror, which its source
never had: control batches of an era of the mirror's own.

Owns finding it, and taking it off again. A mirror with such batches still is one, takes nothing from its
source, and is not further than where they begin.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from protocol.client import ClusterClient
from protocol.client.mirror_calls import MirrorStand
from protocol.records import iter_headers
from protocol.types import TopicPartition
from replicator.mirrors.lineage import ERA, is_of_a_switch
from replicator.mirrors.terms import portions, raised, settled
from replicator.whole_batches import whole_batches

_AT_ONCE: Final = 16


async def copied_ends(
    target: ClusterClient,
    standing: Mapping[TopicPartition, MirrorStand],
    source_epochs: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """Of mirrors that a switch has written to: up to where they are a copy. `source_epochs`: of the source's
    leaders, as far as it is known. Raises ProtocolError."""
    last_of_source = {
        tp: epoch
        for tp, stand in standing.items()
        if (epoch := _last_of_source(stand, source_epochs.get(tp, -1))) is not None
    }
    found = await target.epoch_ends(last_of_source) if last_of_source else {}
    ends = {tp: max(each.end, standing[tp].start) for tp, each in found.items()}
    own: list[TopicPartition] = []
    for some in portions(ends, _AT_ONCE):
        asked = [_is_control(target, tp, ends[tp], standing[tp].high_watermark) for tp in some]
        own += [tp for tp, is_own in zip(some, await asyncio.gather(*asked), strict=True) if is_own]
    return {tp: ends[tp] for tp in own}


async def _is_control(client: ClusterClient, tp: TopicPartition, start: int, end: int) -> bool:
    """Whether nobody's records are there: a switch writes none. A source whose terms were set back would look
    like one that has not come so far."""
    while start < end:
        found = await whole_batches(client, tp, start)
        if not all(header.is_control for _, header in iter_headers(found.batches)):
            return False
        start = found.next_offset
    return True


def _last_of_source(stand: MirrorStand, source_epoch: int) -> int | None:
    """An epoch that no batch of the switch is of, and none of the source is above; None: no switch has
    written."""
    if source_epoch >= 0:
        return source_epoch if is_of_a_switch(stand.last_epoch, source_epoch) else None
    # A source's batches are of older terms than the one that its mirror is in.
    return stand.last_epoch - 1 if stand.last_epoch == stand.leader_epoch >= ERA else None


async def take_off(
    target: ClusterClient,
    texts: Mapping[TopicPartition, str],
    standing: Mapping[TopicPartition, MirrorStand],
    ends: Mapping[TopicPartition, int],
) -> None:
    """Cuts mirrors to `ends`, in a term in which nothing was written: followers find out by epochs. Raises
    ProtocolError."""
    for some in portions(ends):
        least = {tp: max(standing[tp].leader_epoch, standing[tp].last_epoch) + 1 for tp in some}
        stands = await raised(target, texts, least)
        await settled(target, texts, stands, ends)
