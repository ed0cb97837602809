"""What mirrors let go of when they pass over a gap: all that they have before, as the source has none of it.

Owns counting it for gaps that were not passed yet. A mirror's log begins where its source's does
(`broker/replication/mirroring.py`), so nothing before a gap can stay.
"""

from __future__ import annotations

from collections.abc import Collection

from protocol.client import NO_RETRIES, ClusterClient
from protocol.types import TopicPartition
from replicator.acknowledgements import Difference, Kind
from replicator.mirrors.assessing import SwitchRefused, find_mirrors
from replicator.piecemeal import piecemeal
from replicator.settings import LinkSettings


async def would_drop(
    target: ClusterClient, settings: LinkSettings, gaps: Collection[Difference]
) -> dict[Difference, int]:
    """How many records (by offsets) the mirrors have before those of `gaps` that they stand at. Those that
    were passed, and those whose mirror's leader does not answer, are left out. Raises ProtocolError."""
    tps = {gap.tp for gap in gaps if gap.kind is Kind.GAP}
    if not tps:
        return {}
    try:
        mirrors = await find_mirrors(target, settings)
    except SwitchRefused:  # there is none any more
        return {}

    async def ask(tps: list[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        texts = {tp: mirrors[tp.topic].text for tp in tps}
        stands = await target.mirror_stands(texts, retry=NO_RETRIES)
        return {tp: (stand.start, stand.end) for tp, stand in stands.items()}

    stands, _ = await piecemeal(ask, [tp for tp in tps if tp.topic in mirrors])
    return {
        gap: end - start
        for gap in gaps
        if gap.kind is Kind.GAP and gap.tp in stands
        for start, end in [stands[gap.tp]]
        if gap.start == end and start < end
    }
