"""A link between a source and a target that are both in memory, and what goes wrong (`Case`), in the world
around it or, where a rule of the link is switched off, in the link itself. Everything between is the link's
own code.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from protocol.client import EARLIEST, Fetched, ListedOffset, PartitionMetadata, RetryPolicy, TopicMetadata
from protocol.errors import ErrorCode, ProtocolError
from protocol.records import Record, build_batch, read_header
from protocol.types import TopicPartition
from replicator import book, parts
from replicator.book import State
from replicator.discovery import Wanted
from replicator.link_rows import First
from replicator.metrics import LinkMetrics
from replicator.parts import Parts
from replicator.progress import Progress, ProgressStore
from replicator.settings import LinkSettings
from replicator.workers.holdings import Holdings
from replicator.workers.permit import now
from tests.support.jumping_loop import run_jumping
from tests.support.target_in_memory import OK, OTHERS, TargetInMemory
from transfer import rewrite
from transfer.endpoint import Chunk, FaultKind, SourceFault
from transfer.kafka import parts as ticket_parts
from transfer.ledger import PartitionLedger

TP, MIRROR = TopicPartition("orders", 0), TopicPartition("east.orders", 0)
SOURCE_ID, MIRROR_ID, PROGRESS_ID = bytes(15) + b"\1", bytes(15) + b"\2", bytes(15) + b"\3"
SKIPS, TWICE = "skips", "twice"
RESTART, GIVE_UP, SPOIL, FENCE, LOSE, END = "restart", "give up", "spoil", "fence", "lose", "end"
TAKE, PAUSE, HAND_OVER, TIME_OUT, FORGET = "take", "pause", "hand over", "time out", "forget"
STALL, LET_GO, COMPACT, LOSE_THERE, USURP = "stall", "let go", "compact", "lose there", "usurp"
MOVE, BUMP, BEHIND, FLAP, FLAP_FILLED = "move", "bump", "behind", "flap", "flap, filled"
STALE, ZOMBIE, SLOW, LATE_ANSWERS, MORE = "stale", "zombie", "slow", "late answers", "more"
OTHERS_WRITE, LOSE_PROGRESS = "others write", "lose progress"
OTHERS_BEGIN, OTHERS_COMMIT = "others begin", "others commit"
_PROGRESS = "isthmus-link.east-to-west.internal"
_LONGEST_S = 900.0
_OTHERS_S = 0.05
"""For giving up other partitions, before any of them is forgotten."""
_BEGINS_S = 30.0
_OTHER = TopicPartition("others", 0)
_FOR_EVER_S = 1e9


@dataclass(frozen=True)
class Case:
    """What goes wrong. Each list is used up, then all goes well."""

    once: bool = True
    joins: bool = False
    """Small batches are joined; else a write of many takes as many requests."""
    batches: Sequence[int] = (2, 0, 1, 1, 3, 0, 0, 2, 1, 1, 2, 0)
    """Records of each batch of the source; 0: a transaction's marker."""
    chunks: Sequence[int] = (1,)
    """Batches of each chunk, again and again."""
    parts: int = 2
    """Batches of each part of a write: writes are in several, over transactions."""
    reads: Sequence[str] = ()
    produces: Sequence[str] = ()
    adds: Sequence[str] = ()
    ends: Sequence[str] = ()
    inits: Sequence[str] = ()
    commands: Sequence[tuple[float, str]] = ()
    """After so many seconds."""
    refuses: Sequence[bytes] = ()
    """Values that the target does not take until it is told to."""
    forgets: bool = False
    """The target knows no producer when a transaction begins."""


class Source:
    """The source cluster and its reader in one."""

    cluster_id = "source"
    retry = RetryPolicy(total_s=10)

    def __init__(self, case: Case) -> None:
        self.batches: list[bytes] = []
        self.values: dict[int, bytes] = {}
        self.first = 0
        self.compacted: set[int] = set()
        for records in case.batches:
            self._put(records)
        self._sizes = list(case.chunks)
        self._reads = iter(case.reads)
        self._turn = 0
        self._position = -1
        self._paused = False
        self._wake = asyncio.Event()

    def _put(self, count: int) -> None:
        first = self.end
        made = [(offset, b"%d" % offset) for offset in range(first, first + count)]
        self.values |= dict(made)
        records = [Record(0, 1, b"k", value) for _, value in made]
        self.batches.append(
            build_batch(records, base_offset=first)
            if count
            else build_batch(
                [Record(0, 1, b"\0\0\0\1", b"")],
                base_offset=first,
                producer_id=9,
                producer_epoch=0,
                transactional=True,
                control=True,
            )
        )

    def more(self, batches: Sequence[int]) -> None:
        """Records that are written now."""
        for records in batches:
            self._put(records)
        self._wake.set()

    @property
    def end(self) -> int:
        return read_header(self.batches[-1]).next_offset if self.batches else 0

    def _from(self, position: int) -> list[bytes]:
        return [batch for batch in self.batches if read_header(batch).next_offset > position]

    def let_go(self) -> None:
        """Of all but the last batch."""
        self.first = read_header(self.batches[-1]).base_offset
        del self.batches[:-1]

    def compact(self) -> None:
        """Of every second batch nothing is left, but of the last."""
        for batch in self.batches[:-1:2]:
            self.compacted.update(range(read_header(batch).base_offset, read_header(batch).next_offset))
        del self.batches[:-1:2]

    # As a client

    async def list_offsets(self, spots: Any, **_: object) -> dict[TopicPartition, ListedOffset]:
        return {
            tp: ListedOffset(self.first if spot == EARLIEST else self.end, -1, -1)
            for tp, spot in spots.items()
        }

    async def offset(self, tp: TopicPartition, spot: int, **_: object) -> ListedOffset:
        return (await self.list_offsets({tp: spot}))[tp]

    async def fetch(self, tp: TopicPartition, position: int, **_: object) -> Fetched:
        return Fetched(tp, memoryview(b"".join(self._from(position))), self.end, self.end, self.first)

    # As a reader

    def expect(self, tp: TopicPartition, topic_id: bytes, *epochs: object) -> None: ...

    async def open(self, tp: TopicPartition, from_offset: int) -> None:
        self._position = from_offset
        self._wake.set()

    async def close(self, tp: TopicPartition) -> None:
        self._position = -1

    def pause(self, tp: TopicPartition) -> None:
        self._paused = True

    def resume(self, tp: TopicPartition) -> None:
        self._paused = False
        self._wake.set()

    async def read(self) -> list[Chunk | SourceFault]:
        while self._paused or not 0 <= self._position < self.end:
            self._wake.clear()
            await self._wake.wait()
        await asyncio.sleep(0.003)
        if self._position < 0:
            return await self.read()
        if self._position < self.first:
            position, self._position = self._position, -1
            return [SourceFault(TP, FaultKind.RETENTION, position, self.first, "gone")]
        self._turn += 1
        some = self._from(self._position)[: self._sizes[self._turn % len(self._sizes)]]
        if not some:
            return await self.read()
        after = read_header(some[-1]).next_offset
        chunk = Chunk(TP, memoryview(b"".join(some)), self._position, after, self.end, self.end, self.first)
        self._position = after
        fate = next(self._reads, OK)
        if fate == SKIPS:
            return await self.read()
        return [chunk, chunk] if fate == TWICE else [chunk]

    async def aclose(self) -> None: ...


@dataclass
class Outcome:
    """What is left of a case."""

    source: Source
    target: TargetInMemory
    ledger: PartitionLedger
    disorders: float
    reasons: list[str] = field(default_factory=list)
    ahead: list[str] = field(default_factory=list)
    """Where progress was committed, at any moment, that is ahead of the data."""
    given_up: bool = False
    """By its group."""
    lost_there: bool = False
    """The target has lost acknowledged records."""
    losing_s: float = 0.0
    """How long that took."""

    @property
    def copies(self) -> list[bytes]:
        return [value for value in self.target.committed(MIRROR).values() if value != OTHERS]

    def check(self, *, once: bool) -> None:
        """Raises AssertionError where something is missing, twice, or not where the ledger says."""
        there = self.target.committed(MIRROR)
        booked = {
            run.source + number: there.get(run.target + number)
            for run in self.ledger.runs
            for number in range(run.length)
        }
        assert not self.ahead
        values = self.source.values
        assert booked == {offset: value for offset, value in values.items() if offset in booked}
        gaps = {offset for gap in self.ledger.gaps for offset in range(gap.start, gap.end)}
        assert values.keys() - booked.keys() <= gaps | self.source.compacted
        assert not gaps or self.lost_there or max(gaps) < self.source.first
        if once:
            assert self.copies == [values[offset] for offset in sorted(booked)]

    def look(self) -> None:
        """Whoever has the partition next goes on from this."""
        if self.lost_there:
            return
        progress = Progress()
        rows = self.target.records(TopicPartition(_PROGRESS, 0)).values()
        progress.apply((record.key or b"", record.value) for record in rows)
        entry, there = progress.entry(TP), self.target.committed(MIRROR)
        for run in entry.ledger.runs if entry is not None else ():
            for number in range(run.length):
                source, target = run.source + number, run.target + number
                if there.get(target) != self.source.values[source]:
                    self.ahead.append(f"{source} is at {target}, there is {there.get(target)!r}")


async def _copy(case: Case, monkeypatch: pytest.MonkeyPatch) -> Outcome:
    source = Source(case)
    target = TargetInMemory({MIRROR.topic: MIRROR_ID, _PROGRESS: PROGRESS_ID})
    target.produces, target.refuses = iter(case.produces), set(case.refuses)
    target.forgets = case.forgets
    target.adds, target.ends, target.inits = iter(case.adds), iter(case.ends), iter(case.inits)
    monkeypatch.setattr(parts, "KafkaSource", lambda *_: source)
    told = LinkSettings.model_validate(
        {
            "source": {"alias": "east", "bootstrap": "e:1"},
            "target": {"alias": "west", "bootstrap": "w:1"},
            "exactly_once": case.once,
            "transaction_interval_s": 0.004,
            "shared": True,
        }
    )
    registry = CollectorRegistry()
    made = Parts(told, source, target, LinkMetrics("east->west", registry))  # type: ignore[arg-type]
    await made.store.refresh()
    made.store.progress.initial = {TP: First(0)}
    outcome = Outcome(source, target, PartitionLedger(("", "", "", 0), ("", "", "", 0)), 0.0)  # type: ignore[arg-type]
    if case.once:
        target.on_commit = outcome.look
    driving = [
        asyncio.ensure_future(one) for one in (made.engine.run(), _keep(made, source, target, outcome))
    ]
    driving.append(asyncio.ensure_future(_command(made, target, outcome, case.commands)))
    try:
        async with asyncio.timeout(_LONGEST_S):
            while (await _stored(target)) != source.end or not driving[2].done():
                await asyncio.sleep(0.1)
                for task in driving[:2]:
                    if task.done():
                        task.result()
                        raise AssertionError("the link ended by itself")
                if driving[2].done():
                    driving[2].result()
    finally:
        for task in driving:
            task.cancel()
        await asyncio.gather(*driving, return_exceptions=True)
        await made.aclose()
    entry = (await ProgressStore(target, _PROGRESS).refresh()).entry(TP)  # type: ignore[arg-type]
    assert entry is not None
    outcome.ledger = entry.ledger
    outcome.disorders = (
        registry.get_sample_value("isthmus_link_disorders_total", {"link": "east->west"}) or 0.0
    )
    return outcome


async def _stored(target: TargetInMemory) -> int:
    entry = (await ProgressStore(target, _PROGRESS).refresh()).entry(TP)  # type: ignore[arg-type]
    return entry.ledger.next_source_offset if entry is not None else -1


async def _keep(made: Parts, source: Source, target: TargetInMemory, outcome: Outcome) -> None:
    """What a worker does again and again."""
    here = TopicMetadata(TP.topic, SOURCE_ID, ErrorCode.NONE, False, {0: PartitionMetadata(1, 0, (1,), (1,))})
    while True:
        wanted = Wanted(here, MIRROR.topic, target.topic_of(MIRROR.topic))
        for account in made.book.accounts.values():
            if account.reason and account.reason not in outcome.reasons[-1:]:
                outcome.reasons.append(account.reason)
        if not outcome.given_up:
            made.permit.extend(now(), _FOR_EVER_S)
        made.partitions.reconcile({TP.topic: wanted})
        with contextlib.suppress(ProtocolError):
            await made.save()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                await made.poke.wait()
        made.poke.clear()


async def _command(
    made: Parts, target: TargetInMemory, outcome: Outcome, commands: Sequence[tuple[float, str]]
) -> None:
    for seconds, command in commands:
        await asyncio.sleep(seconds)
        account = made.book.accounts.get(TP)
        if command == RESTART:
            made.partitions.restart(TP)
        elif command == SPOIL and made.transactions is not None:
            lane = made.sink._lanes.get(MIRROR)
            if lane is not None:
                made.transactions.spoil(lane, "said so")
        elif command == TAKE:
            target.refuses.clear()
        elif command == FENCE and made.transactions is not None:
            target.fence(made.transactions.transactional_id)
        elif command == GIVE_UP and account is not None and account.state is State.RUNNING:
            made.partitions.owns = lambda _: False
            await made.partitions.abandon(TP)
            await asyncio.sleep(_OTHERS_S)
            made.partitions.forget([TP])
            await made.store.refresh()
            made.partitions.stored = made.store.progress.entries()
            made.partitions.owns = lambda _: True
        elif command == LOSE:
            await _lose(made, outcome)
        elif command == LET_GO:
            outcome.source.let_go()
        elif command in (LOSE_THERE, USURP):
            outcome.lost_there = True
            target.lose(MIRROR, others=8 if command == USURP else 0)
        elif command == LOSE_PROGRESS:
            outcome.lost_there = True
            target.lose(TopicPartition(_PROGRESS, 0), batches=1)
        elif command == COMPACT:
            outcome.source.compact()
        elif command == MOVE:
            outcome.lost_there = True
            target.move(MIRROR)
        elif command == BUMP:
            outcome.lost_there = True
            target.bump(MIRROR)
        elif command == OTHERS_WRITE:
            target.others(MIRROR, 8)
        elif command in (OTHERS_BEGIN, OTHERS_COMMIT):
            target.others_transaction(MIRROR, commits=command == OTHERS_COMMIT)
        elif command == BEHIND:
            target.fall_behind(MIRROR)
        elif command in (FLAP, FLAP_FILLED):
            outcome.lost_there = True
            target.flap(MIRROR, others=8 if command == FLAP_FILLED else 0)
        elif command == STALE:
            target.stale(1.5)
        elif command == ZOMBIE:
            target.zombie_until = asyncio.get_running_loop().time() + 1.0
        elif command == SLOW:
            target.slow_s = 6.0 if target.slow_s < 1.0 else 0.003
        elif command == LATE_ANSWERS:
            target.answer_late_s = 0.05 - target.answer_late_s
        elif command == MORE:
            outcome.source.more((1, 2, 1))
        elif command == STALL:
            made.sink.is_away = lambda _: True  # type: ignore[method-assign]
            made.partitions.stalled(TP)
        elif command == HAND_OVER:
            await _hand_over(made)
        elif command == PAUSE:
            made.partitions.paused = lambda _: "said so"
            await asyncio.sleep(_OTHERS_S)
            made.partitions.paused = lambda _: ""
        elif command == TIME_OUT:
            target.time_out()
        elif command == FORGET:
            target.forget_producers()
        elif command == END and account is not None and account.state is State.RUNNING:
            await _end(made)
    target.slow_s, target.answer_late_s = 0.003, 0.0
    if outcome.lost_there:  # seen at the next look at its leader
        await asyncio.sleep(_BEGINS_S)


async def _end(made: Parts) -> None:
    """As a worker that is stopped while it hands a partition over, with more on its way than it may wait
    for; and the next one."""
    made.partitions.owns = lambda _: False
    handing_over = asyncio.ensure_future(made.partitions.let_go(TP))
    await asyncio.sleep(0)
    await made.engine.drain(0.0)
    await handing_over
    made.book.mark(TP)
    with contextlib.suppress(ProtocolError):
        await made.save()
    await made.partitions.abandon(TP)
    made.partitions.forget([TP])
    await made.store.refresh()
    made.partitions.stored = made.store.progress.entries()
    made.partitions.owns = lambda _: True


async def _hand_over(made: Parts) -> None:
    """In order, and back again."""
    holdings = Holdings(made)
    made.partitions.owns = holdings.owns
    await holdings.give_up([TP])
    await holdings.take([TP])


async def _lose(made: Parts, outcome: Outcome) -> None:
    """Another worker may have it meanwhile, and this one goes on with others; then it has it again."""
    holdings = Holdings(made)
    made.partitions.owns = holdings.owns
    began = asyncio.get_running_loop().time()
    outcome.given_up = True
    made.permit.withdraw()
    await holdings.lose()
    outcome.given_up = False
    outcome.losing_s = asyncio.get_running_loop().time() - began
    if made.progress is not None:
        await made.progress.save([_OTHER])
    await holdings.take([TP])


@contextlib.contextmanager
def _patched() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(book, "_AGAIN_SOON_S", 0.0)
        yield patch


def copy(case: Case) -> Outcome:
    with _patched() as patch:
        patch.setattr(ticket_parts, "BATCHES", case.parts)
        if not case.joins:
            patch.setattr(rewrite, "SMALL", 0)
        return run_jumping(_copy(case, patch))
