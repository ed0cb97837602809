"""Connections over real sockets: order, back-pressure, hostile peers, and that nobody else notices."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import resource
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from broker.log.files import OpenFile
from broker.log.region import FileRegion
from broker.server.answer_order import Pending, Segments
from broker.server.connection_limits import ConnectionLimits
from broker.server.context import ConnectionInfo
from broker.server.edge import TOGETHER, CloseConnectionError
from broker.server.intake import START
from broker.server.listener import Listener
from broker.server.outbox import IN_A_TURN, PIECE, Outbox
from broker.server.request_memory import RequestMemory

BOUND_S = 30.0


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


class Scripted:
    """Answers `say:x` with x at once, `wait:x` when x is released, `over:x` too but lets others pass, and
    after `last:x` the connection ends.
    """

    def __init__(self) -> None:
        self.gates: dict[str, asyncio.Event] = {}
        self.started: list[str] = []
        self.abandoned: list[str] = []

    def release(self, name: str) -> None:
        self.gates.setdefault(name, asyncio.Event()).set()

    def serve(self, frame: memoryview, connection: ConnectionInfo) -> Segments | Pending | None:
        verb, _, rest = bytes(frame).decode("latin-1").partition(":")
        self.started.append(rest)
        if verb == "say":
            return [framed(rest.encode("latin-1"))]
        if verb == "long":  # a request that is mostly padding
            return [framed(rest.partition("|")[0].encode("latin-1"))]
        if verb == "big":
            return [bytes(4), memoryview(bytes(int(rest)))]
        if verb == "file":
            path, size = rest.split("|")
            return [int(size).to_bytes(4, "big"), FileRegion(OpenFile(path), 0, int(size))]
        if verb == "mute":
            return None
        if verb == "last":
            return Pending(self._later(rest), last=True)
        if verb in ("wait", "over", "leave"):
            return Pending(self._later(rest), pipelined=verb == "over", abandoned_on_close=verb == "leave")
        if verb == "fail":
            return Pending(self._fail())
        raise CloseConnectionError(f"no verb {verb!r}")

    async def _later(self, name: str) -> Segments:
        try:
            await self.gates.setdefault(name, asyncio.Event()).wait()
        except asyncio.CancelledError:
            self.abandoned.append(name)
            raise
        return [framed(name.encode())]

    async def _fail(self) -> Segments:
        raise RuntimeError("a handler broke")


Dial = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


@asynccontextmanager
async def serving(script: Scripted, **limits: Any) -> AsyncIterator[tuple[Listener, Dial]]:
    """A listener on a free port, and a way to connect to it; all is closed at the end."""
    loop = asyncio.get_running_loop()
    listener = Listener(
        "TEST", script.serve, **{"max_frame": 1024 * 1024, "idle_s": 600, "now": loop.time} | limits
    )
    port = await listener.open("127.0.0.1", 0)
    writers: list[asyncio.StreamWriter] = []

    async def dial() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writers.append(writer)
        return reader, writer

    try:
        yield listener, dial
    finally:
        for writer in writers:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)
        await listener.close()
        await until(lambda: not listener.connections)
        assert not listener._tasks


def on_uvloop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test on the loop that the broker runs on; it may ask for `dial`, `listener`, `script`."""
    signature = inspect.signature(test)
    others = [p for p in signature.parameters.values() if p.name not in ("dial", "listener", "script")]

    def run(**kwargs: Any) -> None:
        async def main() -> None:
            script = Scripted()
            async with serving(script) as (listener, dial):
                offered = {"script": script, "listener": listener, "dial": dial}
                wanted = {name: offered[name] for name in signature.parameters if name in offered}
                await test(**kwargs, **wanted)

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    run.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
    return run


async def until(condition: Callable[[], bool], bound_s: float = BOUND_S) -> None:
    async with asyncio.timeout(bound_s):
        while not condition():
            await asyncio.sleep(0.005)


async def answer(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(BOUND_S):
        size = int.from_bytes(await reader.readexactly(4), "big")
        return await reader.readexactly(size)


async def closed(reader: asyncio.StreamReader) -> bool:
    async with asyncio.timeout(BOUND_S):
        try:
            return await reader.read() == b""
        except ConnectionResetError:
            return True


@on_uvloop
async def test_pipelined_requests_are_answered_in_order(dial: Dial, script: Scripted) -> None:
    reader, writer = await dial()
    writer.write(b"".join(map(framed, (b"say:a", b"wait:b", b"say:c", b"mute:d", b"wait:e", b"say:f"))))
    assert await answer(reader) == b"a"
    await until(lambda: "b" in script.started)
    assert script.started == ["a", "b"], "nothing overtakes a waiting request"
    script.release("b")
    assert await answer(reader) == b"b"
    assert await answer(reader) == b"c"
    script.release("e")
    assert [await answer(reader), await answer(reader)] == [b"e", b"f"]


@on_uvloop
async def test_requests_that_allow_it_overlap_and_keep_their_order(dial: Dial, script: Scripted) -> None:
    reader, writer = await dial()
    writer.write(b"".join(map(framed, (b"over:a", b"over:b", b"say:c", b"wait:d", b"say:e"))))
    await until(lambda: "d" in script.started)
    assert script.started == ["a", "b", "c", "d"]
    for name in ("d", "b", "a"):
        script.release(name)
    assert [await answer(reader) for _ in range(5)] == [b"a", b"b", b"c", b"d", b"e"]


@on_uvloop
async def test_large_answers_are_not_made_ahead_of_one_that_waits(dial: Dial, script: Scripted) -> None:
    """A client that lets one answer wait may not have the broker hold megabytes of others for it (I11)."""
    reader, writer = await dial()
    size = 1_000_000
    writer.write(framed(b"over:first") + b"".join(framed(b"big:%d" % size) for _ in range(20)))
    await until(lambda: len(script.started) > 1)
    for _ in range(20):
        await asyncio.sleep(0)
    assert script.started == ["first", str(size)]
    script.release("first")
    assert await answer(reader) == b"first"
    for _ in range(20):
        await reader.readexactly(4 + size)


@pytest.mark.parametrize(
    "offence", [framed(b"nonsense"), (-5).to_bytes(4, "big", signed=True) + bytes(100_000)]
)
@on_uvloop
async def test_what_was_asked_before_an_offence_is_answered(
    dial: Dial, script: Scripted, offence: bytes
) -> None:
    """Kafka serves a connection's requests one by one: it has answered before it sees the offence."""
    reader, writer = await dial()
    writer.write(framed(b"over:a") + framed(b"over:b") + offence + framed(b"say:never"))
    await until(lambda: "b" in script.started)
    script.release("b")
    script.release("a")
    assert [await answer(reader), await answer(reader)] == [b"a", b"b"]
    assert await closed(reader)
    assert "never" not in script.started


@on_uvloop
async def test_a_handler_that_fails_takes_no_earlier_answer_with_it(dial: Dial, script: Scripted) -> None:
    reader, writer = await dial()
    writer.write(b"".join(map(framed, (b"over:a", b"fail:x", b"say:never"))))
    await until(lambda: "x" in script.started)
    for _ in range(5):
        await asyncio.sleep(0)
    writer.write(framed(b"say:never"))
    await writer.drain()
    script.release("a")
    assert await answer(reader) == b"a"
    assert await closed(reader)
    assert "never" not in script.started


@on_uvloop
async def test_the_last_answer_waits_for_its_turn(dial: Dial, script: Scripted) -> None:
    reader, writer = await dial()
    writer.write(b"".join(map(framed, (b"over:a", b"last:b", b"say:never"))))
    await until(lambda: "b" in script.started)
    script.release("b")
    for _ in range(5):
        await asyncio.sleep(0)
    script.release("a")
    assert [await answer(reader), await answer(reader)] == [b"a", b"b"]
    assert await closed(reader)
    assert "never" not in script.started


def long_requests(count: int) -> bytes:
    return b"".join(framed(b"long:%d|" % number + bytes(70_000)) for number in range(count))


@on_uvloop
async def test_requests_that_came_together_are_answered_together(
    dial: Dial, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write wakes the client, which costs more than serving a request; and nobody waits for a next one."""
    writes: list[int] = []
    write = Outbox.write

    def counted(outbox: Outbox, segments: list[Any]) -> bool:
        writes.append(len(segments))
        return write(outbox, segments)

    monkeypatch.setattr(Outbox, "write", counted)
    reader, writer = await dial()
    for count in (3, 1, 9):
        writes.clear()
        writer.write(long_requests(count))
        assert [await answer(reader) for _ in range(count)] == [b"%d" % number for number in range(count)]
        assert sum(writes) == count
        assert count == 1 or len(writes) < count
        assert max(writes) <= TOGETHER // 70_000 + 1, "some of the answers leave while others are made"


@on_uvloop
async def test_a_client_that_stops_sending_gets_all_its_answers(dial: Dial) -> None:
    reader, writer = await dial()
    writer.write(long_requests(3))
    writer.write_eof()
    assert [await answer(reader) for _ in range(3)] == [b"0", b"1", b"2"]
    assert await closed(reader)


@on_uvloop
async def test_frames_in_pieces_of_one_byte(dial: Dial) -> None:
    reader, writer = await dial()
    for byte in framed(b"say:slow"):
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0)
    assert await answer(reader) == b"slow"


@pytest.mark.parametrize(
    "attack",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        (2**31 - 1).to_bytes(4, "big") + b"x",
        (-5).to_bytes(4, "big", signed=True),
        framed(b"nonsense"),
        framed(b"fail:x"),
        os.urandom(4096),
    ],
    ids=["http", "huge", "negative", "refused", "broken-handler", "random"],
)
@on_uvloop
async def test_a_hostile_frame_costs_its_own_connection_only(
    dial: Dial, attack: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    good_reader, good_writer = await dial()
    reader, writer = await dial()
    with caplog.at_level(logging.WARNING, "isthmus.broker"):
        writer.write(framed(b"say:before") + attack)
        assert await answer(reader) == b"before"
        if attack[:1] == b"\x00":  # a random length may be a legal one: then the peer is just slow
            writer.close()
        else:
            assert await closed(reader)
            assert len([r for r in caplog.records if "closing connection" in r.message]) == 1
    good_writer.write(framed(b"say:fine"))
    assert await answer(good_reader) == b"fine"


@on_uvloop
async def test_log_lines_about_hostile_peers_are_limited(
    dial: Dial, listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "isthmus.broker"):
        for _ in range(40):
            reader, writer = await dial()
            writer.write(framed(b"nonsense"))
            assert await closed(reader)
    assert listener.refused_count == 40
    assert len([r for r in caplog.records if "closing connection" in r.message]) < 40


@on_uvloop
async def test_a_client_that_never_waits_fills_its_own_socket_not_our_memory(
    dial: Dial, listener: Listener, script: Scripted
) -> None:
    reader, writer = await dial()
    writer.transport.set_write_buffer_limits(high=0)
    writer.write(framed(b"wait:gate"))
    await until(lambda: bool(script.started))
    request = framed(b"say:" + b"x" * 1000)
    sent = 0
    while True:
        writer.write(request * 50)
        sent += 50
        try:
            await asyncio.wait_for(writer.drain(), 0.3)
        except TimeoutError:
            break
        assert sent * len(request) < 64 * 1024 * 1024, "the broker reads on without answering"
    (connection,) = listener.connections
    assert connection._buffer.capacity <= 4 * START
    script.release("gate")
    assert await answer(reader) == b"gate"
    for _ in range(sent):
        assert len(await answer(reader)) == 1000


@on_uvloop
async def test_a_client_that_does_not_read_stops_being_served(
    dial: Dial, listener: Listener, script: Scripted
) -> None:
    reader, writer = await dial()
    reader._transport.pause_reading()  # type: ignore[attr-defined]
    size = 4 * 1024 * 1024
    writer.write(framed(b"big:%d" % size) * 50)
    await until(lambda: bool(script.started))
    await asyncio.sleep(0.1)
    assert len(script.started) < 5, "answers nobody reads pile up"
    reader._transport.resume_reading()  # type: ignore[attr-defined]
    async with asyncio.timeout(BOUND_S):
        await reader.readexactly(50 * (size + 4))
    assert len(script.started) == 50


@on_uvloop
async def test_regions_of_files_keep_their_place_between_other_answers(dial: Dial, tmp_path: Path) -> None:
    content = os.urandom(9_000_000)
    path = tmp_path / "segment"
    path.write_bytes(content)
    reader, writer = await dial()
    request = framed(b"file:%s|%d" % (str(path).encode(), len(content)))
    writer.write(framed(b"say:before") + request + framed(b"say:between") + request + framed(b"say:after"))
    answers = [await answer(reader) for _ in range(5)]
    assert answers == [b"before", content, b"between", content, b"after"]


@on_uvloop
async def test_a_reader_that_takes_everything_at_once_keeps_nobody_waiting(
    dial: Dial, script: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = 64_000_000
    path = tmp_path / "segment"
    path.write_bytes(b"")
    os.truncate(path, size)
    seen: list[tuple[int, bool]] = []
    _, other = await dial()

    def taken(out: int, file: int, position: int, count: int) -> int:
        if not seen:
            other.write(framed(b"say:other"))
        seen.append((count, "other" in script.started))
        return count

    monkeypatch.setattr(os, "sendfile", taken)
    reader, writer = await dial()
    writer.write(framed(b"file:%s|%d" % (str(path).encode(), size)) + framed(b"say:after"))
    assert await reader.readexactly(4) == size.to_bytes(4, "big")
    assert await answer(reader) == b"after", "the file was taken by the stand-in, and what follows was sent"
    assert sum(count for count, _ in seen) == size
    waited = sum(count for count, served in seen if not served)
    assert waited <= 4 * IN_A_TURN


@on_uvloop
async def test_a_connection_that_ends_between_two_turns_of_an_answer_ends_alone(
    dial: Dial, listener: Listener, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "segment"
    path.write_bytes(b"")
    os.truncate(path, 256_000_000)
    for _ in range(20):
        reader, writer = await dial()
        writer.write(framed(b"file:%s|256000000" % str(path).encode()))
        await reader.readexactly(100_000)
        writer.transport.abort()
    await until(lambda: not listener.connections)
    reader, writer = await dial()
    writer.write(framed(b"say:still here"))
    assert await answer(reader) == b"still here"
    assert not caplog.records


@on_uvloop
async def test_a_slow_reader_of_a_region_holds_one_piece_of_it(
    dial: Dial, listener: Listener, tmp_path: Path
) -> None:
    content = os.urandom(30_000_000)
    path = tmp_path / "segment"
    path.write_bytes(content)
    reader, writer = await dial()
    reader._transport.pause_reading()  # type: ignore[attr-defined]
    writer.write(framed(b"file:%s|%d" % (str(path).encode(), len(content))) * 2)
    await until(lambda: any(connection._outbox for connection in listener.connections))
    (connection,) = listener.connections
    assert connection._transport is not None
    assert connection._transport.get_write_buffer_size() <= PIECE
    path.unlink()
    reader._transport.resume_reading()  # type: ignore[attr-defined]
    assert await answer(reader) == content
    assert await closed(reader), "the second request found no file"


@on_uvloop
async def test_a_file_that_is_too_short_ends_the_connection(dial: Dial, tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(b"x" * 1000)
    reader, writer = await dial()
    writer.write(framed(b"file:%s|%d" % (str(path).encode(), 5000)))
    with pytest.raises(asyncio.IncompleteReadError):
        await answer(reader)


@on_uvloop
async def test_waiting_is_abandoned_only_where_that_is_safe(
    dial: Dial, listener: Listener, script: Scripted
) -> None:
    _, fetching = await dial()
    _, joining = await dial()
    fetching.write(framed(b"leave:fetch"))
    joining.write(framed(b"wait:join"))
    await until(lambda: len(script.started) == 2)
    fetching.transport.abort()
    joining.transport.abort()
    await until(lambda: not listener.connections)
    assert script.abandoned == ["fetch"]
    script.release("join")
    await until(lambda: not listener._tasks)
    assert script.abandoned == ["fetch"]


@on_uvloop
async def test_idle_connections_are_closed_and_waiting_ones_are_not() -> None:
    script = Scripted()
    async with serving(script, idle_s=0.2) as (listener, dial):
        idle_reader, _ = await dial()
        busy_reader, busy_writer = await dial()
        busy_writer.write(framed(b"wait:poll"))
        assert await closed(idle_reader)
        assert listener.idle_closed == 1
        script.release("poll")
        assert await answer(busy_reader) == b"poll"


@on_uvloop
async def test_limits_on_connections_per_address() -> None:
    async with serving(Scripted(), limits=ConnectionLimits(per_ip=lambda host: 3)) as (listener, dial):
        pairs = [await dial() for _ in range(4)]
        await until(lambda: listener.accepted == 4)
        assert await closed(pairs[3][0])
        pairs[0][1].write(framed(b"say:ok"))
        assert await answer(pairs[0][0]) == b"ok"
        pairs[1][1].close()
        await until(lambda: len(listener.connections) == 2)
        reader, writer = await dial()
        writer.write(framed(b"say:again"))
        assert await answer(reader) == b"again"


@on_uvloop
async def test_a_limit_on_all_connections() -> None:
    async with serving(Scripted(), limits=ConnectionLimits(2)) as (listener, dial):
        pairs = [await dial() for _ in range(3)]
        await until(lambda: listener.accepted == 3)
        assert await closed(pairs[2][0])
        pairs[1][1].write(framed(b"say:ok"))
        assert await answer(pairs[1][0]) == b"ok"


@on_uvloop
async def test_the_limit_on_all_connections_is_one_for_all_listeners() -> None:
    limits = ConnectionLimits(2)
    async with (
        serving(Scripted(), limits=limits) as (_, dial),
        serving(Scripted(), limits=limits) as (_, other),
    ):
        _ = await dial()
        _, writer = await other()
        await until(lambda: limits.count == 2)
        reader, _ = await other()
        assert await closed(reader)
        writer.close()
        await until(lambda: limits.count == 1)
    assert limits.count == 0


@on_uvloop
async def test_new_connections_above_the_rate_wait_for_their_turn() -> None:
    """KIP-612: what they ask is answered later; those that nobody could serve soon are closed."""
    script = Scripted()
    limits = ConnectionLimits(per_second=10, most_waiting=5)
    async with serving(script, limits=limits) as (listener, dial):
        loop = asyncio.get_running_loop()
        began = loop.time()
        pairs = [await dial() for _ in range(13)]
        for _, writer in pairs:
            writer.write(framed(b"say:x"))
        for reader, _ in pairs:
            assert await answer(reader) == b"x"
        assert loop.time() - began > 0.15, "ten at once, three wait a tenth of a second each"
        assert listener.throttled >= 2


@on_uvloop
async def test_connections_far_above_the_rate_are_closed() -> None:
    limits = ConnectionLimits(per_second=1, most_waiting=2)
    async with serving(Scripted(), limits=limits) as (listener, dial):
        pairs = [await dial() for _ in range(12)]
        await until(lambda: listener.accepted == 12)
        assert listener.refused_count >= 5
        assert await closed(pairs[-1][0])


@on_uvloop
async def test_large_requests_wait_for_memory_and_all_are_served() -> None:
    """KIP-72: what is taken in at once is the limit and at most one frame; a lost connection gives back."""
    script, size, limit = Scripted(), 300_000, 500_000
    memory = RequestMemory(limit)
    async with serving(script, memory=memory) as (listener, dial):
        frame = framed(b"say:" + b"x" * size)
        pairs = [await dial() for _ in range(6)]
        for _, writer in pairs:
            writer.write(frame[:-1])
        await until(lambda: memory.waiting == 4)
        assert memory.used == 2 * len(frame) <= limit + len(frame)
        reader, writer = await dial()
        writer.write(framed(b"say:small"))
        assert await answer(reader) == b"small", "small requests need none of it"
        await until(lambda: sum(c._buffer.capacity for c in listener.connections) >= 2 * len(frame))
        assert sum(c._buffer.capacity for c in listener.connections) < 2 * len(frame) + 6 * 3 * START
        holding = [c.info.peer_port for c in listener.connections if c._buffer.pending > 4 * START]
        lost, *others = sorted(pairs, key=lambda pair: _port(pair[1]) not in holding)
        lost[1].transport.abort()
        for _, writer in others:
            writer.write(frame[-1:])
        for reader, _ in others:
            assert len(await answer(reader)) == size
        assert (memory.used, memory.waiting) == (0, 0)


def _port(writer: asyncio.StreamWriter) -> int:
    return int(writer.get_extra_info("sockname")[1])


@on_uvloop
async def test_a_thousand_connections_hold_no_buffers_between_requests(
    listener: Listener, script: Scripted
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2200:
        pytest.skip("needs 2,200 file descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2200), hard))
    sockets: list[socket.socket] = []
    try:
        for _ in range(1000):
            sockets.append(socket.create_connection(("127.0.0.1", listener.port)))
            await asyncio.sleep(0)
        await until(lambda: len(listener.connections) == 1000)
        for number, sock in enumerate(sockets):
            # Every third is a slow one: it announces a megabyte and sends a few bytes.
            sock.sendall(framed(b"say:x") if number % 3 else (1024 * 1024).to_bytes(4, "big") + b"half")
        await until(lambda: len(script.started) == 666)
        held = sum(connection._buffer.capacity for connection in listener.connections)
        assert held <= 334 * 2 * START
        for number, sock in enumerate(sockets):
            if number % 3:
                assert sock.recv(5) == framed(b"x")
    finally:
        for sock in sockets:
            sock.close()
    await until(lambda: not listener.connections)


@on_uvloop
async def test_socket_buffers_and_settings_reach_accepted_connections() -> None:
    async with serving(Scripted(), buffers={socket.SO_RCVBUF: 50_000}, backlog=5) as (listener, dial):
        reader, writer = await dial()
        writer.write(framed(b"say:x"))
        await answer(reader)
        (connection,) = listener.connections
        assert connection._transport is not None
        accepted = connection._transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 100_000, "the kernel doubles it"


@on_uvloop
async def test_closing_the_listener_ends_connections_and_waiting(
    dial: Dial, listener: Listener, script: Scripted
) -> None:
    reader, writer = await dial()
    writer.write(framed(b"wait:never"))
    await until(lambda: bool(script.started))
    await listener.close()
    assert await closed(reader)
    assert script.abandoned == ["never"]
    with pytest.raises(ConnectionRefusedError):
        await dial()
