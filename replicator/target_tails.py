"""What the target holds behind the recorded end of a partition, matched with what the source has next.

Owns reading both sides and booking what is recognised (`transfer.tail` compares). Behind the end of a link
that copies at least once is what it wrote since it stored progress last. Under exactly once progress is in
the transactions of the data, so that what is committed there is somebody else's, but for two cases: a broker
leads again whose records the link took for lost, and has them still; or stored progress was lost itself.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

from protocol.client import EARLIEST, LATEST, ClusterClient, Isolation
from protocol.types import TopicPartition
from replicator.entry_rows import Entry
from replicator.metrics import LinkMetrics
from replicator.origin import Origin
from replicator.whole_batches import committed_chunk, whole_batches
from transfer.endpoint import Chunk
from transfer.ledger import Gap, Lineage, PartitionLedger
from transfer.rewrite import next_sequence, plan
from transfer.tail import Placed, TailMatcher, committed, outside_transactions

_log = logging.getLogger("isthmus.replicator")

_WINDOW: Final = 4 << 20
"""Bytes of a tail that are held and compared at a time."""

_LONGEST: Final = 64 << 20
"""So many in a row of which nothing is known are somebody else's."""

_AT_A_TIME: Final = 16
_TRANSACTION: Final = 2
"""Offsets that a committed transaction takes at least: a record, and the marker of its end."""


class TargetTails:
    """Of a link."""

    def __init__(
        self, source: ClusterClient, target: ClusterClient, metrics: LinkMetrics, origin: Origin | None
    ) -> None:
        self._source = source
        self._target = target
        self._metrics = metrics
        self._origin = origin
        self._turns = asyncio.Semaphore(_AT_A_TIME)

    async def match(self, entry: Entry, target_end: int, source: tuple[int, int]) -> list[Gap]:
        """Books what the target's tail already holds; returns the gaps found on the way. `target_end` is the
        end of its log, `source` the first offset there and the readable end. Of a piece that is not read in
        full nothing is booked. Where the tail is empty, reading finds a gap by itself. Raises ProtocolError.
        """
        position = entry.ledger.runs.target_end
        if target_end < position + (_TRANSACTION if entry.once else 1):
            return []
        if entry.once and source[1] <= entry.ledger.next_source_offset:
            return []  # whatever others wrote there: the source has nothing that it could be
        async with self._turns:
            tp = _tp(entry.ledger.target)
            if entry.once:  # nobody is waited for whose transaction is open there
                target_end = (
                    await self._target.offset(tp, LATEST, isolation=Isolation.READ_COMMITTED)
                ).offset
            position = max(position, (await self._target.offset(tp, EARLIEST)).offset)  # it may be gone there
            gaps: list[Gap] = []
            unknown = 0
            while unknown < _LONGEST and position < target_end:
                tail, size, position = await self._read(tp, (position, target_end), once=entry.once)
                recognised, found = await self._match(entry, tail, source)
                unknown = 0 if recognised else unknown + size
                gaps += found
            return gaps

    async def _read(
        self, tp: TopicPartition, stretch: tuple[int, int], *, once: bool
    ) -> tuple[list[Placed], int, int]:
        """As much as is compared at a time, in bytes, and where that ends."""
        position, end = stretch
        tail: list[Placed] = []
        size = 0
        while position < end and size < _WINDOW:
            if once:
                chunk = await committed_chunk(self._target, tp, position, max_bytes=_WINDOW)
                tail += committed(chunk)
            else:
                found = await whole_batches(self._target, tp, position, max_bytes=_WINDOW)
                chunk = Chunk(tp, found.batches, position, found.next_offset)
                tail += outside_transactions(chunk)
            size += chunk.size
            position = chunk.next_offset
        return tail, size, position

    async def _match(
        self, entry: Entry, tail: list[Placed], source: tuple[int, int]
    ) -> tuple[bool, list[Gap]]:
        """Whether anything was recognised, with the gaps that were found."""
        ledger, (source_first, source_end) = entry.ledger, source
        matcher = TailMatcher(tail)
        left_out: list[int] = []
        position = first = max(ledger.next_source_offset, source_first)
        while not matcher.done and position < source_end:
            chunk = await committed_chunk(self._source, _tp(ledger.source), position, max_bytes=_WINDOW)
            if self._origin is not None:
                chunk, offsets = self._origin.apply(chunk)
                left_out += offsets
            outs, refusal = plan(chunk)
            if not all(matcher.offer(out) for out in outs) or refusal is not None:
                break
            position = chunk.next_offset
        self._metrics.unrecognised.inc(matcher.left_over)
        if matcher.left_over:
            # Those may be this producer's, of records that the source has no more: what comes next would be
            # taken for them where it has their sequence numbers.
            entry.producer = None
        copied = matcher.copied()
        perhaps = matcher.has_tail and not entry.once
        gaps = _retention_hole(ledger, source_first) if perhaps or copied is not None else []
        for gap in gaps:
            ledger.add_gap(gap)
            entry.epoch = -1
        if copied is None:
            return False, gaps
        _log.info("%s: %d records are at the target already", _tp(ledger.source), copied.records)
        self._metrics.recognised.inc(copied.records)
        passed = sum(offset < copied.next_source_offset for offset in left_out)
        ledger.add(copied._replace(left_out=passed, first_source_offset=first))
        entry.reached(copied, first)
        if entry.producer is not None:
            after = next_sequence(entry.producer.next_sequence, copied.records)
            entry.producer = entry.producer._replace(next_sequence=after)
        return True, gaps


def _retention_hole(ledger: PartitionLedger, source_first: int) -> list[Gap]:
    """The part of the source that went before anybody could tell whether the target has it."""
    start = ledger.next_source_offset
    if source_first <= start:
        return []
    reason = "retention passed while the link was down; perhaps copied before"
    return [Gap(start, source_first, reason, time.time_ns() // 1_000_000)]


def _tp(lineage: Lineage) -> TopicPartition:
    return TopicPartition(lineage.topic, lineage.partition)
