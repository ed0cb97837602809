"""Who leads a partition and where, for answers that correct a client's stale metadata (KIP-951)."""

from __future__ import annotations

from typing import NamedTuple

from broker.control.metadata_cache import MetadataCache


class CurrentLeader(NamedTuple):
    leader: int
    leader_epoch: int
    host: str
    port: int
    rack: str | None


def current_leader(metadata: MetadataCache, topic: str, index: int, listener: str) -> CurrentLeader | None:
    """The leader that the cache knows, with its address on the client's listener; None if it is not there."""
    info = metadata.partition(topic, index)
    if info is None:
        return None
    address = metadata.endpoint(info.leader, listener)
    if address is None:
        return None
    rack = metadata.brokers[info.leader].rack
    return CurrentLeader(info.leader, info.leader_epoch, address.host, address.port, rack)
