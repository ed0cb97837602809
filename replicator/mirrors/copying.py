"""Copying batches into mirrors: fetch from the source's leaders, append at the target's, many at once.

Owns the flow: one loop per source broker fetches for all partitions that it leads and that have room, one
loop per target broker appends the heads of its partitions' queues, several in a request. Batches pass as they
are: nothing is decoded, nothing is put together anew. Order within a partition follows from one append at a
time. What is on the way is bounded by partition and in all (`room`), and partitions take turns. What goes
wrong with one partition sends that one back to be aligned (I10).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from functools import partial
from itertools import count
from typing import Final

from protocol.client import ClientError, ClusterClient, Fetched
from protocol.client.mirror_calls import MirrorAnswer, MirrorBatches
from protocol.errors import ErrorCode, KafkaError, ProtocolError
from protocol.types import TopicPartition
from replicator.mirrors.aligning import Aligner, Note, is_same_topic
from replicator.mirrors.batches import whole
from replicator.mirrors.partition import MirrorPartition, Piece, State
from replicator.mirrors.room import Room, alone
from replicator.mirrors.terms import AT_ONCE, portions
from replicator.settings import Flow
from replicator.troubles import now_ms
from transfer.pace import Pace

_log = logging.getLogger("isthmus.replicator")

_ALIGN_AT_ONCE: Final = 16
_ALONE_AFTER: Final = 2
"""Tries after which a partition holds up no others that are asked about with it."""
_TICK_S: Final = 0.2
_SHORT_POLL_MS: Final = 100
"""Of a fetch that leaves partitions out for the moment: they should not wait behind it for long."""
_APPENDS_AT_ONCE: Final = 8
"""Requests to one broker. Larger ones instead would make it fault in memory anew for each."""
_NOT_OURS: Final = frozenset({ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
_HOPELESS: Final = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)
_RETRY_HOPELESS_S: Final = 30.0


class Copying:
    """`partitions` by name; who adds or removes some calls `poke`. `on_ended(tp)`: it is no mirror any
    more."""

    def __init__(
        self,
        source: ClusterClient,
        target: ClusterClient,
        flow: Flow,
        *,
        note: Note,
        cuts: bool = False,
        rate_limit: int = 0,
        on_ended: Callable[[TopicPartition], None] = lambda tp: None,
        on_copied: Callable[[MirrorPartition, Piece], None] = lambda part, piece: None,
    ) -> None:
        """`rate_limit`: bytes per second that are read from the source; 0: none. `on_copied`: all in-sync
        replicas at the target have the piece."""
        self.pace = Pace()
        self.pace.limit = rate_limit
        self.partitions: dict[TopicPartition, MirrorPartition] = {}
        self._source = source
        self._target = target
        self._flow = flow
        self._aligner = Aligner(source, target, cuts=cuts, note=note)
        self._on_ended = on_ended
        self._on_copied = on_copied
        self._moved = asyncio.Event()
        self._fetchers: dict[int, asyncio.Task[None]] = {}
        self._appenders: dict[int, asyncio.Task[None]] = {}
        self._aligning: dict[TopicPartition, asyncio.Task[None]] = {}
        self._queued = asyncio.Event()
        self._room = asyncio.Event()
        self._turns = count(1)

    def poke(self) -> None:
        self._moved.set()

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                await self._align_some()
                await self._start_loops()
                self._raise_faults()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_TICK_S):
                        await self._moved.wait()
                self._moved.clear()
        finally:
            tasks = [*self._fetchers.values(), *self._appenders.values(), *self._aligning.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _raise_faults(self) -> None:
        for task in (*self._fetchers.values(), *self._appenders.values()):
            if task.done() and not task.cancelled() and (fault := task.exception()) is not None:
                raise fault

    # -- aligning

    async def _align_some(self) -> None:
        """Some hundred in one task, of one broker at either side: one that hangs holds up no others."""
        now = _now()
        ready: dict[TopicPartition, MirrorPartition] = {}
        for tp, part in self.partitions.items():
            if part.state is State.ALIGNING and tp not in self._aligning and now >= part.not_before:
                if part.fetching or part.appending:
                    continue  # what is on its way would come after the answer
                ready[tp] = part
        here, there = await self._source.known_leaders(ready), await self._target.known_leaders(ready)
        groups: dict[tuple[bool, tuple[int, ...]], list[MirrorPartition]] = {}
        for tp, part in ready.items():
            alone = part.attempts >= _ALONE_AFTER
            nodes = tuple(at[tp].node if tp in at else -1 for at in (here, there))
            groups.setdefault((alone, nodes), []).append(part)
        for (alone, _), parts in groups.items():
            for portion in portions(parts, 1 if alone else AT_ONCE):
                if len(set(self._aligning.values())) >= _ALIGN_AT_ONCE:
                    return
                name = f"align {portion[0].tp} and {len(portion) - 1} more"
                task = asyncio.create_task(self._align(portion), name=name)
                self._aligning |= dict.fromkeys((part.tp for part in portion), task)
                task.add_done_callback(partial(self._aligning_ended, portion))

    def _aligning_ended(self, parts: list[MirrorPartition], task: asyncio.Task[None]) -> None:
        for part in parts:
            self._aligning.pop(part.tp, None)

    async def _align(self, parts: list[MirrorPartition]) -> None:
        try:
            await self._aligner.align(parts, now_ms())
        except Exception as error:  # noqa: BLE001 - of one of them, and which is not known where they are many
            left = [part for part in parts if part.state is State.ALIGNING]
            for part in left:
                self._not_aligned(part, error, alone=len(parts) == 1)
        for part in parts:
            if part.state is State.STOPPED:
                _log.error("%s: %s", part.tp, part.problem)
        self._moved.set()
        self._room.set()

    def _not_aligned(self, part: MirrorPartition, error: Exception, *, alone: bool) -> None:
        """Tried again, by itself in the end."""
        if alone and isinstance(error, KafkaError) and error.code in _NOT_OURS:
            self._on_ended(part.tp)
        if not isinstance(error, ProtocolError):
            _log.error("%s: cannot be aligned", part.tp, exc_info=error)
        part.realign(_now(), str(error) if isinstance(error, ProtocolError) else repr(error))

    # -- loops

    async def _start_loops(self) -> None:
        for client, loops, work in (
            (self._source, self._fetchers, self._fetch_loop),
            (self._target, self._appenders, self._append_loop),
        ):
            for node in await self._leaders(client):
                if node not in loops:
                    loops[node] = asyncio.create_task(work(node), name=f"mirror {work.__name__} {node}")

    async def _leaders(self, client: ClusterClient) -> set[int]:
        copying = [tp for tp, part in self.partitions.items() if part.state is State.COPYING]
        return {leader.node for leader in (await client.known_leaders(copying)).values()}

    # -- fetching

    async def _fetch_loop(self, node: int) -> None:
        while True:
            await self.pace.wait()
            wanted, left_out = await self._to_fetch(node)
            if not wanted:
                await _first(self._room, _TICK_S)
                continue
            for part in wanted.values():
                part.fetching = True
            try:
                await self._fetch(node, wanted, _SHORT_POLL_MS if left_out else self._flow.fetch_max_wait_ms)
            finally:
                for part in wanted.values():
                    part.fetching = False

    async def _to_fetch(self, node: int) -> tuple[dict[TopicPartition, MirrorPartition], bool]:
        """Looks leaders up once for all partitions: this runs before each fetch."""
        wanted: dict[TopicPartition, MirrorPartition] = {}
        room = Room(self._flow.max_bytes_in_flight)
        copying = [part for part in self.partitions.values() if part.state is State.COPYING]
        left_out = len(copying) < len(self.partitions)
        here: list[tuple[MirrorPartition, int, int]] = []
        tps = [part.tp for part in copying]
        sources, targets = await self._source.known_leaders(tps), await self._target.known_leaders(tps)
        for part in copying:
            leader, other = sources.get(part.tp), targets.get(part.tp)
            if leader is None or other is None:
                part.realign(_now(), f"no leader at the {'source' if leader is None else 'target'}")
                continue
            room.holds(other.node, part.queued_bytes)
            if leader.node == node:
                here.append((part, leader.epoch, other.node))
        for part, epoch, at_target in sorted(here, key=lambda found: found[0].fetched):
            if part.state is not State.COPYING:  # another has found something meanwhile
                left_out = True
            elif epoch != part.source_epoch:
                part.realign(_now())  # another leader: does its log hold what the mirror has?
            elif part.queued_bytes >= self._flow.partition_bytes_in_flight or room.is_full(at_target):
                left_out = True
            else:
                wanted[part.tp] = part
        return wanted, left_out

    async def _fetch(self, node: int, wanted: dict[TopicPartition, MirrorPartition], wait_ms: int) -> None:
        asked = {tp: part.position for tp, part in wanted.items()}
        try:
            found = await self._source.fetch_from(
                node,
                asked,
                max_bytes=self._flow.fetch_max_bytes,
                partition_max_bytes=self._flow.fetch_partition_max_bytes,
                max_wait_ms=wait_ms,
                lane="mirror",
            )
        except ProtocolError as error:
            for tp, part in wanted.items():
                if isinstance(error, ClientError):
                    self._source.forget_leader(tp)
                part.realign(_now(), str(error))
            return
        for tp, part in wanted.items():
            result = found.get(tp)
            if isinstance(result, Fetched):
                self.pace.spend(len(result.records))
            if part.state is not State.COPYING or part.position != asked[tp] or result is None:
                continue
            if isinstance(result, KafkaError):
                self._source.moved(tp, result)
                part.realign(_now(), None if result.retriable else str(result))
            elif not await self._is_same_topic(part):
                part.realign(_now())
            elif part.state is State.COPYING and part.position == asked[tp]:
                self._take(part, result)

    async def _is_same_topic(self, part: MirrorPartition) -> bool:
        """Ids never come back: if it is the same one now, it was when the fetch went out."""
        try:
            return await is_same_topic(self._source, part)
        except ProtocolError:
            return False

    def _take(self, part: MirrorPartition, found: Fetched) -> None:
        moves = found.log_start_offset > part.start
        part.heard(found.log_start_offset, found.high_watermark, now_ms())
        stop, next_offset, newest_ms = whole(found.records)
        if stop and next_offset > part.position:
            part.fetched = next(self._turns)
            records = alone(found.records[:stop])
            part.put(Piece(part.position, records, next_offset, found.log_start_offset, newest_ms))
        elif moves and not part.queue:
            part.put(Piece(part.position, None, part.position, found.log_start_offset))
        else:
            return
        self._queued.set()

    # -- appending

    async def _append_loop(self, node: int) -> None:
        """Several requests at once, each of other partitions."""
        under_way: set[asyncio.Task[None]] = set()
        try:
            while True:
                for task in [task for task in under_way if task.done()]:
                    under_way.remove(task)
                    task.result()
                batch = await self._to_append(node) if len(under_way) < _APPENDS_AT_ONCE else []
                if not batch:
                    await _first(self._queued, _TICK_S)
                    continue
                for part, _ in batch:
                    part.appending = True
                under_way.add(asyncio.create_task(self._append_one(node, batch)))
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    async def _append_one(self, node: int, batch: list[tuple[MirrorPartition, Piece]]) -> None:
        try:
            await self._append(node, batch)
        finally:
            for part, _ in batch:
                part.appending = False
            self._room.set()
            self._queued.set()  # the next ones of these partitions

    async def _to_append(self, node: int) -> list[tuple[MirrorPartition, Piece]]:
        batch: list[tuple[MirrorPartition, Piece]] = []
        size = 0
        queued = [part for part in self.partitions.values() if part.queue and part.state is State.COPYING]
        leaders = await self._target.known_leaders([part.tp for part in queued])
        for part in sorted(queued, key=lambda part: part.appended):
            if not part.queue or part.appending or part.state is not State.COPYING:
                continue  # by now
            leader = leaders.get(part.tp)
            if leader is None:
                part.realign(_now(), "no leader at the target")
                continue
            if leader.node != node:
                continue
            piece = part.queue[0]
            part.appended = next(self._turns)
            batch.append((part, piece))
            size += 0 if piece.records is None else len(piece.records)
            if size >= self._flow.produce_request_bytes:
                break
        return batch

    async def _append(self, node: int, batch: list[tuple[MirrorPartition, Piece]]) -> None:
        sources = {part.tp.topic: part.source_text for part, _ in batch}
        pieces = {
            part.tp: MirrorBatches(piece.offset, piece.records, piece.source_start) for part, piece in batch
        }
        try:
            answers = await self._target.mirror_append(node, sources, pieces)
        except ProtocolError as error:
            for part, _ in batch:
                if isinstance(error, ClientError):
                    self._target.forget_leader(part.tp)
                part.realign(_now(), str(error))
            return
        for part, piece in batch:
            answer = answers.get(part.tp)
            if answer is None or answer.error is not None:
                self._refused(part, answer)
            else:
                part.done(piece)
                if answer.stand is not None:
                    part.start = answer.stand.start
                self._on_copied(part, piece)

    def _refused(self, part: MirrorPartition, answer: MirrorAnswer | None) -> None:
        """For where it stood, or for another leader: settled by asking. Others are said aloud."""
        error = None if answer is None else answer.error
        if error is None:
            part.realign(_now(), "the target left it out of its answer")
            return
        self._target.moved(part.tp, error)
        if error.code in _NOT_OURS:
            self._on_ended(part.tp)
        if error.code in _HOPELESS:
            _log.error("%s: the target refuses the batch at %d: %s", part.tp, part.end, error)
            part.realign(_now(), str(error))
            part.not_before = _now() + _RETRY_HOPELESS_S
        elif error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            part.realign(_now())  # an answer was lost, or another link of the same name copies as well
        else:
            part.realign(_now(), str(error))


async def _first(event: asyncio.Event, timeout_s: float) -> None:
    """Until it is set, or for so long."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()
    event.clear()


def _now() -> float:
    return asyncio.get_running_loop().time()


def level(parts: Iterable[MirrorPartition]) -> bool:
    """Whether all have what their source had when it was last heard."""
    return all(part.level for part in parts)
