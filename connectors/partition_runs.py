"""Running a transfer partition by partition: so many at a time, each with its own ledger and its own end.

Owns what backup and restore have in common around the engine: waiting for a partition's end, its faults and
its silence. It must not know what stands at either end. What goes wrong in one partition is that partition's
result; only an object store that cannot be used ends everything.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from connectors.errors import ConnectorError
from protocol.types import TopicPartition
from transfer.endpoint import BatchSink, BatchSource, Chunk, FaultKind, SourceFault, TransferError
from transfer.engine import Engine
from transfer.ledger import Copied, Gap, PartitionLedger

_FINISHED = "finished"
_LOOK_S = 1.0


@dataclass(slots=True, eq=False)
class PartitionRun:
    """One partition's way from `start` to `end` (source offsets)."""

    source: TopicPartition
    target: TopicPartition
    start: int
    end: int
    ledger: PartitionLedger
    problem: str = ""
    """Why it did not arrive; the rest is a gap in the ledger."""
    events: asyncio.Queue[SourceFault | TransferError | str] = field(default_factory=asyncio.Queue)
    moved_at: float = 0.0
    position: int = -1

    @property
    def whole(self) -> bool:
        """Whether everything up to the end was dealt with."""
        return self.ledger.next_source_offset >= self.end


class PartitionRuns:
    """An engine's observer that brings partitions to their ends."""

    def __init__(
        self,
        source: BatchSource,
        sink: BatchSink,
        *,
        stall_s: float,
        moved: Callable[[int], None],
        sink_answers: bool = False,
    ) -> None:
        """`moved` hears how many source offsets were dealt with. `sink_answers`: what it was given is taken
        or refused in the end, however slow it is, so only the source's silence counts."""
        self._engine = Engine(source, sink, self)
        self._stall_s = stall_s
        self._sink_answers = sink_answers
        self._moved = moved
        self._runs: dict[TopicPartition, PartitionRun] = {}
        self._pump: asyncio.Task[None] | None = None

    async def __aenter__(self) -> PartitionRuns:
        self._pump = asyncio.create_task(self._engine.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._pump is not None:
            self._engine.stop()
            await asyncio.gather(self._pump, return_exceptions=True)
            await self._engine.drain(0)

    async def run(self, run: PartitionRun) -> None:
        """Returns when the partition has arrived or cannot go on. Raises ConnectorError when nothing can."""
        self._runs[run.source] = run
        run.moved_at = time.monotonic()
        await self._engine.start(run.source, run.target, run.start, until=run.end)
        while True:
            event = await self._next(run)
            if event == _FINISHED:
                return
            if isinstance(event, TransferError) and isinstance(event.__cause__, ConnectorError):
                raise event.__cause__
            resume = event.resume_offset if isinstance(event, SourceFault) else run.end
            silent = isinstance(event, str)  # then nobody knows whether what is on its way ever arrives
            await self._engine.stop_partition(run.source, abandon=silent)
            if isinstance(event, SourceFault) and event.kind is FaultKind.RETENTION and resume < run.end:
                run.ledger.add_gap(self._gap(run, resume, event.kind.value))
                await self._engine.start(run.source, run.target, resume, until=run.end)
                continue
            self._give_up(run, event)
            return

    def _give_up(self, run: PartitionRun, event: SourceFault | TransferError | str) -> None:
        where = f"{run.source.topic}-{run.source.partition}"
        reason = event.message if isinstance(event, SourceFault) else str(event)
        if run.ledger.next_source_offset < run.end:
            short = event.kind.value if isinstance(event, SourceFault) else reason
            run.ledger.add_gap(self._gap(run, run.end, short))
        run.problem = reason if where in reason else f"{where}: {reason}"

    def _gap(self, run: PartitionRun, end: int, reason: str) -> Gap:
        return Gap(max(run.ledger.next_source_offset, run.start), end, reason, int(time.time() * 1000))

    async def _next(self, run: PartitionRun) -> SourceFault | TransferError | str:
        while True:
            waiting = asyncio.ensure_future(run.events.get())
            watched = {waiting, *([self._pump] if self._pump is not None else [])}
            try:
                done, _ = await asyncio.wait(watched, timeout=_LOOK_S, return_when=asyncio.FIRST_COMPLETED)
            finally:
                waiting.cancel()
            if waiting in done:
                return waiting.result()
            if self._pump in done:
                self._pump.result()
                return "the transfer ended early"
            if self._sink_answers and self._engine.is_writing(run.source):
                run.moved_at = time.monotonic()
            silent = time.monotonic() - run.moved_at
            if silent >= self._stall_s:
                return f"nothing came for {silent:.0f} s at offset {run.ledger.next_source_offset}"

    # transfer.engine.Observer

    def copied(self, tp: TopicPartition, copied: Copied) -> None:
        run = self._runs[tp]
        before = max(run.ledger.next_source_offset, run.start)
        run.ledger.add(copied)
        run.moved_at = time.monotonic()
        self._moved(run.ledger.next_source_offset - before)

    def seen(self, chunk: Chunk) -> None:
        self._runs[chunk.tp].moved_at = time.monotonic()

    def fault(self, fault: SourceFault) -> None:
        self._runs[fault.tp].events.put_nowait(fault)

    def failed(self, tp: TopicPartition, error: TransferError) -> None:
        self._runs[tp].events.put_nowait(error)

    def finished(self, tp: TopicPartition) -> None:
        self._runs[tp].events.put_nowait(_FINISHED)
