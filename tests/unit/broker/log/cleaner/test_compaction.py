"""Compaction beside a model: the newest record of each key survives at its offset, nothing else changes."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.log import Log, LogConfig, Origin
from protocol.records import Codec, Record, iter_headers
from tests.support.batches import T0, batch, marker, records_of
from tests.support.cleaning import clean
from tests.support.clock import VirtualClock

RETENTION_MS = 60_000


class Stored(NamedTuple):
    key: bytes
    value: bytes | None
    aborted: bool


class World:
    """A log, what was appended to it, and the transactions that are open."""

    def __init__(self, directory: Path) -> None:
        self.clock = VirtualClock()
        self.directory = directory
        self.config = LogConfig(
            cleanup_policy="compact", segment_bytes=4000, delete_retention_ms=RETENTION_MS,
            index_interval_bytes=200, file_delete_delay_ms=0,
        )  # fmt: skip
        self.log = Log.open(directory, self.config, self.clock)
        self.appended: dict[int, Stored] = {}
        self.sequences: dict[int, int] = {}
        self.open: dict[int, list[int]] = {}
        self.checkpoint: int | None = None
        self.count = 0

    def produce(self, keys: list[int], codec: int, producer: int, transactional: bool) -> None:
        transactional = producer > 0 and (transactional or producer in self.open)
        sequence = self.sequences.get(producer, 0)
        self.sequences[producer] = sequence + len(keys)
        values: list[bytes | None] = []
        for key in keys:
            self.count += 1
            values.append(None if key < 0 else b"%d-" % self.count + b"x" * (self.count % 90))
        names = [b"k%d" % abs(key) for key in keys]
        times = [T0 + (self.count * 7919 + n * 31) % 1000 for n in range(len(keys))]
        data = batch(
            values, keys=names, timestamps=times, codec=Codec(codec),  # type: ignore[arg-type]
            producer=(producer, 0, sequence) if producer else (-1, -1, -1), transactional=transactional,
        )  # fmt: skip
        base = self.log.append(data, 0).base_offset
        for n, (name, value) in enumerate(zip(names, values, strict=True)):
            self.appended[base + n] = Stored(name, value, False)
        if transactional:
            self.open.setdefault(producer, []).extend(range(base, base + len(keys)))
        self.log.high_watermark = self.log.end_offset

    def end(self, producer: int, commit: bool) -> None:
        mine = self.open.pop(producer, None)
        if mine is None:
            return
        self.log.append(marker(producer, 0, commit=commit), 0, Origin.COORDINATOR)
        if not commit:
            for offset in mine:
                self.appended[offset] = self.appended[offset]._replace(aborted=True)
        self.log.high_watermark = self.log.end_offset

    def clean(self, map_keys: int) -> None:
        end = clean(self.log, self.clock, self.checkpoint, map_keys=map_keys)
        self.checkpoint = self.checkpoint if end is None else end

    def records(self) -> list[Record]:
        found, offset = [], self.log.start_offset
        while offset < self.log.end_offset:
            data = self.log.read_blocking(offset, 1 << 20)
            assert data.next_offset > offset, "a reader must get on"
            found += records_of(data.segments)
            offset = data.next_offset
        return found

    def check(self) -> None:
        records = self.records()
        offsets = [record.offset for record in records]
        assert offsets == sorted(set(offsets))
        for record in records:
            stored = self.appended[record.offset]
            assert (record.key, record.value) == (stored.key, stored.value)
        aborted = self.log.aborted_transactions(0, self.log.end_offset)
        for record in records:  # what is left of an aborted transaction must be known as such
            if self.appended[record.offset].aborted:
                assert any(txn.first_offset <= record.offset <= txn.last_offset for txn in aborted)
        self._check_newest({record.offset for record in records})

    def _check_newest(self, there: set[int]) -> None:
        newest: dict[bytes, int] = {}
        for offset, stored in self.appended.items():
            if not stored.aborted:
                newest[stored.key] = offset
        lost = {
            stored.key
            for key, offset in newest.items()
            if offset not in there and (stored := self.appended[offset]).value is not None
        }
        assert not lost, f"the newest values of {lost} are gone"

    def check_progress(self) -> None:
        for offset in range(self.log.start_offset, self.log.high_watermark):
            data = self.log.read_blocking(offset, 1)
            *_, (_, last) = iter_headers(data.segments[0])
            assert data.size > 0
            assert last.last_offset >= offset

    def reopen(self) -> None:
        sequences = {p: s for p, (s, _) in self.last_sequences().items()}
        self.log.release()
        self.log = Log.open(self.directory, self.config, self.clock)
        assert {p: s for p, (s, _) in self.last_sequences().items()} == sequences

    def last_sequences(self) -> dict[int, tuple[int, int]]:
        return {e.producer_id: (e.last_sequence, e.epoch) for e in self.log.producers.to_snapshot()}


PRODUCE = st.tuples(
    st.just("produce"),
    st.lists(st.integers(-6, 6), min_size=1, max_size=8), st.integers(0, 4), st.integers(0, 3), st.booleans(),
)  # fmt: skip
END = st.tuples(st.just("end"), st.integers(1, 3), st.booleans())
CLEAN = st.tuples(st.just("clean"), st.sampled_from([3, 8, 1000]))
STEPS = st.lists(
    st.one_of(
        PRODUCE, PRODUCE, PRODUCE, END, CLEAN, st.sampled_from([("roll",), ("wait",), ("reopen",)])
    ),
    min_size=5, max_size=40,
)  # fmt: skip


@settings(max_examples=40)
@given(steps=STEPS)
def test_any_history_keeps_what_counts(scratch: Path, steps: list[tuple[Any, ...]]) -> None:
    world = World(Path(tempfile.mkdtemp(suffix="-0", dir=scratch)))
    actions: dict[str, Callable[..., object]] = {
        "produce": world.produce, "end": world.end, "clean": world.clean, "roll": lambda: world.log.roll(),
        "wait": lambda: world.clock.advance(RETENTION_MS / 1000 + 1), "reopen": world.reopen,
    }  # fmt: skip
    try:
        for name, *arguments in steps:
            actions[name](*arguments)
            if name in ("clean", "reopen"):
                world.check()
        world.check_progress()
    finally:
        world.log.release()


@pytest.fixture
def world(tmp_path: Path) -> World:
    directory = tmp_path / "t-0"
    directory.mkdir()
    return World(directory)


def test_superseded_records_go_and_the_rest_keeps_its_offsets(world: World) -> None:
    world.produce([1, 2, 3], 0, 0, False)
    world.produce([1, 2], 4, 0, False)
    world.log.roll()
    world.produce([9], 0, 0, False)
    world.clean(1000)
    assert [record.offset for record in world.records()] == [2, 3, 4, 5]
    world.check_progress()


def test_batches_that_lose_nothing_pass_unchanged(world: World) -> None:
    for codec in range(5):
        world.produce([codec * 2 + 1, codec * 2 + 2], codec, 0, False)
    path = world.directory / f"{0:020d}.log"
    before = path.read_bytes()
    world.log.roll()
    world.clean(1000)
    assert path.read_bytes() == before


def test_a_tombstone_goes_a_round_after_its_horizon(world: World) -> None:
    world.produce([1], 0, 0, False)
    world.produce([-1, 2], 3, 0, False)
    world.log.roll()
    world.produce([5], 0, 0, False)
    world.clean(1000)
    assert [r.offset for r in world.records()] == [1, 2, 3]
    (_, first), *_ = iter_headers(world.log.read_blocking(0, 1 << 20).segments[0])
    assert first.attributes & 0x40
    assert first.base_timestamp == world.clock.now_ms() + RETENTION_MS
    times = {r.offset: r.timestamp for r in world.records()}
    for wait_s, offsets in ((RETENTION_MS / 1000 - 1, [1, 2, 3]), (2, [2, 3])):
        world.clock.advance(wait_s)
        world.log.roll()
        world.produce([5], 0, 0, False)
        world.log.roll()
        world.produce([6], 0, 0, False)
        world.clean(1000)
        assert [r.offset for r in world.records() if r.offset < 3 or r.key == b""] == [
            o for o in offsets if o < 3
        ]
    assert {r.offset: r.timestamp for r in world.records() if r.offset in times}.items() <= times.items()


def test_a_small_map_takes_several_rounds_and_ends_the_same(world: World) -> None:
    for n in range(60):
        world.produce([n % 10 + 1, n % 7 + 1], 0, 0, False)
    world.log.roll()
    world.produce([50], 0, 0, False)
    ends = []
    while not ends or ends[-1] != world.checkpoint:
        ends.append(world.checkpoint)
        world.clean(3)
    assert len(ends) > 2
    assert sorted(r.key for r in world.records()) == sorted({s.key for s in world.appended.values()})


def test_small_cleaned_segments_are_merged(world: World) -> None:
    for _ in range(6):
        world.produce([1, 2], 0, 0, False)
        world.log.roll()
    world.produce([3], 0, 0, False)
    assert len(world.log.segments) == 7
    world.clean(1000)
    assert len(world.log.segments) == 2
    assert world.log.segments.sweep(world.clock.now_ms()) > 10
    assert not [path.name for path in world.directory.iterdir() if path.suffix not in (
        ".log", ".index", ".timeindex", ".txnindex", ".snapshot",
    ) and path.name != "leader-epoch-checkpoint"]  # fmt: skip


def test_the_last_sequence_of_a_producer_outlives_its_records(world: World) -> None:
    world.produce([1], 0, 1, False)
    world.produce([1, 2], 0, 2, False)
    world.produce([1, 2], 0, 3, False)
    world.log.roll()
    world.produce([7], 0, 0, False)
    world.clean(1000)
    for snapshot in world.directory.glob("*.snapshot"):
        snapshot.unlink()  # the batches have to tell
    world.reopen()
    assert world.last_sequences()[1] == (0, 0)
    assert world.last_sequences()[2] == (1, 0)


def test_aborted_records_go_at_once_and_their_marker_later(world: World) -> None:
    world.produce([1], 0, 1, True)
    world.end(1, commit=False)
    world.produce([2], 0, 1, True)
    world.end(1, commit=True)
    world.produce([3], 0, 1, True)
    world.end(1, commit=True)
    world.log.roll()
    world.produce([9], 0, 0, False)
    world.clean(1000)
    headers = [h for _, h in iter_headers(world.log.read_blocking(0, 1 << 20).segments[0])]
    assert [h.base_offset for h in headers if h.is_control] == [1, 3, 5]
    assert [r.key for r in world.records()] == [b"k2", b"k3", b"k9"]
    assert [txn.first_offset for txn in world.log.aborted_transactions(0, 9)] == [0]
    marked: list[list[int]] = []
    for n in range(2):
        world.clock.advance(RETENTION_MS / 1000 + 1)
        world.log.roll()
        world.produce([20 + n], 0, 0, False)
        world.clean(1000)
        headers = [h for _, h in iter_headers(world.log.read_blocking(0, 1 << 20).segments[0])]
        marked.append([h.base_offset for h in headers if h.is_control])
    assert marked == [[1, 3, 5], [3, 5]]
    assert world.log.aborted_transactions(0, 9) == []
