"""Connections over real sockets: limits on them, on their memory and their time, and the end of all."""

from __future__ import annotations

import asyncio
import resource
import socket

import pytest

from broker.server.connection_limits import ConnectionLimits
from broker.server.intake import START
from broker.server.listener import Listener
from broker.server.request_memory import RequestMemory
from tests.support.scripted_server import (
    Dial,
    Scripted,
    answer,
    closed,
    framed,
    on_uvloop,
    serving,
    until,
)


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
