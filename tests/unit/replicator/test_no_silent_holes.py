"""A link's way from a source to a target, both in memory: whatever is lost on the way, booked progress never
passes over a record that is not at the target (I7), and exactly once there is none twice.

Everything between is the link's own code. `Case` says what goes wrong, in the world around it or, where a
rule of the link is switched off, in the link itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from protocol.client import EARLIEST, Fetched, ListedOffset, PartitionMetadata, RetryPolicy, TopicMetadata
from protocol.errors import ErrorCode, ProtocolError
from protocol.records import Record, build_batch, read_header
from protocol.types import TopicPartition
from replicator import book, parts, refused
from replicator.book import State
from replicator.discovery import Wanted
from replicator.metrics import LinkMetrics
from replicator.parts import Parts
from replicator.progress import Progress, ProgressStore
from replicator.settings import LinkSettings
from replicator.workers.holdings import Holdings
from replicator.workers.permit import now
from tests.support.jumping_loop import run_jumping
from tests.support.target_in_memory import LATE, LOST, OK, UNHEARD, TargetInMemory
from transfer import rewrite
from transfer.endpoint import BrokenEndpointError, Chunk, SourceFault
from transfer.kafka import parts as ticket_parts
from transfer.kafka.lane import ProduceLane
from transfer.kafka.sink import KafkaSink
from transfer.kafka.transactional import Transactions
from transfer.ledger import Copied, PartitionLedger

TP, MIRROR = TopicPartition("orders", 0), TopicPartition("east.orders", 0)
SOURCE_ID, MIRROR_ID, PROGRESS_ID = bytes(15) + b"\1", bytes(15) + b"\2", bytes(15) + b"\3"
SKIPS, TWICE = "skips", "twice"
RESTART, GIVE_UP, SPOIL, FENCE, LOSE, END = "restart", "give up", "spoil", "fence", "lose", "end"
TAKE, PAUSE, HAND_OVER, TIME_OUT, FORGET = "take", "pause", "hand over", "time out", "forget"
_PROGRESS = "isthmus-link.east-to-west.internal"
_LONGEST_S = 900.0
_OTHERS_S = 0.05
"""For giving up other partitions, before any of them is forgotten."""
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

    @property
    def end(self) -> int:
        return read_header(self.batches[-1]).next_offset if self.batches else 0

    def _from(self, position: int) -> list[bytes]:
        return [batch for batch in self.batches if read_header(batch).next_offset > position]

    # As a client

    async def list_offsets(self, spots: Any, **_: object) -> dict[TopicPartition, ListedOffset]:
        return {tp: ListedOffset(0 if spot == EARLIEST else self.end, -1, -1) for tp, spot in spots.items()}

    async def fetch(self, tp: TopicPartition, position: int, **_: object) -> Fetched:
        return Fetched(tp, memoryview(b"".join(self._from(position))), self.end, self.end, 0)

    # As a reader

    def expect(self, tp: TopicPartition, topic_id: bytes, epoch: int = -1) -> None: ...

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
        self._turn += 1
        some = self._from(self._position)[: self._sizes[self._turn % len(self._sizes)]]
        if not some:
            return await self.read()
        after = read_header(some[-1]).next_offset
        chunk = Chunk(TP, memoryview(b"".join(some)), self._position, after, self.end, self.end, 0)
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
    losing_s: float = 0.0
    """How long that took."""

    @property
    def copies(self) -> list[bytes]:
        return list(self.target.committed(MIRROR).values())

    def check(self, *, once: bool) -> None:
        """Raises AssertionError where something is missing, twice, or not where the ledger says."""
        there = self.target.committed(MIRROR)
        booked = {
            run.source + number: there.get(run.target + number)
            for run in self.ledger.runs
            for number in range(run.length)
        }
        assert not self.ahead
        assert booked == self.source.values
        assert not self.ledger.gaps
        if once:
            assert self.copies == list(self.source.values.values())

    def look(self) -> None:
        """Whoever has the partition next goes on from this."""
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
    made.partitions.initial = {TP: -1}
    outcome = Outcome(source, target, PartitionLedger(("", "", "", 0), ("", "", "", 0)), 0.0)  # type: ignore[arg-type]
    if case.once:
        target.on_commit = outcome.look
    driving = [
        asyncio.ensure_future(one) for one in (made.engine.run(), _keep(made, source, target, outcome))
    ]
    driving.append(asyncio.ensure_future(_command(made, target, outcome, case.commands)))
    try:
        async with asyncio.timeout(_LONGEST_S):
            while (await _stored(target)) != source.end:
                await asyncio.sleep(0.1)
                for task in driving[:2]:
                    if task.done():
                        task.result()
                        raise AssertionError("the link ended by itself")
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
    wanted = Wanted(here, MIRROR.topic, target.topic_of(MIRROR.topic))
    while True:
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
        patch.setattr(ticket_parts, "BATCHES", 2)  # so that writes are in several parts, over transactions
        yield patch


def copy(case: Case) -> Outcome:
    with _patched() as patch:
        if not case.joins:
            patch.setattr(rewrite, "SMALL", 0)
        return run_jumping(_copy(case, patch))


_FATES = st.lists(st.sampled_from([OK, OK, LOST, UNHEARD, LATE]), max_size=20)
_ENDS = st.lists(st.sampled_from([OK, OK, LOST, UNHEARD, LATE]), max_size=6)
_OTHERS = st.lists(st.sampled_from([OK, OK, LOST, UNHEARD]), max_size=6)
_COMMANDS = [RESTART, GIVE_UP, SPOIL, FENCE, LOSE, END, PAUSE, HAND_OVER, TIME_OUT, FORGET]
_CASES = st.builds(
    Case,
    once=st.booleans(),
    joins=st.booleans(),
    batches=st.lists(st.integers(0, 3), min_size=1, max_size=30),
    chunks=st.lists(st.integers(1, 7), min_size=1, max_size=5),
    produces=_FATES,
    adds=_OTHERS,
    ends=_ENDS,
    inits=_OTHERS,
    commands=st.lists(
        st.tuples(st.integers(0, 40).map(lambda ms: ms / 1000), st.sampled_from(_COMMANDS)),
        max_size=4,
    ),
)


@pytest.mark.parametrize("once", [True, False])
def test_without_trouble_all_arrives_and_nobody_complains(once: bool) -> None:
    outcome = copy(Case(once, chunks=(1, 5, 2)))
    outcome.check(once=True)
    assert outcome.disorders == 0
    assert outcome.reasons == []


@settings(deadline=None)
@given(_CASES)
def test_whatever_is_lost_on_the_way_nothing_is_passed_over_and_nobody_takes_it_for_disorder(
    case: Case,
) -> None:
    outcome = copy(case)
    outcome.check(once=case.once)
    assert outcome.disorders == 0


_MANY = Case(batches=[0] + [1] * 60 + [0, 1, 1], chunks=(60, 1))
"""A write of many parts, with transactions that end in the middle of it."""


@pytest.mark.parametrize("command", [RESTART, GIVE_UP, SPOIL])
def test_a_partition_that_begins_anew_in_the_middle_of_a_write_goes_back_behind_nothing_committed(
    command: str,
) -> None:
    for ms in range(0, 60, 2):
        outcome = copy(replace(_MANY, commands=[(ms / 1000, command)]))
        outcome.check(once=True)
        assert outcome.disorders == 0


def test_a_worker_that_ends_in_the_middle_of_a_write_stores_nothing_older_than_what_is_committed() -> None:
    """Of a write in several parts the first may be committed; who gave it up has not heard of that."""
    for ms in range(0, 60, 2):
        copy(Case(batches=[1] * 12, chunks=(12,), commands=[(ms / 1000, END)])).check(once=True)


@pytest.mark.parametrize("command", [None, FENCE])
def test_a_worker_that_is_given_up_leaves_no_progress_behind_for_a_later_transaction(
    command: str | None,
) -> None:
    """The data is written, its progress waits for the permit, and the transaction is aborted: soon, for the
    worker joins its group anew only then."""
    for number in range(80):
        commands = [(number / 2000, LOSE)] + ([(0.0, command)] if command else [])
        outcome = copy(Case(batches=[1, 1], chunks=(2,), commands=commands))
        outcome.check(once=True)
        assert outcome.disorders == 0
        assert outcome.losing_s < 1.0


def test_progress_is_not_stored_from_a_book_that_has_not_heard_of_the_commit() -> None:
    """A restarted partition has something to store; the data of before is committed a moment later."""
    case = Case(
        batches=[1], produces=[OK, LOST], commands=[(0.001, RESTART), (0.025, RESTART), (0.04, GIVE_UP)]
    )
    copy(case).check(once=True)


@pytest.mark.parametrize("end", [UNHEARD, LOST])
def test_where_the_outcome_of_a_transaction_is_not_known_stored_progress_counts(end: str) -> None:
    """Somebody takes the producer's id while it asks for the end again, and progress is to be stored."""
    for ms in range(0, 60, 2):
        commands = [(ms / 1000, FENCE)]
        copy(Case(batches=[0, 1] * 12, ends=[end] * 30, commands=commands)).check(once=True)
        copy(Case(batches=[1] * 20, chunks=(2,), ends=[end] * 30, commands=commands)).check(once=True)


def test_an_end_whose_answer_was_lost_ends_no_later_transaction() -> None:
    """It may be read when the next transaction of the same epoch is open (KAFKA-17754)."""
    for number in range(6):
        copy(Case(batches=[1] * 12, ends=[*[OK] * number, LATE])).check(once=True)


def test_what_stands_behind_a_refused_batch_is_copied_once_where_the_target_knows_no_producer() -> None:
    """It takes any sequence number then."""
    for number in range(0, 40, 3):
        case = Case(
            batches=[1] * 40,
            chunks=(1, 4),
            refuses=[b"%d" % number],
            forgets=True,
            commands=[(50.0, TAKE)],
        )
        copy(case).check(once=True)


@pytest.mark.parametrize("once", [True, False])
@pytest.mark.parametrize("refused", range(0, 20, 3))
def test_a_refused_batch_with_others_behind_it_stops_its_partition_and_aborts_nothing_for_ever(
    once: bool, refused: int
) -> None:
    """What is on its way behind it comes out of order, and that is no reason to begin anew."""
    case = Case(once, batches=[1] * 20, chunks=(4,), refuses=[b"%d" % refused], commands=[(50.0, TAKE)])
    outcome = copy(case)
    outcome.check(once=True)
    assert "MESSAGE_TOO_LARGE" in outcome.reasons[0]
    assert len(outcome.reasons) == 1


# Rules of the link switched off: what the guard is for


def _closed_takes_writes(patch: pytest.MonkeyPatch) -> None:
    """A partition that was closed is opened by the next write, whatever was given up before."""
    close = KafkaSink.close

    async def closed(self: KafkaSink, tp: TopicPartition) -> None:
        closing = asyncio.ensure_future(close(self, tp))
        await asyncio.sleep(0)
        self._closed.discard(tp)
        await closing

    patch.setattr(KafkaSink, "close", closed)


def _queue_goes_on(patch: pytest.MonkeyPatch) -> None:
    """What stands behind a write that was given up goes into the next transaction."""
    landed = Transactions.landed

    def without_giving_up(self: Transactions, lane: ProduceLane, *what: Any) -> None:
        lane.abandon = lambda error: None  # type: ignore[method-assign]
        landed(self, lane, *what)
        del lane.abandon

    patch.setattr(Transactions, "landed", without_giving_up)


def _sink_keeps_no_order(patch: pytest.MonkeyPatch) -> None:
    """Something is waited for before a write stands in its lane."""
    write, turns = KafkaSink.write, itertools.count()

    async def late(self: KafkaSink, tp: TopicPartition, chunk: Chunk) -> Copied:
        await asyncio.sleep(0.01 if next(turns) == 2 else 0.0)
        return await write(self, tp, chunk)

    patch.setattr(KafkaSink, "write", late)


def _guard(patch: pytest.MonkeyPatch) -> None:
    """Nothing looks whether a write continues what was before."""
    patch.setattr(PartitionLedger, "check", lambda *_: None)
    patch.setattr(ProduceLane, "_out_of_place", lambda *_: None)


_RULES = {
    "closed takes writes": (_closed_takes_writes, GIVE_UP),
    "queue goes on": (_queue_goes_on, SPOIL),
    "sink keeps no order": (_sink_keeps_no_order, ""),
}


def _wrong(*off: Callable[[pytest.MonkeyPatch], None], command: str) -> tuple[int, float]:
    """Of a row of runs, how many are wrong at the end, and how often the guard has said no."""
    wrong, said = 0, 0.0
    for ms in range(0, 60, 2):
        with pytest.MonkeyPatch.context() as patch:
            for rule in off:
                rule(patch)
            case = Case(batches=[1] * 40, chunks=(1, 3), commands=[(ms / 1000, command)])
            try:
                outcome = copy(case)
                said += outcome.disorders
                outcome.check(once=True)
            except (AssertionError, BrokenEndpointError):
                wrong += 1
    return wrong, said


@pytest.mark.parametrize("rule", _RULES)
def test_without_a_rule_of_the_link_the_guard_says_no_and_nothing_is_lost(rule: str) -> None:
    off, command = _RULES[rule]
    wrong, said = _wrong(off, command=command)
    assert said
    assert not wrong
    wrong, _ = _wrong(off, _guard, command=command)
    assert wrong


@pytest.mark.parametrize("once", [True, False])
def test_where_a_part_of_a_refused_batch_is_forgotten_the_rest_of_it_is_not_taken_for_what_follows(
    once: bool,
) -> None:
    case = Case(once, batches=[1, 8, 1], refuses=[b"6"], commands=[(50.0, TAKE)])
    halves, turns = refused._halves, itertools.count()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(refused, "_halves", lambda part: halves(part)[next(turns) == 0 :])
        outcome = copy(case)
        outcome.check(once=True)
        assert outcome.disorders == 1
    turns = itertools.count()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(refused, "_halves", lambda part: halves(part)[: 1 if next(turns) == 0 else 2])
        copy(case).check(once=True)


@pytest.mark.parametrize("once", [True, False])
@pytest.mark.parametrize("fate", [SKIPS, TWICE])
def test_a_source_that_skips_or_repeats_is_read_again_before_anything_of_it_is_sent(
    once: bool, fate: str
) -> None:
    outcome = copy(Case(once, reads=[OK, fate]))
    outcome.check(once=True)
    assert outcome.disorders == 1
    assert "a write begins at source offset" in outcome.reasons[0]
