"""One open connection against a broker that behaves as badly as the test wants, on both event loops."""

import asyncio
import functools
import tracemalloc

import pytest
import uvloop

from protocol.client import Connection, ConnectionLostError, RequestTimeoutError
from protocol.client.frame_memory import SLAB, FrameMemory
from protocol.codec import encode
from protocol.errors import DecodeError
from protocol.frames import decode_response
from protocol.messages.fetch_request import FetchRequest
from protocol.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from protocol.messages.list_groups_request import ListGroupsRequest
from protocol.messages.produce_request import ProduceRequest
from tests.support.fake_broker import Peer
from tests.support.talking import asked, echo, groups, names, question, talking


async def test_answers_find_their_requests_in_any_order():
    async def script(peer: Peer) -> None:
        received = [await peer.request() for _ in range(10)]
        for request in reversed(received):
            await peer.answer(request, groups(asked(request)))
        await peer.request()

    async with talking(script) as (_, connection):
        wanted = [str(number) for number in range(10)]
        answers = await asyncio.gather(*(connection.send(question(name)) for name in wanted))
        assert [names(answer) for answer in answers] == [[name] for name in wanted]


@pytest.mark.parametrize("piece", [1, 3, 7, 64, 70_000])
async def test_torn_and_joined_frames(piece):
    big = "x" * 30_000

    async def script(peer: Peer) -> None:
        received = [await peer.request() for _ in range(7)]
        stream = b"".join(
            peer.frame(request, groups(asked(request), *[big] * (index % 4 if piece > 50 else 0)))
            for index, request in enumerate(received)
        )
        for start in range(0, len(stream), piece):
            await peer.send(stream[start : start + piece])
            await asyncio.sleep(0)
        await peer.request()

    async with talking(script) as (_, connection):
        answers = await asyncio.gather(*(connection.send(question(str(n))) for n in range(7)))
        assert [names(answer)[0] for answer in answers] == [str(n) for n in range(7)]
        if piece > 50:
            assert [len(answer.groups) for answer in answers] == [1, 2, 3, 4, 1, 2, 3]


async def test_large_answers_are_received_where_they_stay():
    records = bytes(range(256)) * 4 * 8192

    async def script(peer: Peer) -> None:
        request = await peer.request()
        row = PartitionData(records=records)
        await peer.answer(request, FetchResponse(responses=[FetchableTopicResponse(partitions=[row])]))
        await peer.request()

    async with talking(script) as (_, connection):
        answer = await connection.send(FetchRequest(max_wait_ms=0), 12)
        view = answer.responses[0].partitions[0].records
        assert view == records
        assert isinstance(view.obj, bytearray)
        assert len(records) < len(view.obj) <= len(records) * 9 // 8  # a slice of the frame's own memory


async def test_wrong_correlation_id_ends_the_connection_for_all():
    async def script(peer: Peer) -> None:
        request = await peer.request()
        await peer.request()
        await peer.answer(request._replace(correlation_id=4711), groups())
        await peer.reader.read()

    async with talking(script) as (broker, connection):
        results = await asyncio.gather(
            connection.send(question("a")), connection.send(question("b")), return_exceptions=True
        )
        for result in results:
            assert isinstance(result, ConnectionLostError)
            assert f"{broker.address}: no answer to ListGroups" in str(result)
            assert "4711" in str(result)
        assert connection.closed
        with pytest.raises(ConnectionLostError, match="4711"):
            await connection.send(question("c"))


async def test_server_closing_inside_an_answer():
    async def script(peer: Peer) -> None:
        request = await peer.request()
        await peer.send(peer.frame(request, groups("abc"))[:-2])

    async with talking(script) as (broker, connection):
        with pytest.raises(ConnectionLostError, match=f"{broker.address}.*ListGroups.*inside an answer"):
            await connection.send(question("a"))
        assert connection.closed


async def test_server_closing_between_answers():
    async def script(peer: Peer) -> None:
        await peer.answer(await peer.request(), groups("abc"))
        await peer.request()

    async with talking(script) as (_, connection):
        assert names(await connection.send(question("a"))) == ["abc"]
        with pytest.raises(ConnectionLostError, match="closed the connection"):
            await connection.send(question("a"))


@pytest.mark.parametrize("size", [0, 3, -1, 100_001, 0x7FFF_FFFF])
async def test_impossible_frame_sizes(size):
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(size.to_bytes(4, "big", signed=True) + bytes(50))
        await peer.reader.read()

    async with talking(script, max_frame=100_000) as (_, connection):
        tracemalloc.start()
        try:
            with pytest.raises(ConnectionLostError, match=f"frame of {size} bytes"):
                await connection.send(question("a"))
            assert tracemalloc.get_traced_memory()[1] < 1_000_000
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize(
    ("said", "name"),
    [(b"\x15\x03\x03\x00\x02\x02\x28", "TLS"), (b"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP")],
)
async def test_a_peer_that_speaks_something_else(said, name):
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(said)
        await peer.reader.read()

    async with talking(script) as (_, connection):
        with pytest.raises(ConnectionLostError, match=f"it speaks {name}"):
            await connection.send(question("a"))


async def test_no_answer_in_time_fails_the_request_and_the_connection():
    async def script(peer: Peer) -> None:
        while True:
            await peer.request()

    async with talking(script) as (broker, connection):
        patient = asyncio.create_task(connection.send(question("patient")))
        with pytest.raises(
            RequestTimeoutError, match=f"{broker.address}: no answer to ListGroups within 0.05 s"
        ):
            await connection.send(question("hasty"), timeout_s=0.05)
        with pytest.raises(ConnectionLostError, match="timed out"):
            await patient
        assert connection.closed


async def test_a_time_limit_that_passes_while_the_caller_of_an_answer_wakes_costs_no_connection():
    async with talking(echo) as (_, connection):
        answered = asyncio.get_running_loop().create_future()
        answered.set_result(memoryview(b""))
        connection._overdue(answered, type(question("late")), 1.0)
        assert names(await connection.send(question("next"))) == ["next"]


async def test_one_that_closes_a_connection_and_gives_up_is_no_harm_to_others_that_close_it():
    async with talking(echo) as (_, connection):
        impatient, patient = (asyncio.create_task(connection.close()) for _ in range(2))
        await asyncio.sleep(0)
        impatient.cancel()
        await asyncio.wait_for(patient, 10)
        assert connection.closed


async def test_a_late_answer_to_a_cancelled_request_is_no_harm():
    release = asyncio.Event()

    async def script(peer: Peer) -> None:
        first = await peer.request()
        await release.wait()
        await peer.answer(first, groups("late"))
        while True:
            request = await peer.request()
            await peer.answer(request, groups(asked(request)))

    async with talking(script) as (_, connection):
        first = asyncio.create_task(connection.send(question("first")))
        await asyncio.sleep(0)
        second = asyncio.create_task(connection.send(question("second")))
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        release.set()
        assert names(await second) == ["second"]


async def test_an_answer_that_cannot_be_read_costs_only_itself():
    async def script(peer: Peer) -> None:
        request = await peer.request()
        frame = bytearray(peer.frame(request, groups("a")) + b"!")
        frame[:4] = (len(frame) - 4).to_bytes(4, "big")
        await peer.send(bytes(frame))
        await echo(peer)

    async with talking(script) as (broker, connection):
        with pytest.raises(DecodeError, match=f"{broker.address}: answer to ListGroups"):
            await connection.send(question("a"))
        assert names(await connection.send(question("b"))) == ["b"]


async def test_requests_without_answer():
    seen = []

    async def script(peer: Peer) -> None:
        seen.append(await peer.request())
        await echo(peer)

    async with talking(script) as (_, connection):
        await connection.post(ProduceRequest(acks=0, timeout_ms=5), 9)
        assert names(await connection.send(question("b"))) == ["b"]
        assert seen[0].body.acks == 0


async def test_requests_that_wait_for_a_slow_reader_are_not_overtaken():
    order: list[str] = []

    async def script(peer: Peer) -> None:
        while True:
            received = await peer.request()
            order.append(asked(received))
            await peer.answer(received, groups())

    async with talking(script) as (_, connection):
        connection._receiver.pause_writing()
        waiting = [asyncio.ensure_future(connection.send(question(name))) for name in "ab"]
        await asyncio.sleep(0)
        late = asyncio.ensure_future(connection.send(question("c")))
        connection._receiver.resume_writing()
        await asyncio.gather(*waiting, late)
    assert order == ["a", "b", "c"]


async def test_writing_waits_for_a_slow_reader():
    go = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.answer(await peer.request(), groups())
        await go.wait()
        await echo(peer)

    async with talking(script) as (_, connection):
        await connection.send(question("first"))
        tasks = [asyncio.create_task(connection.send(question("x" * 30_000))) for _ in range(400)]
        done, _ = await asyncio.wait(tasks, timeout=0.2)
        assert not done
        transport = connection._transport
        assert transport is not None
        assert transport.get_write_buffer_size() < 6_000_000  # of 12 MB: the rest waits with its callers
        go.set()
        assert all(names(answer) for answer in await asyncio.gather(*tasks))


@pytest.mark.parametrize(
    "case",
    [
        test_answers_find_their_requests_in_any_order,
        functools.partial(test_torn_and_joined_frames, 3),
        functools.partial(test_torn_and_joined_frames, 70_000),
        test_large_answers_are_received_where_they_stay,
        test_wrong_correlation_id_ends_the_connection_for_all,
        test_server_closing_inside_an_answer,
        test_server_closing_between_answers,
        functools.partial(test_impossible_frame_sizes, 0x7FFF_FFFF),
        test_no_answer_in_time_fails_the_request_and_the_connection,
        test_a_late_answer_to_a_cancelled_request_is_no_harm,
        test_writing_waits_for_a_slow_reader,
    ],
    ids=lambda case: getattr(case, "func", case).__name__,
)
def test_the_same_on_uvloop(case):
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(case())


class Calls:
    """Who is called with answers."""

    def __init__(self) -> None:
        self.heard: list[tuple[int, object]] = []
        self.all = asyncio.Event()

    def make(self, connection: Connection, number: int, *, of: int) -> bool:
        body = encode(question(str(number)), 4)

        def answered(answer: object) -> None:
            if isinstance(answer, memoryview):
                answer = names(decode_response(answer, ListGroupsRequest, 4)[1])
            self.heard.append((number, answer))
            if len(self.heard) == of:
                self.all.set()

        return connection.call(ListGroupsRequest, 4, body, answered)


async def test_calls_hear_their_answers_whatever_the_order_and_beside_tasks():
    async def script(peer: Peer) -> None:
        received = [await peer.request() for _ in range(4)]
        for request in reversed(received):
            await peer.answer(request, groups(asked(request)))
        await peer.request()

    async with talking(script) as (_, connection):
        calls = Calls()
        assert all(calls.make(connection, number, of=3) for number in range(3))
        assert names(await connection.send(question("9"))) == ["9"]
        await calls.all.wait()
        assert calls.heard == [(number, [str(number)]) for number in (2, 1, 0)]


async def test_a_call_without_an_answer_ends_the_connection_and_all_hear_why():
    async def script(peer: Peer) -> None:
        first = await peer.request()
        await peer.answer(first, groups(asked(first)))
        await asyncio.sleep(30)

    async with talking(script, timeout_s=0.3) as (_, connection):
        calls = Calls()
        calls.make(connection, 0, of=1)
        await calls.all.wait()
        await asyncio.sleep(0.2)
        calls.all.clear()
        began = asyncio.get_running_loop().time()
        for number in (1, 2):
            assert calls.make(connection, number, of=3)
        await calls.all.wait()
        assert asyncio.get_running_loop().time() - began >= 0.25, "each has the whole time"
        kinds = [type(answer) for _, answer in calls.heard[1:]]
        assert kinds == [RequestTimeoutError, ConnectionLostError]
        assert connection.closed
        assert not calls.make(connection, 3, of=9)


async def test_calls_hear_that_the_broker_has_gone():
    async def script(peer: Peer) -> None:
        await peer.request()

    async with talking(script) as (_, connection):
        calls = Calls()
        for number in range(3):
            calls.make(connection, number, of=3)
        await calls.all.wait()
        assert [type(answer) for _, answer in calls.heard] == [ConnectionLostError] * 3


async def test_a_call_says_that_it_would_have_to_wait_and_until_when():
    read_on = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await read_on.wait()
        while True:
            await peer.request()

    async with talking(script) as (_, connection):
        big = [b"".join(encode(question("x" * 30_000), 4))]
        for _ in range(100):  # until the kernel takes no more either
            while connection.call(ListGroupsRequest, 4, list(big), lambda _: None):
                pass
            assert connection.full
            waiting = asyncio.ensure_future(connection.writable())
            await asyncio.sleep(0.1)
            if not waiting.done():
                break
        assert not waiting.done()
        read_on.set()
        async with asyncio.timeout(10):
            await waiting
        assert not connection.full


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_lost_connection_does_not_keep_the_memory_of_a_frame_that_never_came(loop):
    """Whoever has it still may keep it for long: a pool does until it is needed again."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send((2 << 20).to_bytes(4, "big") + bytes(300_000))

    async def main() -> None:
        memory = FrameMemory()
        async with talking(script, memory=memory) as (_, connection):
            with pytest.raises(ConnectionLostError):
                await connection.send(question("a"))
            slab = memory.take(SLAB - (2 << 20)).obj
            memory.take(SLAB)  # the slab is full, another one is begun
            assert memory.take(SLAB).obj is slab
            assert connection.closed

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(main())
