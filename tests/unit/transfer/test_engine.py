"""The engine between an in-memory source and sink: order, flow control, isolation."""

import asyncio
from dataclasses import replace

import pytest

from protocol.types import TopicPartition
from transfer.endpoint import Chunk, DisorderError, FaultKind, RefusedError, SourceFault
from transfer.engine import Engine
from transfer.ledger import Copied, DiscontinuityError
from transfer.offset_map import Run

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


class Source:
    """Hands out chunks of 10 offsets and 100 bytes while a partition is open and not paused."""

    def __init__(self, ends):
        self.ends = ends
        self.positions = {}
        self.paused = set()
        self.faults = []
        self.wake = asyncio.Event()

    async def open(self, tp, from_offset):
        self.positions[tp] = from_offset
        self.wake.set()

    async def close(self, tp):
        self.positions.pop(tp, None)

    def pause(self, tp):
        self.paused.add(tp)

    def resume(self, tp):
        self.paused.discard(tp)
        self.wake.set()

    async def read(self):
        while True:
            found = self.faults
            self.faults = []
            for fault in found:
                self.positions.pop(fault.tp, None)
            for tp, at in list(self.positions.items()):
                if tp not in self.paused and at < self.ends[tp]:
                    self.positions[tp] = at + 10
                    found.append(Chunk(tp, memoryview(bytes(100)), at, at + 10))
            if found:
                await asyncio.sleep(0)
                return found
            self.wake.clear()
            await self.wake.wait()

    async def aclose(self):
        pass


class Sink:
    """Acknowledges when told to; can refuse an offset."""

    def __init__(self, *, held=False):
        self.gate = asyncio.Event()
        if not held:
            self.gate.set()
        self.refuse = {}
        self.written = {}
        self.outstanding = 0
        self.most = 0

    async def write(self, tp, chunk):
        self.written.setdefault(tp, []).append(chunk.first_offset)
        self.outstanding += chunk.size
        self.most = max(self.most, self.outstanding)
        try:
            await self.gate.wait()
            if self.refuse.get(tp, 10**9) <= chunk.first_offset:
                raise RefusedError(tp, chunk.first_offset, "too large")
            runs = (Run(chunk.first_offset, chunk.first_offset, 10),)
            return Copied(runs, chunk.next_offset, 10, chunk.size, (1,))
        finally:
            self.outstanding -= chunk.size

    async def aclose(self):
        pass


async def until(condition):
    """Lets other tasks run until `condition` holds."""
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("the condition never held")


class Book:
    def __init__(self):
        self.positions = {}
        self.faults = []
        self.failures = {}
        self.arrived = []
        self.engine = None
        self.changed = asyncio.Event()

    def copied(self, tp, copied):
        assert self.positions.get(tp, 0) == copied.runs[0].source
        self.positions[tp] = copied.next_source_offset
        self.changed.set()

    def seen(self, chunk):
        pass

    def fault(self, fault):
        self.faults.append(fault)
        self.changed.set()

    def failed(self, tp, error):
        self.failures[tp] = error
        self.changed.set()

    def finished(self, tp):
        self.arrived.append(tp)

    async def until(self, condition):
        async with asyncio.timeout(10):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


async def test_a_bounded_transfer_ends_by_itself_with_everything_booked_in_order():
    book = Book()
    engine = Engine(Source({A: 500, B: 70}), Sink(), book, max_bytes=800, partition_bytes=300)
    await engine.start(A, A, 0, until=500)
    await engine.start(B, B, 0, until=70)
    async with asyncio.timeout(10):
        await engine.run(until_finished=True)
    assert book.positions == {A: 500, B: 70}
    assert sorted(book.arrived) == [A, B]


async def test_bytes_on_the_way_stay_within_the_limits():
    sink, book = Sink(held=True), Book()
    engine = Engine(Source({A: 10**6, B: 10**6}), sink, book, max_bytes=10_000, partition_bytes=300)
    await engine.start(A, A, 0)
    await engine.start(B, B, 0)
    running = asyncio.create_task(engine.run())
    await until(lambda: engine.bytes_in_flight >= 600)
    for _ in range(50):
        await asyncio.sleep(0)
    assert sink.most == 600  # each partition stops at its own limit
    sink.gate.set()
    await book.until(lambda: book.positions.get(A, 0) > 1000 and book.positions.get(B, 0) > 1000)
    assert sink.most <= 700
    engine.stop()
    await running
    assert await engine.drain(5)
    assert engine.bytes_in_flight == 0


async def test_a_refusing_partition_stops_alone_and_can_be_started_again():
    source, sink, book = Source({A: 200, B: 2000}), Sink(), Book()
    sink.refuse[A] = 100
    engine = Engine(source, sink, book)
    await engine.start(A, A, 0)
    await engine.start(B, B, 0)
    running = asyncio.create_task(engine.run())
    await book.until(lambda: A in book.failures and book.positions.get(B) == 2000)
    assert book.positions[A] == 100
    await engine.stop_partition(A)
    del sink.refuse[A]
    await engine.start(A, A, 100)
    await book.until(lambda: book.positions[A] == 200)
    engine.stop()
    await running


async def test_a_fault_is_reported_after_what_was_read_before_it_can_still_be_booked():
    source, book = Source({A: 50, B: 50}), Book()
    engine = Engine(source, Sink(), book)
    await engine.start(A, A, 0)
    running = asyncio.create_task(engine.run())
    await book.until(lambda: book.positions.get(A) == 50)
    source.faults.append(SourceFault(A, FaultKind.RETENTION, 50, 90, "gone"))
    source.wake.set()
    await book.until(lambda: book.faults)
    await engine.stop_partition(A)
    assert A not in engine
    engine.stop()
    await running


async def test_an_error_of_the_source_ends_the_run_aloud():
    class Broken(Source):
        async def read(self):
            raise RuntimeError("boom")

    engine = Engine(Broken({}), Sink(), Book())
    with pytest.raises(RuntimeError, match="boom"):
        await engine.run()


async def test_draining_gives_up_after_the_time_allowed():
    sink, book = Sink(held=True), Book()
    engine = Engine(Source({A: 10}), sink, book)
    await engine.start(A, A, 0)
    running = asyncio.create_task(engine.run())
    await until(lambda: engine.bytes_in_flight)
    engine.stop()
    await running
    assert not await engine.drain(0.01)
    assert book.positions == {}


async def test_a_write_that_cannot_be_booked_ends_the_run_aloud():
    class Strict(Book):
        def copied(self, tp, copied):
            raise ValueError("it goes back")

    engine = Engine(Source({A: 50}), Sink(), Strict())
    await engine.start(A, A, 0)
    async with asyncio.timeout(10):
        with pytest.raises(ValueError, match="it goes back"):
            await engine.run()


@pytest.mark.parametrize("jump", [10, -10])
async def test_a_chunk_that_does_not_continue_the_last_stops_its_partition_before_anything_is_written(jump):
    jumps = [jump]

    class Jumping(Source):
        async def read(self):
            found = await super().read()
            if self.positions.get(A) == 30 and jumps:
                self.positions[A] += jumps.pop()
            return found

    sink, book = Sink(held=True), Book()
    source = Jumping({A: 100, B: 100})
    engine = Engine(source, sink, book)
    await engine.start(A, A, 0)
    await engine.start(B, B, 0)
    running = asyncio.create_task(engine.run())
    await until(lambda: source.positions[B] == 100)
    sink.gate.set()  # what was read before is still on its way when the jump is seen
    await book.until(lambda: A in book.failures and book.positions.get(B) == 100)
    assert isinstance(book.failures[A], DisorderError)
    assert f"begins at source offset {30 + jump}, and what is before it ends at 30" in str(book.failures[A])
    assert book.positions[A] == 30
    assert sink.written[A] == [0, 10, 20]
    await engine.stop_partition(A)
    await engine.start(A, A, 30)
    await book.until(lambda: book.positions[A] == 100)
    engine.stop()
    await running


async def test_a_write_that_does_not_continue_what_is_booked_stops_its_partition_alone():
    class Strict(Book):
        def copied(self, tp, copied):
            if tp == A and copied.runs[0].source == 30:
                raise DiscontinuityError(30, 20)
            super().copied(tp, copied)

    book = Strict()
    engine = Engine(Source({A: 100, B: 100}), Sink(), book)
    await engine.start(A, A, 0)
    await engine.start(B, B, 0)
    running = asyncio.create_task(engine.run())
    await book.until(lambda: A in book.failures and book.positions.get(B) == 100)
    assert isinstance(book.failures[A], DisorderError)
    assert book.positions[A] == 30
    engine.stop()
    await running


class Ending(Source):
    """Says with each chunk where its partition ends now."""

    async def read(self):
        found = await super().read()
        return [
            replace(chunk, high_watermark=self.ends[chunk.tp]) if isinstance(chunk, Chunk) else chunk
            for chunk in found
        ]


async def test_room_is_kept_for_partitions_that_do_not_catch_up():
    source, sink, book = Ending({A: 10**6, B: 0}), Sink(held=True), Book()
    engine = Engine(source, sink, book, max_bytes=2000, partition_bytes=10**6)
    await engine.start(A, A, 0)
    await engine.start(B, B, 0)
    running = asyncio.create_task(engine.run())
    await until(lambda: A in source.paused)
    assert engine.bytes_in_flight == 1500
    source.ends[B] = 10  # produced while A waits for the sink
    source.wake.set()
    await until(lambda: engine.bytes_in_flight == 1600)
    sink.gate.set()
    await until(lambda: source.positions[A] > 10_000)
    engine.stop()
    await running
    assert await engine.drain(5)


async def test_who_moves_nothing_and_leaves_others_no_room_is_named_and_can_be_given_up():
    stuck = [TopicPartition("stuck", number) for number in range(4)]

    class Away(Sink):
        async def write(self, tp, chunk):
            if tp in stuck:
                await asyncio.Event().wait()
            return await super().write(tp, chunk)

    source, book = Ending(dict.fromkeys([*stuck, B], 10**6)), Book()
    engine = Engine(source, Away(), book, max_bytes=1000, partition_bytes=300, stalled_s=0.01)
    named, giving_up = set(), []

    def stalled(tp):
        if tp not in named:
            named.add(tp)
            giving_up.append(asyncio.create_task(engine.stop_partition(tp, abandon=True)))

    engine.on_stalled = stalled
    for tp in (*stuck, B):
        await engine.start(tp, tp, 0)
    running = asyncio.create_task(engine.run())
    await book.until(lambda: book.positions.get(B, 0) > 50_000)
    assert named <= set(stuck)
    assert len(named) > 1
    await asyncio.gather(*giving_up)
    engine.stop()
    await running
    await engine.drain(0.01)


async def test_under_a_rate_limit_new_records_do_not_wait_for_old_ones():
    source, sink, book = Ending({A: 10**6, B: 0}), Sink(), Book()
    engine = Engine(source, sink, book)
    engine.pace.limit = 1000.0  # a chunk of A costs a tenth of a second, and what is in the bucket
    await engine.start(A, A, 0)
    await engine.start(B, B, 0)
    running = asyncio.create_task(engine.run())
    await book.until(lambda: A in source.paused)
    before = source.positions[A]
    source.ends[B] = 10
    source.wake.set()
    await until(lambda: source.positions[B] == 10)
    assert source.positions[A] == before
    engine.pace.limit = 0
    async with asyncio.timeout(20):  # it is noticed within a second
        while source.positions[A] < before + 10_000:
            await asyncio.sleep(0.01)
    engine.stop()
    await running
    assert await engine.drain(5)
