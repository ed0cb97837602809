"""Real sockets through the simulated network: time, order, cuts, ends, and the commands' socket."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop

from topology.network.control import NetworkControl, NetworkRefused, ask
from topology.network.line import LineSettings
from topology.network.network import Network
from topology.network.relay import HOST, Route

BOUND_S = 40.0


class Here:
    """A server in site `b` that echoes, and the port where site `a` reaches it."""

    def __init__(
        self, network: Network, server: asyncio.Server, accepted: list[asyncio.StreamWriter]
    ) -> None:
        self.network = network
        self.server = server
        self.accepted = accepted

    @property
    def port(self) -> int:
        return self.network.relays[0].port


@asynccontextmanager
async def echo(**settings: float | None) -> AsyncIterator[Here]:
    accepted: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(writer)
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
            writer.write_eof()
        except OSError:
            pass
        writer.close()

    server = await asyncio.start_server(serve, HOST, 0)
    line = LineSettings(**settings)  # type: ignore[arg-type]
    network = Network(["a", "b"], {("a", "b"): line, ("b", "a"): line})
    await network.open([Route("echo", "a", "b", 0, server.sockets[0].getsockname()[1])])
    try:
        yield Here(network, server, accepted)
    finally:
        await network.close()
        server.close()
        for writer in accepted:
            writer.transport.abort()
        await server.wait_closed()


async def test_an_answer_takes_a_round_trip_and_the_first_one_two() -> None:
    async with echo(delay_s=0.05) as here:
        start = time.monotonic()
        reader, writer = await asyncio.open_connection(HOST, here.port)
        for round_trips in (2, 3):
            writer.write(b"x")
            assert await asyncio.wait_for(reader.read(1), BOUND_S) == b"x"
            assert time.monotonic() - start >= round_trips * 0.1 - 0.002
        writer.close()


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_megabytes_arrive_unchanged_and_the_end_does_too(loop: str) -> None:
    content = bytes(range(256)) * 4 * 8192

    async def send() -> None:
        async with echo(delay_s=0.002, jitter_s=0.002, loss=0.0005) as here:
            reader, writer = await asyncio.open_connection(HOST, here.port)
            writer.write(content)
            writer.write_eof()
            assert await asyncio.wait_for(reader.read(-1), BOUND_S) == content
            writer.close()

    factory = uvloop.new_event_loop if loop == "uvloop" else None
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(send())


async def test_bandwidth_is_kept() -> None:
    async with echo(bandwidth=2e6) as here:
        reader, writer = await asyncio.open_connection(HOST, here.port)
        start = time.monotonic()
        writer.write(bytes(1_000_000))
        await asyncio.wait_for(reader.readexactly(1_000_000), BOUND_S)
        assert time.monotonic() - start >= 0.45
        writer.close()


async def test_over_a_cut_link_nothing_comes_and_nobody_is_told_until_it_is_healed() -> None:
    async with echo() as here:
        network = here.network
        reader, writer = await asyncio.open_connection(HOST, here.port)
        writer.write(b"1")
        assert await asyncio.wait_for(reader.read(1), BOUND_S) == b"1"
        network.change(network.pairs("a", "b", both=False), up=False)
        writer.write(b"2")
        late_reader, late = await asyncio.open_connection(HOST, here.port)
        late.write(b"3")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.3)
        assert len(here.accepted) == 1
        network.change(network.pairs("a", "b", both=False), up=True)
        assert await asyncio.wait_for(reader.read(1), BOUND_S) == b"2"
        assert await asyncio.wait_for(late_reader.read(1), BOUND_S) == b"3"
        for each in (writer, late):
            each.close()


async def test_one_way_cut_lets_requests_through_and_no_answers() -> None:
    async with echo() as here:
        network = here.network
        network.change(network.pairs("b", "a", both=False), up=False)
        reader, writer = await asyncio.open_connection(HOST, here.port)
        async with asyncio.timeout(BOUND_S):
            while not here.accepted:  # the handshake arrives; its answer does not
                await asyncio.sleep(0.01)
        writer.write(b"x")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.2)
        network.change(network.pairs(None, None, both=False), up=True)
        assert await asyncio.wait_for(reader.read(1), BOUND_S) == b"x"
        writer.close()


async def test_a_client_that_gave_up_during_a_cut_is_forgotten() -> None:
    async with echo() as here:
        network = here.network
        network.change(network.pairs("a", None, both=True), up=False)
        _, writer = await asyncio.open_connection(HOST, here.port)
        writer.close()
        relay = network.relays[0]
        async with asyncio.timeout(BOUND_S):
            while relay.connections:
                await asyncio.sleep(0.01)
        assert here.accepted == []


async def test_refusal_and_reset_come_back() -> None:
    async with echo(delay_s=0.001) as here:
        reader, writer = await asyncio.open_connection(HOST, here.port)
        writer.write(b"x")
        await asyncio.wait_for(reader.read(1), BOUND_S)
        here.accepted[0].transport.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0"
        )
        here.accepted[0].transport.abort()
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(reader.readexactly(1), BOUND_S)
        here.server.close()
        reader, writer = await asyncio.open_connection(HOST, here.port)
        writer.write(b"x")
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await asyncio.wait_for(reader.readexactly(1), BOUND_S)


async def test_commands_see_and_change_the_links(tmp_path: Path) -> None:
    async with echo(delay_s=0.01) as here:
        changes = 0

        def changed() -> None:
            nonlocal changes
            changes += 1

        path = tmp_path / "s"
        control = NetworkControl(here.network, path, changed)
        await control.open()
        shown = await ask(path, {"do": "show", "from": "a", "to": None, "both": False})
        assert [(item["from"], item["to"], item["delay_ms"], item["up"]) for item in shown] == [
            ("a", "b", 10.0, True)
        ]
        cut = await ask(
            path, {"do": "set", "from": "a", "to": "b", "both": True, "changes": {"up": False, "loss": 0.5}}
        )
        assert [(item["up"], item["loss"]) for item in cut] == [(False, 0.5)] * 2
        kept = Network(["a", "b", "c"], {})
        kept.restore(here.network.state())
        assert kept.lines["b", "a"].settings == LineSettings(delay_s=0.01, loss=0.5, up=False)
        assert kept.lines["a", "c"].settings == LineSettings()
        back = await ask(path, {"do": "reset", "from": None, "to": None, "both": False})
        assert all(item["up"] and item["loss"] == 0 and item["delay_ms"] == 10 for item in back)
        assert changes == 2
        for request, complaint in (
            ({"do": "show", "from": "c"}, "there is no site 'c': the sites are a, b"),
            ({"do": "set", "changes": {"speed": 1}}, "no setting speed"),
            ({"do": "dance"}, "no request 'dance'"),
        ):
            with pytest.raises(NetworkRefused, match=complaint):
                await ask(path, request)
        await control.close()
