"""Which replica a consumer should read from (KIP-392): one at its own place, if that has what it wants.

Pure. Only in-sync replicas are named: their high watermark is near the leader's. (Kafka: `ReplicaSelector`,
`RackAwareReplicaSelector`, `ReplicaManager.findPreferredReadReplica`.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.replication.in_sync import Follower


def nearest(
    rack: str,
    offset: int,
    leader: int,
    candidates: Iterable[Follower],
    rack_of: Callable[[int], str | None],
) -> int:
    """Broker id to read from: the leader if it is in `rack` or nobody there has `offset`.

    Of several in the rack, the one with the most records. `rack_of` gives None for brokers that are away.
    """
    if rack_of(leader) == rack:
        return leader
    able = [
        follower
        for follower in candidates
        if rack_of(follower.replica_id) == rack and follower.start_offset <= offset <= follower.end_offset
    ]
    if not able:
        return leader
    return max(able, key=lambda follower: (follower.end_offset, -follower.replica_id)).replica_id
