"""How far a link's partitions are behind, and which records are lost to those that stand still.

Owns asking the source: what is read tells its end by itself, what stands still does not. That retention has
passed a partition is known here before the partition goes on and books the gap.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Mapping
from typing import Final

from protocol.client import ClusterClient
from protocol.types import TopicPartition
from replicator.book import Account, State
from replicator.ends import log_starts, readable_ends

_log = logging.getLogger("isthmus.replicator")

_STILL: Final = frozenset({State.WAITING, State.REFUSED, State.HELD, State.PAUSED})


async def look_at_lag(
    source: ClusterClient, accounts: Mapping[TopicPartition, Account], wanted: Container[str]
) -> None:
    """Notes the source's ends of the topics that are `wanted`, and what is lost. Raises ProtocolError."""
    spots = [tp for tp, account in accounts.items() if account.state is not State.GONE and tp.topic in wanted]
    ends, _ = await readable_ends(source, spots)
    for tp, end in ends.items():
        account = accounts.get(tp)
        if account is not None:  # else it was given up meanwhile
            account.heard(end)
    await _look_for_lost(source, accounts, spots)


async def _look_for_lost(
    source: ClusterClient, accounts: Mapping[TopicPartition, Account], spots: list[TopicPartition]
) -> None:
    still = [tp for tp in spots if tp in accounts and accounts[tp].state in _STILL]
    firsts, _ = await log_starts(source, still)
    for tp in spots:
        account = accounts.get(tp)
        if account is None or account.entry is None:
            continue
        at = account.entry.ledger.next_source_offset
        lost = max(firsts.get(tp, at) - at, 0) if account.state in _STILL else 0
        if lost and not account.lost:
            _log.warning(
                "%s: source offsets %d to %d are gone from the source and were not copied: the partition"
                " is %s (%s)",
                *(tp, at, at + lost, account.state.value, account.reason),
            )
        if lost != account.lost:
            account.lost = lost
            account.metrics.lost_offsets.set(lost)
