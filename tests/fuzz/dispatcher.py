"""A live broker behind a socket: whatever is sent, one connection ends or is answered, nothing else happens.

Input: frames, each with its length, as a client sends them; what does not read as frames is one frame.
After each input: no handler has raised, the connection is answered or closed, and a bystander is answered.
"""

from __future__ import annotations

import asyncio
import atexit
import shutil
import tempfile
from contextlib import AsyncExitStack, suppress
from pathlib import Path

from broker.server.app import Broker
from tests.support.lone_broker import lone_broker

_BYSTANDER = b"\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x07\xff\xff"
_ANSWER_S = 20.0
_QUIET_S = 0.3
_NEEDS_A_CONTROLLER = frozenset({4, 5, 6, 19, 20, 32, 33, 37, 43, 44, 45, 46})
"""Admin requests and a controller's orders: this broker has no controller, so they fail here by design.
`tests/cluster/test_bad_input.py` sends nonsense of every key to a whole broker."""


class Live:
    """One broker for all inputs of a process."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.stack = AsyncExitStack()
        self.directory = tempfile.mkdtemp(prefix="fuzz-dispatcher-")
        self.broker: Broker
        self.port = 0
        self.loop.run_until_complete(self._start())
        self.failed = 0
        atexit.register(self.close)

    async def _start(self) -> None:
        self.broker, topics, self.port = await self.stack.enter_async_context(
            lone_broker(Path(self.directory), auto_create_topics_enable="true")
        )
        topics.create("fuzz", 2)
        topics.create("compacted", 1, cleanup_policy="compact")

    def close(self) -> None:
        if not self.loop.is_closed():
            with suppress(Exception):
                self.loop.run_until_complete(self.stack.aclose())
            self.loop.close()
            shutil.rmtree(self.directory, ignore_errors=True)

    async def send(self, data: bytes) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        with suppress(ConnectionError):
            writer.write(data)
            writer.write_eof()
            with suppress(TimeoutError):
                async with asyncio.timeout(_QUIET_S):
                    while await reader.read(1 << 16):
                        pass
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    async def bystander(self) -> None:
        async with asyncio.timeout(_ANSWER_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            writer.write(_BYSTANDER)
            size = int.from_bytes(await reader.readexactly(4), "big")
            await reader.readexactly(size)
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


_live: list[Live] = []


def one(data: bytes) -> None:
    if not _live:
        _live.append(Live())
    live = _live[0]
    live.loop.run_until_complete(live.send(as_frames(data)))
    live.loop.run_until_complete(live.bystander())
    failures = sum(
        count for key, count in live.broker.dispatcher.failures.items() if key not in _NEEDS_A_CONTROLLER
    )
    new, live.failed = failures - live.failed, failures
    assert not new, f"a handler raised: {live.broker.dispatcher.failures}"


def close() -> None:
    while _live:
        _live.pop().close()


def as_frames(data: bytes) -> bytes:
    """`data`, if it begins with a plausible length, else as one frame."""
    if len(data) >= 4 and int.from_bytes(data[:4], "big") <= len(data):
        return data
    return len(data).to_bytes(4, "big") + data
