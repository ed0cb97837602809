"""Going on where an interrupted restore stopped, without writing anything twice.

Owns the arithmetic: a restore is the only writer of its topics, and one batch is appended as a whole, so the
target's end says how many records are there already. Those batches are planned as before, booked into the
ledger and not sent; the last of them is compared with what the target holds.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

from connectors.errors import RestoreError
from protocol.client import ClusterClient
from protocol.records.header import iter_headers
from protocol.types import TopicPartition
from transfer.endpoint import BatchSink, Chunk
from transfer.ledger import Copied
from transfer.offset_map import Run
from transfer.rewrite import Outgoing, plan
from transfer.tail import same_records


@dataclass(slots=True)
class _Present:
    """What of one target partition is there already: `next` up to `end` is still to be recognised."""

    next: int
    end: int
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class ResumingSink:
    """A `BatchSink` before another one; it takes what the target already has."""

    def __init__(self, inner: BatchSink, client: ClusterClient) -> None:
        self._inner = inner
        self._client = client
        self._present: dict[TopicPartition, _Present] = {}

    def present(self, tp: TopicPartition, base: int, end: int) -> None:
        """The target holds this restore's records at `base` up to `end`."""
        if end > base:
            self._present[tp] = _Present(base, end)

    async def write(self, tp: TopicPartition, chunk: Chunk) -> Copied:
        present = self._present.get(tp)
        if present is None:
            return await self._inner.write(tp, chunk)
        booked: list[Outgoing] = []
        async with present.lock:  # first come, first served, also for the chunks behind what is present
            first = present.next
            for out in plan(chunk)[0]:
                if present.next == present.end:
                    break
                await self._recognise(tp, present, out)
                booked.append(out)
            copied = _booked(booked, first, chunk)
            if present.next < present.end:
                return copied
        if booked:
            chunk = replace(chunk, first_offset=booked[-1].next_source_offset)
        rest = await self._inner.write(tp, chunk)
        return Copied(
            copied.runs + rest.runs,
            rest.next_source_offset,
            copied.records + rest.records,
            copied.bytes + rest.bytes,
            copied.crcs + rest.crcs,
            rest.producer,
            first_source_offset=copied.first_source_offset,
        )

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def _recognise(self, tp: TopicPartition, present: _Present, out: Outgoing) -> None:
        behind = present.next + out.record_count
        if behind > present.end:
            raise self._foreign(tp, present, "it ends inside one of the backup's batches")
        if behind == present.end:
            fetched = await self._client.fetch(tp, present.next)
            for pos, header in iter_headers(fetched.records):
                if header.base_offset == present.next and same_records(out, fetched.records, pos, header):
                    break
            else:
                raise self._foreign(tp, present, f"its record {present.next} is not the backup's")
        present.next = behind

    def _foreign(self, tp: TopicPartition, present: _Present, why: str) -> RestoreError:
        return RestoreError(
            f"{tp.topic}-{tp.partition} ends at offset {present.end}, but not with what this restore wrote: "
            f"{why}. Delete the topic and restore again"
        )


def _booked(outs: list[Outgoing], target: int, chunk: Chunk) -> Copied:
    runs: list[Run] = []
    for out in outs:
        for source, length in out.sources:
            runs.append(Run(source, target, length))
            target += length
    return Copied(
        tuple(runs),
        max([chunk.next_offset, *(out.next_source_offset for out in outs[-1:])]),
        sum(out.record_count for out in outs),
        sum(out.source_size for out in outs),
        tuple(crc for out in outs for crc in out.source_crcs),
        first_source_offset=chunk.first_offset,
    )
