"""The engine: moves chunks from a source to a sink, in order per partition, with flow control by bytes.

Owns which partitions run, how much is on the way, and that one partition's trouble stays its own (I10). It
must not know what a cluster or an object store is, what is worth copying, or where progress is kept: an
observer hears of every acknowledged write, in order, and decides about faults.

Flow: a partition with too many bytes on the way is paused at the source until half of them are acknowledged;
when all partitions together reach the limit, nothing more is read. Before that, and while a rate limit is
used up, those that catch up are held: what is new does not wait behind what was produced long ago. Who has
room and moves nothing for a while, so that others have none, is named (`on_stalled`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from protocol.types import TopicPartition
from transfer.eager import begin, start
from transfer.endpoint import (
    BatchSink,
    BatchSource,
    BrokenEndpointError,
    Chunk,
    ClosedError,
    DisorderError,
    SourceFault,
    TransferError,
)
from transfer.ledger import Copied, DiscontinuityError
from transfer.pace import Pace


class Observer(Protocol):
    """Who keeps ledgers. Called on the event loop, never concurrently; must not block."""

    def copied(self, tp: TopicPartition, copied: Copied) -> None:
        """A write of source partition `tp` is acknowledged; calls come in offset order. Raises
        DiscontinuityError when it does not continue what is booked: the partition fails with that."""

    def seen(self, chunk: Chunk) -> None:
        """A chunk was read: its high watermark tells how far the copy is behind."""

    def fault(self, fault: SourceFault) -> None:
        """The source stopped reading a partition. What was read before is still being written."""

    def failed(self, tp: TopicPartition, error: TransferError) -> None:
        """The sink gave up a partition; it stands still until it is started again."""

    def finished(self, tp: TopicPartition) -> None:
        """A partition that was started with `until` has arrived there, and all of it is acknowledged."""


_log = logging.getLogger("isthmus.transfer")

_FOR_ALL = 0.75
"""Of the bytes that may be on their way; the rest is kept for partitions that do not catch up."""
_LIVE_OWES_S = 1.0
"""How far these may go beyond a rate limit before they have to wait as well."""
_LOOK_S = 1.0
_STALLED_S = 10.0


@dataclass(slots=True, eq=False)
class _Lane:
    tp: TopicPartition
    target: TopicPartition
    until: int | None
    writes: deque[tuple[asyncio.Future[Copied], int]] = field(default_factory=deque)
    bytes: int = 0
    landed: int = 0
    """Writes, the first ones, that make room already although their end is still to come."""
    paused: bool = False
    """It has enough on its way itself."""
    held: bool = False
    """It catches up, and what is left is for those that do not."""
    behind: bool = True
    closing: bool = False
    failed: bool = False
    position: int = 0
    moved_at: float = 0.0
    """When the sink last took something of it, or began to."""
    idle: asyncio.Event = field(default_factory=asyncio.Event)


class Engine:
    """Call `start` for partitions, before or while `run` runs."""

    def __init__(
        self,
        source: BatchSource,
        sink: BatchSink,
        observer: Observer,
        *,
        max_bytes: int = 32 << 20,
        partition_bytes: int = 4 << 20,
        stalled_s: float = _STALLED_S,
    ) -> None:
        self._source = source
        self._sink = sink
        self._observer = observer
        self._max_bytes = max_bytes
        self._partition_bytes = partition_bytes
        self._stalled_s = stalled_s
        self.on_stalled: Callable[[TopicPartition], None] = lambda _: None
        """Called while there is little room, again and again, with partitions that keep theirs: the sink has
        taken nothing of them for a while."""
        self._lanes: dict[TopicPartition, _Lane] = {}
        self._bytes = 0
        self.pace = Pace()
        """A limit in bytes per second for all partitions together; none at first."""
        self._held: set[_Lane] = set()
        self._looking: asyncio.TimerHandle | None = None
        self._room = asyncio.Event()
        self._room.set()
        self._reader: asyncio.Task[None] | None = None
        self._until_finished = False
        self._broken: Exception | None = None

    @property
    def bytes_in_flight(self) -> int:
        """Bytes read and not yet acknowledged."""
        return self._bytes

    def __contains__(self, tp: TopicPartition) -> bool:
        return tp in self._lanes

    def is_writing(self, tp: TopicPartition) -> bool:
        """Whether something of it is on its way to the sink."""
        lane = self._lanes.get(tp)
        return lane is not None and bool(lane.writes)

    async def start(
        self, tp: TopicPartition, target: TopicPartition, from_offset: int, *, until: int | None = None
    ) -> None:
        """Copies `tp` to `target` from `from_offset` on, up to `until` if given."""
        if tp in self._lanes:
            raise ValueError(f"{tp} is being copied already")
        lane = _Lane(tp, target, until, position=from_offset)
        lane.idle.set()
        self._lanes[tp] = lane
        if until is not None and from_offset >= until:
            self._finish(lane)
            return
        await self._source.open(tp, from_offset)

    async def stop_partition(self, tp: TopicPartition, *, abandon: bool = False) -> None:
        """Stops reading `tp` and waits until what was read is acknowledged or given up.

        `abandon`: gives up what is on its way, for a sink that would wait for its target for ever.
        """
        lane = self._lanes.get(tp)
        if lane is None:
            return
        lane.closing = True
        await self._source.close(tp)
        for write, _ in lane.writes if abandon else ():
            write.cancel()
        await lane.idle.wait()
        self._lanes.pop(tp, None)

    async def run(self, *, until_finished: bool = False) -> None:
        """Reads and writes until `stop`; with `until_finished` also until no partition is left running."""
        self._until_finished = until_finished
        self._reader = asyncio.create_task(self._read())
        try:
            self._end_if_finished()
            await asyncio.wait({self._reader})
        finally:
            self._reader.cancel()
            if self._looking is not None:
                self._looking.cancel()
                self._looking = None
        if self._broken is not None:
            raise self._broken
        if not self._reader.cancelled():
            self._reader.result()

    def stop(self) -> None:
        """Ends `run`; writes on their way go on (see `drain`)."""
        if self._reader is not None:
            self._reader.cancel()

    def landed(self, tp: TopicPartition) -> None:
        """The next write of `tp` holds no memory any more, it only waits for its transaction."""
        lane = self._lanes.get(tp)
        if lane is not None and lane.landed < len(lane.writes):
            self._release(lane, lane.writes[lane.landed][1])
            lane.landed += 1
            lane.moved_at = asyncio.get_running_loop().time()

    async def drain(self, timeout_s: float) -> bool:
        """Waits for all writes on their way. False when time ran out; those are then abandoned."""
        waiting = [write for lane in self._lanes.values() for write, _ in lane.writes]
        if not waiting:
            return True
        _, late = await asyncio.wait(waiting, timeout=timeout_s)
        for write in late:
            write.cancel()
        if late:
            await asyncio.wait(late)
        await asyncio.sleep(0)  # lets the callbacks of the last writes book them
        return not late

    async def _read(self) -> None:
        while True:
            await self._room.wait()
            await self.pace.wait(_LIVE_OWES_S)
            deliveries = await self._source.read()
            if not deliveries:
                return
            self._take_in(deliveries)
            del deliveries  # their memory is not held until something else comes

    def _take_in(self, deliveries: Sequence[Chunk | SourceFault]) -> None:
        for delivery in deliveries:
            lane = self._lanes.get(delivery.tp)
            if lane is None or lane.closing:
                continue
            if isinstance(delivery, SourceFault):
                lane.closing = True
                self._close_when_idle(lane)
                self._observer.fault(delivery)
            else:
                self._write(lane, delivery)

    def _write(self, lane: _Lane, chunk: Chunk) -> None:
        self._observer.seen(chunk)
        if chunk.first_offset == lane.position:
            task = begin(partial(self._sink.write, lane.target, chunk))
            lane.position = chunk.next_offset
        else:  # it fails in its turn: what is on its way is before it
            task = start(_out_of_place(lane, chunk))
            lane.closing = True
        if not lane.bytes:
            lane.moved_at = asyncio.get_running_loop().time()
        lane.writes.append((task, chunk.size))
        lane.idle.clear()
        lane.bytes += chunk.size
        self._bytes += chunk.size
        self.pace.spend(chunk.size)
        if self._bytes >= self._max_bytes:
            self._room.clear()
        if self._is_nearly_full():
            self._look_later()
        if lane.until is not None and chunk.next_offset >= lane.until:
            lane.closing = True
        else:
            self._hold_back(lane, chunk)
        task.add_done_callback(lambda _: self._settle(lane))

    def _hold_back(self, lane: _Lane, chunk: Chunk) -> None:
        end = chunk.last_stable_offset if chunk.last_stable_offset >= 0 else chunk.high_watermark
        lane.behind = end < 0 or chunk.next_offset < end
        ran = not (lane.paused or lane.held)
        if lane.bytes >= self._partition_bytes:
            lane.paused = True
        elif lane.behind and self._is_short():
            lane.held = True
            self._held.add(lane)
            self._look_later()
        if ran and (lane.paused or lane.held):
            self._source.pause(lane.tp)

    def _is_nearly_full(self) -> bool:
        return self._bytes >= self._max_bytes * _FOR_ALL

    def _is_short(self) -> bool:
        return self._is_nearly_full() or self.pace.debt_s > 0

    def _look_later(self) -> None:
        """A limit may be changed meanwhile, so it is looked at again soon."""
        if self._looking is None and self._is_short():
            loop = asyncio.get_running_loop()
            self._looking = loop.call_later(min(self.pace.debt_s or _LOOK_S, _LOOK_S), self._look)

    def _look(self) -> None:
        self._looking = None
        self._let_go()
        self._name_stalled()
        if self._held or self._is_nearly_full():
            self._look_later()

    def _name_stalled(self) -> None:
        if not self._is_nearly_full():
            return
        before = asyncio.get_running_loop().time() - self._stalled_s
        for lane in list(self._lanes.values()):
            if lane.bytes and lane.moved_at < before and not lane.closing:
                self.on_stalled(lane.tp)

    def _let_go(self) -> None:
        if not self._held or self._is_short():
            return
        held, self._held = self._held, set()
        for lane in held:
            lane.held = False
            self._resume(lane)

    def _resume(self, lane: _Lane) -> None:
        if not (lane.paused or lane.held or lane.closing):
            self._source.resume(lane.tp)

    def _settle(self, lane: _Lane) -> None:
        failure: TransferError | None = None
        while lane.writes and lane.writes[0][0].done():
            task, size = lane.writes.popleft()
            lane.moved_at = asyncio.get_running_loop().time()
            if lane.landed:
                lane.landed -= 1
            else:
                self._release(lane, size)
            error = ClosedError("abandoned") if task.cancelled() else task.exception()
            if isinstance(error, BrokenEndpointError):
                self._broken = self._broken or error
                self.stop()
            if lane.failed or failure is not None:
                continue  # what stands behind a failed write is copied again, in order
            if error is None:
                failure = self._book(lane, task.result())
            elif isinstance(error, TransferError):
                failure = error
            else:
                failure = TransferError(f"{lane.tp.topic}-{lane.tp.partition}: {error!r}")
                failure.__cause__ = error
        if failure is not None:
            self._fail(lane, failure)
        self._close_when_idle(lane)

    def _book(self, lane: _Lane, copied: Copied) -> TransferError | None:
        """The failure of the partition that it shows."""
        try:
            self._observer.copied(lane.tp, copied)
        except DiscontinuityError as error:
            return _disorder(lane, error)
        except Exception as error:  # noqa: BLE001 (a copy that cannot be booked must not go on)
            _log.exception("%s cannot be booked", lane.tp)
            self._broken = self._broken or error
            self.stop()
        return None

    def _release(self, lane: _Lane, size: int) -> None:
        lane.bytes -= size
        self._bytes -= size
        if self._bytes < self._max_bytes:
            self._room.set()
        if lane.paused and lane.bytes <= self._partition_bytes // 2:
            lane.paused = False
            self._resume(lane)
        self._let_go()

    def _fail(self, lane: _Lane, failure: TransferError) -> None:
        if failure.copied is not None and failure.copied.crcs:
            failure = self._book(lane, failure.copied) or failure
        lane.failed = lane.closing = True
        self._observer.failed(lane.tp, failure)

    def _close_when_idle(self, lane: _Lane) -> None:
        if lane.writes:
            return
        lane.idle.set()
        if lane.until is not None and lane.position >= lane.until and not lane.failed:
            self._finish(lane)
        self._end_if_finished()

    def _finish(self, lane: _Lane) -> None:
        lane.closing = True
        if self._lanes.pop(lane.tp, None) is not None:
            self._observer.finished(lane.tp)

    def _end_if_finished(self) -> None:
        if self._until_finished and all(lane.closing and not lane.writes for lane in self._lanes.values()):
            self.stop()


async def _out_of_place(lane: _Lane, chunk: Chunk) -> Copied:
    raise _disorder(lane, DiscontinuityError(chunk.first_offset, lane.position))


def _disorder(lane: _Lane, error: DiscontinuityError) -> DisorderError:
    return DisorderError(lane.tp, str(error))
