"""A listener whose answers are scripted, on the loop that the broker runs on, and clients to it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import uvloop

from broker.log.files import OpenFile
from broker.log.region import FileRegion
from broker.server.answer_order import Deferred, Outcome, Pending, Segments
from broker.server.context import ConnectionInfo
from broker.server.edge import CloseConnectionError
from broker.server.listener import Listener

BOUND_S = 30.0


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


class News(Deferred):
    """Each `wake` is an attempt, until `script.outcomes` of its name has something else than None."""

    def __init__(self, script: Scripted, name: str) -> None:
        self.script = script
        self.name = name
        self.attempts = 0

    def begin(self, wake: Callable[[], None]) -> None:
        self.wake = wake

    def attempt(self) -> Any:
        self.attempts += 1
        outcome = self.script.outcomes.get(self.name)
        return self if outcome is None else outcome()

    def cancel(self) -> None:
        self.script.abandoned.append(self.name)


class Scripted:
    """Answers `say:x` with x at once, `wait:x` when x is released, `over:x` too but lets others pass,
    `news:x` when its `News` says so, and after `last:x` the connection ends.
    """

    def __init__(self) -> None:
        self.news: dict[str, News] = {}
        self.outcomes: dict[str, Callable[[], Outcome]] = {}
        self.gates: dict[str, asyncio.Event] = {}
        self.started: list[str] = []
        self.abandoned: list[str] = []

    def release(self, name: str) -> None:
        self.gates.setdefault(name, asyncio.Event()).set()

    def serve(self, frame: memoryview, connection: ConnectionInfo) -> Outcome:
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
        if verb == "news":
            return self.news.setdefault(rest, News(self, rest))
        if verb == "last":
            return Pending(self.later(rest), last=True)
        if verb in ("wait", "over", "leave"):
            return Pending(self.later(rest), pipelined=verb == "over", abandoned_on_close=verb == "leave")
        if verb == "fail":
            return Pending(self._fail())
        raise CloseConnectionError(f"no verb {verb!r}")

    async def later(self, name: str) -> Segments:
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
