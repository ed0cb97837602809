"""A TCP proxy that loses an answer when told: the request arrives, its reply does not, the peer is cut."""

import asyncio
from typing import Self


class LossyProxy:
    """Forwards 127.0.0.1:`port` to a target until told otherwise."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._marker: bytes | None = None
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._ends: set[asyncio.StreamWriter] = set()
        self._cut = False
        self._cut_after: tuple[int, bytes] | None = None
        self._taken = 0
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._asking = asyncio.Event()
        self._asking.set()
        self._awaited: dict[bytes, asyncio.Event] = {}
        self.port = 0
        self.lost = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def lose_answer_to(self, marker: bytes) -> None:
        """The next request with these bytes in it is delivered, its reply swallowed, the connection reset."""
        self._marker = marker

    def cut(self) -> None:
        """The network to the target is gone: all connections end, new ones are ended at once."""
        self._cut = True
        for end in self._ends:
            end.transport.abort()

    def cut_at(self, count: int, marker: bytes) -> None:
        """Cuts when the marker passes for the n-th time from now on."""
        self._cut_after, self._taken = (count, marker), 0

    def hold(self) -> None:
        """What the target says stays here, until `let_go`; what it is told goes on."""
        self._flowing.clear()

    def hold_requests(self) -> None:
        """What the target is told stays here, until `let_go`; what it says goes on."""
        self._asking.clear()

    def let_go(self) -> None:
        self._flowing.set()
        self._asking.set()

    def passing(self, marker: bytes) -> asyncio.Event:
        """Set once a request with these bytes in it has been passed on."""
        return self._awaited.setdefault(marker, asyncio.Event())

    def mend(self) -> None:
        """The network is back."""
        self._cut, self._cut_after = False, None

    def _passes(self, data: bytes) -> None:
        if self._cut_after is not None and self._cut_after[1] in data:
            self._taken += 1
            if self._taken >= self._cut_after[0]:
                self._cut_after = None
                self.cut()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        ends = {writer}
        self._ends |= ends
        answers: asyncio.Task[None] | None = None
        losing = asyncio.Event()
        try:
            there, back = await asyncio.open_connection(*self._target)
            ends.add(back)
            self._ends |= ends
            if self._cut:
                return
            answers = asyncio.create_task(self._answers(there, writer, losing))
            while data := await reader.read(65536):
                if self._marker is not None and self._marker in data:
                    self._marker = None
                    losing.set()
                await self._asking.wait()
                self._passes(data)
                back.write(data)
                await back.drain()
                for marker in [each for each in self._awaited if each in data]:
                    self._awaited.pop(marker).set()
        except OSError:
            pass
        finally:
            self._ends -= ends
            for each in ends:
                each.transport.abort()
            if answers is not None:
                answers.cancel()
                await asyncio.gather(answers, return_exceptions=True)

    async def _answers(
        self, there: asyncio.StreamReader, writer: asyncio.StreamWriter, losing: asyncio.Event
    ) -> None:
        try:
            while data := await there.read(65536):
                if losing.is_set():
                    self.lost += 1
                    break
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.transport.abort()
